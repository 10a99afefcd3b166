//! Changes of text while it is measured: when the interval is split for them, so that the work stays a small part of the time.

use std::time::Duration;

use tokio::time::Instant;

use hbbp_resolve::kernel::space::TextHistory;

/// Delay from a patch to the split of the interval. Switching a static key patches many sites in a row.
const PATCH_DELAY: Duration = Duration::from_millis(2);

/// Minimum gap between two extra drains triggered by text patches, as a multiple of the duration of the last one: they take
/// at most 5 % of the time, however often text is patched. Other drains do not count, so that the first patch is never kept
/// waiting for what a drain took that read the symbols of programs.
const DRAIN_GAP: u32 = 19;

/// The same for memory with code that changed, as it does all the time where compilers run: at most 1 % of the time.
const MEMORY_DRAIN_GAP: u32 = 99;

/// Minimum gap between two comparisons of kernel text, as a multiple of the duration of the last one. They nearly always find
/// nothing, and take at most 0.1 % of the time of a CPU.
const COMPARISON_GAP: u32 = 999;

/// Which text has changed since the last drain, and from when on it may be looked at.
#[derive(Debug)]
pub(super) struct Changes {
    /// Whether kernel text is followed.
    text: TextHistory,
    /// When to split the interval because of a patch.
    due: Option<Instant>,
    /// Whether user text was patched, too: then a drain does it, as only kernel code is counted separately.
    of_users: bool,
    /// Earliest time of an extra drain because memory with code changed.
    next_memory_drain: Instant,
    /// Earliest time of an extra drain because of a patch.
    next_drain: Instant,
    /// Earliest time of the next comparison of kernel text.
    next_comparison: Instant,
}

impl Changes {
    pub(super) fn of(text: TextHistory) -> Self {
        let now = Instant::now();
        Self {
            text,
            due: None,
            of_users: false,
            next_memory_drain: now,
            next_drain: now,
            next_comparison: now,
        }
    }

    /// When to split the interval.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Kernel text was patched within the interval.
    pub(super) fn kernel_was_patched(&mut self) {
        if self.text == TextHistory::Followed {
            self.due.get_or_insert_with(|| Instant::now() + PATCH_DELAY);
        }
    }

    /// Text of a process was patched.
    pub(super) fn user_was_patched(&mut self) {
        self.of_users = true;
        self.due.get_or_insert_with(|| Instant::now() + PATCH_DELAY);
    }

    /// Memory with code was changed, of which there is no record.
    pub(super) fn memory_changed(&mut self) {
        self.of_users = true;
        self.due = Some(self.next_memory_drain.max(Instant::now()));
    }

    /// Whether the text of no process has changed.
    pub(super) const fn is_of_the_kernel_alone(&self) -> bool {
        !self.of_users
    }

    /// Whether an extra drain may be made now. If not, it is due when it may.
    pub(super) fn may_drain(&mut self) -> bool {
        let may = self.next_drain <= Instant::now();
        if !may {
            self.due = Some(self.next_drain);
        }
        may
    }

    /// An extra drain took this CPU time.
    pub(super) fn drained(&mut self, cost: Duration) {
        self.next_drain = Instant::now() + DRAIN_GAP * cost;
        self.next_memory_drain = Instant::now() + MEMORY_DRAIN_GAP * cost;
    }

    /// All counts before and after the changes are separate.
    pub(super) const fn settled(&mut self) {
        self.due = None;
        self.of_users = false;
    }

    /// Whether kernel text may be compared now.
    pub(super) fn may_compare(&self) -> bool {
        self.next_comparison <= Instant::now()
    }

    /// A comparison took this CPU time.
    pub(super) fn compared(&mut self, cost: Duration) {
        self.next_comparison = Instant::now() + COMPARISON_GAP * cost;
    }
}
