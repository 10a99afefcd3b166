//! What is said of a comparison in addition to its tables.

use super::evaluated::Errors;
use super::tables::DIGITS;
use crate::report::number::{percent, scaled};
use hbbp_analysis::eval::{Calibration, Evaluation, LEAST, Method, SAMPLES};

/// A sentence and what it is about.
pub(super) struct Note {
    pub(super) label: &'static str,
    pub(super) words: String,
}

impl Errors<'_> {
    /// What is compared, how near estimates are for their errors, and the distance by address.
    pub(super) fn notes(&self) -> Vec<Note> {
        let Evaluation {
            taken,
            samples,
            stacks,
            left_out,
            iterates,
            ..
        } = self.evaluation;
        let total = scaled(self.whole.total().reference, DIGITS);
        let taken = taken.map_or_else(String::new, |taken| {
            format!(", {} taken branches", scaled(taken, DIGITS))
        });
        let (samples, stacks) = (scaled(*samples, DIGITS), scaled(*stacks, DIGITS));
        let note = |label, words| Note { label, words };
        let mut notes = vec![
            note("reference", format!("{total} instructions{taken}")),
            note(
                "measured",
                format!("{samples} samples of instructions, {stacks} branch stacks"),
            ),
        ];
        if 0.0 < *left_out {
            let left_out = scaled(*left_out, DIGITS);
            let words = format!("{left_out} instructions of code that the reference does not count");
            notes.push(note("left out", words));
        }
        if *iterates {
            let words =
                "the reference counts each iteration of a string instruction, the profile one instruction";
            notes.push(note("REP", words.to_owned()));
        }
        let calibration = self.evaluation.calibration.map(near);
        notes.extend(calibration.map(|words| note("errors", words)));
        let distances = Method::ALL.into_iter().filter_map(|method| {
            let distance = self.evaluation.distance(method)?;
            Some(format!("{} {} %", method.name(), percent(distance)))
        });
        let distances = distances.collect::<Vec<_>>().join(", ");
        if !distances.is_empty() {
            let words = format!("{distances} of the executions are at the wrong address");
            notes.push(note("distance", words));
        }
        notes
    }
}

/// How many estimates are as near as their errors say.
fn near(
    Calibration {
        mnemonics,
        within,
        functions,
        functions_within,
    }: Calibration,
) -> String {
    let least = percent(LEAST);
    let of_functions = match functions {
        0 => String::new(),
        _ => format!(" and {functions_within} of {functions} functions of {SAMPLES} samples or more"),
    };
    format!(
        "{within} of {mnemonics} mnemonics of {least} % or more{of_functions} are within two standard errors"
    )
}
