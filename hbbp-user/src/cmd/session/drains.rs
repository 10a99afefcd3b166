//! Drains of a running measurement: counts are taken out of the maps and resolved, and intervals are split where text was
//! patched.

use super::bursts::UserBursts;
use super::running::Session;
use crate::cmd::interval::{Counts, raw_chain, raw_interval};
use hbbp_collect::StacksSeen;
use hbbp_resolve::clock::{now, thread_time};
use hbbp_resolve::raw::RawInterval;

impl Session {
    /// Splits the interval, so that kernel counts before and after a patch are separate.
    pub(crate) fn split(&mut self) -> anyhow::Result<()> {
        if self.changes.is_of_the_kernel_alone() && self.collector.cut() {
            self.intervals.end(now());
            self.changes.settled();
        } else if self.changes.may_drain() {
            let start = thread_time();
            self.drain()?;
            self.changes.drained(thread_time().saturating_sub(start));
        }
        Ok(())
    }

    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        // First, so that a period that changes by much is not changed by little as well: each change loses half a period.
        self.collector.share_out()?;
        self.collector.vary()?;
        let counts = self.counts()?;
        self.resolve(&counts);
        Ok(())
    }

    /// Takes out what was counted since the last time; all records of that time have been applied then.
    pub(super) fn counts(&mut self) -> anyhow::Result<Counts> {
        let parts = self.collector.drain()?;
        let chains = self.collector.drain_chains()?;
        let end = now();
        self.read_sideband()?;
        self.intervals.end(end);
        self.changes.settled();
        Ok(Counts {
            times: self.intervals.take(),
            parts,
            chains,
            bursts: self
                .bursts
                .as_mut()
                .map_or_else(Vec::new, UserBursts::take_counts),
            clock_periods: self.collector.clock_periods(),
        })
    }

    pub(super) fn resolve(&mut self, counts: &Counts) {
        let last = counts.times.len().saturating_sub(1);
        let chains = counts.chains.iter();
        let chains = chains.map(|chain| raw_chain(chain, &counts.clock_periods));
        self.resolver.chained(chains);
        let has_stack = |event| self.collector.has_stack(event);
        let times = counts.times.iter().cloned();
        let parts = times.zip(counts.parts.iter()).enumerate();
        let intervals = parts.map(|(n, (time, part))| {
            let raw = raw_interval(time, part, has_stack, &counts.clock_periods);
            let of_bursts = counts.bursts.iter().filter(move |_| n == last).copied();
            RawInterval {
                start: raw.start,
                end: raw.end,
                counts: raw.counts.chain(of_bursts),
            }
        });
        self.resolver.drained(intervals.collect());
    }

    /// Checks whether branch stacks have entries, until that is known; empty ones are no longer sampled.
    pub(crate) fn look_at_stacks(&mut self) -> anyhow::Result<()> {
        if self.stacks == StacksSeen::NotYet {
            self.stacks = self.collector.stacks_seen();
            if self.stacks == StacksSeen::Empty {
                self.collector.stop_stacks()?;
            }
        }
        Ok(())
    }
}
