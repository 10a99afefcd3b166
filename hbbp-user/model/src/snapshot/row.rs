//! Rows of counts: what each counts, and how those of the same add up.

use std::sync::Arc;

use super::{BranchCount, ChainCount, EventIdx, IpCount, ProcessIdx, StreamCount};
use crate::addr::Va;

/// A row of counts.
pub trait Row: Sized {
    /// What it counts.
    type Key: Ord;
    /// What it counts.
    fn key(&self) -> Self::Key;
    /// Adds what was counted of the same.
    fn add(&mut self, other: &Self);
    /// How often it was seen.
    fn hits(&self) -> u64;
    /// Memory in bytes that it takes.
    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

impl Row for IpCount {
    type Key = (EventIdx, ProcessIdx, Va, bool);

    fn key(&self) -> Self::Key {
        (self.event, self.process, self.ip, self.exact)
    }

    fn add(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.weight = self.weight.saturating_add(other.weight);
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

impl Row for StreamCount {
    type Key = (EventIdx, ProcessIdx, Va, Va, Option<Va>);

    fn key(&self) -> Self::Key {
        (self.event, self.process, self.start, self.end, self.source)
    }

    fn add(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.weight = (self.weight + other.weight).clamp(f64::MIN, f64::MAX);
        // The sum of those that are known: a branch without cycles adds none.
        self.cycles = match (self.cycles, other.cycles) {
            (Some(sum), Some(cycles)) => Some(sum.saturating_add(cycles.get())),
            (sum, cycles) => sum.or(cycles),
        };
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

impl Row for BranchCount {
    type Key = (EventIdx, ProcessIdx, Va, Va);

    fn key(&self) -> Self::Key {
        (self.event, self.process, self.from, self.to)
    }

    fn add(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.oldest = self.oldest.saturating_add(other.oldest);
        // A sum with an unknown part is unknown.
        let both = self.mispredicted.zip(other.mispredicted);
        self.mispredicted = both.map(|(sum, n)| sum.saturating_add(n));
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}

impl Row for ChainCount {
    type Key = (EventIdx, ProcessIdx, Va, Va, Arc<[Va]>);

    fn key(&self) -> Self::Key {
        (
            self.event,
            self.process,
            self.ip,
            self.top,
            Arc::clone(&self.frames),
        )
    }

    fn add(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.weight = self.weight.saturating_add(other.weight);
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn size(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.frames)
    }
}

/// Adds rows, and adds up those of the same.
pub fn merge_rows<R: Row>(into: &mut Vec<R>, next: Vec<R>) {
    into.extend(next);
    into.sort_unstable_by_key(Row::key);
    into.dedup_by(|row, sum| {
        let equal = row.key() == sum.key();
        if equal {
            sum.add(row);
        }
        equal
    });
    into.shrink_to_fit();
}
