//! What successive profiles become: sums, shared text and names, versions, and what is not joined.

use super::*;
use crate::addr::{ImageAddr, Va};
use crate::snapshot::run::{Counter, Event, Period};
use crate::snapshot::{
    CgroupIdx, EventIdx, Interval, IpCount, Loss, Mapping, Module, ModuleIdx, ModuleKind, Process,
    ProcessIdx, Text,
};

/// A second of CLOCK_MONOTONIC.
const S: u64 = 1_000_000_000;

fn module(name: &str, kind: ModuleKind, build_id: &[u8]) -> Module {
    Module {
        name: name.to_owned(),
        kind,
        build_id: build_id.to_owned(),
        symbols: Vec::new(),
    }
}

fn text(module: u32, start: u64, bytes: &[u8], since: u32) -> Text {
    Text {
        module: ModuleIdx(module),
        start: ImageAddr(start),
        bytes: bytes.to_owned(),
        since,
    }
}

fn mapping(start: u64, end: u64, module: u32, from: u64) -> Mapping {
    Mapping {
        start: Va(start),
        end: Va(end),
        module: ModuleIdx(module),
        image_start: ImageAddr(start),
        from,
    }
}

/// A profile from one second to the next with two intervals: one sample of a process at 0x1000 in each.
fn profile(second: u64) -> Snapshot {
    let ip = IpCount {
        event: EventIdx(0),
        process: ProcessIdx(1),
        ip: Va(0x1000),
        exact: false,
        hits: 1,
        weight: 10,
    };
    let interval = |start| Interval {
        start,
        end: start + S / 2,
        ips: vec![ip],
        ..Interval::default()
    };
    let mut snapshot = Snapshot::default();
    snapshot.run.started = (1000 + second) * S;
    snapshot.run.duration = S;
    snapshot.run.events = vec![Event {
        period: Period::Fixed(10),
        runs: 2,
        counters: vec![Counter {
            cpu: Some(0),
            count: 25,
            ..Counter::default()
        }],
        ..Event::default()
    }];
    snapshot.modules = vec![module("a.out", ModuleKind::Elf64, b"id")];
    snapshot.processes = vec![
        Process::default(),
        Process {
            tgid: 7,
            comm: "a.out".to_owned(),
            mappings: vec![mapping(0x1000, 0x2000, 0, 0)],
            ..Process::default()
        },
    ];
    snapshot.text = vec![text(0, 0x1000, &[0x90; 4], 0)];
    snapshot.intervals = vec![interval(second * S), interval(second * S + S / 2)];
    snapshot.losses.add(Loss::SidebandLost, 1);
    snapshot
}

fn united_pair(a: Snapshot, b: Snapshot) -> Snapshot {
    let mut runs = united([a, b]);
    assert_eq!(runs.len(), 1);
    let run = runs.remove(0);
    run.check().unwrap();
    run
}

/// Counts add up, and shared data is stored once.
#[test]
fn united_counts_add_up_and_shared_parts_occur_once() {
    let run = united_pair(profile(10), profile(11));
    assert_eq!((run.run.started, run.run.duration), (1010 * S, 2 * S));
    assert_eq!(run.run.events[0].runs, 4);
    assert_eq!(run.run.events[0].due(), Some(4), "rounded down in each profile");
    assert_eq!(run.run.events[0].counters[0].count, 50);
    assert_eq!(run.losses.get(Loss::SidebandLost), 2);
    assert_eq!(
        (run.modules.len(), run.processes.len(), run.text.len()),
        (1, 2, 1)
    );
    assert_eq!(run.processes[1].mappings.len(), 1);
    assert_eq!(run.intervals.len(), 4);
    let mut coarse = run;
    coarse.coarsen();
    coarse.check().unwrap();
    assert_eq!((coarse.intervals.len(), coarse.intervals[0].ips[0].hits), (1, 4));
}

#[test]
fn other_machines_boots_and_events_stay_runs_of_their_own() {
    let runs = |change: &dyn Fn(&mut Snapshot)| {
        let mut next = profile(11);
        change(&mut next);
        united([profile(10), next]).len()
    };
    assert_eq!(runs(&|_| ()), 1);
    assert_eq!(runs(&|it| it.run.host.name = "other".to_owned()), 2);
    assert_eq!(runs(&|it| it.run.events[0].period = Period::Frequency(11)), 2);
    // The wall clock was adjusted by a second, or the machine was booted a minute later.
    assert_eq!(runs(&|it| it.run.started += S), 1);
    assert_eq!(runs(&|it| it.run.started += 60 * S), 2);
    assert_eq!(united([profile(11), profile(10)]).len(), 2, "time goes on");
}

/// Periods of a budget are reported with the samples that were expected at each.
#[test]
fn united_periods_have_their_expected_samples() {
    let with = |second, period| {
        let mut profile = profile(second);
        profile.run.events[0].period = Period::Fixed(period);
        profile.run.events[0].counters[0].cpu = Some(u32::from(second == 12));
        profile
    };
    let run = united_pair(united_pair(with(10, 10), with(11, 5)), with(12, 7));
    let event = &run.run.events[0];
    assert_eq!(event.period, Period::Between(5, 10));
    let due: Vec<_> = event.counters.iter().map(|it| it.due).collect();
    assert_eq!(due, [Some(25 / 10 + 25 / 5), Some(25 / 7)]);
    assert_eq!((event.due(), event.mean_period()), (Some(10), Some(75 / 10)));
    let again = united_pair(
        with(9, 10),
        united_pair(with(10, 5), united_pair(with(11, 7), with(13, 10))),
    );
    assert_eq!(again.run.events[0].period, Period::Between(5, 10));
    assert_eq!(again.run.events[0].due(), Some(2 + 5 + 3 + 2));
}

/// Text that changed has a new version from the first profile that contains it.
#[test]
fn changed_text_has_a_version_from_its_profile_on() {
    let mut next = profile(11);
    next.text = vec![
        text(0, 0x1002, &[0x90, 0xcc, 0xc3], 0),
        text(0, 0x1002, &[0x90, 0x90, 0xc3], 1),
    ];
    let run = united_pair(profile(10), next);
    let expected = [
        text(0, 0x1000, &[0x90, 0x90, 0x90, 0x90, 0xc3], 0),
        text(0, 0x1000, &[0x90, 0x90, 0x90, 0xcc, 0xc3], 2),
        text(0, 0x1000, &[0x90, 0x90, 0x90, 0x90, 0xc3], 3),
    ];
    assert_eq!(run.text, expected);
}

/// Memory with other code is another module and replaces the mapping.
#[test]
fn memory_with_other_code_is_another_module() {
    let written = |bytes: &[u8], second| {
        let mut written = profile(second);
        written.modules = vec![module("[anon]", ModuleKind::Anonymous, b"")];
        written.text = vec![text(0, 0x1000, bytes, 0)];
        written
    };
    let same = united_pair(written(&[0x90], 10), written(&[0x90, 0xc3], 11));
    assert_eq!((same.modules.len(), same.text.len()), (1, 1));
    let run = united_pair(written(&[0x90, 0x90], 10), written(&[0x90, 0xc3], 11));
    assert_eq!(run.modules.len(), 2);
    let expected = [mapping(0x1000, 0x2000, 0, 0), mapping(0x1000, 0x2000, 1, 11 * S)];
    assert_eq!(run.processes[1].mappings, expected);
    assert_eq!(
        run.text,
        [
            text(0, 0x1000, &[0x90, 0x90], 0),
            text(1, 0x1000, &[0x90, 0xc3], 0)
        ]
    );
}

#[test]
fn process_id_of_another_process_is_another_process_image() {
    let mut next = profile(11);
    next.processes[1].comm = "other".to_owned();
    next.processes[1].mappings = vec![mapping(0x8000, 0x9000, 0, 0)];
    let run = united_pair(profile(10), next);
    assert_eq!(run.processes.len(), 3);
    assert_eq!(run.intervals[3].ips[0].process, ProcessIdx(2));
    let mut renamed = profile(11);
    renamed.processes[1].comm = "renamed".to_owned();
    let run = united_pair(profile(10), renamed);
    assert_eq!(
        (run.processes.len(), run.processes[1].comm.as_str()),
        (2, "renamed")
    );
}

#[test]
fn cgroups_are_there_once_and_split_process_images() {
    let of = |path: &str, second| {
        let mut snapshot = profile(second);
        snapshot.cgroups = vec!["/other".to_owned(), path.to_owned()];
        snapshot.processes[1].cgroup = Some(CgroupIdx(1));
        snapshot
    };
    let run = united_pair(of("/a", 10), of("/a", 11));
    assert_eq!((run.cgroups.len(), run.processes.len()), (2, 2));
    let moved = united_pair(of("/a", 10), of("/b", 11));
    assert_eq!(moved.cgroups, ["/other", "/a", "/b"]);
    let cgroups: Vec<_> = moved.processes.iter().map(|process| process.cgroup).collect();
    assert_eq!(cgroups, [None, Some(CgroupIdx(1)), Some(CgroupIdx(2))]);
}
