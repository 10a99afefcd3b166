//! The errors by sampling method: those that the profile serves side by side, with what each sampled, and why the others have
//! none.

use std::io;

use serde::Serialize;

use super::evaluated::{Errors, SamplingMethod};
use crate::report::header::event_in_words;
use crate::report::page::Page;
use hbbp_analysis::eval::{Group, Method, Served};

impl Errors<'_> {
    /// The errors of the sampling methods that the profile serves, what each sampled, and why the others are not served.
    pub(super) fn sampling(&self, page: &mut Page<'_>) -> io::Result<()> {
        let served = self.sampling.iter().filter_map(|(method, served)| {
            let served = served.as_ref().ok()?;
            Some((method.name(), served.estimate))
        });
        let served: Vec<(&str, Method)> = served.collect();
        if !served.is_empty() {
            page.heading("Accuracy error over blocks by sampling method, in % of the reference")?;
            let table = self.group_table(&served, Group::block_error, page.look.demangle);
            page.table(&table, |_| None)?;
        }
        page.line("")?;
        for (method, served) in self.sampling {
            let said = match served {
                Ok(served) => recording(served),
                Err(why) => format!("not served: {why}"),
            };
            page.entry(&format!("{:<13}  ", method.name()), &said)?;
        }
        Ok(())
    }
}

/// The events that a method sampled.
fn recording(served: &Served<'_>) -> String {
    let events: Vec<String> = served.events.into_iter().flatten().map(event_in_words).collect();
    events.join("; ")
}

#[derive(Serialize)]
pub(super) struct SamplingJson {
    method: &'static str,
    /// The events it sampled; null if the profile does not serve the method.
    recording: Option<String>,
    /// Accuracy error over blocks of everything, as a fraction.
    block_error: Option<f64>,
    /// Why the profile does not serve it.
    reason: Option<String>,
}

impl SamplingJson {
    pub(super) fn new((method, served): &SamplingMethod<'_>, whole: &Group) -> Self {
        let found = served.as_ref().ok();
        Self {
            method: method.name(),
            recording: found.map(recording),
            block_error: found.and_then(|served| whole.block_error(served.estimate)),
            reason: served.as_ref().err().map(ToString::to_string),
        }
    }
}
