//! A recording of any format, read in two steps: what happened to processes, then the samples.
//!
//! Between the two the caller learns which process image each sample belongs to.

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek};

use super::brstack::{ScriptText, read_script_records, read_script_samples};
use super::chosen::{Chosen, FindOwner};
use super::count::{Counter, Owner};
use super::events::describe_by_name;
use super::format::Format;
use super::perf_data::{PerfData, Sideband};
use super::preaggregated::{Preaggregated, read_preaggregated};
use super::stream_cost::{FindText, Trigger};
use super::{Header, ImportError, Sample, TextModules};
use hbbp_model::record::Timed;
use hbbp_model::snapshot::run::Period;
use hbbp_model::snapshot::{Event, EventIdx, HostFacts, Interval, Loss, Losses, ProcessIdx, Run};

/// The files of a recording, each open at its start.
#[derive(Debug)]
pub struct RecordingFiles<F> {
    /// The recording, or its header.
    pub file: F,
    /// Length of that in bytes.
    pub len: u64,
    /// What it is.
    pub format: Format,
    /// Files with more records, which threads of `perf record --threads` wrote.
    pub parts: Vec<F>,
}

/// A recording whose records were read.
pub struct Recording<F> {
    /// What happened to processes and kernel text, in the order of time.
    pub records: Vec<Timed>,
    /// Whether all times are those of CLOCK_MONOTONIC.
    pub is_monotonic: bool,
    /// Build ids of files by path, as far as they are listed.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Time of the first and the last sample.
    pub span: (u64, u64),
    /// The facts of the run. Events are added with the samples.
    pub run: Run,
    events: Vec<Event>,
    /// Samples of virtual machines by event.
    n_guest_samples: Vec<u64>,
    losses: Losses,
    samples: Samples<F>,
}

/// What is left to read.
enum Samples<F> {
    PerfData(PerfData<F>),
    Script(F, ScriptText),
    /// Nothing: all counts belong to one process image and one event.
    Counted(Counter, Preaggregated),
}

impl<F: Read + Seek> Samples<F> {
    /// Hands over each sample with the index of its event, and whether its address is exact.
    fn read(
        &mut self,
        progress: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(usize, Sample<'_>, bool),
    ) -> Result<(), ImportError> {
        match self {
            Self::PerfData(data) => data.read_samples(progress, take),
            Self::Script(file, text) => {
                file.rewind()?;
                let mut take = |event, sample: Sample<'_>| take(event, sample, false);
                read_script_samples(BufReader::new(file), text, progress, &mut take)
            }
            Self::Counted(..) => Ok(()),
        }
    }
}

/// The counts of a recording.
#[derive(Debug)]
pub struct Counted {
    /// In the order of time.
    pub intervals: Vec<Interval>,
    /// What could not be counted.
    pub losses: Losses,
    /// The facts of the run.
    pub run: Run,
}

impl<F: Read + Seek> Recording<F> {
    /// Reads the records of `files`. `progress` is called with the number of bytes read.
    pub fn read(files: RecordingFiles<F>, progress: &mut dyn FnMut(u64)) -> Result<Self, ImportError> {
        match files.format {
            Format::PerfData => {
                let data = PerfData::open(files.file, files.len, files.parts)?;
                Self::read_perf_data(data, progress)
            }
            Format::Script => Self::read_script(files.file, progress),
            Format::Preaggregated => Self::read_preaggregated(files.file, progress),
        }
    }

    fn read_perf_data(mut data: PerfData<F>, progress: &mut dyn FnMut(u64)) -> Result<Self, ImportError> {
        let sideband = data.read_sideband(progress)?;
        let header = &data.header;
        let build_ids = header.build_ids.iter();
        let build_ids: HashMap<_, _> = build_ids
            .map(|file| (file.path.clone(), file.build_id.clone()))
            .collect();
        let (start, end) = sideband.span.unwrap_or((0, 0));
        let mut losses = Losses::default();
        losses.add(Loss::RecorderLost, sideband.lost);
        losses.add(Loss::SidebandUnread, sideband.unread);
        losses.add(Loss::SampleUnread, sideband.unread_samples);
        let run = Run {
            host: HostFacts {
                name: header.host.clone(),
                cpu_model: header.cpu.clone(),
                kernel_release: header.os_release.clone(),
                kernel_build_id: build_ids.get("[kernel.kallsyms]").cloned().unwrap_or_default(),
                n_cpus: header.n_cpus,
            },
            duration: end.saturating_sub(start),
            notes: notes(header, &sideband),
            ..Run::default()
        };
        Ok(Self {
            events: header.describe(&sideband.n_samples)?,
            records: sideband.records,
            is_monotonic: header.events.iter().all(|event| event.attr.is_monotonic),
            build_ids,
            span: (start, end),
            run,
            n_guest_samples: sideband.n_guest_samples,
            losses,
            samples: Samples::PerfData(data),
        })
    }

    fn read_script(mut file: F, progress: &mut dyn FnMut(u64)) -> Result<Self, ImportError> {
        let mut text = read_script_records(BufReader::new(&mut file), progress)?;
        let counted = text.events.iter().zip(&text.n_samples);
        let counted = counted.zip(&text.periods).zip(&text.has_stacks);
        let mut notes = Vec::new();
        let mut events = Vec::new();
        for (((name, n), periods), has_stacks) in counted {
            let mut event = describe_by_name(name, *n);
            event.branch_stack = *has_stacks;
            match (periods.shortest, periods.longest) {
                (Some(shortest), Some(longest)) if shortest == longest => {
                    event.period = Period::Fixed(shortest);
                }
                (None, _) => notes.push(UNKNOWN_PERIOD.to_owned()),
                _ => notes.push(format!("periods of {} vary: each sample has its own", event.name)),
            }
            events.push(event);
        }
        notes.dedup();
        Ok(Self {
            events,
            records: std::mem::take(&mut text.records),
            is_monotonic: false,
            build_ids: HashMap::new(),
            span: (1, text.n_lines),
            run: Run {
                notes,
                ..Run::default()
            },
            n_guest_samples: Vec::new(),
            losses: Losses::default(),
            samples: Samples::Script(file, text),
        })
    }

    fn read_preaggregated(file: F, progress: &mut dyn FnMut(u64)) -> Result<Self, ImportError> {
        let mut counter = Counter::new(1);
        // The first process image after the kernel, which is the only one.
        let owner = Owner {
            event: EventIdx(0),
            process: ProcessIdx(1),
            kernel: ProcessIdx::KERNEL,
            interval: 0,
        };
        let text = read_preaggregated(BufReader::new(file), &mut counter, owner, progress)?;
        let name = text.events.first().map_or("", String::as_str);
        let mut event = describe_by_name(name, text.n_samples);
        event.branch_stack = 0 < text.n_branches;
        Ok(Self {
            events: vec![event],
            records: Vec::new(),
            is_monotonic: false,
            build_ids: HashMap::new(),
            span: (0, 0),
            run: Run {
                notes: vec![UNKNOWN_PERIOD.to_owned()],
                ..Run::default()
            },
            n_guest_samples: Vec::new(),
            losses: Losses::default(),
            samples: Samples::Counted(counter, text),
        })
    }

    /// The files that the addresses of a text name; `None` if addresses are those of execution.
    pub fn modules(&self) -> Option<&TextModules> {
        match &self.samples {
            Samples::PerfData(_) => None,
            Samples::Script(_, text) => Some(&text.modules),
            Samples::Counted(_, text) => Some(&text.modules),
        }
    }

    /// Counts the samples, of one process where `pid` says which, into intervals of these starts and ends. `owner`
    /// returns the owner of a sample, `text` the text of its process.
    pub fn count(
        self,
        bounds: &[(u64, u64)],
        pid: Option<u32>,
        owner: &mut FindOwner<'_>,
        text: &mut FindText<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Counted, ImportError> {
        let n_of_guests = self
            .n_guest_samples
            .iter()
            .fold(0_u64, |sum, n| sum.saturating_add(*n));
        let mut chosen = Chosen::new(&self.events).map_err(|error| match error {
            ImportError::Empty if 0 < n_of_guests => ImportError::OnlyGuests(n_of_guests),
            error => error,
        })?;
        let mut counter = Counter::new(bounds.len());
        if let Samples::PerfData(_) = &self.samples {
            counter = counter.for_events(&chosen.events);
        }
        let is_wanted = |sample: &Sample<'_>| pid.is_none_or(|pid| pid == sample.tgid);
        let mut samples = self.samples;
        // Of what is summed already no stack is known.
        let is_summed = matches!(samples, Samples::Counted(..));
        let by_time = |event: &Event| event.branch_stack && Trigger::of(event) == Trigger::Time;
        if is_summed && self.events.iter().any(by_time) {
            chosen.notes.push(OVERWEIGHT.to_owned());
        } else if !is_summed && chosen.weighs_stacks() {
            samples.read(&mut |_| {}, &mut |event, sample, _| {
                if is_wanted(&sample) {
                    chosen.look(event, &sample, text);
                }
            })?;
            chosen.weights.settle();
            chosen.notes.push(WEIGHED.to_owned());
        }
        samples.read(progress, &mut |event, sample, exact| {
            if is_wanted(&sample) {
                chosen.count(&mut counter, event, &sample, exact, owner, text);
            }
        })?;
        chosen.notes.extend(chosen.eventing.sentence());
        if let Samples::Counted(counted, _) = samples {
            owner([0, 0], 0);
            counter = counted;
            chosen.events = self.events;
        }
        let mut losses = std::mem::take(&mut counter.losses);
        losses.add(Loss::GuestSample, n_of_guests);
        losses += &self.losses;
        let mut run = self.run;
        run.notes.extend(chosen.notes);
        run.events = chosen.events;
        Ok(Counted {
            intervals: counter.into_intervals(bounds),
            losses,
            run,
        })
    }
}

/// Said of texts without periods.
const UNKNOWN_PERIOD: &str = "the text does not state the sampling period: amounts are numbers of samples and streams, so only shares have a meaning";

/// The note of a recording whose stacks were reweighted.
const WEIGHED: &str = "branch stacks that taken branches did not trigger were weighted by what their events count: standard errors \
     take the weights as exact, and are too small; record with -e br_inst_retired.near_taken (AMD: ex_ret_brn_tkn)";

/// The note of a recording whose stacks cannot be reweighted.
const OVERWEIGHT: &str = "branch stacks that time triggered overweight slow code, as their sums cannot be weighted: record with \
     -e br_inst_retired.near_taken (AMD: ex_ret_brn_tkn)";

/// What the user must know about a recording as a whole.
fn notes(header: &Header, sideband: &Sideband) -> Vec<String> {
    let of_32_bits = header.is_32_bit().then(|| {
        "recorded on a 32-bit kernel: only 64-bit kernels are supported, so its code counts as unresolved user code"
            .to_owned()
    });
    let throttled = (0 < sideband.throttled).then(|| {
        format!(
            "the kernel throttled events {} times, so samples are missing: record with a longer period",
            sideband.throttled
        )
    });
    let cut_off = sideband.cut_off.then(|| {
        "the recording is truncated (recorder killed or disk full?): later samples are missing".to_owned()
    });
    of_32_bits.into_iter().chain(throttled).chain(cut_off).collect()
}
