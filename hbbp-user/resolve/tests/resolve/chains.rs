//! Call chains of code that keeps no frame pointers.

use hbbp_model::addr::Va;
use hbbp_model::snapshot::{EventIdx, Loss};
use hbbp_resolve::Resolver;
use hbbp_resolve::raw::{Raw, RawChain, RawInterval, TaskKey};

use super::{no_kernel, snapshot};

/// Code without frame pointers has anything instead of a return address.
#[test]
fn call_chains_end_where_an_address_is_not_canonical() {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let mut resolver = Resolver::new(no_kernel(), &[]);
    resolver.chained([RawChain {
        task: TaskKey {
            tgid: 4_000_000,
            exec_id: 2,
        },
        tid: 0,
        first_time: 5,
        event: EventIdx(0),
        ip: Va(KERNEL),
        frames: vec![
            Va(KERNEL),
            Va(KERNEL + 9),
            Va(0xdead_beef_0000_1234),
            Va(KERNEL + 99),
        ],
        top: Va(0),
        hits: 1,
        weight: 1,
    }]);
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: Vec::<Raw>::new(),
    }]);
    let snapshot = snapshot(resolver);
    assert_eq!(
        *snapshot.intervals[0].chains[0].frames,
        [Va(KERNEL), Va(KERNEL + 9)]
    );
    assert_eq!(
        snapshot.losses.get(Loss::TextNotCanonical),
        0,
        "it was not asked for"
    );
}
