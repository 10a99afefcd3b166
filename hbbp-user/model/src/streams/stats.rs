//! What became of the entries of branch stacks: how many serve, and why others do not. Every entry is in one of the sums.

use hbbp_ebpf::stream::Refusal;

/// What became of the entries of an event's branch stacks. Three sums close after [`super::Streams::take_possible`]: `entries` =
/// `stacks` + `streams` + all that was discarded + `refused`, each stack has one branch in its oldest slot, and `entries` +
/// `newest_unused` are those that were executed. Until then `streams` holds also what will be discarded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StackStats {
    /// Newest entries that were left out, as they may be copies ([`super::Quirks::repeats_newest`]).
    pub newest_unused: u64,
    /// Stacks with at least one other entry.
    pub stacks: u64,
    /// Their entries.
    pub entries: u64,
    /// Streams that were counted.
    pub streams: u64,
    /// Streams that end before they start.
    pub backward: u64,
    /// Streams between the rings.
    pub crossing: u64,
    /// Streams longer than [`hbbp_ebpf::stream::MAX_STREAM`].
    pub long: u64,
    /// User streams older than a context switch: they belong to another process.
    pub switched: u64,
    /// Streams that found the table full.
    pub refused: u64,
    /// Branches in the oldest slot that found it full.
    pub refused_oldest: u64,
}

/// Changes the statistics of an event.
#[inline(always)]
pub(super) fn update(stats: &mut Vec<StackStats>, event: u32, change: impl FnOnce(&mut StackStats)) {
    let event = event as usize;
    if stats.len() <= event {
        stats.resize(event + 1, StackStats::default());
    }
    if let Some(stats) = stats.get_mut(event) {
        change(stats);
    }
}

/// A recording may say any number.
#[inline(always)]
pub(super) const fn add(sum: &mut u64, n: u64) {
    *sum = sum.saturating_add(n);
}

impl StackStats {
    /// What was added since it was `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            newest_unused: self.newest_unused.saturating_sub(before.newest_unused),
            stacks: self.stacks.saturating_sub(before.stacks),
            entries: self.entries.saturating_sub(before.entries),
            streams: self.streams.saturating_sub(before.streams),
            backward: self.backward.saturating_sub(before.backward),
            crossing: self.crossing.saturating_sub(before.crossing),
            long: self.long.saturating_sub(before.long),
            switched: self.switched.saturating_sub(before.switched),
            refused: self.refused.saturating_sub(before.refused),
            refused_oldest: self.refused_oldest.saturating_sub(before.refused_oldest),
        }
    }

    /// Takes streams back that were counted and cannot have run.
    pub(super) const fn discard(&mut self, refusal: Refusal, times: u64) {
        let counter = match refusal {
            Refusal::Crossing => &mut self.crossing,
            Refusal::Backward => &mut self.backward,
            Refusal::Long => &mut self.long,
        };
        add(counter, times);
        self.streams = self.streams.saturating_sub(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_the_difference_of_each_count() {
        let stats = |n: u64| StackStats {
            newest_unused: n,
            stacks: 2 * n,
            entries: 3 * n,
            streams: 4 * n,
            backward: 5 * n,
            crossing: 6 * n,
            long: 7 * n,
            switched: 8 * n,
            refused: 9 * n,
            refused_oldest: 10 * n,
        };
        assert_eq!(stats(5).since(stats(2)), stats(3));
    }
}
