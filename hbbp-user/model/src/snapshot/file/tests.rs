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
