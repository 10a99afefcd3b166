//! Borders of intervals where samples are lost: they go by the counter's own value, so they stay where they are.

use super::files::{INTERVAL, blocks_of, exact_vectors, lengths, mean_distance, read_vectors};
use super::recorded;

/// A third of all records never reach the kernel.
const LOSSY: &str = "fault.drop_percent = 33";
/// Mean distance that is allowed: two thirds of the samples are a little farther from the truth than all of them.
const DISTANCE: f64 = 0.07;

#[test]
#[ignore = "runs in --all"]
fn lost_samples_do_not_move_the_borders_of_intervals() {
    let Some(outcome) = recorded(("phases.c", "phases", "4"), LOSSY) else {
        return;
    };
    let counters = outcome.counters().unwrap();
    let (lost, all) = (counters["lost_dropped"], counters["overflows"]);
    let lengths = lengths(&outcome);
    let text = |name: &str| outcome.text(name).unwrap();
    let blocks = blocks_of(&text("blocks.csv"), &lengths);
    let exact = exact_vectors(&outcome, &lengths, &blocks);
    let ours = read_vectors(&text("bb.out"));
    let apart = mean_distance(&ours, &exact);
    println!(
        "{lost} of {all} samples lost: {} intervals of {INTERVAL}, {} in the trace, distance {:.2} %",
        ours.len(),
        exact.len(),
        100.0 * apart
    );
    assert!(all < 4 * lost, "{lost} of {all}");
    assert!(ours.len().abs_diff(exact.len()) <= 1);
    assert!(apart <= DISTANCE, "{apart}");
}
