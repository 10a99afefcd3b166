//! Threads of a live process: an entry each, with the mappings of the process.

use hbbp_model::snapshot::{ProcessIdx, Snapshot};
use hbbp_model::streams::ThreadCounts;
use hbbp_resolve::Resolver;
use hbbp_resolve::raw::{Raw, RawInterval};

use super::program::{PROGRAM, Running, compile};
use super::{ip, no_kernel, snapshot, text_at};

/// Samples of three threads of one process, of which only the first exists.
fn sampled(running: &Running, threads: ThreadCounts) -> Snapshot {
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    let mut resolver = Resolver::new(no_kernel(), &[running.scanned()]);
    resolver.count_threads(threads);
    let of_thread = |tid, at| Raw {
        tid,
        ..ip(tgid, 5, at)
    };
    let counts = [
        of_thread(tgid, spin),
        of_thread(u32::MAX - 1, spin),
        of_thread(tgid, spin + 1),
        of_thread(u32::MAX - 2, spin),
    ];
    let (start, end) = (1, 9);
    resolver.drained(vec![RawInterval { start, end, counts }]);
    snapshot(resolver)
}

#[test]
fn threads_have_the_text_and_the_cgroup_of_their_process() {
    let Some(program) = compile("threads", PROGRAM, &[]) else {
        return;
    };
    let running = Running::start(&program, 1);
    let spin = running.addresses[0];
    let apart = sampled(&running, ThreadCounts::Apart);
    let owners: Vec<ProcessIdx> = apart.intervals[0].ips.iter().map(|count| count.process).collect();
    assert_eq!(owners, [2, 3, 2, 4].map(ProcessIdx));
    let image = &apart.processes[1];
    assert_eq!(image.thread, None);
    for (idx, name) in [(2, "threads"), (3, ""), (4, "")] {
        let process = &apart.processes[idx as usize];
        let thread = process.thread.as_ref().expect("a thread");
        assert_eq!(thread.name, name);
        assert_eq!((process.tgid, &process.comm), (image.tgid, &image.comm));
        assert_eq!(process.mappings, image.mappings);
        assert_eq!(process.cgroup, image.cgroup);
        assert!(text_at(&apart, idx, spin).is_some());
    }
    let together = sampled(&running, ThreadCounts::Together);
    assert_eq!(together.processes.len(), 2);
    assert_eq!(together.text, apart.text);
    assert!(
        together.intervals[0]
            .ips
            .iter()
            .all(|count| count.process == ProcessIdx(1))
    );
    let expected =
        std::fs::read_to_string(format!("/proc/{}/cgroup", running.child.id())).expect("own child");
    let expected = expected.lines().find_map(|line| line.strip_prefix("0::"));
    let found = image.cgroup.map(|idx| apart.cgroups[idx.0 as usize].as_str());
    assert_eq!(found, expected);
}
