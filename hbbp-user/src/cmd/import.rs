//! `hbbp-sys import`: from a recording of another tool to a snapshot; wires the readers of recordings to the resolver.

use std::cell::RefCell;
use std::io::{Read, Seek};
use std::path::PathBuf;

use anyhow::{Context as _, Error, bail};

use super::input::{Input, open_recording};
use super::progress::Progress;
use crate::advice::words;
use hbbp_import::{Format, RanText, Recording, TextFile, TextModule, parse_build_id};
use hbbp_model::segments::TimeRange;
use hbbp_model::snapshot::{Loss, Run, Snapshot};
use hbbp_model::streams::ThreadCounts;
use hbbp_resolve::Resolver;
use hbbp_resolve::kernel::recorded::{KernelPlace, open_recorded_kernel};
use hbbp_resolve::user::find_file::{Host, Places};
use hbbp_resolve::user::recorded_files::{NamedFile, RecordedFiles};

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The recording: a file, the folder that `perf record --kcore` writes, or `-` for standard input.
    pub file: PathBuf,
    /// Where the executed files are.
    pub places: Places,
    /// Where the text of the running kernel is.
    pub kernel: KernelPlace,
    /// Only this process.
    pub pid: Option<u32>,
    /// Of a folder of segments, only this time.
    pub range: TimeRange,
    /// Whether the threads of a process are kept separate.
    pub threads: ThreadCounts,
}

/// What helps where samples of a recording lie outside of the code of their files.
const WITHOUT_MAPPINGS: &str = "some samples are where their file has no code: a text recording needs its mappings \
                                (perf script --show-mmap-events)";

/// Refuses a snapshot without any decoded instruction: its profile would stay empty for good.
pub(crate) fn check_resolved(snapshot: &Snapshot) -> anyhow::Result<()> {
    if snapshot.text.is_empty() {
        let Run { scope, notes, .. } = &snapshot.run;
        bail!(
            "no instruction of {scope} is known, so no profile was saved; {}",
            notes.join("; ")
        );
    }
    Ok(())
}

/// Reads a recording.
pub fn import(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let shown = options.file.display();
    let input =
        open_recording(&options.file, &options.kernel).with_context(|| format!("failed to open {shown}"))?;
    import_input(input, options)
}

/// As [`import`], of a recording that is open.
pub(super) fn import_input(input: Input, options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let shown = options.file.display();
    let is_text = input.files.format != Format::PerfData;
    let mut snapshot = read(input, options).with_context(|| format!("failed to read {shown}"))?;
    snapshot.run.tool_version = env!("CARGO_PKG_VERSION").to_owned();
    snapshot.run.scope = match options.pid {
        Some(pid) => format!("process {pid} in the recording {shown}"),
        None => format!("the recording {shown}"),
    };
    if 0 < snapshot.losses.get(Loss::FileElsewhere) {
        snapshot.run.notes.push(WITHOUT_MAPPINGS.to_owned());
    }
    snapshot.check()?;
    snapshot.fit();
    if is_text && snapshot.text.is_empty() {
        // Its addresses are another file's, or of processes whose mappings it does not have.
        bail!(
            "no address of {} is one of known code; {}",
            snapshot.run.scope,
            snapshot.run.notes.join("; ")
        );
    }
    Ok(snapshot)
}

fn read(input: Input, options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let len = input.files.len;
    let n_passes = match input.files.format {
        Format::PerfData | Format::Script => 2,
        Format::Preaggregated => 1,
    };
    let progress = Progress::reading(n_passes * len);
    let at_byte = &mut |byte| progress.at_byte(byte);
    let recording = Recording::read(input.files, at_byte)?;
    let build_id = &recording.run.host.kernel_build_id;
    let kernel = open_recorded_kernel(&input.kernel, &recording.records, build_id).map_err(Error::msg)?;
    let mut resolver = Resolver::recorded(kernel, &recording.records, files(&recording, &options.places));
    let bounds = resolver.recorded_bounds(recording.span.0, recording.span.1);
    resolver.count_threads(options.threads);
    let shared = RefCell::new(&mut resolver);
    let owner = &mut |[tgid, tid]: [u32; 2], time| shared.borrow_mut().owner(tgid, tid, time);
    let text = &mut |tgid, time, at, len| {
        let mut resolver = shared.borrow_mut();
        let (bits, text) = resolver.recorded_text(tgid, time, at)?;
        let bytes = text.get(..len).unwrap_or(text).to_vec();
        Some(RanText { bits, bytes })
    };
    let at_byte = &mut |byte| progress.at_byte(len + byte);
    let counted = recording.count(&bounds, options.pid, owner, text, at_byte)?;
    for interval in counted.intervals {
        resolver.recorded_interval(interval);
    }
    if let Some(why) = resolver.refused() {
        bail!(why);
    }
    resolver.add_losses(&counted.losses);
    Ok(resolver.take(counted.run, words))
}

/// The files of a recording, as far as they are known.
fn files<F: Read + Seek>(recording: &Recording<F>, places: &Places) -> RecordedFiles {
    let places = Places {
        host: Host::named(&recording.run.host.name),
        ..places.clone()
    };
    let is_mapped = !recording.records.is_empty();
    let named = |module: &TextModule| {
        let (build_id, path) = match &module.file {
            // Without mappings a plain address is one of the program.
            TextFile::Program if is_mapped => return None,
            TextFile::Program => (Vec::new(), None),
            TextFile::BuildId(id) => (parse_build_id(id)?, None),
            TextFile::Path(path) => (Vec::new(), Some(path.clone())),
        };
        Some(NamedFile {
            build_id,
            path,
            base: module.base,
            len: module.len,
            addresses: module.addresses.iter().copied().collect(),
        })
    };
    let modules = recording.modules().into_iter();
    let named = modules.flat_map(|modules| modules.iter().filter_map(named));
    let build_ids = recording.build_ids.clone();
    let start = recording.is_monotonic.then_some(recording.span.0);
    RecordedFiles::new(places, build_ids, &recording.records, named.collect())
        .with_dumps(&recording.records, start)
}
