//! Collapsed stacks for flame graphs: `ring;module;function;class executions`, one line each, sorted.
//!
//! No call stacks are recorded: the frames are the dimensions of the instruction mix, with the category of the instruction as
//! the leaf.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::counted::{Counted, Only, WholeNumbers};
use super::image::{FOR_ALL, Written};
use super::names::Names;

/// Writes the executions of all runs of a profile, or of some modules of each.
pub fn write_collapsed(
    runs: &[(&Counted<'_>, Only<'_>)],
    numbers: WholeNumbers,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let mut amounts: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for (counted, only) in runs {
        let mut names = Names::new(counted);
        let unit = counted.counts.assignment.unit;
        // Lines have nothing but frames: the outermost one says that these are not executions.
        let root = unit.is_samples().then(|| format!("[{}]", unit.noun()));
        for executed in counted.executed_in(*only) {
            let class = names.class(&executed);
            let frames = [
                &executed.ring.to_string(),
                names.module(executed.site),
                &names.function(executed.site),
                &class.category,
            ];
            let frames = root.iter().cloned().chain(frames.map(frame)).collect();
            *amounts.entry(frames).or_default() += executed.executions;
        }
    }
    let mut written = Written::default();
    let executions: Vec<f64> = amounts.values().copied().collect();
    for (frames, count) in amounts.keys().zip(numbers.of(&executions)) {
        written.add(FOR_ALL, count);
        if 0 < count {
            writeln!(out, "{} {count}", frames.join(";"))?;
        }
    }
    Ok(written)
}

/// A frame: `;` ends frames.
fn frame(name: &str) -> String {
    name.replace(';', ":")
}
