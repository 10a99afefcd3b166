//! Collection: the kernel takes the programs, samples arrive, and every sum closes.

use std::process::Command;
use std::time::{Duration, Instant};

use hbbp_collect::choice::Choice;
use hbbp_collect::object::{Constants, MapSizes, Messages, Object};
use hbbp_collect::{ClassCounting, Collector, ModuleWatch, Plan, Scope};
use hbbp_model::addr::{Ring, Va};
use hbbp_model::record::Record;
use hbbp_model::slices::{Rings, SliceCut};
use hbbp_model::snapshot::Period;
use hbbp_model::streams::ThreadCounts;

use super::load::Load;
use super::{BpfStats, kernel};

fn plan(scope: Scope) -> Plan {
    Plan {
        scope,
        choice: Choice::default(),
        threads: ThreadCounts::Together,
        modules: ModuleWatch::Told,
        map_entries: None,
        messages: Messages::Off,
        classes: ClassCounting::On,
    }
}

#[test]
fn samples_are_counted_and_the_sums_close() {
    let Some(_kernel) = kernel() else { return };
    let _stats = BpfStats::set("1");
    let _loads = [Load::spin(), Load::syscalls()];
    let mut collector = Collector::open(&plan(Scope::System)).unwrap();
    collector.enable().unwrap();
    let mut entries = Vec::new();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        entries.extend(collector.drain().unwrap().iter().flatten());
    }
    collector.stop().unwrap();
    entries.extend(collector.drain().unwrap().iter().flatten());
    let totals = collector.take_totals().unwrap();

    let hits: u64 = entries.iter().map(|(_, tally)| tally.hits).sum();
    let event = &totals.events[0];
    let lost = totals.losses.total(hbbp_model::snapshot::loss::LossUnit::Sample);
    assert_eq!(
        hits + lost,
        event.runs,
        "counted and lost samples make up the runs"
    );
    assert_eq!(
        event.counters.iter().map(|c| c.runs.unwrap()).sum::<u64>(),
        event.runs,
        "CPUs make up the event"
    );
    assert_eq!(
        run_count("on_ip_0"),
        event.runs,
        "the kernel counted as many runs of the program"
    );
    let due = event.due().unwrap();
    assert!(
        event.runs <= due + event.counters.len() as u64,
        "{} runs of {due} that were due",
        event.runs
    );
    let rings = |ring| {
        entries
            .iter()
            .filter(|(key, _)| Va(key.address).ring() == ring)
            .count()
    };
    assert!(
        0 < rings(Ring::Kernel) && 0 < rings(Ring::User),
        "both rings were seen"
    );
    assert!(
        entries
            .iter()
            .all(|(_, tally)| 0 < tally.first_time && tally.hits <= tally.weight)
    );
}

#[test]
fn kernel_samples_have_their_process() {
    let Some(_kernel) = kernel() else { return };
    let load = Load::syscalls();
    let mut collector = Collector::open(&plan(Scope::Process(load.0.id()))).unwrap();
    collector.enable().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    collector.stop().unwrap();
    let entries: Vec<_> = collector.drain().unwrap().iter().flatten().collect();
    assert!(!entries.is_empty());
    assert!(
        entries.iter().all(|(key, _)| key.tgid == load.0.id()),
        "only the process was sampled"
    );
    assert!(
        entries
            .iter()
            .any(|(key, _)| Va(key.address).ring() == Ring::Kernel)
    );
}

#[test]
fn call_chains_have_the_weight_of_their_samples() {
    let Some(_kernel) = kernel() else { return };
    let _loads = [Load::spin(), Load::syscalls()];
    let mut with_callers = plan(Scope::System);
    with_callers.choice.callers = true;
    let mut collector = Collector::open(&with_callers).unwrap();
    collector.enable().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    collector.stop().unwrap();
    let chains = collector.drain_chains().unwrap();
    let totals = collector.take_totals().unwrap();
    assert!(
        chains.iter().any(|chain| 1 < chain.tally.hits),
        "no chain came twice"
    );
    for chain in &chains {
        if let Period::Fixed(period) = totals.events[chain.event as usize].period {
            assert_eq!(chain.tally.weight, chain.tally.hits * period, "{chain:?}");
        }
    }
}

#[test]
fn first_sample_is_in_the_first_slice() {
    let Some(_kernel) = kernel() else { return };
    let load = Load::spin();
    // As long as a period, so that a sample which counts before it is looked at leaves no first slice.
    let length = 10_000_019;
    let sliced = Plan {
        choice: Choice {
            event: Some("cpu-clock".to_owned()),
            period: Some(Period::Fixed(length)),
            slices: Some(SliceCut {
                length,
                rings: Rings {
                    user: true,
                    kernel: true,
                },
                threads: ThreadCounts::Together,
            }),
            ..Choice::default()
        },
        ..plan(Scope::Process(load.0.id()))
    };
    let mut collector = Collector::open(&sliced).unwrap();
    collector.enable().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    collector.stop().unwrap();
    collector.drain().unwrap();
    let mut found = Vec::new();
    let slices = collector.take_slices().unwrap();
    slices.each(|_, slice, _| found.push(slice));
    assert_eq!(found.first(), Some(&0), "{found:?}");
}

#[test]
fn exec_starts_a_new_image_of_the_process() {
    let Some(_kernel) = kernel() else { return };
    let spin = "exec 3<>/dev/null; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut collector = Collector::open(&plan(Scope::System)).unwrap();
    collector.enable().unwrap();
    let child = Command::new("bash")
        .args(["-c", &format!("{spin}; exec bash -c '{spin}'")])
        .spawn();
    let mut child = child.unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let entries: Vec<_> = collector.drain().unwrap().iter().flatten().collect();
    let mut images: Vec<u32> = entries
        .iter()
        .filter(|(key, _)| key.tgid == pid)
        .map(|(key, _)| key.exec_id)
        .collect();
    images.sort_unstable();
    images.dedup();
    // The fork of this test's own image may be sampled before the first exec.
    assert!(images.len() == 2 || images.len() == 3, "{images:?}");
    let reading = collector.records().unwrap();
    assert_eq!(reading.unread, 0);
    let execs = reading
        .records
        .iter()
        .filter(|timed| matches!(&timed.record, Record::Comm { pid: who, exec: true, .. } if *who == pid));
    assert_eq!(execs.count(), 2, "the sideband reports both execs");
}

#[test]
fn full_count_map_is_counted() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::syscalls()];
    let mut collector = Collector::open(&Plan {
        map_entries: Some(64),
        ..plan(Scope::System)
    })
    .unwrap();
    collector.enable().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    collector.stop().unwrap();
    let entries: Vec<_> = collector.drain().unwrap().iter().flatten().collect();
    let totals = collector.take_totals().unwrap();
    let hits: u64 = entries.iter().map(|(_, tally)| tally.hits).sum();
    let full = totals.losses.get(hbbp_model::snapshot::Loss::CountsFull);
    assert!(0 < full, "64 entries cannot hold the kernel's code");
    assert_eq!(
        hits + totals.losses.total(hbbp_model::snapshot::loss::LossUnit::Sample),
        totals.events[0].runs
    );
}

#[test]
fn live_text_shows_what_the_kernel_patches() {
    let Some(_kernel) = kernel() else { return };
    let mut collector = Collector::open(&plan(Scope::System)).unwrap();
    let window = collector.text_window().unwrap();
    let symbols = hbbp_resolve::kernel::kallsyms::read_kallsyms().unwrap();
    let (start, end) = (symbols.image.stext.unwrap(), symbols.image.etext.unwrap());
    let read = |window: &hbbp_collect::text::TextWindow| {
        let mut text = vec![0; usize::try_from(end.since(start).unwrap()).unwrap()];
        let began = Instant::now();
        assert!(window.read(start, &mut text));
        println!("{} MiB of kernel text in {:?}", text.len() >> 20, began.elapsed());
        text
    };
    let off = BpfStats::set("0");
    let before = read(&window);
    drop(off);
    let _on = BpfStats::set("1");
    let after = read(&window);
    let differ = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(
        0 < differ && differ < 10_000,
        "{differ} bytes differ after a static key was switched"
    );
    assert!(
        !window.read(Va(0x1000), &mut [0; 8]),
        "user addresses are refused"
    );
}

/// How often the kernel started the newest program of that name, by its own statistics.
fn run_count(name: &str) -> u64 {
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let named = programs.filter(|program| program.name_as_str() == Some(name));
    named
        .max_by_key(|program| program.loaded_at())
        .unwrap()
        .run_count()
}

#[test]
fn programs_all_load() {
    let Some(_kernel) = kernel() else { return };
    for messages in [Messages::Off, Messages::On] {
        let constants = Constants {
            messages,
            ..Constants::default()
        };
        let mut object = Object::load(constants, MapSizes::default()).unwrap();
        let _log = (messages == Messages::On).then(|| object.take_log().unwrap());
        for event in 0..hbbp_ebpf::MAX_EVENTS {
            object.on_ip(event).unwrap();
            object.on_chain(event).unwrap();
            object.on_branch(event).unwrap();
        }
        object.read_text().unwrap();
        object.on_burst().unwrap();
        // A kernel without modules has no tracepoints of theirs; the emulated machine has both.
        if std::path::Path::new("/proc/modules").exists() {
            object.attach_modules().unwrap();
        }
    }
}

#[test]
fn verbose_programs_say_what_they_refuse() {
    let Some(_kernel) = kernel() else { return };
    let _loads = [Load::syscalls(), Load::syscalls()];
    let full = ["--duration", "1", "--map-entries", "64"];
    let quiet = super::run(&full);
    let verbose = super::run(&[&full[..], &["--verbose"]].concat());
    assert!(
        quiet.status.success() && verbose.status.success(),
        "{quiet:?} {verbose:?}"
    );
    let message = "no space for the sample at";
    let said =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).matches(message).count();
    assert_eq!(said(&quiet), 0, "{quiet:?}");
    let n = said(&verbose);
    println!("{n} messages: {}", String::from_utf8_lossy(&verbose.stderr));
    // The first, second, fourth .. on each CPU.
    assert!((1..200).contains(&n), "{verbose:?}");
}
