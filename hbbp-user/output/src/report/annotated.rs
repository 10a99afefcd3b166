//! Annotated code as text or as JSON of the format `hbbp-sys.annotate/1`.

mod arrows;
mod figures;
mod json;
mod rows;
mod shown;
mod text;

use std::io::{self, Write};

use super::{Look, TextOrJson};
use hbbp_analysis::annotate::Annotated;
use hbbp_estimate::Unit;
use hbbp_model::snapshot::{Module, Snapshot};
pub use shown::{AnnotatedReport, Shown};

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
