//! The resolver on real processes of this machine: programs that are compiled here, run, and are looked at from
//! outside, as the collector does.
//!
//! Each program prints the address of its code and then waits, so that a sample there can be made up.

#![expect(clippy::expect_used, reason = "helpers of a test may end it")]

mod apart;
mod chains;
mod hostile;
mod patched;
mod program;
mod recorded;
mod threads;

use hbbp_testing::skip;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hbbp_elf::build_id::read_kernel_build_id;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{BuildId, FileIdentity, Mmap, Record, Timed};
use hbbp_model::snapshot::{Event, EventIdx, Loss, ModuleKind, Run, Snapshot, Text};
use hbbp_resolve::Resolver;
use hbbp_resolve::kernel::kallsyms::{Kallsyms, read_kallsyms};
use hbbp_resolve::kernel::map::KernelMap;
use hbbp_resolve::kernel::reader::KernelText;
use hbbp_resolve::kernel::space::KernelSpace;
use hbbp_resolve::raw::{Raw, RawInterval, Sort, TaskKey};

use program::{COMPILER, NARROW, PROGRAM, Running, compile};

fn no_kernel() -> KernelSpace {
    KernelSpace::new(KernelText::None, KernelMap::default())
}

fn ip(tgid: u32, first_time: u64, at: u64) -> Raw {
    Raw {
        task: TaskKey { tgid, exec_id: 2 },
        tid: 0,
        first_time,
        sort: Sort::Ip { exact: false },
        event: EventIdx(0),
        start: Va(at),
        end: Va(at),
        source: Va(0),
        hits: 1,
        weight: 1,
    }
}

fn run() -> Run {
    Run {
        events: vec![Event::default()],
        ..Run::default()
    }
}

fn snapshot(mut resolver: Resolver) -> Snapshot {
    resolver.catch_up();
    let snapshot = resolver.take(run(), |_| "");
    snapshot.check().expect("a consistent snapshot");
    snapshot
}

/// The text that the snapshot holds at an address of its process `idx`, from that address on.
fn text_at(snapshot: &Snapshot, idx: u32, at: u64) -> Option<(&Text, Vec<u8>)> {
    let process = &snapshot.processes[idx as usize];
    let mapping = process
        .mappings
        .iter()
        .find(|m| m.start.0 <= at && at < m.end.0)?;
    let image_at = at - mapping.start.0 + mapping.image_start.0;
    let holds = |t: &&Text| {
        t.module == mapping.module && t.start.0 <= image_at && image_at < t.start.0 + t.bytes.len() as u64
    };
    let text = snapshot.text.iter().find(holds)?;
    let skip = usize::try_from(image_at - text.start.0).expect("short");
    Some((text, text.bytes[skip..].to_vec()))
}

fn memory(tgid: u32, at: u64, len: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(format!("/proc/{tgid}/mem")).expect("own child");
    file.read_exact_at(&mut bytes, at).expect("mapped");
    bytes
}

#[test]
fn every_sort_of_program() {
    let sorts: [(&str, &[&str], ModuleKind); 5] = [
        ("pie", &["-fPIE", "-pie"], ModuleKind::Elf64),
        ("fixed", &["-no-pie"], ModuleKind::Elf64),
        ("static", &["-static"], ModuleKind::Elf64),
        ("stripped", &["-s"], ModuleKind::Elf64),
        (
            "bare",
            &["-m32", "-nostdlib", "-static", "-ffreestanding"],
            ModuleKind::Elf32,
        ),
    ];
    for (name, flags, kind) in sorts {
        let source = if name == "bare" { NARROW } else { PROGRAM };
        let Some(program) = compile(name, source, flags) else {
            continue;
        };
        let running = Running::start(&program, 1);
        let (tgid, spin) = (running.child.id(), running.addresses[0]);
        let mut resolver = Resolver::new(no_kernel(), &[running.scanned()]);
        resolver.drained(vec![RawInterval {
            start: 1,
            end: 9,
            counts: vec![ip(tgid, 5, spin + 1)],
        }]);
        let snapshot = snapshot(resolver);
        let (text, bytes) = text_at(&snapshot, 1, spin).expect("its text");
        assert_eq!(bytes, memory(tgid, spin, bytes.len()), "{name}");
        let module = &snapshot.modules[text.module.0 as usize];
        assert_eq!(
            (module.kind, module.name.as_str()),
            (kind, program.to_str().expect("UTF-8"))
        );
        let symbol = module.symbols.first().expect("a function");
        assert_eq!(
            symbol.start, text.start,
            "{name}: the text range starts with the function"
        );
        assert!(
            symbol.name == "spin" || name == "stripped",
            "{name}: {}",
            symbol.name
        );
        assert_eq!(snapshot.processes[1].comm, name);
        assert_eq!(snapshot.losses.iter().count(), 0, "{name}");
    }
}

#[test]
fn a_deleted_program_that_has_ended_was_opened_in_time() {
    let Some(program) = compile("deleted", PROGRAM, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 1);
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    std::fs::remove_file(&program).expect("delete");
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let mut records = vec![
        Timed {
            time: 10,
            record: Record::Fork {
                pid: tgid,
                tid: tgid,
                parent_pid: 1,
            },
        },
        Timed {
            time: 20,
            record: Record::Comm {
                pid: tgid,
                tid: tgid,
                comm: "deleted".into(),
                exec: true,
            },
        },
    ];
    let scanned = running.scanned();
    records.extend(scanned.mappings.into_iter().map(|m| Timed {
        time: 30,
        record: Record::Mmap(m),
    }));
    // Rings of other CPUs are read later: the order must not matter.
    records.reverse();
    resolver.apply(records);
    running.end();
    resolver.apply([Timed {
        time: 50,
        record: Record::Exit { pid: tgid, tid: tgid },
    }]);
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 90,
        counts: vec![ip(tgid, 40, spin + 4)],
    }]);
    let snapshot = snapshot(resolver);
    let (text, _) = text_at(&snapshot, 1, spin).expect("its text");
    let module = &snapshot.modules[text.module.0 as usize];
    assert_eq!(module.symbols[0].name, "spin");
    assert!(!module.name.contains("(deleted)"));
}

/// A process of a container lives too short for its file to be opened through it; its parent sees the same files.
#[test]
fn a_file_that_only_relatives_see() {
    const GONE: u32 = 4_100_000;
    let Some(program) = compile("contained", PROGRAM, &["-static"]) else {
        return;
    };
    let folder = program.parent().expect("a folder of its own");
    let mut parent = Command::new("chroot");
    let parent = parent.arg(folder).arg("/contained").stdout(Stdio::piped());
    let Some(parent) = Running::of_command(parent, folder, 1) else {
        return skip::skip("chroot needs root");
    };
    let (tgid, spin) = (parent.child.id(), parent.addresses[0]);
    let scanned = parent.scanned();
    let mut mmap = scanned
        .mappings
        .iter()
        .find(|m| m.path.contains("contained"))
        .expect("it runs")
        .clone();
    // The file was mapped by a child, which is gone, and looks like another one from where we are.
    mmap.pid = GONE;
    mmap.path = "/contained".into();
    let records = [
        Record::Fork {
            pid: GONE,
            tid: GONE,
            parent_pid: tgid,
        },
        Record::Comm {
            pid: GONE,
            tid: GONE,
            comm: "gone".into(),
            exec: true,
        },
        Record::Mmap(mmap),
    ];
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    resolver.apply(
        records
            .into_iter()
            .zip(10..)
            .map(|(record, time)| Timed { time, record }),
    );
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 90,
        counts: vec![ip(GONE, 40, spin)],
    }]);
    let snapshot = snapshot(resolver);
    assert!(text_at(&snapshot, 1, spin).is_some(), "{:?}", snapshot.losses);
}

#[test]
fn code_without_a_file_is_copied_while_its_process_lives() {
    let Some(program) = compile("compiler", COMPILER, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 2);
    let (tgid, shared, plain) = (running.child.id(), running.addresses[0], running.addresses[1]);
    let scanned = running.scanned();
    let ips = || vec![ip(tgid, 5, shared + 3), ip(tgid, 5, plain + 3)];
    let mut resolver = Resolver::new(no_kernel(), std::slice::from_ref(&scanned));
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: ips(),
    }]);
    let alive = snapshot(resolver);
    for (at, name) in [(shared, "/memfd:jit"), (plain, "[anon]")] {
        let (text, bytes) = text_at(&alive, 1, at).expect("its text");
        assert_eq!(bytes[..4], [0x90; 4]);
        assert_eq!(alive.modules[text.module.0 as usize].name, name);
    }
    running.end();
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: ips(),
    }]);
    let late = snapshot(resolver);
    assert!(text_at(&late, 1, plain).is_none());
    assert_eq!(late.losses.get(Loss::ProcessGone), 1);
    assert_eq!(late.losses.get(Loss::FileMissing), 1);
    assert_eq!(
        late.intervals[0].ips.len(),
        2,
        "counts are kept, whatever is lost"
    );
}

/// One snapshot after the other, of one resolver: each has the text of its own time, whether or not it changed since.
#[test]
fn snapshots_follow_each_other() {
    let Some(program) = compile("compiler", COMPILER, &[]) else {
        return;
    };
    let running = Running::start(&program, 2);
    let (tgid, shared, plain) = (running.child.id(), running.addresses[0], running.addresses[1]);
    let main = running.scanned();
    let main = main.mappings.iter().find(|m| m.path.ends_with("compiler"));
    let main = main.expect("its program").start.0;
    let mut resolver = Resolver::new(no_kernel(), &[running.scanned()]);
    let mut hit = |start: u64, at: &[u64]| {
        resolver.drained(vec![RawInterval {
            start,
            end: start + 9,
            counts: at.iter().map(|at| ip(tgid, start + 4, *at)).collect::<Vec<_>>(),
        }]);
        let snapshot = resolver.take(run(), |_| "");
        snapshot.check().expect("a consistent snapshot");
        snapshot
    };
    let first = hit(1, &[shared + 3, plain + 3]);
    let second = hit(11, &[plain + 3, main]);
    let third = hit(21, &[]);
    let fourth = hit(31, &[plain + 3]);
    let n_rows = |snapshot: &Snapshot| snapshot.intervals.iter().map(|i| i.ips.len()).sum::<usize>();
    assert_eq!([&first, &second, &third, &fourth].map(n_rows), [2, 2, 0, 1]);
    assert!(text_at(&first, 1, shared).is_some() && text_at(&first, 1, main).is_none());
    assert!(text_at(&second, 1, shared).is_none() && text_at(&second, 1, main).is_some());
    assert_eq!(
        (third.processes.len(), third.text.len()),
        (1, 0),
        "the kernel alone"
    );
    for snapshot in [&first, &second, &fourth] {
        let (text, bytes) = text_at(snapshot, 1, plain).expect("its text");
        assert_eq!((bytes[..4].to_vec(), text.since), (vec![0x90; 4], 0));
        assert_eq!(snapshot.losses.iter().count(), 0, "{:?}", snapshot.losses);
    }
}

#[test]
fn a_replaced_program_is_not_read() {
    let Some(program) = compile("replaced", PROGRAM, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 1);
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    let scanned = running.scanned();
    running.end();
    std::fs::copy("/bin/true", program.with_extension("new")).expect("copy");
    std::fs::rename(program.with_extension("new"), &program).expect("replace");
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: vec![ip(tgid, 5, spin)],
    }]);
    let snapshot = snapshot(resolver);
    assert!(text_at(&snapshot, 1, spin).is_none());
    assert_eq!(snapshot.losses.get(Loss::FileChanged), 1);
}

#[test]
fn unknown_processes_and_addresses_keep_their_counts() {
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let ips = vec![
        ip(4_000_000, 5, 0x1234),
        ip(0, 5, 0xffff_ffff_8100_0000),
        ip(4_000_001, 5, u64::MAX),
    ];
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: ips,
    }]);
    resolver.apply([Timed {
        time: 11,
        record: Record::Lost(3),
    }]);
    let hostile = Mmap {
        pid: 77,
        start: Va(u64::MAX),
        len: u64::MAX,
        offset: FileOff(u64::MAX),
        identity: FileIdentity::BuildId(BuildId::new(&[]).unwrap()),
        shared: false,
        path: "/dev/zero".into(),
    };
    resolver.apply([Timed {
        time: 12,
        record: Record::Mmap(hostile),
    }]);
    resolver.drained(vec![RawInterval {
        start: 10,
        end: 19,
        counts: Vec::new(),
    }]);
    let snapshot = snapshot(resolver);
    assert_eq!(snapshot.intervals[0].ips.iter().map(|c| c.hits).sum::<u64>(), 3);
    assert_eq!(snapshot.processes.len(), 3, "the kernel and two unknown tasks");
    assert_eq!(snapshot.losses.get(Loss::SidebandLost), 3);
    assert_eq!(snapshot.losses.get(Loss::TextWithoutSource), 2);
}

/// A run in which the first byte of `idle` is patched twice: once silently, and once with a record.
fn patched_twice(symbols: Kallsyms, idle: Va) -> Snapshot {
    let mut map = KernelMap::default();
    map.update(symbols, &[], None, 0);
    // A kernel whose first byte here is patched.
    let byte = Arc::new(AtomicU8::new(1));
    let shown = Arc::clone(&byte);
    let patched = move |_: Va, bytes: &mut [u8]| {
        bytes.fill(0x90);
        bytes[0] = shown.load(Ordering::Relaxed);
        true
    };
    let mut resolver = Resolver::new(KernelSpace::new(KernelText::Probe(Box::new(patched)), map), &[]);
    let ips = |first_times: &[u64]| {
        let ip = |first_time: &u64| Raw {
            task: TaskKey::KERNEL,
            ..ip(0, *first_time, idle.0)
        };
        first_times.iter().map(ip).collect()
    };
    let mut drain = |time: std::ops::Range<u64>, ips: Vec<Raw>, told: Option<Timed>| {
        resolver.apply(told);
        resolver.drained(vec![RawInterval {
            start: time.start,
            end: time.end,
            counts: ips,
        }]);
        let live = resolver.read_text();
        resolver.compare_text(live);
    };
    drain(1..9, ips(&[5]), None);
    byte.store(2, Ordering::Relaxed);
    drain(9..19, ips(&[10]), None);
    byte.store(3, Ordering::Relaxed);
    let poke = Record::TextPoke {
        start: idle,
        old: vec![2],
        new: vec![3],
    };
    let told = Timed {
        time: 28,
        record: poke,
    };
    let mut before_and_after: Vec<Raw> = ips(&[20, 28]);
    before_and_after[0].hits = 10;
    drain(19..29, before_and_after, Some(told));
    snapshot(resolver)
}

#[test]
fn this_kernel() {
    let symbols = read_kallsyms().expect("/proc/kallsyms");
    if symbols.hidden {
        return skip::skip("kernel symbols are hidden");
    }
    let idle = symbols.named("do_idle").expect("every kernel idles").start;
    let snapshot = patched_twice(symbols, idle);
    let module = &snapshot.modules[0];
    assert_eq!(
        (module.name.as_str(), module.kind),
        ("[kernel]", ModuleKind::Kernel)
    );
    assert_eq!(module.build_id, read_kernel_build_id());
    let idle_function = module.symbols.iter().find(|symbol| symbol.start.0 == idle.0);
    assert_eq!(idle_function.unwrap().name, "do_idle");
    // The way in and out of system calls is always there.
    let of_idle = snapshot.text.iter().filter(|text| text.start.0 == idle.0);
    let generations: Vec<_> = of_idle.map(|t| (t.start.0, t.since, t.bytes[0])).collect();
    assert_eq!(
        generations,
        [(idle.0, 0, 1), (idle.0, 1, 2), (idle.0, 3, 3)],
        "what was not told counts for the whole drain, what was told from its time on"
    );
    let hits: Vec<Vec<u64>> = snapshot
        .intervals
        .iter()
        .map(|interval| interval.ips.iter().map(|count| count.hits).collect())
        .collect();
    assert_eq!(hits, [vec![1], vec![1], vec![10], vec![1]], "cut at the patch");
    assert_eq!(snapshot.losses.get(Loss::TextUncertain), 1);
    assert_eq!(
        snapshot.losses.get(Loss::TextSwitched),
        1,
        "9 of them in 1 of 9 ns"
    );
}
