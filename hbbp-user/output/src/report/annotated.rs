//! Annotated code as text or as JSON of the format `hbbp-sys.annotate/1`.

mod arrows;
mod figures;
mod json;
mod rows;
mod text;

use std::io::{self, Write};

use super::{Look, TextOrJson};
use hbbp_analysis::annotate::Annotated;
use hbbp_estimate::Unit;
use hbbp_model::snapshot::{Module, Snapshot};

/// The annotated code of some functions of a snapshot.
#[derive(Debug)]
pub struct AnnotatedReport<'a> {
    snapshot: &'a Snapshot,
    unit: Unit,
    functions: &'a [Annotated],
    notes: &'a [String],
}

/// Which instructions text shows; JSON has all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shown {
    /// Those that were executed, with a few around them.
    #[default]
    Executed,
    /// All.
    All,
}

impl<'a> AnnotatedReport<'a> {
    /// The report on functions of a snapshot, whose amounts have this unit; `notes` are sentences that the reader must know.
    pub fn new(snapshot: &'a Snapshot, unit: Unit, functions: &'a [Annotated], notes: &'a [String]) -> Self {
        Self {
            snapshot,
            unit,
            functions,
            notes,
        }
    }

    /// Writes the report.
    pub fn write(&self, format: TextOrJson, look: Look, shown: Shown, out: &mut dyn Write) -> io::Result<()> {
        match format {
            TextOrJson::Json => json::write(self, out),
            TextOrJson::Text => text::write(self, look, shown, out),
        }
    }

    fn module(&self, function: &Annotated) -> Option<&'a Module> {
        self.snapshot.modules.get(function.code.module.0 as usize)
    }
}

/// `part / whole`, 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}
