//! Every kind of loss or refusal before something is counted, each with its name, unit and sentence.
//!
//! What cannot be resolved later, from counts that were kept, is a matter of `hbbp_code::locate`; samples that the kernel
//! skipped without a trace are the difference between [`super::Event::due`] and [`super::Event::runs`].

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::advice::{Advice, Wording, followed};

/// What one count of a loss is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LossUnit {
    /// A sample of an event: it is missing in the mix.
    Sample,
    /// An entry of a branch stack.
    Entry,
    /// A stream between two entries of a branch stack.
    Stream,
    /// The call chain of a sample, which itself is counted.
    Chain,
    /// A record about processes, mappings or kernel text.
    Record,
    /// A second in which nothing was recorded of processes and mappings.
    Second,
    /// A mapping or text region whose text could not be read: its samples stay unresolved.
    Region,
    /// A sample or stream that is counted, perhaps for other bytes than the executed ones.
    Ambiguous,
    /// An executed text range of a file: its samples are in the mix.
    Text,
    /// A name of a function or module, or the cgroup or thread of a process image.
    Name,
}

macro_rules! losses {
    ($($variant:ident, $id:literal, $unit:ident, $one:literal | $many:literal, $what:literal;)*) => {
        /// A kind of loss.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Loss {
            $(#[doc = concat!($many, " ", $what)] $variant,)*
        }

        impl Loss {
            /// All of them, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name, used in the snapshot file and in JSON.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }

            /// What one count of it is.
            pub const fn unit(self) -> LossUnit {
                match self { $(Self::$variant => LossUnit::$unit),* }
            }

            /// What happened, to be read after the count; [`Self::in_words`] adds what the user may do.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => concat!($many, " ", $what)),* }
            }

            /// The count and what happened: `1 mapped file not found`, `2 mapped files not found`; `count` is `n` as it is
            /// shown. What the user may do follows in words.
            pub fn counted(self, n: u64, count: &str, wording: Wording) -> String {
                let (one, many, what) = match self { $(Self::$variant => ($one, $many, $what)),* };
                let things = if n == 1 { one } else { many };
                followed(&format!("{count} {things} {what}"), self.advice(), wording)
            }
        }
    };
}

losses! {
    CountsFull, "sample.counts_full", Sample,
        "sample" | "samples", "dropped: count map full";
    CountsRaced, "sample.counts_raced", Sample,
        "sample" | "samples", "dropped: other CPUs claimed their slots in the count map at the same moment";
    StacksFull, "sample.stacks_full", Sample,
        "sample" | "samples", "dropped: branch-stack ring buffer overflowed";
    NoMap, "sample.no_map", Sample,
        "sample" | "samples", "dropped: no active count map";
    NoStack, "sample.no_stack", Sample,
        "sample" | "samples", "dropped: missing or empty branch stack";
    BurstsFull, "sample.bursts_full", Sample,
        "sample" | "samples", "dropped: ring of bursts full";
    BurstsOf32Bits, "sample.bursts_of_32_bits", Sample,
        "sample" | "samples", "without a burst: code of 32 bits is not emulated";
    BurstsOutside, "sample.bursts_outside", Sample,
        "sample" | "samples", "without a burst: their processes are outside this container, where their memory cannot be read; \
         start hbbp-sys in the host PID namespace";
    BurstsGone, "sample.bursts_gone", Sample,
        "sample" | "samples", "without a burst: the process had ended, or its memory may not be read";
    BurstsOverBudget, "sample.bursts_over_budget", Sample,
        "sample" | "samples", "without a burst: emulation would have taken more than 0.5 % of the time of all CPUs";
    BurstsShort, "sample.bursts_short", Sample,
        "sample" | "samples", "without a stream: their bursts ended before a second branch";
    BurstsUnread, "record.bursts_unread", Record,
        "record of bursts" | "records of bursts", "skipped: malformed";
    WrongPath, "entry.wrong_path", Entry,
        "branch entry" | "branch entries", "discarded: speculative wrong path, never executed";
    TooMany, "entry.too_many", Entry,
        "branch entry" | "branch entries", "dropped: too many distinct entries in the recording";
    NewestUnused, "entry.newest_unused", Entry,
        "newest branch entry" | "newest branch entries", "left out: this processor (Skylake) may repeat them, and a copy cannot be distinguished from a loop";
    Backward, "stream.backward", Stream,
        "stream" | "streams", "discarded: end before start, from a repeated or missing branch entry";
    Crossing, "stream.crossing", Stream,
        "stream" | "streams", "discarded: start and end in different rings, so a branch entry is missing";
    Long, "stream.long", Stream,
        "stream" | "streams", "discarded: too long for straight-line code, so a branch entry is missing";
    Switched, "stream.switched", Stream,
        "user stream" | "user streams", "discarded: recorded before a context switch, so they belong to another process";
    StreamsRefused, "stream.refused", Stream,
        "stream" | "streams", "dropped: stream table full";
    OldestRefused, "entry.oldest_refused", Entry,
        "oldest-slot branch" | "oldest-slot branches", "dropped: stream table full, so LBR bias may go undetected";
    ChainsFull, "chain.full", Chain,
        "call chain" | "call chains", "dropped: table of chains full, so their callers are not charged";
    ChainsRaced, "chain.raced", Chain,
        "call chain" | "call chains", "dropped: other CPUs claimed their slots in the table at the same moment";
    ChainsMissing, "chain.missing", Chain,
        "sample" | "samples", "without a call chain: the kernel gave none";
    ChainsCut, "chain.cut", Chain,
        "call chain" | "call chains", "cut off: deeper than the kernel unwinds, so their outermost callers are not charged; raise \
         kernel.perf_event_max_stack up to 127";
    RecorderLost, "record.recorder_lost", Record,
        "record (mostly samples)" | "records (mostly samples)", "lost: the recorder could not keep up";
    SampleUnread, "record.sample_unread", Record,
        "recorded sample" | "recorded samples", "skipped: damaged, or of an unknown event";
    GuestSample, "record.guest_sample", Record,
        "recorded sample" | "recorded samples", "of virtual machines that are not in the mix: their programs are unknown here; record in the guest";
    SidebandLost, "record.sideband_lost", Record,
        "process and mapping record" | "process and mapping records", "lost: they came faster than hbbp-sys read them";
    TextLost, "record.text_lost", Record,
        "kernel text record" | "kernel text records", "lost: they came faster than hbbp-sys read them; patches were found by re-reading \
         the text";
    SidebandSkipped, "record.sideband_skipped", Record,
        "mapping record" | "mapping records", "skipped: one process made very many; its mappings were read from /proc instead";
    SidebandUnread, "record.sideband_unread", Record,
        "process and mapping record" | "process and mapping records", "skipped: malformed";
    RecordsRested, "second.records_rested", Second,
        "second" | "seconds", "without process and mapping records: they would have taken more than the CPU budget; processes with \
         samples were read from /proc instead, and those that had exited have no name or text";
    ProcessGone, "region.process_gone", Region,
        "mapping" | "mappings", "without text: the process exited before its memory or file could be read";
    FileMissing, "region.file_missing", Region,
        "mapped file" | "mapped files", "not found";
    FileRefused, "region.file_refused", Region,
        "mapped file" | "mapped files", "not read: not a regular file, or permission denied";
    FileChanged, "region.file_changed", Region,
        "mapped file" | "mapped files", "not used: build id, or device, inode and generation differ from the executed file; one that was replaced while it \
         runs is read with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN only";
    FileUnidentified, "region.file_unidentified", Region,
        "mapped file" | "mapped files", "not used: the kernel stated no inode, and a path alone does not identify a file; the memory of \
         the processes was read instead while they lived";
    FileDiffers, "region.file_differs", Region,
        "mapping" | "mappings", "showed other bytes in memory than the file that was opened for them, though these pages were not written to: \
         the bytes in memory were used";
    FileTimedOut, "region.file_timed_out", Region,
        "mapped file" | "mapped files", "not read: opening them took too long, as on a network mount that does not answer";
    FileGivenUp, "region.file_given_up", Region,
        "mapped file" | "mapped files", "not read: parsing them took too much time or memory";
    FileUnreadable, "region.file_unreadable", Region,
        "mapped file" | "mapped files", "not read: invalid ELF";
    FileElsewhere, "region.file_elsewhere", Region,
        "file" | "files",
        "without code at the sampled addresses: another version of the file was executed, or its mappings are not known";
    TextUnreadable, "region.text_unreadable", Region,
        "kernel text range" | "kernel text ranges", "could not be read: the source of kernel text does not have them, as the vsyscall page or a \
         module that a static image lacks";
    TextWithoutSource, "region.text_without_source", Region,
        "kernel text range" | "kernel text ranges", "could not be read: there was no source of kernel text";
    TextGone, "region.text_gone", Region,
        "kernel text range" | "kernel text ranges", "could not be read: the module or BPF program there had gone, or its address was not known";
    TextNotCanonical, "region.text_not_canonical", Region,
        "kernel address" | "kernel addresses", "not looked for: no canonical ones, so damaged";
    TextSwitched, "ambiguous.text_switched", Ambiguous,
        "samples and streams" | "samples and streams", "with ambiguous text: code was patched mid-interval, and they were attributed \
         to the old bytes";
    TextUncertain, "region.text_uncertain", Region,
        "text range" | "text ranges", "changed between two reads: samples of that interval may have executed the other bytes";
    TextDiffers, "text.differs_from_file", Text,
        "text range" | "text ranges", "differed from their file in a process, which patched them or was patched: the bytes in its memory \
         were used";
    TextNotCompared, "text.not_compared", Text,
        "piece of code" | "pieces of code", "could not be checked for run-time patches, as the program had ended or its memory could not \
         be read: the code of the file was used";
    SamplesLeftOut, "sample.profile_full", Sample,
        "sample" | "samples", "dropped: profile size limit reached, rarest addresses first";
    StreamsLeftOut, "stream.profile_full", Stream,
        "stream" | "streams", "dropped: profile size limit reached, rarest first";
    BranchesLeftOut, "entry.profile_full", Entry,
        "branch entry" | "branch entries", "dropped: profile size limit reached";
    ChainsLeftOut, "chain.profile_full", Chain,
        "call chain" | "call chains", "dropped: profile size limit reached, so their callers are not charged";
    RegionsLeftOut, "region.profile_full", Region,
        "mappings and text ranges" | "mappings and text ranges", "dropped: profile size limit reached; their samples have no instruction";
    CgroupUnread, "name.cgroup_unread", Name,
        "process image" | "process images", "exited before the cgroup could be read: attributed to the cgroup of the parent \
         process, or to `(unknown)`";
    FunctionsGivenUp, "name.functions_given_up", Name,
        "file" | "files", "without function names: parsing them took too much time or memory, more than the files of one user may \
         take, or was not done in time";
    NamesLeftOut, "name.profile_full", Name,
        "name of a function, file or cgroup" | "names of functions, files or cgroups", "dropped or shortened: profile size limit reached";
}

impl Loss {
    /// What the user may do about it.
    pub(crate) const fn advice(self) -> Option<Advice> {
        match self {
            Self::CountsFull => Some(Advice::LargerMapsOrRarerSamples),
            Self::StacksFull => Some(Advice::LongerBranchPeriodOrPriority),
            Self::StreamsRefused | Self::OldestRefused => Some(Advice::LargerMaps),
            Self::ChainsFull => Some(Advice::LongerTimePeriod),
            Self::TextWithoutSource => Some(Advice::NameKernelImage),
            Self::SamplesLeftOut => Some(Advice::ShorterRunOrLongerPeriod),
            Self::StreamsLeftOut => Some(Advice::ShorterRunOrLongerBranchPeriod),
            _ => None,
        }
    }

    /// What happened and what the user may do, to be read after the count.
    pub fn in_words(self, wording: Wording) -> String {
        followed(self.sentence(), self.advice(), wording)
    }
}

/// How much was lost. Losses that another version of the tool names are kept, though their unit is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    known: BTreeMap<Loss, u64>,
    /// By stable name.
    foreign: BTreeMap<String, u64>,
}

impl Losses {
    /// Counts `n` more of a loss.
    pub fn add(&mut self, loss: Loss, n: u64) {
        add(&mut self.known, loss, n);
    }

    /// How often it happened.
    pub fn get(&self, loss: Loss) -> u64 {
        self.known.get(&loss).copied().unwrap_or(0)
    }

    /// The sum of all losses of one unit that this version knows.
    pub fn total(&self, unit: LossUnit) -> u64 {
        let of_unit = self.known.iter().filter(|(loss, _)| loss.unit() == unit);
        of_unit.map(|(_, n)| n).sum()
    }

    /// The losses that are not zero, in the order of their stable names, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64, Option<Loss>)> {
        let known = self.known.iter().map(|(loss, n)| (loss.id(), *n, Some(*loss)));
        let foreign = self.foreign.iter().map(|(id, n)| (id.as_str(), *n, None));
        let mut all: Vec<_> = known.chain(foreign).collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all.into_iter()
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, n: u64) {
    if 0 < n {
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(n);
    }
}

/// Adds what was lost elsewhere.
impl AddAssign<&Self> for Losses {
    fn add_assign(&mut self, other: &Self) {
        for (loss, n) in &other.known {
            self.add(*loss, *n);
        }
        for (id, n) in &other.foreign {
            add(&mut self.foreign, id.clone(), *n);
        }
    }
}

/// Counts by stable names, as files have them.
impl FromIterator<(String, u64)> for Losses {
    fn from_iter<T: IntoIterator<Item = (String, u64)>>(counts: T) -> Self {
        let mut losses = Self::default();
        for (id, n) in counts {
            match Loss::ALL.iter().find(|loss| loss.id() == id) {
                Some(loss) => losses.add(*loss, n),
                None => add(&mut losses.foreign, id, n),
            }
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(_: Advice) -> &'static str {
        "do so"
    }

    #[test]
    fn advice_follows_what_happened() {
        let text = Loss::StreamsRefused.counted(1, "1", plain);
        assert_eq!(text, "1 stream dropped: stream table full; do so");
        let text = Loss::CountsFull.in_words(plain);
        assert_eq!(text, "samples dropped: count map full; do so");
    }

    #[test]
    fn names_are_unique_and_start_with_their_unit() {
        let mut seen = std::collections::BTreeSet::new();
        for loss in Loss::ALL {
            assert!(seen.insert(loss.id()), "{} is listed twice", loss.id());
            let unit = format!("{:?}.", loss.unit()).to_lowercase();
            assert!(loss.id().starts_with(&unit), "{}", loss.id());
        }
    }

    #[test]
    fn one_of_a_loss_is_reported_in_the_singular() {
        assert_eq!(
            Loss::FileMissing.counted(1, "1", plain),
            "1 mapped file not found"
        );
        assert_eq!(
            Loss::FileMissing.counted(2, "2", plain),
            "2 mapped files not found"
        );
        let text = Loss::SampleUnread.counted(1, "1", plain);
        assert!(text.starts_with("1 recorded sample skipped"), "{text}");
        let text = Loss::NewestUnused.counted(1, "1", plain);
        assert!(text.starts_with("1 newest branch entry left out"), "{text}");
        let text = Loss::NamesLeftOut.counted(1, "1", plain);
        assert!(
            text.starts_with("1 name of a function, file or cgroup dropped"),
            "{text}"
        );
        let both = Loss::TextSwitched.counted(1, "1", plain);
        assert!(both.starts_with("1 samples and streams"), "{both}");
    }

    #[test]
    fn unknown_names_survive() {
        let counts = [("sample.of_the_future", 3), ("sample.counts_full", 2)];
        let mut losses: Losses = counts.map(|(id, n)| (id.to_owned(), n)).into_iter().collect();
        assert_eq!(
            (losses.get(Loss::CountsFull), losses.total(LossUnit::Sample)),
            (2, 2)
        );
        losses += &losses.clone();
        let expected = [
            ("sample.counts_full", 4, Some(Loss::CountsFull)),
            ("sample.of_the_future", 6, None),
        ];
        assert_eq!(losses.iter().collect::<Vec<_>>(), expected);
    }
}
