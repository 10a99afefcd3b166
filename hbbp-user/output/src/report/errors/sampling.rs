//! The errors by sampling method: those that the profile serves side by side, with what each sampled, and why the others have
//! none.

use serde::Serialize;

use super::evaluated::{Errors, SamplingMethod};
use super::notes::Note;
use crate::report::header::event_in_words;
use hbbp_analysis::eval::{Group, Method, Served};

impl Errors<'_> {
    /// The sampling methods that the profile serves, each with the estimate that is its own.
    pub(super) fn served(&self) -> impl Iterator<Item = (&'static str, Method)> {
        self.sampling.iter().filter_map(|(method, served)| {
            let served = served.as_ref().ok()?;
            Some((method.name(), served.estimate))
        })
    }

    /// What each sampling method sampled, and why the others are not served.
    pub(super) fn recordings(&self) -> Vec<Note> {
        let note = |(method, served): &SamplingMethod<'_>| Note {
            label: method.name(),
            words: match served {
                Ok(served) => recording(served),
                Err(why) => format!("not served: {why}"),
            },
        };
        self.sampling.iter().map(note).collect()
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
