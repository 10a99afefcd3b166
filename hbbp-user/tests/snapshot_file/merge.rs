//! Profiles of several runs: merging is associative and commutative, and nothing of a run is lost or shared.

use proptest::prelude::*;

use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::{Compression, encode, encode_runs, parse, parse_runs};
use hbbp_model::snapshot::merge::merged;

use super::{small, strategy};

/// The runs of two profiles as one, as the bytes of a file and back.
fn merge(a: &[Snapshot], b: &[Snapshot]) -> Vec<Snapshot> {
    let runs = merged([a, b].concat()).unwrap();
    let read = parse_runs(&encode_runs(&runs, Compression::Fast).unwrap()).unwrap();
    assert_eq!(read, runs);
    read
}

/// A run at a time and on a host that several may share.
fn run() -> impl Strategy<Value = Snapshot> {
    (strategy::snapshot(), 0..3_u64, "[ab]").prop_map(|(mut snapshot, started, host)| {
        snapshot.run.started = started;
        snapshot.run.host.name = host;
        snapshot
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_is_associative_and_commutative(a in run(), b in run(), c in run()) {
        let [a, b, c] = [[a], [b], [c]];
        let left = merge(&merge(&a, &b), &c);
        let right = merge(&a, &merge(&b, &c));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(encode_runs(&left, Compression::Small).unwrap(), encode_runs(&right, Compression::Small).unwrap());
        prop_assert_eq!(merge(&b, &a), merge(&a, &b));
        prop_assert_eq!(left.len(), 3);
    }

    #[test]
    fn every_run_keeps_its_own_counts_and_losses(a in run(), b in run()) {
        let both = merge(std::slice::from_ref(&a), std::slice::from_ref(&b));
        prop_assert!(both.contains(&a) && both.contains(&b));
    }
}

#[test]
fn one_run_is_a_profile_as_before() {
    let snapshot = small();
    let runs = merged([snapshot.clone()]).unwrap();
    assert_eq!(
        encode_runs(&runs, Compression::Fast).unwrap(),
        encode(&snapshot).unwrap()
    );
    assert_eq!(parse_runs(&encode(&snapshot).unwrap()).unwrap(), [snapshot]);
}

#[test]
fn what_needs_one_run_says_how_many_there_are() {
    let both = encode_runs(&[small(), small()], Compression::Small).unwrap();
    let error = parse(&both).unwrap_err().to_string();
    assert!(
        error.starts_with("the profile holds 2 runs, and this needs one"),
        "{error}"
    );
    assert!(encode_runs(&[], Compression::Small).is_err());
}
