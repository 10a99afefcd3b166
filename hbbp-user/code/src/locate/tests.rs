//! Counts at known addresses of small images: what is located, what is refused, and that sums close.

use super::*;
use hbbp_model::snapshot::{Interval, Mapping, Module, ModuleIdx, ModuleKind, Process, Text};
use proptest::prelude::*;

const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn module(name: &str, kind: ModuleKind) -> Module {
    Module {
        name: name.to_owned(),
        kind,
        build_id: Vec::new(),
        symbols: Vec::new(),
    }
}

fn mapping(start: u64, len: u64, module: u32, image_start: u64) -> Mapping {
    let image_start = ImageAddr(image_start);
    Mapping {
        start: Va(start),
        end: Va(start + len),
        module: ModuleIdx(module),
        image_start,
        from: 0,
    }
}

fn text(module: u32, start: u64, len: usize, since: u32) -> Text {
    Text {
        module: ModuleIdx(module),
        start: ImageAddr(start),
        bytes: vec![0x90; len],
        since,
    }
}

/// The kernel with 64 bytes of text that are patched in interval 1, and a program with one page of which the first
/// 16 bytes are known.
fn snapshot() -> Snapshot {
    let process = |mappings| Process {
        mappings,
        ..Process::default()
    };
    Snapshot {
        modules: vec![
            module("[kernel]", ModuleKind::Kernel),
            module("/bin/a", ModuleKind::Elf64),
        ],
        processes: vec![
            process(vec![mapping(KERNEL, 0x1000, 0, KERNEL)]),
            process(vec![mapping(0x40_0000, 0x1000, 1, 0x1000)]),
        ],
        text: vec![
            text(0, KERNEL, 64, 0),
            Text {
                bytes: vec![0xcc; 64],
                ..text(0, KERNEL, 64, 1)
            },
            text(1, 0x1000, 16, 0),
        ],
        ..Snapshot::default()
    }
}

fn ip(process: u32, ip: u64, hits: u64) -> IpCount {
    let (event, process, ip) = (EventIdx(0), ProcessIdx(process), Va(ip));
    IpCount {
        event,
        process,
        ip,
        exact: true,
        hits,
        weight: hits * 10,
    }
}

fn stream(start: u64, end: u64) -> StreamCount {
    let (event, process) = (EventIdx(0), ProcessIdx(1));
    StreamCount {
        event,
        process,
        start: Va(start),
        end: Va(end),
        source: None,
        hits: 1,
        weight: 0.5,
        cycles: None,
    }
}

/// Locate uses the text version of the interval and sums equal locations.
#[test]
fn locate_uses_the_text_version_of_the_interval() {
    let mut snapshot = snapshot();
    for _ in 0..3 {
        let ips = vec![ip(1, KERNEL + 3, 2), ip(1, 0x40_0004, 1)];
        snapshot.intervals.push(Interval {
            ips,
            ..Interval::default()
        });
    }
    let located = locate(&snapshot);
    let found: Vec<_> = located
        .ips
        .iter()
        .map(|c| (c.location.text.0, c.location.addr.0, c.hits, c.weight))
        .collect();
    assert_eq!(
        found,
        [(0, KERNEL + 3, 2, 20), (1, KERNEL + 3, 4, 40), (2, 0x1004, 3, 30)]
    );
}

#[test]
fn text_versions_with_the_same_bytes_are_merged() {
    let mut snapshot = snapshot();
    snapshot.text.insert(2, text(0, KERNEL, 64, 2));
    for _ in 0..3 {
        let ips = vec![ip(0, KERNEL + 3, 1)];
        snapshot.intervals.push(Interval {
            ips,
            ..Interval::default()
        });
    }
    let located = locate(&snapshot);
    let found: Vec<_> = located.ips.iter().map(|c| (c.location.text.0, c.hits)).collect();
    assert_eq!(found, [(0, 2), (1, 1)]);
}

#[test]
fn unlocated_streams_have_a_reason() {
    let mut snapshot = snapshot();
    let cases = [
        (stream(0x40_0000, 0x40_0008), None),
        (stream(0x40_0008, 0x40_0000), Some(Discard::Backward)),
        (stream(0x40_0000, KERNEL), Some(Discard::Crossing)),
        (stream(0x40_0000, 0x41_0000), Some(Discard::Long)),
        (stream(0x3f_fff0, 0x40_0000), Some(Discard::NoMapping)),
        (stream(0x40_0000, 0x40_0010), Some(Discard::NoText)),
    ];
    for (stream, why) in cases {
        snapshot.intervals = vec![Interval {
            streams: vec![stream],
            ..Interval::default()
        }];
        let located = locate(&snapshot);
        assert_eq!(located.streams.len(), usize::from(why.is_none()));
        let reasons: Vec<Discard> = located.discarded.0.keys().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, Vec::from_iter(why));
    }
}

#[test]
fn user_mapping_of_kernel_text_is_ignored() {
    let mut snapshot = snapshot();
    snapshot.processes[1].mappings = vec![mapping(0x40_0000, 0x1000, 0, KERNEL)];
    snapshot.intervals = vec![Interval {
        ips: vec![ip(1, 0x40_0000, 1)],
        ..Interval::default()
    }];
    assert_eq!(
        locate(&snapshot).unresolved.get(Unresolved::NoMapping),
        PerRing { kernel: 0, user: 1 }
    );
}

proptest! {
    #[test]
    fn located_and_unresolved_add_up_in_each_ring(
        drawn in prop::collection::vec((0u32..2, any::<bool>(), 0u64..0x1100, 1u64..9), 0..40),
    ) {
        let mut snapshot = snapshot();
        let ips: Vec<IpCount> = drawn
            .iter()
            .map(|&(process, kernel, at, hits)| ip(process, at + if kernel { KERNEL } else { 0x40_0000 }, hits))
            .collect();
        let mut counted = PerRing::default();
        ips.iter().for_each(|c| counted.add(c.ip.ring(), c.hits));
        snapshot.intervals = vec![Interval { ips, ..Interval::default() }];
        let located = locate(&snapshot);
        let mut sum = located.unresolved.of_event(EventIdx(0));
        for c in &located.ips {
            sum.add(if c.location.text.0 < 2 { Ring::Kernel } else { Ring::User }, c.hits);
        }
        prop_assert_eq!(sum, counted);
    }
}
