//! `hbbp-sys export`: converts a profile or a recording to the formats of other tools.

mod image_format;
mod images;
mod summary;
mod whole;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::import::ImportOptions;
use super::input::open_recording;
use super::runs::{read_profile, read_runs};
use super::units::check_one_unit;
use hbbp_estimate::Unit;
use hbbp_import::perf_data::PerfData;
use hbbp_import::{EntryText, Format, ImportError, RecordedEvent, entries};
use hbbp_model::snapshot::Loss;
use hbbp_output::export::StreamFilter;
use hbbp_output::export::branches::write_branches;
use hbbp_output::export::counted::Counted;
use hbbp_output::export::counts::{CountSource, write_counts};
use hbbp_output::export::streams::write_streams;
use hbbp_resolve::kernel::recorded::KernelPlace;
pub(crate) use image_format::ImageFormat;
pub(crate) use whole::WholeFormat;

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The profile or recording.
    pub input: ImportOptions,
    /// In which format.
    pub format: ExportFormat,
    /// The image: a build id, a path, a module or `vmlinux`.
    pub image: Option<String>,
    /// A file, or a directory for all images; standard output if there is none.
    pub output: Option<PathBuf>,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
}

/// The formats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExportFormat {
    /// Lines for scripts, of all images, as recorded.
    Lines(ExportLines),
    /// A profile of one image.
    Image(ImageFormat),
    /// All images together.
    Whole(WholeFormat),
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExportLines {
    /// `S start end count`.
    Streams(StreamFilter),
    /// `B from to count mispredicted`.
    Branches,
    /// `address executions`; by default from streams if there are any, else from samples.
    Counts(Option<CountSource>),
    /// Every branch stack of a recording as `perf script -F ip,brstack` prints it.
    Entries,
}

/// Exports, and returns what the user must know of it, sentence by sentence.
pub(crate) fn run(options: &ExportOptions, out: &mut dyn Write) -> anyhow::Result<Vec<String>> {
    let mut out = BufWriter::new(out);
    let warnings = write(options, &mut out)?;
    out.flush()?;
    Ok(warnings)
}

fn write(options: &ExportOptions, out: &mut dyn Write) -> anyhow::Result<Vec<String>> {
    let lines = match options.format {
        ExportFormat::Lines(lines) => lines,
        format => return write_profile(options, format, out),
    };
    write_lines(options, lines, out)?;
    Ok(Vec::new())
}

/// Exports executions: those of the report.
fn write_profile(
    options: &ExportOptions,
    format: ExportFormat,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let rule = super::rule::read(&options.rule)?;
    let runs = read_runs(&options.input)?;
    let runs: Vec<Counted<'_>> = runs.iter().map(|run| Counted::new(run, &rule)).collect();
    check_one_unit(runs.iter().map(|run| (&run.snapshot.run, &run.counts.assignment)))?;
    let (image, output) = (options.image.as_deref(), options.output.as_deref());
    let mut named = options.input.places.binaries.clone();
    if let KernelPlace::Vmlinux(image) = &options.input.kernel {
        named.push(image.clone());
    }
    let mut warnings = match format {
        ExportFormat::Lines(_) => Vec::new(),
        ExportFormat::Image(format) => images::export_images(&runs, format, image, &named, output, out)?,
        ExportFormat::Whole(format) => whole::export_whole(&runs, format, image, &named, output, out)?,
    };
    match runs.first().map(|run| run.counts.assignment.unit) {
        None | Some(Unit::Executions | Unit::RelativeExecutions) => {}
        Some(unit) => warnings.push(format!(
            "counts are {}: they show where time went, not how often instructions ran",
            unit.noun()
        )),
    }
    Ok(warnings)
}

fn write_lines(options: &ExportOptions, lines: ExportLines, out: &mut dyn Write) -> anyhow::Result<()> {
    match lines {
        ExportLines::Entries => write_entries(&options.input.file, options.input.pid, out)?,
        ExportLines::Streams(filter) => write_streams(&read_profile(&options.input)?, filter, out)?,
        ExportLines::Branches => write_branches(&read_profile(&options.input)?, out)?,
        ExportLines::Counts(source) => {
            let snapshot = read_profile(&options.input)?;
            let has_streams = snapshot
                .intervals
                .iter()
                .any(|interval| !interval.streams.is_empty());
            let best = if has_streams {
                CountSource::Lbr
            } else {
                CountSource::Ebs
            };
            let source = source.unwrap_or(best);
            // Counts of one method are as recorded; the hybrid is that of the report.
            let rule = super::rule::read(match source {
                CountSource::Ebs | CountSource::Lbr => "paper",
                CountSource::Hybrid => &options.rule,
            })?;
            write_counts(&snapshot, source, &rule, out)?;
        }
    }
    Ok(())
}

/// Entries are not part of a snapshot, so they are read from the recording.
fn write_entries(path: &Path, pid: Option<u32>, out: &mut dyn Write) -> anyhow::Result<()> {
    let shown = path.display();
    let failed = || format!("failed to read {shown}");
    let files = open_recording(path, &Default::default())
        .with_context(failed)?
        .files;
    if files.format != Format::PerfData {
        bail!("{shown} is already text; --format entries needs perf.data");
    }
    let mut data = PerfData::open(files.file, files.len, files.parts).with_context(failed)?;
    data.read_sideband(&mut |_| {}).with_context(failed)?;
    let events = &data.header.events;
    let has_stacks: Vec<bool> = events.iter().map(RecordedEvent::has_branch_stacks).collect();
    let mut written = Ok(());
    let (mut n_stacks, mut n_empty) = (0_u64, 0_u64);
    data.read_samples(&mut |_| {}, &mut |event, sample, _| {
        let wanted = pid.is_none_or(|pid| pid == sample.tgid);
        if !wanted || !has_stacks.get(event).copied().unwrap_or(false) {
            return;
        }
        if sample.stack.is_empty() {
            n_empty += 1;
        } else if written.is_ok() {
            n_stacks += 1;
            written = write_stack(sample.ip.map_or(0, |ip| ip.0), sample.stack, out);
        }
    })
    .with_context(failed)?;
    written?;
    if n_stacks == 0 {
        return Err(ImportError::NoStacks).with_context(failed);
    }
    if 0 < n_empty {
        writeln!(out, "# discarded {} {n_empty}", Loss::NoStack.id())?;
    }
    Ok(())
}

fn write_stack(ip: u64, stack: &[u8], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{ip:16x} ")?;
    for entry in entries(stack) {
        write!(out, " {} ", EntryText(entry))?;
    }
    writeln!(out)
}
