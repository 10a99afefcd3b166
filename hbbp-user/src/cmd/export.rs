//! `hbbp-sys export`: from a profile or a recording to lines for scripts.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, bail};

use super::import::ImportOptions;
use super::input::{open_recording, read_profile};
use crate::export::StreamFilter;
use crate::export::branches::write_branches;
use crate::export::counts::{CountSource, write_counts};
use crate::export::streams::write_streams;
use crate::import::perf_data::PerfData;
use crate::import::{EntryText, Format, ImportError, RecordedEvent, entries};
use crate::snapshot::Loss;

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The profile or recording.
    pub input: ImportOptions,
    /// Which lines.
    pub lines: ExportLines,
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

/// Exports.
pub fn run(options: &ExportOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut out = BufWriter::new(out);
    write(options, &mut out)?;
    Ok(out.flush()?)
}

fn write(options: &ExportOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    match options.lines {
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
                CountSource::Hybrid => "balanced",
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
    let mut input = open_recording(path, &Default::default()).with_context(failed)?;
    if input.format != Format::PerfData {
        bail!("{shown} is already text; --format entries needs perf.data");
    }
    let mut data = PerfData::open(&mut input.file, input.len).with_context(failed)?;
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
