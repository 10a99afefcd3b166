//! Weights of stacks whose executions are known: by slots, cycles, bytes and text.

use super::*;
use crate::RanText;
use hbbp_model::addr::Va;

const EVENT: (u32, Trigger) = (0, Trigger::Time);

/// The `n`th branch of a loop at an address: each block has `bytes` bytes, and `cycles` pass in it.
fn branch(start: u64, n: u64, bytes: u64, cycles: u64) -> BranchEntry {
    const LOOP: u64 = 4;
    BranchEntry {
        from: start + 0x100 * (n % LOOP) + bytes,
        to: start + 0x100 * ((n + 1) % LOOP),
        flags: cycles << 4,
    }
}

/// A stack in a loop, taken after its `newest` branch.
fn stack(start: u64, newest: u64, bytes: u64, cycles: u64) -> Vec<BranchEntry> {
    (0..16)
        .map(|age| branch(start, newest + 64 - age, bytes, cycles))
        .collect()
}

/// Without any text.
fn look(weights: &mut SlotWeights, (event, counts): (u32, Trigger), entries: &[BranchEntry], times: u64) {
    weights.look(event, counts, &sample(times), entries, &mut |_, _, _, _| None);
}

fn ran(bytes: &[u8]) -> RanText {
    let bytes = bytes.to_vec();
    RanText { bits: 64, bytes }
}

const fn sample(times: u64) -> Sample<'static> {
    Sample {
        tgid: 7,
        tid: 7,
        time: 0,
        ip: None,
        period: None,
        stack: &[],
        times,
    }
}

fn weighed(event: (u32, Trigger), stacks: &[(Vec<BranchEntry>, u64)]) -> Vec<f64> {
    let mut weights = SlotWeights::default();
    for (entries, times) in stacks {
        look(&mut weights, event, entries, *times);
    }
    weights.settle();
    let amount =
        |(entries, times): &(Vec<BranchEntry>, u64)| weights.weight(event.0, 7, entries) * *times as f64;
    stacks.iter().map(amount).collect()
}

/// A block of the loop is slow: nine of ten stacks are taken after the branch before it.
#[test]
fn shares_of_branches_become_equal_in_all_slots() {
    let times = [(1, 9000), (2, 400), (3, 300), (4, 300)];
    let stacks: Vec<_> = times
        .into_iter()
        .map(|(newest, times)| (stack(0x1000, newest, 0x10, 0), times))
        .collect();
    for unit in [Trigger::Time, Trigger::Instructions, Trigger::Other] {
        let amounts = weighed((0, unit), &stacks);
        assert!(
            (amounts.iter().sum::<f64>() - 10_000.0).abs() < 1e-6,
            "{amounts:?}"
        );
        for amount in &amounts {
            assert!((amount / 2500.0 - 1.0).abs() < 0.2, "{unit:?}: {amounts:?}");
        }
    }
}

/// Two loops that no stack joins, of blocks of ten and of thirty bytes: as many stacks of both are three rounds of the
/// short one for each of the long one, unless the cycles say that these pass as fast.
#[test]
fn unconnected_loops_have_weights_by_cycles_or_bytes() {
    let loops = |cycles| {
        [(0x1000, 7), (0x9000, 27)]
            .into_iter()
            .flat_map(|(start, bytes)| (0..4).map(move |n| (start, n, bytes)))
            .map(|(start, n, bytes)| (stack(start, n, bytes, cycles), 1000))
            .collect::<Vec<_>>()
    };
    let ratio = |event, cycles| {
        let amounts = weighed(event, &loops(cycles));
        amounts[..4].iter().sum::<f64>() / amounts[4..].iter().sum::<f64>()
    };
    assert!((ratio(EVENT, 0) - 3.0).abs() < 0.05, "{}", ratio(EVENT, 0));
    assert!((ratio(EVENT, 5) - 1.0).abs() < 0.01, "{}", ratio(EVENT, 5));
    // Cycles say nothing where time is not the trigger.
    let instructions = (0, Trigger::Instructions);
    assert!((ratio(instructions, 5) - 3.0).abs() < 0.05);
    assert!((ratio((0, Trigger::Other), 5) - 1.0).abs() < 0.01);
}

/// Two loops of as many bytes; a block has five instructions in the first one and two in the other.
#[test]
fn text_is_used_where_most_streams_have_it() {
    let stacks: Vec<_> = [0x1000, 0x9000]
        .into_iter()
        .flat_map(|start| (0..4).map(move |n| stack(start, n, 4, 0)))
        .collect();
    let ratio = |is_known: fn(u64) -> bool| {
        let mut weights = SlotWeights::default();
        for entries in &stacks {
            let text = &mut |_, _, at: Va, _| {
                let bytes = if at.0 < 0x9000 {
                    [0x90; 5]
                } else {
                    [0x0f, 0x1f, 0x40, 0, 0x90]
                };
                is_known(at.0).then(|| ran(&bytes))
            };
            weights.look(0, Trigger::Instructions, &sample(1000), entries, text);
        }
        weights.settle();
        let [few, many] = [0, 4].map(|nth: usize| weights.weight(0, 7, &stacks[nth]));
        many / few
    };
    assert!((ratio(|_| true) - 2.5).abs() < 0.05, "{}", ratio(|_| true));
    assert!((ratio(|at| at == 0x1000) - 1.0).abs() < 0.01, "by bytes");
}

/// Two loops that no stack joins, of blocks of eight bytes with four instructions each. Those of the second one are loads, which
/// take five cycles on this processor; in the first one, a block of each kind shows that.
#[test]
fn instruction_times_of_one_loop_weight_another() {
    const PLAIN: [u8; 8] = [0x01, 0xd0, 0x01, 0xd0, 0x01, 0xd0, 0xeb, 0x00];
    const LOADS: [u8; 8] = [0x8b, 0x07, 0x8b, 0x07, 0x8b, 0x07, 0xeb, 0x00];
    // With the taken branch: 5 and 17 cycles. A block follows the next branch.
    let loads = |start: u64, n: u64| start == 0x9000 || n.is_multiple_of(4);
    let cycles = |start, n| if loads(start, n) { 17 } else { 5 };
    let loops = |start: u64, rounds: u64| {
        (0..4).map(move |newest| (stack(start, newest, 6, 0), rounds * cycles(start, newest + 1)))
    };
    // As many rounds of both.
    let stacks: Vec<_> = loops(0x1000, 100).chain(loops(0x9000, 100)).collect();
    let mut weights = SlotWeights::default();
    for (entries, times) in &stacks {
        let text = &mut |_, _, at: Va, _| {
            let (start, n) = (at.0 & !0xfff, at.0 >> 8 & 3);
            Some(ran(if loads(start, n) { &LOADS } else { &PLAIN }))
        };
        let sample = Sample {
            ip: Some(Va(entries[0].to)),
            ..sample(*times)
        };
        weights.look(EVENT.0, EVENT.1, &sample, entries, text);
    }
    weights.settle();
    let amount = |(entries, times): &(Vec<BranchEntry>, u64)| weights.weight(0, 7, entries) * *times as f64;
    let amounts: Vec<f64> = stacks.iter().map(amount).collect();
    let [first, second] = [&amounts[..4], &amounts[4..]].map(|amounts| amounts.iter().sum::<f64>());
    // By bytes it is 0.47; the prior for loads, two cycles, has some part in the fit.
    assert!((first / second - 1.0).abs() < 0.2, "{first} {second}");
    for amount in &amounts[..4] {
        assert!((4.0 * amount / first - 1.0).abs() < 0.1, "{amounts:?}");
    }
}

#[test]
fn stacks_without_information_have_weight_one() {
    let mut weights = SlotWeights::default();
    let entries = stack(0x1000, 1, 0x10, 0);
    look(&mut weights, EVENT, &entries, 90);
    look(&mut weights, EVENT, &stack(0x1000, 2, 0x10, 0), 10);
    weights.settle();
    assert_eq!(weights.weight(0, 7, &entries[..2]), 1.0, "too short");
    assert_eq!(weights.weight(1, 7, &entries), 1.0, "another event");
    assert_eq!(weights.weight(0, 8, &entries), 1.0, "another process");
    assert!(weights.weight(0, 7, &entries) < 0.9);
}
