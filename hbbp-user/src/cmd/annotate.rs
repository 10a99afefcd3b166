//! `hbbp-sys annotate`: the code of functions with its counts, from a profile or a recording.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::import::ImportOptions;
use super::pager::{Paging, paged};
use super::rights::with_rights_of_caller;
use super::runs::read_profile;
use super::source_text::SourceTexts;
use super::static_image::StaticImage;
use hbbp_analysis::annotate::{Annotated, Code, Heat, Query, annotated, find, hottest};
use hbbp_analysis::mix::Estimated;
use hbbp_model::advice::Advised;
use hbbp_model::names::file_name;
use hbbp_model::snapshot::{ModuleIdx, Snapshot, SourceLocations};
use hbbp_output::report::{AnnotatedReport, Look, Shown, TextOrJson};
use hbbp_resolve::source::lines::SourceLines;

/// What to annotate, and how to show it.
#[derive(Clone, Debug)]
pub struct AnnotateOptions {
    /// The profile or recording.
    pub input: ImportOptions,
    /// Which code.
    pub what: What,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Text or JSON.
    pub format: TextOrJson,
    /// How text looks.
    pub look: Look,
    /// Which instructions are shown.
    pub shown: Shown,
    /// Whether a pager shows text.
    pub paging: Paging,
    /// Static image of the kernel, and files with debug information.
    pub files: Vec<PathBuf>,
}

/// Which code is annotated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// One function.
    Asked(Query),
    /// The functions that executed most instructions.
    Hottest(usize),
}

/// Prints annotated code. A closed pipe is not an error.
pub fn annotate(options: &AnnotateOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let snapshot = read_profile(&options.input)?;
    let rule = super::rule::read(&options.rule)?;
    let estimated = Estimated::new(&snapshot, &rule);
    let mut lines = SourceLines::new(&snapshot, options.files.clone());
    let heat = hottest(&estimated);
    let codes = chosen(&snapshot, &estimated, &heat, &options.what, &mut lines)?;
    let mut image = StaticImage::new(&snapshot, &options.files);
    let mut functions: Vec<Annotated> = Vec::with_capacity(codes.len());
    for code in &codes {
        let mut source = |module, at| lines.find(module, at)?.line;
        let mut linked = |at, bytes: &[u8]| image.text(code.module, at, bytes);
        functions.extend(annotated(
            &estimated,
            code,
            options.look.demangle,
            &mut source,
            &mut linked,
        ));
    }
    let mut texts = SourceTexts::new(snapshot.run.started);
    if options.format == TextOrJson::Text {
        // If these rights cannot be had, the code has no source text.
        let _ = with_rights_of_caller(|| add_source(&mut functions, &mut texts));
    }
    let left_out = match options.what {
        What::Hottest(n) => nameless_left_out(&snapshot, &heat, n),
        What::Asked(_) => Vec::new(),
    };
    let notes = image.note().into_iter().chain(texts.note()).chain(left_out);
    let notes: Vec<String> = notes.collect();
    let unit = estimated.counts().assignment.unit;
    let report = AnnotatedReport::new(&snapshot, unit, &functions, &notes);
    paged(options.paging, out, &mut |out| {
        let mut out = BufWriter::new(out);
        report.write(options.format, options.look, options.shown, &mut out)?;
        out.flush()
    })
    .context("failed to print annotated code")
}

/// Adds the text of the source lines.
fn add_source(functions: &mut [Annotated], texts: &mut SourceTexts) {
    let versions = functions.iter_mut().flat_map(|function| &mut function.versions);
    for line in versions.flat_map(|version| &mut version.instructions) {
        if let Some(source) = &mut line.source {
            source.text = texts.line(&source.place);
        }
    }
}

/// The code that the user wants.
fn chosen(
    snapshot: &Snapshot,
    estimated: &Estimated<'_>,
    heat: &[Heat],
    what: &What,
    lines: &mut SourceLines<'_>,
) -> anyhow::Result<Vec<Code>> {
    if heat.is_empty() {
        bail!("the profile has no instruction that was executed: `hbbp-sys report` says why");
    }
    match what {
        What::Hottest(n) => Ok(heat.iter().take(*n).map(|heat| heat.code.clone()).collect()),
        What::Asked(query) => {
            let locations = match query {
                Query::Line(_) => lines.read(estimated.instructions()),
                Query::Function(_) | Query::Address(_) | Query::InModule(..) => SourceLocations::new(),
            };
            let found = find(snapshot, heat, query, &locations).map_err(Advised::from)?;
            Ok(vec![found.code])
        }
    }
}

/// Sentences on code without names that is hotter in all than the last of the `n` hottest functions. A report sums it in a
/// row for its module; here each piece of it counts by itself.
fn nameless_left_out(snapshot: &Snapshot, heat: &[Heat], n: usize) -> Vec<String> {
    let (shown, others) = heat.split_at(n.min(heat.len()));
    let mut pieces: BTreeMap<ModuleIdx, Vec<f64>> = BTreeMap::new();
    for heat in others {
        let module = snapshot.modules.get(heat.code.module.0 as usize);
        if module.is_some_and(|module| module.symbol_at(heat.code.start).is_none()) {
            pieces.entry(heat.code.module).or_default().push(heat.amount);
        }
    }
    let total: f64 = heat.iter().map(|heat| heat.amount).sum();
    let coldest = shown.last().map_or(f64::INFINITY, |heat| heat.amount);
    let sentence = |(module, amounts): (ModuleIdx, Vec<f64>)| {
        let amount: f64 = amounts.iter().sum();
        let module = snapshot
            .modules
            .get(module.0 as usize)
            .filter(|_| coldest < amount)?;
        let module = file_name(&module.name);
        Some(format!(
            "{:.2} % of all is in {} more pieces of code of {module} without names, which reports sum as `[{module}]`: \
             here each counts by itself",
            100.0 * amount / total,
            amounts.len(),
        ))
    };
    pieces.into_iter().filter_map(sentence).collect()
}
