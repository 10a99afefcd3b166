//! Differences as JSON, format `hbbp-sys.diff/1`.
//!
//! The format is specified in `diff.schema.json` (JSON Schema), which tests check.
//! A field may be added within version 1; nothing is renamed, removed or given another meaning without a new version.

use std::io::{self, Write};

use serde::Serialize;

use super::compared::DiffReport;
use hbbp_analysis::diff::{Change, Figure, Gate};
use hbbp_model::printable::write_json;
use hbbp_model::snapshot::{Snapshot, hex};

/// Writes the difference and a newline.
pub(super) fn write(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let [a, b] = report.sides;
    let document = Document {
        format: "hbbp-sys.diff/1",
        a: SideJson::new(a),
        b: SideJson::new(b),
        notes: report.notes,
        by: report.diff.by.iter().map(|axis| axis.name()).collect(),
        unit: report.diff.unit.id(),
        per: report.per.map(ToString::to_string),
        compared: report.diff.compared,
        changes: report.rows().iter().map(ChangeJson::new).collect(),
        more: report.diff.changes.len() - report.rows().len(),
        conditions: report.gates.iter().map(GateJson::new).collect(),
    };
    write_json(&document, out)
}

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    a: SideJson<'a>,
    b: SideJson<'a>,
    notes: &'a [String],
    by: Vec<&'a str>,
    unit: &'static str,
    per: Option<String>,
    compared: usize,
    changes: Vec<ChangeJson<'a>>,
    more: usize,
    conditions: Vec<GateJson<'a>>,
}

#[derive(Serialize)]
struct SideJson<'a> {
    name: &'a str,
    runs: Vec<RunJson<'a>>,
}

#[derive(Serialize)]
struct RunJson<'a> {
    host: &'a str,
    kernel_release: &'a str,
    kernel_build_id: String,
    cpu_model: &'a str,
    scope: &'a str,
    started: u64,
    duration: u64,
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    key: &'a [String],
    a_share: FigureJson,
    b_share: FigureJson,
    a_amount: Option<FigureJson>,
    b_amount: Option<FigureJson>,
    change: FigureJson,
    adjusted_p: f64,
    significant: bool,
}

#[derive(Serialize)]
struct FigureJson {
    value: f64,
    std_error: f64,
}

#[derive(Serialize)]
struct GateJson<'a> {
    condition: &'a str,
    failed: bool,
    a: FigureJson,
    b: FigureJson,
    change: FigureJson,
}

impl<'a> SideJson<'a> {
    fn new((name, runs): (&'a str, &'a [Snapshot])) -> Self {
        let run = |snapshot: &'a Snapshot| {
            let run = &snapshot.run;
            RunJson {
                host: &run.host.name,
                kernel_release: &run.host.kernel_release,
                kernel_build_id: hex(&run.host.kernel_build_id),
                cpu_model: &run.host.cpu_model,
                scope: &run.scope,
                started: run.started,
                duration: run.duration,
            }
        };
        Self {
            name,
            runs: runs.iter().map(run).collect(),
        }
    }
}

impl<'a> ChangeJson<'a> {
    fn new(change: &'a Change) -> Self {
        let [a_share, b_share] = change.shares.map(FigureJson::from);
        let amounts = change.amounts.map(|amounts| amounts.map(FigureJson::from));
        let (a_amount, b_amount) = match amounts {
            Some([a, b]) => (Some(a), Some(b)),
            None => (None, None),
        };
        Self {
            key: &change.key,
            a_share,
            b_share,
            a_amount,
            b_amount,
            change: change.change.into(),
            adjusted_p: change.adjusted_p,
            significant: change.is_significant(),
        }
    }
}

impl From<Figure> for FigureJson {
    fn from(Figure { value, std_error }: Figure) -> Self {
        Self { value, std_error }
    }
}

impl<'a> GateJson<'a> {
    fn new(gate: &'a Gate) -> Self {
        let [a, b] = gate.figures.map(FigureJson::from);
        Self {
            condition: &gate.text,
            failed: gate.failed,
            a,
            b,
            change: gate.change.into(),
        }
    }
}
