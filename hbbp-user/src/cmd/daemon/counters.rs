//! What happened to a daemon that its segments do not say: each has a counter, and each loss a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($variant:ident, $id:literal, $sentence:expr, $help:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Counter {
            $(#[doc = $help] $variant,)*
        }

        impl Counter {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name, as in metrics.
            pub(crate) const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }

            /// What is counted.
            pub(crate) const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// What was lost: one thing, several, and what became of them; `None` if nothing is.
            const fn sentence(self) -> Option<[&'static str; 3]> {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

counters! {
    Intervals, "intervals", None,
        "Intervals measured";
    BudgetMissed, "budget_missed",
        Some(["interval", "intervals", "above the CPU budget, each after two others in a row"]),
        "Intervals that took more CPU time than the budget, from the third in a row on";
    SegmentsWritten, "segments_written", None,
        "Segments written for intervals";
    IntervalsRefused, "intervals_refused",
        Some(["interval", "intervals", "lost: the disk took longer than several intervals"]),
        "Intervals lost because earlier ones were still being written";
    IntervalsDropped, "intervals_dropped",
        Some(["interval", "intervals", "lost: not written for long, and the memory for those that wait was full"]),
        "Intervals lost because they could not be written for long";
    WriteFailures, "write_failures",
        Some(["time", "times", "a segment could not be written; its interval was kept in memory for the next one"]),
        "Times that a segment could not be written";
    Restarts, "collection_restarts",
        Some(["time", "times", "collection failed and was opened again"]),
        "Times that collection failed and was opened again";
    GapSeconds, "gap_seconds",
        Some(["s", "s", "not measured, after collection had failed"]),
        "Time that was not measured after collection had failed, each time rounded up";
    SegmentsMerged, "segments_merged", None,
        "Segments that were merged into longer ones";
    SegmentsHeld, "segments_held", None,
        "Segments removed at the start because a merged one holds them";
    MergesFailed, "merges_failed",
        Some(["time", "times", "segments could not be merged; they stay as they are"]),
        "Times that segments could not be merged";
    SegmentsLarge, "segments_large", None,
        "Segments that are not merged, as merging them with the next one would need too much memory";
    SegmentsExpired, "segments_expired", None,
        "Segments removed because of their age or size";
    SegmentsUnreadable, "segments_unreadable",
        Some(["segment", "segments", "damaged: left alone, and skipped by reports"]),
        "Segments that could not be read";
    ConnectionsClosed, "connections_closed",
        Some(["connection", "connections", "for metrics closed before an answer: too many others came"]),
        "Connections that were closed before they were answered, because too many others came";
    ProfilesRefused, "profiles_refused",
        Some(["request", "requests", "for profiles refused: too soon after another one, or segments were being written"]),
        "Requests for profiles that were refused because they came too soon, or while segments were being written";
    CgroupsOther, "cgroups_other",
        Some(["time", "times", "a cgroup had no label in the metrics: its amounts of an estimate are under [other]"]),
        "Cgroups of estimates that had no label of their own, as there were too many: their amounts have the label of all others";
    Workers, "parser_starts", None,
        "Workers that were started to parse files of other processes";
    FilesTimedOut, "files_timed_out",
        Some(["file", "files", "of other processes not parsed: it took too long"]),
        "Files of other processes that were not parsed in time";
    FilesGivenUp, "files_given_up",
        Some(["file", "files", "of other processes not parsed: the worker ended, or would have, by its limits of memory, reading and CPU time"]),
        "Files of other processes that were not parsed because of the limits of a worker, or because it ended";
    FilesRefused, "files_refused",
        Some(["file", "files", "of other processes not parsed: parsing the files of their owner, or of all, took too much CPU time"]),
        "Files of other processes that were not parsed because those of their owner, or of all, had taken too much CPU time";
    FilesMisread, "files_misread",
        Some(["file", "files", "of other processes not parsed: what the worker answered was not valid"]),
        "Files of other processes that the worker gave an invalid answer on";
    ForeignFiles, "foreign_files", None,
        "Files in the directory that are no segments, as they were seen";
}

/// The counters of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; Counter::ALL.len()]);

impl Counters {
    /// Counts `n` more.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(count) = self.0.get(counter as usize) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// How much was counted.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(counter as usize)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// What was lost, each with its count.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let lost = Counter::ALL.iter().filter(|it| 0 < self.get(**it));
        let said = lost.filter_map(|it| {
            let (n, [one, several, what]) = (self.get(*it), it.sentence()?);
            Some(format!("{n} {} {what}", if n == 1 { one } else { several }))
        });
        said.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural_differ() {
        let counters = Counters::default();
        counters.add(Counter::IntervalsRefused, 1);
        counters.add(Counter::Restarts, 2);
        counters.add(Counter::Intervals, 9);
        let said = [
            "1 interval lost: the disk took longer than several intervals",
            "2 times collection failed and was opened again",
        ];
        assert_eq!(counters.sentences(), said);
    }
}
