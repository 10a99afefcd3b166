//! Turns what was counted into a snapshot: what is known of ring 0 and ring 3, and what was counted since the last snapshot.

use std::mem;
use std::time::Duration;

use hbbp_elf::parser::Parser;
use hbbp_model::advice::Wording;
use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::fold::Intervals;
use hbbp_model::snapshot::{EventUnit, Loss, Losses, Process, ProcessIdx, Run, Snapshot};
use hbbp_model::streams::ThreadCounts;

use super::kernel::live_text::LiveText;
use super::kernel::map::KERNEL;
use super::kernel::space::KernelSpace;
use super::lookups::Lookups;
use super::raw::RawChain;
use super::user::haste::Haste;
use super::user::proc_scan::Scanned;
use super::user::recorded_files::RecordedFiles;
use super::user::space::UserSpace;

/// Turns what was counted into a snapshot.
///
/// Live: records are given as they come ([`Self::apply`]), counts after each drain ([`Self::drained`]).
/// Recorded: all records are there before, samples ask for their [owner](Self::owner), and the counts follow
/// ([`Self::recorded_interval`]).
/// [`Self::take`] puts all together that came since the last time.
/// Nothing of it fails: what cannot be read or found is counted as a loss.
#[derive(Debug)]
pub struct Resolver {
    pub(super) kernel: KernelSpace,
    pub(super) user: UserSpace,
    pub(super) intervals: Intervals,
    pub(super) losses: Losses,
    pub(super) lookups: Lookups,
    /// Call chains of the drain to come.
    pub(super) chains: Vec<RawChain>,
}

impl Resolver {
    /// Starts with ring 0 and with the processes that were there before the run.
    /// The recording of records must have begun before these were read, so that nothing falls between.
    /// Files of processes are parsed in this process.
    pub fn new(kernel: KernelSpace, processes: &[Scanned]) -> Self {
        Self::parsing(kernel, processes, &Parser::Here)
    }

    /// The same with another parser of files.
    pub fn parsing(kernel: KernelSpace, processes: &[Scanned], parser: &Parser) -> Self {
        let mut user = UserSpace::live(parser);
        user.scanned(processes);
        Self::with(kernel, user)
    }

    /// Starts with all records of a recording, in the order of time, and the files that it may have run.
    pub fn recorded(kernel: KernelSpace, records: &[Timed], files: RecordedFiles) -> Self {
        Self::with(kernel, UserSpace::recorded(records, files))
    }

    fn with(kernel: KernelSpace, user: UserSpace) -> Self {
        Self {
            kernel,
            user,
            intervals: Intervals::default(),
            losses: Losses::default(),
            lookups: Lookups::default(),
            chains: Vec::new(),
        }
    }

    /// Sets the memory in bytes that counts may take. Call it before anything is counted.
    pub fn hold_counts(&mut self, max: usize) {
        self.intervals = Intervals::with_max(max);
    }

    /// Sets what notifies that the remainder is to be done soon.
    pub fn hasten_with(&mut self, haste: Haste) {
        self.user.hasten_with(haste);
    }

    /// Sets whether the threads of a process image are kept separate. Call it before anything is counted.
    pub fn count_threads(&mut self, threads: ThreadCounts) {
        self.user.count_threads(threads);
    }

    /// Adds records as they come, in any order; the files of new mappings are opened now.
    pub fn apply(&mut self, records: impl IntoIterator<Item = Timed>) {
        self.user.begin_records();
        for timed in records {
            match &timed.record {
                Record::Lost(n) => {
                    self.losses.add(Loss::SidebandLost, *n);
                    self.user.lost();
                }
                Record::LostText(n) => self.losses.add(Loss::TextLost, *n),
                Record::Ksymbol { .. } | Record::TextPoke { .. } | Record::Module(_) => {
                    self.kernel.apply(timed.time, &timed.record);
                }
                _ => self.user.take(timed, &mut self.losses),
            }
        }
    }

    /// Pauses records of processes and mappings: from now on, processes are read from /proc when they are hit.
    pub fn rest(&mut self) {
        self.user.rest();
    }

    /// They are written again.
    pub fn resume(&mut self) {
        self.user.resume();
    }

    /// Whether a program may have patched its text since this was asked for last: then the next drain should come soon, as
    /// counts have only the time of their first sample.
    pub fn take_patched(&mut self) -> bool {
        self.user.take_patched()
    }

    /// The processes in which mappings take turns at one address, so that counts without their time cannot be resolved.
    pub fn turning(&mut self) -> Vec<u32> {
        self.user.turning()
    }

    /// Looks whether memory with code has changed since it was read; then, too, the next drain should come soon.
    pub fn has_memory_changed(&mut self) -> bool {
        self.user.has_memory_changed()
    }

    /// Reads the kernel text that was hit again, and compares it once later records have been applied. Call it after a drain, now
    /// and then: it finds patches without a record.
    pub fn read_text(&mut self) -> LiveText {
        self.kernel.read_live()
    }

    /// Compares a reading of kernel text with the records of its patches.
    pub fn compare_text(&mut self, live: LiveText) {
        self.kernel.compare(live, &mut self.losses);
    }

    /// Adds what was lost elsewhere.
    pub fn add_losses(&mut self, losses: &Losses) {
        self.losses += losses;
    }

    /// Processes the records that still wait for earlier ones: none will come.
    pub fn catch_up(&mut self) {
        self.user.catch_up(u64::MAX);
    }

    /// Waits for the functions of files that were hit, at most so long for all of them. Files without an answer have no
    /// function names in the next snapshot.
    pub fn await_functions(&mut self, most: Duration) {
        self.user.await_functions(most, &mut self.losses);
    }

    /// The process images of the snapshot to come that have ended.
    pub fn ended(&self) -> Vec<ProcessIdx> {
        self.user.ended()
    }

    /// Puts a snapshot together of what came since the last call. `run` are the facts of that time; the source of kernel
    /// text and notes on text and files are added to them, with advice in these words.
    ///
    /// What is known of the machine stays: symbols, processes, mappings, open files. Text is read anew where it is hit next.
    pub fn take(&mut self, mut run: Run, wording: Wording) -> Snapshot {
        let has_clock = run
            .events
            .iter()
            .any(|event| event.unit == EventUnit::Nanoseconds);
        if has_clock {
            self.kernel.add_system_calls();
        }
        self.kernel.settle(&mut self.losses);
        self.user.settle(&mut self.losses);
        self.user.await_functions(Duration::ZERO, &mut self.losses);
        run.kernel_text = self.kernel.source();
        run.notes.extend(self.kernel.note().map(str::to_owned));
        let of_files = self.user.take_notes();
        run.notes
            .extend(of_files.iter().map(|note| note.in_words(wording)));
        let (mut modules, mut text) = (Vec::new(), Vec::new());
        let mappings = self.kernel.emit(&mut modules, &mut text);
        let static_branches = self.kernel.static_branches(&modules, &text);
        let mut processes = vec![Process {
            comm: KERNEL.to_owned(),
            mappings,
            ..Process::default()
        }];
        let (hit, cgroups) = self.user.emit(&mut modules, &mut text);
        processes.extend(hit);
        self.lookups.clear();
        Snapshot {
            run,
            modules,
            processes,
            cgroups,
            static_branches,
            intervals: self.intervals.take(&mut text),
            text,
            losses: mem::take(&mut self.losses),
        }
    }
}
