//! The kernel's bytes are the executed ones: a static key that is switched shows in the snapshots.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hbbp_collect::object::{Constants, MapSizes, Object};
use hbbp_collect::text::TextWindow;
use hbbp_model::addr::{Ring, Va};
use hbbp_model::profile;
use hbbp_model::snapshot::{Loss, Losses, ModuleKind, Snapshot};
use hbbp_resolve::kernel::live_symbols::KernelFacts;
use hbbp_resolve::kernel::open::open_kernel_space;
use hbbp_resolve::kernel::space::KernelSpace;
use rustix::time::{ClockId, clock_gettime};

use super::load::{Datagrams, Load};
use super::{BpfStats, kernel, number, program, resolved, run, skip_outside_ci};

fn record(path: &Path) -> Snapshot {
    let path = path.to_str().unwrap();
    let output = run(&["record", "--duration", "2", "--period", "200003", "-o", path]);
    assert!(output.status.success(), "{output:?}");
    profile::read(Path::new(path)).unwrap()
}

/// Every byte of kernel text in a snapshot, by address; the first generation of each.
fn kernel_bytes(snapshot: &Snapshot) -> BTreeMap<u64, u8> {
    let mut bytes = BTreeMap::new();
    for text in &snapshot.text {
        let module = &snapshot.modules[text.module.0 as usize];
        if module.kind == ModuleKind::Kernel {
            for (at, byte) in (text.start.0..).zip(&text.bytes) {
                bytes.entry(at).or_insert(*byte);
            }
        }
    }
    bytes
}

/// Addresses of the static branches that the profile knows.
fn static_branches(snapshot: &Snapshot) -> Vec<u64> {
    snapshot
        .static_branches
        .iter()
        .map(|branch| branch.addr.0)
        .collect()
}

/// Whether a static branch can be at an address: a NOP or a jump of two or five bytes, or a breakpoint while it
/// changes.
fn is_nop_or_jump(bytes: &BTreeMap<u64, u8>, at: u64) -> bool {
    let code: Vec<u8> = (at..at + 2).filter_map(|at| bytes.get(&at).copied()).collect();
    matches!(
        code[..],
        [0x66, 0x90] | [0x0f, 0x1f] | [0xe9 | 0xeb | 0xcc, _] | [_]
    )
}

#[test]
fn two_runs_around_a_switched_key_differ_at_the_patched_sites() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _datagrams = Datagrams::start();
    let off = BpfStats::set("0");
    let first = record(&folder.path().join("off"));
    let before = kernel_bytes(&first);
    drop(off);
    let _on = BpfStats::set("1");
    let after = kernel_bytes(&record(&folder.path().join("on")));
    let differ: Vec<(u64, u8, u8)> = before
        .iter()
        .filter_map(|(at, old)| Some((*at, *old, *after.get(at)?)))
        .filter(|(_, old, new)| old != new)
        .collect();
    println!("{} of {} bytes differ: {differ:x?}", differ.len(), before.len());
    assert!(
        !differ.is_empty(),
        "the filter of the socket is hot, and the key is in its path"
    );
    let mut sites = static_branches(&first);
    if sites.is_empty() {
        return skip_outside_ci("the kernel lists no table of static branches (CONFIG_KALLSYMS_ALL)");
    }
    assert!(sites.iter().all(|at| is_nop_or_jump(&before, *at)));
    sites.retain(|at| differ.iter().any(|(byte, ..)| (*at..at + 5).contains(byte)));
    assert!(!sites.is_empty(), "the key that was switched is one of them");
    // A static key is a jump of 2 or 5 bytes or a NOP of that length (arch/x86/kernel/jump_label.c).
    let first_bytes = [(0x0f, 0xe9), (0x66, 0xeb), (0xe9, 0x0f), (0xeb, 0x66)];
    assert!(
        differ
            .iter()
            .any(|(_, old, new)| first_bytes.contains(&(*old, *new))),
        "{differ:x?}"
    );
}

#[test]
fn run_across_the_switch_keeps_both_sides() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("across");
    let path = path.to_str().unwrap();
    let _datagrams = Datagrams::start();
    let _off = BpfStats::set("0");
    let mut recorder = program(&["record", "--duration", "7", "--period", "200003", "-o", path])
        .spawn()
        .unwrap();
    super::wait_until_it_measures(recorder.id());
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let _on = BpfStats::set("1");
    assert!(recorder.wait().unwrap().success());
    let snapshot = profile::read(Path::new(path)).unwrap();
    let generations = snapshot.text.windows(2).filter(|pair| {
        let [old, new] = pair else { return false };
        (old.module, old.start) == (new.module, new.start) && old.bytes != new.bytes
    });
    let n = generations.count();
    println!("{n} ranges of kernel text have two versions");
    assert!(0 < n);
    let report = super::report_of(path);
    let (in_mix, counted) = resolved(&report, "kernel");
    // One of the processors has nothing to do here: a sample of its halt has no instruction to decode.
    let executed = counted - super::unresolved(&report, "ip.halted", "kernel");
    assert!(
        0.995 * executed as f64 <= in_mix as f64,
        "{in_mix} of {executed}: {}",
        report["accounting"]
    );
    assert!(0 < number(&report["accounting"]["counted"]["kernel"]));
}

/// The kernel's tracing files, mounted for the test alone.
pub(super) struct Tracing(PathBuf);

impl Tracing {
    /// Tracepoints that are switched.
    const EVENTS: [&str; 3] = ["sched/sched_switch", "sched/sched_wakeup", "timer/hrtimer_start"];

    /// `None`, with the reason printed, where this kernel has none.
    pub(super) fn mount(folder: &Path) -> Option<Self> {
        let path = folder.join("tracing");
        std::fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tracefs", "nodev"])
            .arg(&path)
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(path)),
            failed => {
                println!("without tracers: tracefs cannot be mounted: {failed:?}");
                None
            }
        }
    }

    fn write(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap();
    }

    /// A probe at an offset of a file; `None` if the kernel has none.
    pub(super) fn probe(&self, file: &Path, offset: u64) -> Option<Probe<'_>> {
        let probe = format!("p:hbbp/live {}:{offset:#x}", file.display());
        std::fs::write(self.0.join("uprobe_events"), probe).ok()?;
        self.write("events/hbbp/live/enable", "1");
        Some(Probe(self))
    }

    /// The functions that can be traced; none, with the reason printed, where the kernel forbids it.
    fn traceable(&self) -> HashSet<String> {
        let names = std::fs::read_to_string(self.0.join("available_filter_functions"));
        let names = names.inspect_err(|error| println!("without traced functions: {error}"));
        names.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A probe in user text, until it is dropped.
pub(super) struct Probe<'a>(&'a Tracing);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.0.join("events/hbbp/live/enable"), "0");
        let _ = std::fs::write(self.0.0.join("uprobe_events"), "-:hbbp/live");
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // Also where the test fails in between: the next one finds them off.
        let _ = std::fs::write(self.0.join("current_tracer"), "nop");
        for event in Self::EVENTS {
            let _ = std::fs::write(self.0.join(format!("events/{event}/enable")), "0");
        }
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// CPU time of this thread.
fn own_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Reads all text again and says how many ranges changed, and what that cost in CPU time of this thread.
fn compare(kernel: &mut KernelSpace) -> (u64, Duration) {
    let mut losses = Losses::default();
    let before = own_time();
    let live = kernel.read_live();
    kernel.compare(live, &mut losses);
    (losses.get(Loss::TextUncertain), own_time() - before)
}

/// The functions of the kernel image in a snapshot, the most often hit first.
fn hot_functions(snapshot: &Snapshot) -> Vec<String> {
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    let symbols = snapshot.modules.iter().filter(|m| m.kind == ModuleKind::Kernel);
    let symbols: Vec<_> = symbols.flat_map(|m| &m.symbols).collect();
    for count in snapshot.intervals.iter().flat_map(|interval| &interval.ips) {
        let before = symbols.partition_point(|symbol| symbol.start.0 <= count.ip.0);
        if let Some(symbol) = before.checked_sub(1).map(|n| symbols[n])
            && count.ip.0 - symbol.start.0 < symbol.len
        {
            *hits.entry(&symbol.name).or_default() += count.hits;
        }
    }
    let mut hot: Vec<_> = hits.into_iter().collect();
    hot.sort_by_key(|(_, hits)| u64::MAX - hits);
    hot.into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Addresses throughout the kernel functions with these names, and the clones that the compiler made of them.
fn text_of(names: &[&str]) -> Vec<Va> {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let symbols = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((start, words.nth(1)?))
    });
    let mut symbols: Vec<(u64, &str)> = symbols.collect();
    symbols.sort_unstable();
    let wanted = |name: &str| names.contains(&name.split('.').next().unwrap());
    let functions = symbols.windows(2).filter(|pair| wanted(pair[0].1));
    functions
        .flat_map(|pair| (pair[0].0..pair[1].0).step_by(16).map(Va))
        .collect()
}

/// Turns something on or off.
type Switch<'a> = Box<dyn Fn(bool) + 'a>;

/// What patches text in the path of the load, by name.
fn switches<'a>(tracing: Option<&'a Tracing>, snapshot: &Snapshot) -> Vec<(String, Switch<'a>)> {
    let mut switches: Vec<(String, Switch<'_>)> = Vec::new();
    let stats = |on: bool| std::fs::write(BpfStats::PATH, if on { "1" } else { "0" }).unwrap();
    switches.push(("bpf_stats".to_owned(), Box::new(stats)));
    if let Some(tracing) = tracing {
        for event in Tracing::EVENTS {
            let file = format!("events/{event}/enable");
            let switch = move |on| tracing.write(&file, if on { "1" } else { "0" });
            switches.push((event.to_owned(), Box::new(switch)));
        }
        let traceable = tracing.traceable();
        let hot = hot_functions(snapshot);
        if let Some(hot) = hot.into_iter().find(|name| traceable.contains(name)) {
            let switch = move |on| {
                tracing.write("set_ftrace_filter", &hot);
                tracing.write("current_tracer", if on { "function" } else { "nop" });
            };
            switches.push(("a function that is traced".to_owned(), Box::new(switch)));
        }
    }
    switches
}

/// No kcore, and no record of a patch is taken over: what a drain then finds, and what that costs it.
#[test]
fn unreported_switches_are_found_by_reading() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let off = BpfStats::set("0");
    let snapshot = {
        let _load = (
            Datagrams::start(),
            Load::compiler(folder.path()),
            Load::syscalls(),
        );
        record(&folder.path().join("profile"))
    };
    let addresses = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
    let addresses: Vec<Va> = addresses
        .map(|count| count.ip)
        .filter(|ip| ip.ring() == Ring::Kernel)
        .collect();

    let mut object = Object::load(Constants::default(), MapSizes::default()).unwrap();
    let window = TextWindow::open(&mut object).unwrap();
    let facts = KernelFacts {
        release: "",
        modules: None,
        compiled: None,
        programs: &[],
    };
    let (mut kernel, _) =
        open_kernel_space(Some(Box::new(move |at, out| window.read(at, out))), None, &facts).unwrap();
    let mut losses = Losses::default();
    kernel.begin(0, 1..2, &mut losses);
    for at in &addresses {
        kernel.hit(*at, 1, &mut losses);
    }
    // A clock's samples do not fall where interrupts are off, as they do in the scheduler.
    for at in text_of(&[
        "__schedule",
        "try_to_wake_up",
        "ttwu_do_activate",
        "enqueue_hrtimer",
        "hrtimer_start_range_ns",
    ]) {
        kernel.hit(at, 1, &mut losses);
    }
    let tracing = Tracing::mount(folder.path());
    let switches = switches(tracing.as_ref(), &snapshot);
    let mut costs = Vec::new();
    for (name, switch) in &switches {
        for on in [true, false] {
            // What others on this machine switched before is none of its changes.
            compare(&mut kernel);
            switch(on);
            let (changed, cost) = compare(&mut kernel);
            println!("{name}, on: {on}: {changed} ranges changed, {cost:?}");
            assert!(0 < changed, "{name} is in the path of this load");
            costs.push(cost);
        }
    }
    drop(off);
    let worst = costs.iter().max().unwrap();
    println!(
        "{} addresses of the kernel; the dearest reading of {}: {worst:?}",
        addresses.len(),
        costs.len()
    );
}
