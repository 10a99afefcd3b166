//! What happened to a daemon that its segments do not say: each has a counter, and each loss a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($variant:ident, $id:literal, $sentence:expr, $help:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Counter {
            $(#[doc = $help] $variant,)*
        }

        impl Counter {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name, as in metrics.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),* }
            }

            /// What is counted.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// What was lost, to be read after the count; `None` where nothing is.
            const fn sentence(self) -> Option<&'static str> {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

counters! {
    Intervals, "intervals", None,
        "Intervals measured";
    SegmentsWritten, "segments_written", None,
        "Segments written for intervals";
    IntervalsRefused, "intervals_refused",
        Some("intervals were lost: the disk took longer than several intervals"),
        "Intervals lost because earlier ones were still being written";
    IntervalsDropped, "intervals_dropped",
        Some("intervals were lost: they could not be written, and the memory for those that wait was full"),
        "Intervals lost because they could not be written for long";
    WriteFailures, "write_failures",
        Some("times a segment could not be written; its interval was kept in memory for the next one"),
        "Times that a segment could not be written";
    Restarts, "collection_restarts",
        Some("times collection failed and was opened again"),
        "Times that collection failed and was opened again";
    GapSeconds, "gap_seconds",
        Some("s were not measured, after collection had failed"),
        "Time that was not measured after collection had failed, each time rounded up";
    SegmentsMerged, "segments_merged", None,
        "Segments that were merged into longer ones";
    MergesFailed, "merges_failed",
        Some("times segments could not be merged; they stay as they are"),
        "Times that segments could not be merged";
    SegmentsExpired, "segments_expired", None,
        "Segments removed because of their age or size";
    SegmentsUnreadable, "segments_unreadable",
        Some("segments are damaged; they were left as they are, and reports skip them"),
        "Segments that could not be read";
    ScrapesRefused, "scrapes_refused",
        Some("requests for metrics were refused: too many at once"),
        "Requests for metrics that were refused because there were too many at once";
    ForeignFiles, "foreign_files", None,
        "Files in the directory that are no segments, when the daemon started";
}

/// The counters of a daemon.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; Counter::ALL.len()]);

impl Counters {
    /// Counts `n` more.
    pub fn add(&self, counter: Counter, n: u64) {
        if let Some(count) = self.0.get(counter as usize) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// How much was counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(counter as usize)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// What was lost, each with its count.
    pub fn sentences(&self) -> Vec<String> {
        let lost = Counter::ALL.iter().filter(|it| 0 < self.get(**it));
        lost.filter_map(|it| Some(format!("{} {}", self.get(*it), it.sentence()?)))
            .collect()
    }
}
