//! The counters of classes of a collection.

use std::time::Duration;

use super::Collector;
use crate::classes::ClassCounters;
use crate::totals::Totals;

impl Collector {
    /// Has classes count.
    pub(super) fn enable_classes(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::enable);
    }

    /// Has them count no more.
    pub(super) fn stop_classes(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::stop);
    }

    /// Adds what was counted of them since the last call.
    pub(super) fn take_classes(&mut self, totals: &mut Totals) {
        for counters in &mut self.classes {
            let enabled = self.counters.enabled_on(counters.kind(), &totals.events);
            let counts = counters.take_counts(enabled, &mut totals.notes);
            totals.classes.extend(counts);
        }
    }

    /// How long the turn of classes that begins now should be; `None` where nothing takes turns.
    pub fn turn_length(&self) -> Option<Duration> {
        self.classes.iter().filter_map(ClassCounters::turn_length).max()
    }

    /// Lets other classes count, where there are more than counters.
    pub fn take_turns(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::take_turns);
    }
}
