//! What hostile profiles of rising size cost, step by step: `cargo xtask bench` runs it. Words choose
//! the lines that have all of them.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints a table, and fails like a test"
)]

#[path = "../tests/slopes/shapes.rs"]
mod shapes;
#[path = "../tests/slopes/steps.rs"]
mod steps;

use shapes::SHAPES;
use steps::{STEPS, cost};

fn main() {
    println!("CPU time in ms for n, 2n, 4n and 8n, and the power of n that the last doubling shows:");
    println!(
        "{:<44} {:<11} {:>7} {:>9} {:>9} {:>9} {:>9} {:>6}",
        "profile", "step", "n", "", "", "", "", "power"
    );
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    for shape in SHAPES {
        let is_asked = |(name, _): &&(&str, _)| {
            let line = format!("{} {name}", shape.name);
            words.iter().all(|word| line.contains(word.as_str()))
        };
        let steps: Vec<_> = STEPS.iter().filter(is_asked).collect();
        if steps.is_empty() {
            continue;
        }
        let profiles = [1, 2, 4, 8].map(|times| (shape.make)(times * shape.n));
        for (name, step) in steps {
            let costs = profiles.each_ref().map(|profile| cost(*step, profile, 3));
            let [first, second, third, last] = costs.map(|cost| 1e3 * cost);
            println!(
                "{:<44} {name:<11} {:>7} {first:>9.2} {second:>9.2} {third:>9.2} {last:>9.2} {:>6.2}",
                shape.name,
                shape.n,
                (last / third).log2()
            );
        }
    }
}
