//! Annotated code as JSON, format `hbbp-sys.annotate/1`.
//!
//! The format is specified in `annotate.schema.json` next to this folder (JSON Schema), which tests check. A field may
//! be added within version 1; nothing is renamed, removed or given another meaning without a new version.

use std::io::{self, Write};

use serde::Serialize;

use super::shown::{AnnotatedReport, share};
use hbbp_analysis::annotate::{Annotated, Block, Branch, Line, Version};
use hbbp_estimate::Estimate;
use hbbp_model::names::{self, Demangle};
use hbbp_model::printable::write_json;
use hbbp_model::snapshot::hex;

/// Writes the functions and a newline.
pub(super) fn write(report: &AnnotatedReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let run = &report.snapshot.run;
    let document = Document {
        format: "hbbp-sys.annotate/1",
        host: &run.host.name,
        kernel_release: &run.host.kernel_release,
        scope: &run.scope,
        unit: report.unit.id(),
        notes: report.notes,
        functions: report
            .functions
            .iter()
            .map(|function| FunctionJson::new(report, function))
            .collect(),
    };
    write_json(&document, out)
}

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    host: &'a str,
    kernel_release: &'a str,
    scope: &'a str,
    unit: &'static str,
    notes: &'a [String],
    functions: Vec<FunctionJson<'a>>,
}

#[derive(Serialize)]
struct FunctionJson<'a> {
    module: &'a str,
    build_id: String,
    /// As in the symbol table.
    name: &'a str,
    /// Demangled.
    shown: String,
    start: String,
    end: String,
    amount: f64,
    share: f64,
    samples: u64,
    versions: Vec<VersionJson<'a>>,
}

#[derive(Serialize)]
struct VersionJson<'a> {
    valid: Vec<[u64; 2]>,
    amount: f64,
    instructions: Vec<LineJson<'a>>,
    branches: Vec<BranchJson>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    address: String,
    bytes: String,
    text: &'a str,
    count: f64,
    samples: u64,
    /// Time and its quotient by executions; missing where time was not sampled, null where executions are too few.
    #[serde(flatten)]
    time: Option<TimeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predictions: Option<PredictionsJson>,
    block: Option<BlockJson>,
    source_line: Option<&'a str>,
    linked: &'a [String],
}

#[derive(Serialize)]
struct PredictionsJson {
    known: u64,
    wrong: u64,
}

#[derive(Serialize)]
struct TimeJson {
    time: f64,
    cpi: Option<f64>,
    cpi_std_error: Option<f64>,
}

#[derive(Serialize)]
struct BlockJson {
    source: Option<&'static str>,
    reason: Option<&'static str>,
    chosen: Option<EstimateJson>,
    ebs: Option<EstimateJson>,
    lbr: Option<EstimateJson>,
    biased: bool,
}

#[derive(Serialize)]
struct EstimateJson {
    count: f64,
    std_error: f64,
    hits: f64,
}

#[derive(Serialize)]
struct BranchJson {
    from: String,
    to: String,
    taken: Option<u64>,
}

impl<'a> FunctionJson<'a> {
    fn new(report: &AnnotatedReport<'a>, function: &'a Annotated) -> Self {
        let code = &function.code;
        let module = report.module(function);
        Self {
            module: module.map_or("", |module| &module.name),
            build_id: module.map(|module| hex(&module.build_id)).unwrap_or_default(),
            name: &code.name,
            shown: names::function(&code.name, Demangle::On),
            start: code.start.to_string(),
            end: code.end.to_string(),
            amount: function.amount,
            share: share(function.amount, function.total),
            samples: function.samples,
            versions: function.versions.iter().map(VersionJson::new).collect(),
        }
    }
}

impl<'a> VersionJson<'a> {
    fn new(version: &'a Version) -> Self {
        Self {
            valid: version
                .valid
                .iter()
                .map(|valid| [valid.start, valid.end])
                .collect(),
            amount: version.amount,
            instructions: version.instructions.iter().map(LineJson::new).collect(),
            branches: version.branches.iter().map(BranchJson::new).collect(),
        }
    }
}

impl<'a> LineJson<'a> {
    fn new(line: &'a Line) -> Self {
        Self {
            address: line.addr.to_string(),
            bytes: hex(&line.bytes),
            text: &line.text,
            count: line.executions.value,
            samples: line.samples,
            time: line.time.map(|time| TimeJson {
                time: time.value,
                cpi: line.cpi.map(|cpi| cpi.value),
                cpi_std_error: line.cpi.map(|cpi| cpi.std_error),
            }),
            predictions: line.predictions.map(|it| PredictionsJson {
                known: it.known,
                wrong: it.wrong,
            }),
            block: line.block.map(BlockJson::new),
            source_line: line.source.as_ref().map(|source| source.place.as_str()),
            linked: &line.linked,
        }
    }
}

impl BlockJson {
    fn new(block: Block) -> Self {
        Self {
            source: block.chosen.map(|(_, method, _)| method.name()),
            reason: block.chosen.map(|(_, _, reason)| reason.id()),
            chosen: block.chosen.map(|(estimate, ..)| estimate.into()),
            ebs: block.ebs.map(EstimateJson::from),
            lbr: block.lbr.map(EstimateJson::from),
            biased: block.biased,
        }
    }
}

impl From<Estimate> for EstimateJson {
    fn from(estimate: Estimate) -> Self {
        Self {
            count: estimate.count,
            std_error: estimate.std_error,
            hits: estimate.hits,
        }
    }
}

impl BranchJson {
    fn new(branch: &Branch) -> Self {
        Self {
            from: branch.from.to_string(),
            to: branch.to.to_string(),
            taken: branch.taken,
        }
    }
}
