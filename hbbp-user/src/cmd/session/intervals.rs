//! The intervals of a measurement since the last drain: the counts of each are separate.

use std::mem;
use std::ops::Range;

/// Intervals by the clock of the samples, in ns.
#[derive(Debug)]
pub(super) struct Intervals {
    /// Start of the current one.
    began: u64,
    /// Those that have ended since the last drain.
    ended: Vec<Range<u64>>,
}

impl Intervals {
    /// One that begins at this time.
    pub(super) const fn from(began: u64) -> Self {
        let ended = Vec::new();
        Self { began, ended }
    }

    /// Start of the current interval.
    pub(super) const fn began(&self) -> u64 {
        self.began
    }

    /// Sampling starts: nothing before counts for the current interval.
    pub(super) const fn start(&mut self, at: u64) {
        self.began = at;
    }

    /// Ends the current interval and begins the next.
    pub(super) fn end(&mut self, at: u64) {
        self.ended.push(self.began..at);
        self.began = at;
    }

    /// Takes out those that have ended.
    pub(super) fn take(&mut self) -> Vec<Range<u64>> {
        mem::take(&mut self.ended)
    }
}
