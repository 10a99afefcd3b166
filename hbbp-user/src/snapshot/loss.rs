//! Every way that something is lost or refused before it is counted, each with its name, unit and sentence.
//!
//! What cannot be resolved later, from counts that were kept, is a matter of [`crate::locate`]; samples that the kernel
//! skipped without a trace are the difference between [`super::Event::due`] and [`super::Event::runs`].

use std::collections::BTreeMap;

/// What one count of a loss is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LossUnit {
    /// A sample of an event: it is missing in the mix.
    Sample,
    /// An entry of a branch stack.
    Entry,
    /// A stream between two entries of a branch stack.
    Stream,
    /// A record about processes, mappings or kernel text.
    Record,
    /// A mapping or text region whose text could not be read: its samples stay unresolved.
    Region,
    /// A sample or stream that is counted, but perhaps for other bytes than those that ran.
    Doubt,
}

macro_rules! losses {
    ($($variant:ident, $id:literal, $unit:ident, $sentence:literal;)*) => {
        /// A way to lose something.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Loss {
            $(#[doc = $sentence] $variant,)*
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

            /// What happened, to be read after the count.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

losses! {
    CountsFull, "sample.counts_full", Sample,
        "samples found the map of counts full: raise --map-entries or lower the sampling rate";
    StacksFull, "sample.stacks_full", Sample,
        "samples found the ring of branch stacks full, as the tool got no time to read it: take stacks more rarely (--branch-period), or give the tool more time (nice)";
    NoBank, "sample.no_bank", Sample,
        "samples found no bank to be counted in";
    NoStack, "sample.no_stack", Sample,
        "samples came without a branch stack, or with an empty one";
    WrongPath, "entry.wrong_path", Entry,
        "branch entries were fetched on a wrong path and never executed";
    TooMany, "entry.too_many", Entry,
        "branch entries were left out, as the recording holds more different ones than are kept";
    NewestUnused, "entry.newest_unused", Entry,
        "newest entries of branch stacks were left out: this processor (Skylake) repeats the newest entry now and then, and a copy cannot be told from a loop";
    Backward, "stream.backward", Stream,
        "streams end before they begin: an entry of the stack is missing or a copy";
    Crossing, "stream.crossing", Stream,
        "streams begin in one ring and end in the other: an entry between them is missing in the stack";
    Long, "stream.long", Stream,
        "streams are too long to be straight-line code: an entry between them is missing in the stack";
    Switched, "stream.switched", Stream,
        "user streams are older than a context switch, so they belong to another process";
    StreamsRefused, "stream.refused", Stream,
        "streams found the table of streams full: raise --map-entries";
    OldestRefused, "entry.oldest_refused", Entry,
        "branches in the oldest slot found the table of streams full, so that a bias may go unseen: raise --map-entries";
    RecorderLost, "record.recorder_lost", Record,
        "records, most of them samples, were lost by their recorder, which could not write as fast as they came";
    SampleUnread, "record.sample_unread", Record,
        "samples of the recording are damaged or belong to no known event";
    SidebandLost, "record.sideband_lost", Record,
        "records about processes and mappings were overwritten before they were read";
    TextLost, "record.text_lost", Record,
        "records about kernel text were overwritten before they were read: its patches were found by reading it again";
    SidebandUnread, "record.sideband_unread", Record,
        "records about processes and mappings could not be understood";
    ProcessGone, "region.process_gone", Region,
        "mappings belong to a process that was gone before its executable memory or file could be read";
    FileMissing, "region.file_missing", Region,
        "mapped files could not be found";
    FileRefused, "region.file_refused", Region,
        "mapped files were refused: not a regular file, or no permission";
    FileChanged, "region.file_changed", Region,
        "mapped files are not the ones that ran: build id, device or inode differ";
    FileUnreadable, "region.file_unreadable", Region,
        "mapped files could not be understood as ELF";
    TextUnreadable, "region.text_unreadable", Region,
        "stretches of kernel text could not be read";
    TextSwitched, "doubt.text_switched", Doubt,
        "samples and streams, told by time, passed instructions after these were switched and before the counts were cut: they count for the bytes before";
    TextUncertain, "region.text_uncertain", Region,
        "stretches of text changed between two readings: samples of that interval may have run the other bytes";
}

/// How much was lost, by the stable name of the loss. Names of other versions of the tool are kept as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses(pub BTreeMap<String, u64>);

impl Losses {
    /// Counts `n` more of a loss.
    pub fn add(&mut self, loss: Loss, n: u64) {
        if 0 < n {
            let count = self.0.entry(loss.id().to_owned()).or_default();
            *count = count.saturating_add(n);
        }
    }

    /// How often it happened.
    pub fn get(&self, loss: Loss) -> u64 {
        self.0.get(loss.id()).copied().unwrap_or(0)
    }

    /// The sum of all losses of one unit that this version knows.
    pub fn total(&self, unit: LossUnit) -> u64 {
        Loss::ALL
            .iter()
            .filter(|l| l.unit() == unit)
            .map(|l| self.get(*l))
            .sum()
    }

    /// The losses that are not zero: stable name, count, and the sentence where this version knows it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64, Option<Loss>)> {
        self.0.iter().filter(|(_, n)| 0 < **n).map(|(id, n)| {
            let known = Loss::ALL.iter().copied().find(|l| l.id() == id);
            (id.as_str(), *n, known)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_start_with_their_unit() {
        let mut seen = std::collections::BTreeSet::new();
        for loss in Loss::ALL {
            assert!(seen.insert(loss.id()), "{} stands twice", loss.id());
            let unit = format!("{:?}.", loss.unit()).to_lowercase();
            assert!(loss.id().starts_with(&unit), "{}", loss.id());
        }
    }

    #[test]
    fn unknown_names_survive() {
        let mut losses = Losses::default();
        losses.add(Loss::CountsFull, 2);
        losses.0.insert("sample.of_the_future".to_owned(), 3);
        assert_eq!(losses.total(LossUnit::Sample), 2);
        assert_eq!(losses.iter().count(), 2);
    }
}
