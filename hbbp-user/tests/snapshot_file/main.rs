//! The snapshot file as others meet it: whole, cut off, damaged, newer, hostile, and on a full disk.

#![cfg(test)]

mod budget;
mod damage;
mod join;
mod merge;
mod profile;
mod python;

use hbbp_testing::{skip, strategy};
use proptest::prelude::*;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::file::{encode, parse};
use hbbp_model::snapshot::{
    CgroupIdx, Event, EventIdx, HostFacts, Interval, IpCount, Loss, Losses, Mapping, Module, ModuleIdx,
    ModuleKind, Period, Process, ProcessIdx, Run, Snapshot, StaticBranch, Symbol, Text, Thread,
};

fn worker() -> Thread {
    Thread {
        tid: 7,
        name: "worker".to_owned(),
    }
}

fn tracepoint() -> StaticBranch {
    StaticBranch {
        module: ModuleIdx(0),
        addr: ImageAddr(0x12),
        tracepoint: true,
    }
}

/// A small snapshot with something in every section.
fn small() -> Snapshot {
    let mut losses = Losses::default();
    losses.add(Loss::CountsFull, 3);
    Snapshot {
        run: Run {
            host: HostFacts {
                name: "myriad".to_owned(),
                n_cpus: 2,
                ..HostFacts::default()
            },
            events: vec![Event {
                name: "cpu-clock".to_owned(),
                period: Period::Fixed(1_000_000),
                ..Event::default()
            }],
            ..Run::default()
        },
        modules: vec![Module {
            name: "[kernel]".to_owned(),
            kind: ModuleKind::Kernel,
            build_id: vec![7; 20],
            symbols: vec![Symbol {
                start: ImageAddr(0x10),
                len: 4,
                name: "idle".to_owned(),
            }],
        }],
        processes: vec![Process {
            comm: "kernel".to_owned(),
            mappings: vec![Mapping {
                start: Va(0x10),
                end: Va(0x20),
                module: ModuleIdx(0),
                image_start: ImageAddr(0x10),
                from: 0,
            }],
            cgroup: Some(CgroupIdx(0)),
            thread: Some(worker()),
            ..Process::default()
        }],
        cgroups: vec!["/init.scope".to_owned()],
        static_branches: vec![tracepoint()],
        text: vec![Text {
            module: ModuleIdx(0),
            start: ImageAddr(0x10),
            bytes: vec![0xf3, 0x90, 0xc3],
            since: 0,
        }],
        intervals: vec![Interval {
            ips: vec![IpCount {
                event: EventIdx(0),
                process: ProcessIdx::KERNEL,
                ip: Va(0x12),
                exact: false,
                hits: 9,
                weight: 9_000_000,
            }],
            ..Interval::default()
        }],
        losses,
    }
}

/// Numbers below a bound that do not repeat: Knuth's MMIX generator (The Art of Computer Programming, vol. 2, 3.3.4),
/// whose upper bits are good.
fn random_below() -> impl FnMut(u64) -> u64 {
    let mut state = 1_u64;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(snapshot in strategy::snapshot()) {
        snapshot.check().unwrap();
        let file = encode(&snapshot).unwrap();
        prop_assert_eq!(&parse(&file).unwrap(), &snapshot);
        prop_assert_eq!(encode(&snapshot).unwrap(), file);
    }

    #[test]
    fn a_flipped_bit_is_an_error_or_a_note(snapshot in strategy::snapshot(), place: prop::sample::Index, bit in 0..8_u32) {
        let mut file = encode(&snapshot).unwrap();
        *place.get_mut(&mut file) ^= 1_u8 << bit;
        if let Ok(read) = parse(&file) {
            prop_assert!(read == snapshot || snapshot.run.notes.len() < read.run.notes.len());
        }
    }

    #[test]
    fn garbage_is_an_error(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(parse(&garbage).is_err());
        let behind_a_header = [b"HBBPSNAP\x03\0\0\0".as_slice(), &garbage].concat();
        prop_assert!(parse(&behind_a_header).is_err());
    }
}

#[test]
fn cut_off_at_every_byte_is_an_error() {
    let file = encode(&small()).unwrap();
    for len in 0..file.len() {
        assert!(
            parse(&file[..len]).is_err(),
            "{len} of {} bytes were read",
            file.len()
        );
    }
    let error = parse(&file[..file.len() - 1]).unwrap_err().to_string();
    assert_eq!(error, "truncated profile: it ends after section `losses`");
}

#[test]
fn what_contradicts_itself_is_not_written() {
    let mut snapshot = small();
    snapshot.processes.clear();
    assert!(
        encode(&snapshot)
            .unwrap_err()
            .to_string()
            .contains("inconsistent")
    );
}

/// A minute of 64 busy CPUs at 1 kHz, which is 3.8 million samples at 400 000 addresses, is far below 10 MB.
#[test]
fn a_minute_of_a_whole_system_is_small() {
    let mut snapshot = small();
    let mut random = random_below();
    snapshot.processes = vec![Process::default(); 500];
    let ips = (0..400_000).map(|_| {
        let hits = 1 + random(4) * random(8);
        IpCount {
            event: EventIdx(0),
            process: ProcessIdx(u32::try_from(random(500)).unwrap()),
            ip: Va(0x5555_5555_0000 + random(2_000_000)),
            exact: false,
            hits,
            weight: hits * 1_000_000,
        }
    });
    let mut ips: Vec<_> = ips.collect();
    ips.sort_by_key(|c| (c.process, c.ip));
    ips.dedup_by_key(|c| (c.process, c.ip));
    snapshot.intervals = vec![Interval {
        ips,
        ..Interval::default()
    }];
    let begin = std::time::Instant::now();
    let file = encode(&snapshot).unwrap();
    let encoded = begin.elapsed();
    assert_eq!(parse(&file).unwrap(), snapshot);
    println!(
        "{} bytes, encoded in {encoded:?}, all in {:?}",
        file.len(),
        begin.elapsed()
    );
    assert!(file.len() < 4_000_000, "{} bytes", file.len());
}
