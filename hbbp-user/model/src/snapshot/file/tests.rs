//! The runs of a profile, and what they may take of memory together.

use super::*;
use crate::addr::Va;
use crate::snapshot::{Event, EventIdx, Interval, IpCount, Process, ProcessIdx};

#[test]
fn runs_of_a_profile_share_one_bound() {
    let ip = IpCount {
        event: EventIdx(0),
        process: ProcessIdx(0),
        ip: Va(1),
        exact: false,
        hits: 1,
        weight: 1,
    };
    let mut snapshot = Snapshot {
        processes: vec![Process::default()],
        intervals: vec![Interval {
            ips: vec![ip],
            ..Interval::default()
        }],
        ..Snapshot::default()
    };
    snapshot.run.events = vec![Event::default()];
    let file = encode_runs(&[snapshot.clone(), snapshot], Compression::Fast).unwrap();
    let sections = container::sections(&file).unwrap();
    let mut all = Capacity(MAX_RUNS_MEMORY);
    let taken = runs(&sections).into_iter().map(|run| {
        let before = all.0;
        parse_run(run, &mut all).unwrap();
        before - all.0
    });
    let taken: Vec<usize> = taken.collect();
    assert!(0 < taken[0] && taken == [taken[0]; 2], "{taken:?}");
}

#[test]
fn counts_that_add_up_to_too_much_are_refused() {
    let ip = |hits, weight| IpCount {
        event: EventIdx(0),
        process: ProcessIdx(0),
        ip: Va(1),
        exact: false,
        hits,
        weight,
    };
    let read = |ips: &[IpCount]| {
        // Over all intervals of a run.
        let intervals = ips.iter().map(|ip| Interval {
            ips: vec![*ip],
            ..Interval::default()
        });
        let mut snapshot = Snapshot {
            processes: vec![Process::default()],
            intervals: intervals.collect(),
            ..Snapshot::default()
        };
        snapshot.run.events = vec![Event::default()];
        crate::profile::read_from(encode(&snapshot).unwrap().as_slice())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let half = 1 << 62;
    assert_eq!(read(&[ip(half, half), ip(half, half)]), Ok(()));
    for ips in [
        vec![ip(half, 1), ip(half, 1), ip(1, 1)],
        vec![ip(1, half), ip(1, half + 1)],
        vec![ip(u64::MAX, 1)],
    ] {
        let refused = read(&ips).unwrap_err();
        assert!(refused.contains("counts add up to more than 2^63"), "{refused}");
    }
}
