//! What a running measurement follows in addition to its counts: records of processes and of kernel text, memory with
//! code, and what all of it costs.

use tokio::time::Instant;

use super::running::Session;
use crate::cmd::budget::{Budget, Change};
use hbbp_model::record::{Record, Timed};
use hbbp_resolve::clock::thread_time;

impl Session {
    pub(crate) fn read_sideband(&mut self) -> anyhow::Result<()> {
        let reading = self.collector.records()?;
        self.since_last.unread += reading.unread;
        if let Some(budget) = &mut self.budget {
            budget.note_records(&reading.records);
        }
        let is_patch = |record: &Record| matches!(record, Record::TextPoke { .. });
        if let Some(followed) = &mut self.followed {
            followed.note_records(&reading.records);
        }
        // Patches before the interval do not split it: the kernel switches static keys when perf events are opened, and
        // an extra drain for these would only cost samples.
        let began = self.intervals.began();
        let inside = |timed: &Timed| began < timed.time && is_patch(&timed.record);
        if reading.records.iter().any(inside) {
            self.changes.kernel_was_patched();
        }
        self.resolver.apply(reading.records);
        self.collector.name_turning(self.resolver.turning().into_iter());
        if self.resolver.take_patched() {
            self.changes.user_was_patched();
        }
        Ok(())
    }

    /// Pauses records of processes that took more than their part of the budget, and resumes them when they fit into it again.
    pub(crate) fn settle_records(&mut self) -> anyhow::Result<()> {
        match self.budget.as_mut().and_then(Budget::change_of_records) {
            Some(Change::Rest) => {
                self.collector.rest_records();
                self.resolver.rest();
            }
            Some(Change::Resume) => {
                self.collector.resume_records()?;
                self.resolver.resume();
            }
            None => {}
        }
        Ok(())
    }

    /// Whether the interval should end because samples cost much more than the budget.
    pub(crate) fn is_over_budget(&mut self) -> bool {
        let budget = self.budget.as_mut();
        budget.is_some_and(|budget| budget.is_urgent(&self.collector))
    }

    /// Looks for changes of memory with code, which have no records.
    pub(crate) fn watch_memory(&mut self) {
        if self.changes.due().is_none() && self.resolver.has_memory_changed() {
            self.changes.memory_changed();
        }
    }

    /// When to split the interval, as text was patched.
    pub(crate) const fn patched(&self) -> Option<Instant> {
        self.changes.due()
    }

    /// Compares live kernel text with the known text.
    pub(super) fn compare_text(&mut self) -> anyhow::Result<()> {
        let live = self.resolver.read_text();
        self.read_sideband()?;
        self.resolver.compare_text(live);
        Ok(())
    }

    /// The same, unless comparisons would take more than their share of the time.
    pub(crate) fn look_at_text(&mut self) -> anyhow::Result<()> {
        if self.changes.may_compare() {
            let start = thread_time();
            self.compare_text()?;
            self.changes.compared(thread_time().saturating_sub(start));
        }
        Ok(())
    }
}
