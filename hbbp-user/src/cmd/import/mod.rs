//! `hbbp-sys import`: from a recording of another tool to a snapshot; wires the readers of recordings to the resolver.

pub(super) mod input;
mod kernel_hits;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use self::input::{Input, open_input};
use super::progress::Progress;
use crate::addr::Va;
use crate::import::brstack::{read_script_records, read_script_samples};
use crate::import::count::{Counter, Owner, Use};
use crate::import::events::{Choice, choose, describe_by_name};
use crate::import::perf_data::{PerfData, Sideband};
use crate::import::preaggregated::read_preaggregated;
use crate::import::{Format, ROOM, START, Sample, TEXT_BASE, TextModules, format_of, parse_build_id};
use crate::profile;
use crate::record::Timed;
use crate::resolve::kernel_space::KernelSpace;
use crate::resolve::recorded::kernel::{KernelPlace, open_recorded_kernel};
use crate::resolve::recorded::{NamedFile, Places, RecordedSpace};
use crate::snapshot::run::Period;
use crate::snapshot::{Event, EventIdx, Loss, Module, ModuleKind, Process, Run, Snapshot, file};

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The recording: a file, the folder that `perf record --kcore` writes, or `-` for standard input.
    pub file: PathBuf,
    /// Where the files that ran are.
    pub places: Places,
    /// Where the text of the kernel that ran is.
    pub kernel: KernelPlace,
    /// Only this process.
    pub pid: Option<u32>,
}

/// Reads a profile, or imports a recording.
pub fn read_profile(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    if is_recording(&options.file) {
        import(options)
    } else {
        profile::read(&options.file)
    }
}

/// Whether a file is a recording, by its start. What cannot be read is left to the reader of profiles to complain of,
/// and standard input is a profile.
fn is_recording(path: &Path) -> bool {
    let read_start = || {
        let mut start = Vec::new();
        let file = File::open(path)
            .ok()
            .filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
        file.take(u64::try_from(START).ok()?)
            .read_to_end(&mut start)
            .ok()?;
        format_of(&start).filter(|_| !file::is_snapshot(&start))
    };
    path.is_dir() || read_start().is_some()
}

/// Reads a recording.
pub fn import(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let shown = options.file.display();
    let mut input =
        open_input(&options.file, &options.kernel).with_context(|| format!("failed to open {shown}"))?;
    let snapshot = match input.format {
        Format::PerfData => import_perf_data(&mut input, options),
        Format::Script => import_script(&mut input, options),
        Format::Preaggregated => import_preaggregated(&mut input, options),
    };
    let mut snapshot = snapshot.with_context(|| format!("failed to read {shown}"))?;
    snapshot.run.tool_version = env!("CARGO_PKG_VERSION").to_owned();
    snapshot.run.scope = match options.pid {
        Some(pid) => format!("process {pid} in the recording {shown}"),
        None => format!("the recording {shown}"),
    };
    snapshot.check()?;
    snapshot.fit();
    Ok(snapshot)
}

fn import_perf_data(input: &mut Input, options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let progress = Progress::reading(2 * input.len);
    let mut data = PerfData::open(&mut input.file, input.len)?;
    let sideband = data.read_sideband(&mut |byte| progress.at_byte(byte))?;
    let header = data.header.clone();
    let events = header.describe(&sideband.n_samples)?;
    let choice = choose(&events)?;
    let build_ids: HashMap<_, _> = header
        .build_ids
        .into_iter()
        .map(|file| (file.path, file.build_id))
        .collect();
    let kernel_build_id = build_ids.get("[kernel.kallsyms]").cloned().unwrap_or_default();
    let mut import = Import {
        kernel: open_kernel(&input.kernel, &sideband.records, &kernel_build_id)?,
        user: RecordedSpace::new(&sideband.records, build_ids, options.places.clone()),
        pid: options.pid,
        chosen: Chosen::new(&events, choice),
    };
    let (start, end) = sideband.span.unwrap_or((0, 0));
    let bounds = import.user.bounds(start, end);
    let mut counter = Counter::new(bounds.len()).for_events(&events);
    data.read_samples(
        &mut |byte| progress.at_byte(input.len + byte),
        &mut |event, sample, exact| {
            import.count(&mut counter, event, &sample, exact);
        },
    )?;
    let run = Run {
        host: header.host,
        cpu_model: header.cpu,
        kernel_release: header.os_release,
        kernel_build_id,
        n_cpus: header.n_cpus,
        duration: end.saturating_sub(start),
        notes: recording_notes(&sideband),
        ..Run::default()
    };
    counter.losses.add(Loss::RecorderLost, sideband.lost);
    counter.losses.add(Loss::SidebandUnread, sideband.unread);
    counter.losses.add(Loss::SampleUnread, sideband.unread_samples);
    import.finish(counter, &bounds, run)
}

fn import_script(input: &mut Input, options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let progress = Progress::reading(2 * input.len);
    let mut text = read_script_records(BufReader::new(&input.file), &mut |byte| progress.at_byte(byte))?;
    let counted = text.events.iter().zip(&text.n_samples);
    let events: Vec<Event> = counted.map(|(name, n)| describe_by_name(name, *n)).collect();
    let has_mappings = !text.records.is_empty();
    let user = RecordedSpace::new(&text.records, HashMap::new(), options.places.clone());
    let mut import = Import {
        kernel: open_kernel(&input.kernel, &text.records, &[])?,
        user: user.with_named(named_files(&text.modules, has_mappings)),
        pid: options.pid,
        chosen: Chosen::new(&events, choose(&events)?),
    };
    let bounds = import.user.bounds(1, text.n_lines);
    let mut counter = Counter::new(bounds.len());
    input.file.rewind()?;
    let at_byte = &mut |byte| progress.at_byte(input.len + byte);
    read_script_samples(
        BufReader::new(&input.file),
        &mut text,
        at_byte,
        &mut |event, sample| {
            import.count(&mut counter, event, &sample, false);
        },
    )?;
    import.finish(counter, &bounds, Run::default())
}

fn import_preaggregated(input: &mut Input, options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let progress = Progress::reading(input.len);
    let mut user = RecordedSpace::new(&[], HashMap::new(), options.places.clone());
    let (process, interval) = user.owner(0, 0);
    let owner = Owner {
        event: EventIdx(0),
        process,
        interval,
    };
    let mut counter = Counter::new(1);
    let text = BufReader::new(&input.file);
    let text = read_preaggregated(text, &mut counter, owner, &mut |byte| progress.at_byte(byte))?;
    let name = text.events.first().map_or("", String::as_str);
    let mut event = describe_by_name(name, text.n_samples.saturating_add(text.n_branches));
    event.branch_stack = 0 < text.n_branches;
    let events = [event];
    let user = user.with_named(named_files(&text.modules, false));
    let mut chosen = Chosen::new(&events, choose(&events)?);
    chosen.events = events.to_vec();
    let import = Import {
        kernel: open_kernel(&input.kernel, &[], &[])?,
        user,
        pid: None,
        chosen,
    };
    import.finish(counter, &[(0, 1)], Run::default())
}

fn open_kernel(place: &KernelPlace, records: &[Timed], build_id: &[u8]) -> anyhow::Result<KernelSpace> {
    open_recorded_kernel(place, records, build_id).map_err(anyhow::Error::msg)
}

/// The files that a text gives addresses of. Without mappings a plain address is one of the program.
fn named_files(modules: &TextModules, has_mappings: bool) -> Vec<NamedFile> {
    let other = |(id, base): (&str, Va)| {
        Some(NamedFile {
            build_id: parse_build_id(id)?,
            base,
            len: ROOM,
        })
    };
    let program = NamedFile {
        build_id: Vec::new(),
        base: Va(0),
        len: TEXT_BASE.0,
    };
    let program = (!has_mappings).then_some(program);
    modules.bases().filter_map(other).chain(program).collect()
}

/// What the reader must know about the recording as a whole.
fn recording_notes(sideband: &Sideband) -> Vec<String> {
    let throttled = (0 < sideband.throttled).then(|| {
        format!(
            "the kernel throttled events {} times, so samples are missing: record with a longer period",
            sideband.throttled
        )
    });
    let cut_off = sideband.cut_off.then(|| {
        "the recording is truncated (recorder killed or disk full?): later samples are missing".to_owned()
    });
    throttled.into_iter().chain(cut_off).collect()
}

/// The events that serve, in their order in the snapshot.
struct Chosen {
    events: Vec<Event>,
    /// For each event of the recording: its index in the snapshot, and what of it is counted.
    uses: Vec<Option<(EventIdx, Use)>>,
    notes: Vec<String>,
}

impl Chosen {
    fn new(events: &[Event], choice: Choice) -> Self {
        let mut chosen = Self {
            events: Vec::new(),
            uses: Vec::new(),
            notes: choice.notes,
        };
        for (event, wanted) in events.iter().zip(choice.uses) {
            let serves = wanted != Use::default();
            let idx = EventIdx(u32::try_from(chosen.events.len()).unwrap_or(u32::MAX));
            chosen.uses.push(serves.then_some((idx, wanted)));
            if serves {
                chosen.events.push(Event {
                    branch_stack: wanted.stacks,
                    runs: 0,
                    ..event.clone()
                });
            }
        }
        chosen
    }
}

/// The two halves of a recording's addresses.
struct Import {
    kernel: KernelSpace,
    user: RecordedSpace,
    pid: Option<u32>,
    chosen: Chosen,
}

impl Import {
    fn count(&mut self, counter: &mut Counter, event: usize, sample: &Sample<'_>, exact: bool) {
        let Some((event, wanted)) = self.chosen.uses.get(event).copied().flatten() else {
            return;
        };
        if self.pid.is_some_and(|pid| pid != sample.tgid) {
            return;
        }
        let (process, interval) = self.user.owner(sample.tgid, sample.time);
        let Some(facts) = self.chosen.events.get_mut(event.0 as usize) else {
            return;
        };
        facts.runs = facts.runs.saturating_add(sample.times);
        let period = match (sample.period, facts.period) {
            (Some(period), _) | (None, Period::Fixed(period)) => period,
            (None, Period::Frequency(_)) => 1,
        };
        counter.add(
            Owner {
                event,
                process,
                interval,
            },
            sample,
            period,
            exact,
            wanted,
        );
    }

    /// Puts the snapshot together.
    fn finish(
        mut self,
        mut counter: Counter,
        bounds: &[(u64, u64)],
        mut run: Run,
    ) -> anyhow::Result<Snapshot> {
        let mut losses = std::mem::take(&mut counter.losses);
        let intervals = counter.into_intervals(bounds);
        let mut files = Vec::new();
        for interval in &intervals {
            kernel_hits::resolve(&mut self.kernel, interval, &mut losses);
            files.extend(self.user.resolve(interval, &mut losses));
        }
        files.dedup();
        if let Some(why) = self.user.refused() {
            bail!("{why}");
        }
        let unused = |path: &PathBuf| {
            format!(
                "{} was not used: no sample hit a file of that name or build \
                                               id",
                path.display()
            )
        };
        files.extend(self.user.unused().map(unused));
        run.notes.extend(self.chosen.notes);
        run.notes.extend(files);
        run.events = self.chosen.events;
        run.kernel_text = self.kernel.source();
        let (mut modules, mut text) = (Vec::new(), Vec::new());
        let mappings = self.kernel.emit(&mut modules, &mut text);
        for module in &mut modules {
            forget_own_build_id(module, &run.kernel_build_id);
        }
        let comm = modules
            .first()
            .map_or_else(|| "[kernel]".to_owned(), |module| module.name.clone());
        let mut processes = vec![Process {
            comm,
            mappings,
            ..Process::default()
        }];
        processes.extend(self.user.emit(&mut modules, &mut text));
        Ok(Snapshot {
            run,
            modules,
            processes,
            text,
            intervals,
            losses,
        })
    }
}

/// The build ids of kernel modules are those of this machine; only that of the recorded kernel is known.
fn forget_own_build_id(module: &mut Module, kernel_build_id: &[u8]) {
    module.build_id = match module.kind {
        ModuleKind::Kernel => kernel_build_id.to_vec(),
        _ => Vec::new(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_no_recording_whatever_its_bytes_look_like() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        std::fs::write(&path, b"HBBPSNAP\n 401000  0x1/0x2/P/-/-/0\n").unwrap();
        assert!(!is_recording(&path));
        std::fs::write(&path, b" 401000  0x1/0x2/P/-/-/0\n").unwrap();
        assert!(is_recording(&path));
    }
}
