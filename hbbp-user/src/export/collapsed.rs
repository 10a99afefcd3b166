//! Collapsed stacks for flame graphs: `ring;module;function;class executions`, one line each, sorted.
//!
//! No call stacks are recorded: the frames are the dimensions of the instruction mix, with the category of the instruction as
//! the leaf.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::counted::{Counted, Scale};
use super::image::Written;
use super::names::Names;
use crate::snapshot::ModuleIdx;

/// Writes the executions of a profile, or of one of its modules.
pub fn write_collapsed(
    counted: &Counted<'_>,
    only: Option<ModuleIdx>,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let mut names = Names::new(counted);
    let mut amounts: BTreeMap<[String; 4], f64> = BTreeMap::new();
    for executed in counted.executed_in(only) {
        let frames = [
            executed.ring.to_string(),
            names.module(executed.site).to_owned(),
            names.function(executed.site),
            names.class(&executed).category,
        ];
        *amounts.entry(frames.map(|name| frame(&name))).or_default() += executed.executions;
    }
    let mut written = Written::default();
    let executions: Vec<f64> = amounts.values().copied().collect();
    for (frames, count) in amounts.keys().zip(counted.whole(&executions, Scale::Executions)) {
        written.add("executions of instructions", count);
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
