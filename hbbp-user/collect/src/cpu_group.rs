//! Events that count together on a CPU.

use std::io;

use super::perf::{Counting, Group, Perf};

/// The events of a set on one CPU: those after the first are kept open with it.
pub(super) struct CpuGroup {
    leader: Perf,
    _others: Vec<Perf>,
    /// What it had counted at the end of its last turn.
    pub(super) before: Group,
    /// Whether it counts no more: the kernel dissolves groups when their CPU goes offline. What it counted until then
    /// is good.
    has_ended: bool,
}

impl CpuGroup {
    pub(super) fn open(events: &[&Counting], cpu: u32) -> io::Result<Self> {
        let (first, others) = events.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let leader = Perf::open_counting(first, cpu)?;
        let others = others.iter().map(|event| leader.open_beside(event));
        Ok(Self {
            _others: others.collect::<io::Result<_>>()?,
            before: Group {
                counts: vec![0; events.len()],
                ..Group::default()
            },
            leader,
            has_ended: false,
        })
    }

    pub(super) fn enable(&mut self) {
        self.has_ended |= !self.has_ended && self.leader.enable().is_err();
    }

    pub(super) fn disable(&mut self) {
        self.has_ended |= !self.has_ended && self.leader.disable().is_err();
    }

    /// What it has counted so far; `None` if it has ended.
    pub(super) fn read(&mut self) -> Option<Group> {
        if self.has_ended {
            return None;
        }
        let read = self.leader.read_group(self.before.counts.len()).ok();
        self.has_ended = read.is_none();
        read
    }

    /// Whether it has counters now, with the other events that count.
    pub(super) fn fits(&self) -> io::Result<bool> {
        self.leader.enable()?;
        let read = self.leader.read_group(self.before.counts.len());
        self.leader.disable()?;
        // The kernel schedules an event when it is enabled, or not until others leave.
        Ok(read.is_ok_and(|group| 0 < group.running))
    }
}
