//! Rules on recordings: what `hbbp-sys eval` says of each, side by side.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use kernel_tests::host;
use serde_json::Value;

use crate::folds::mean;
use crate::recordings::Recording;

/// Errors of the hybrid by a rule, as fractions of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Errors {
    /// Average weighted error of the mnemonics (paper section VI.B).
    pub(crate) mix: f64,
    /// Accuracy error over the blocks.
    pub(crate) blocks: f64,
}

/// Evaluates a recording by a rule's name or file; writes its blocks to a file if one is named.
///
/// # Errors
/// When the program fails, or the recording has no executions.
pub(crate) fn eval(
    program: &Path,
    recording: &Recording,
    rule: &str,
    blocks: Option<&Path>,
) -> Result<Errors> {
    let mut command = Command::new(program);
    command.arg("eval").arg(recording.profile());
    command.arg("--reference").arg(recording.reference());
    command.args(["--rule", rule, "--by", "ring", "--top", "1", "--format", "json"]);
    if let Some(blocks) = blocks {
        command.arg("--blocks").arg(blocks);
    }
    let said: Value = serde_json::from_str(&host::output(&mut command)?)
        .context("failed to understand what hbbp-sys eval says")?;
    let error = |name: &str| {
        let found = said.pointer(&format!("/whole/{name}/hybrid"));
        let of = || format!("{}: no {name}", recording.profile().display());
        found.and_then(Value::as_f64).with_context(of)
    };
    Ok(Errors {
        mix: error("average_weighted_error")?,
        blocks: error("block_error")?,
    })
}

/// The rules of a line of the table, in its order.
pub(crate) const TITLES: [&str; 4] = ["paper", "learnt", "default", "learnt, balanced"];

/// The errors of a recording by each rule.
pub(crate) struct Line<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) errors: [Errors; 4],
}

/// The table of the recordings of a machine.
pub(crate) fn table(lines: &[Line<'_>]) -> String {
    let row = |name: &str, figures: [f64; 4]| {
        let [a, b, c, d] = figures.map(|figure| format!("{:.2}", 100.0 * figure));
        format!("{name:<16} {a:>8} {b:>8} {c:>8} {d:>17}\n")
    };
    let [a, b, c, d] = TITLES;
    let mut text = format!("{:<16} {a:>8} {b:>8} {c:>8} {d:>17}\n", "workload");
    for line in lines {
        text += &row(&line.recording.workload, line.errors.map(|it| it.mix));
    }
    let figures = |of: fn(&Errors) -> f64, rule: usize| -> Vec<f64> {
        lines.iter().map(|line| of(&line.errors[rule])).collect()
    };
    let each = |of: fn(&Errors) -> f64, sum: fn(&[f64]) -> f64| -> [f64; 4] {
        std::array::from_fn(|rule| sum(&figures(of, rule)))
    };
    text += &row("mean", each(|it| it.mix, |all| mean(all).0));
    text += &row(
        "worst",
        each(|it| it.mix, |all| all.iter().copied().fold(0.0, f64::max)),
    );
    text += &row("mean, blocks", each(|it| it.blocks, |all| mean(all).0));
    for (learnt, other) in [(1, 0), (3, 2)] {
        let pairs = lines
            .iter()
            .map(|line| (line.errors[learnt].mix, line.errors[other].mix));
        let differences: Vec<f64> = pairs.map(|(learnt, other)| learnt - other).collect();
        let (mean, std_error) = mean(&differences);
        let better = differences.iter().filter(|difference| **difference < 0.0).count();
        let equal = differences
            .iter()
            .filter(|difference| **difference == 0.0)
            .count();
        text += &format!(
            "{} - {}: {:+.2} ± {:.2} in the mean; better on {better} of {} workloads, the same on {equal}\n",
            TITLES[learnt],
            TITLES[other],
            100.0 * mean,
            100.0 * std_error,
            lines.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_means_and_paired_differences() {
        let recordings = ["a", "b"].map(|name| Recording::of_test("6.12-ivb", name));
        let errors = |mix: [f64; 4]| {
            mix.map(|mix| Errors {
                mix,
                blocks: 2.0 * mix,
            })
        };
        let lines = [
            Line {
                recording: &recordings[0],
                errors: errors([0.04, 0.02, 0.01, 0.01]),
            },
            Line {
                recording: &recordings[1],
                errors: errors([0.02, 0.03, 0.01, 0.0]),
            },
        ];
        let text = table(&lines);
        let words = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().collect()
        };
        assert_eq!(words("mean "), ["mean", "3.00", "2.50", "1.00", "0.50"]);
        assert_eq!(words("worst"), ["worst", "4.00", "3.00", "1.00", "1.00"]);
        assert_eq!(
            words("mean, blocks"),
            ["mean,", "blocks", "6.00", "5.00", "2.00", "1.00"]
        );
        assert!(
            text.contains(
                "learnt - paper: -0.50 ± 1.50 in the mean; better on 1 of 2 workloads, the same on 0"
            ),
            "{text}"
        );
    }
}
