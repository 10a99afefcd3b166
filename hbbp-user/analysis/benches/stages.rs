//! The time of each stage of an analysis, printed: `cargo bench -p hbbp-analysis`.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::time::Instant;

use hbbp_analysis::mix::{Dimension, Query, analyse};
use hbbp_code::blocks::blocks;
use hbbp_code::locate::locate;
use hbbp_estimate::estimate;
use hbbp_estimate::rule::{BadRule, PAPER};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    BranchCount, Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind,
    Process, ProcessIdx, Snapshot, StreamCount, Symbol, Text,
};

const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// A function of 64 bytes: 14 instructions in three blocks, the first of which calls the next function.
const FUNCTION: [u8; 64] = {
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x47, 0x10, 0x48, 0x01, 0xc8, 0xe8, 0x30, 0, 0, 0, 0x48, 0x85,
        0xc0, 0x74, 0x09, 0x48, 0x8d, 0x04, 0x40, 0x48, 0x31, 0xd2, 0xff, 0xc1, 0x5d, 0xc3,
    ];
    let mut function = [0x90; 64];
    let mut i = 0;
    while i < code.len() {
        function[i] = code[i];
        i += 1;
    }
    function
};

/// `n_functions` functions of the kernel, each sampled at `n_ips` instructions and passed by two streams.
fn snapshot(n_functions: u64, n_ips: u64) -> Snapshot {
    let starts: Vec<u64> = (0..n_functions).map(|n| KERNEL + 64 * n).collect();
    let symbol = |start: &u64| Symbol {
        start: ImageAddr(*start),
        len: 64,
        name: format!("f{start:x}"),
    };
    let module = ModuleIdx(0);
    let mapping = Mapping {
        start: Va(KERNEL),
        end: Va(KERNEL + 64 * n_functions),
        module,
        image_start: ImageAddr(KERNEL),
        from: 0,
    };
    let text = |start: &u64| Text {
        module,
        start: ImageAddr(*start),
        bytes: FUNCTION.repeat(64),
        since: 0,
    };
    let mut snapshot = Snapshot {
        modules: vec![Module {
            name: "[kernel]".to_owned(),
            kind: ModuleKind::Kernel,
            build_id: Vec::new(),
            symbols: starts.iter().map(symbol).collect(),
        }],
        processes: vec![Process {
            mappings: vec![mapping],
            ..Process::default()
        }],
        text: starts.iter().step_by(64).map(text).collect(),
        intervals: vec![interval(&starts, n_ips)],
        ..Snapshot::default()
    };
    let event = |unit| Event {
        unit,
        ..Event::default()
    };
    snapshot.run.events = vec![event(EventUnit::Instructions), event(EventUnit::TakenBranches)];
    snapshot
}

/// The counts of the functions that start there.
fn interval(starts: &[u64], n_ips: u64) -> Interval {
    let process = ProcessIdx(0);
    let offsets = [0, 1, 4, 8, 11, 16, 19, 21, 25, 28, 30, 31];
    let sampled = |start: &u64| {
        let start = *start;
        let offsets = offsets.into_iter().take(n_ips as usize);
        offsets.map(move |offset| start + offset)
    };
    let ip = |ip| IpCount {
        event: EventIdx(0),
        process,
        ip: Va(ip),
        exact: true,
        hits: 3,
        weight: 3000,
    };
    let stream = |(start, end)| StreamCount {
        event: EventIdx(1),
        process,
        start: Va(start),
        end: Va(end),
        source: None,
        hits: 2,
        weight: 6.5,
        cycles: None,
    };
    let branch = |(from, to)| BranchCount {
        event: EventIdx(1),
        process,
        from: Va(from),
        to: Va(to),
        hits: 2,
        oldest: u64::from(from % 1024 == 11),
        mispredicted: None,
    };
    let streams = starts.iter().flat_map(|s| [(*s, s + 11), (s + 16, s + 31)]);
    let branches = starts.iter().flat_map(|s| [(s + 11, s + 64), (s + 31, s - 48)]);
    Interval {
        ips: starts.iter().flat_map(sampled).map(ip).collect(),
        streams: streams.map(stream).collect(),
        branches: branches.map(branch).collect(),
        ..Interval::default()
    }
}

fn main() -> Result<(), BadRule> {
    let rule = PAPER.parse()?;
    for (what, n_functions, n_ips) in [
        ("20 MB of text", 20 << 14, 3),
        ("4 MB of text", 4 << 14, 12),
        ("a usual run", 4096, 5),
    ] {
        let snapshot = snapshot(n_functions, n_ips);
        let Interval {
            ips,
            streams,
            branches,
            ..
        } = &snapshot.intervals[0];
        let n_counts = ips.len() + streams.len() + branches.len();
        let begun = Instant::now();
        let mut located = locate(&snapshot);
        let after_locate = begun.elapsed();
        let map = blocks(&snapshot, &located);
        let after_blocks = begun.elapsed();
        let counts = estimate(&snapshot, &mut located, &map, &rule);
        let after_estimate = begun.elapsed();
        println!(
            "{what}, {n_counts} counts: locate {after_locate:?}, blocks {:?}, estimate {:?} ({} blocks)",
            after_blocks - after_locate,
            after_estimate - after_blocks,
            counts.blocks.len(),
        );
        for by in [Dimension::Mnemonic, Dimension::Function] {
            let begun = Instant::now();
            let rows = analyse(&snapshot, &Query::by([by]), &rule).mix.rows.len();
            println!("  by {by}: {rows} rows, {:?} in all", begun.elapsed());
        }
    }
    Ok(())
}
