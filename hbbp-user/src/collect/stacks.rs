//! Branch stacks as they come from the programs: out of the ring of each CPU, and out of the tables of kept ones.
//!
//! Rings are read while the programs go on, without a syscall, during which the kernel would skip programs on that CPU. The
//! kept stacks take turns as the banks do.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use aya::maps::{MapData, RingBuf};
use hbbp_ebpf::stack::{KeptStack, KeptStacks, Stack};
use hbbp_ebpf::{CountKey, MAX_DEPTH, Tally, name};

use super::cpus::Cpus;
use super::mapped::{Mapped, Pair};
use super::object::{Object, Room};
use super::streams::{Habits, StackStats, Streams};

/// The rings, the kept stacks, and the streams that were made of both.
pub struct Stacks {
    rings: Mapped<Stack>,
    /// Stacks in the ring of a CPU, a power of two.
    ring: u64,
    kept: Pair<KeptStacks>,
    wake: RingBuf<MapData>,
    streams: Streams,
}

/// After so many stacks their places are given back to the programs.
const AT_ONCE: u64 = 64;

impl Stacks {
    /// Takes the maps of the object, which has been loaded with this room.
    pub fn open(object: &mut Object, room: Room, habits: Habits) -> anyhow::Result<Self> {
        Ok(Self {
            rings: Mapped::open(object, name::STACKS)?,
            ring: room.ring.into(),
            kept: Pair::open(object, name::KEPT, name::KEPTS)?,
            wake: RingBuf::try_from(object.take_map(name::WAKE)?)?,
            streams: Streams::new(room.streams, habits),
        })
    }

    /// See [`super::Collector::tell_switch`].
    pub const fn tell_switch(&mut self, switch: (u64, u64)) {
        self.streams.tell_switch(switch);
    }

    /// A descriptor that becomes readable when some ring is half full.
    pub fn news(&self) -> anyhow::Result<OwnedFd> {
        let descriptor = self.wake.as_fd().try_clone_to_owned();
        descriptor.context("failed to wait for branch stacks")
    }

    /// What became of the stacks of an event that were read.
    pub fn stats(&self, event: u32) -> StackStats {
        self.streams.stats(event)
    }

    /// Reads the rings until they are empty. Returns whether the table of streams is half full.
    pub fn read(&mut self, cpus: &Cpus) -> bool {
        // First, so that a ring that fills up meanwhile wakes again.
        while self.wake.next().is_some() {}
        for cpu in cpus.all() {
            self.read_ring(cpus, cpu);
        }
        self.streams.is_half_full()
    }

    fn read_ring(&mut self, cpus: &Cpus, cpu: usize) {
        let mut unread = cpus.unread(cpu);
        // What comes meanwhile is left for the next time, or a CPU that is faster than this one would keep it here.
        let last = unread.end.min(unread.start.wrapping_add(self.ring));
        while unread.start < last {
            let until = last.min(unread.start + AT_ONCE);
            for number in unread.start..until {
                let place = cpu as u64 * self.ring + number % self.ring;
                let stack = usize::try_from(place).ok().and_then(|place| self.rings.at(place));
                if let Some(stack) = stack {
                    // SAFETY: mapped as long as `self` lives, any bits are a value, and until its place is given back
                    // nobody writes there.
                    let stack = unsafe { stack.as_ref() };
                    let entries = first(&stack.entries, stack.depth);
                    self.streams.count(entries, &stack.context, 1, stack.time);
                }
            }
            cpus.read_until(cpu, until);
            unread.start = until;
        }
    }

    /// Takes out all that was counted. No stack of the time before is missing, but those that a program reads just now.
    pub fn drain(&mut self, cpus: &Cpus, counts: &mut Vec<(CountKey, Tally)>) -> anyhow::Result<()> {
        // The kept ones go first: a stack that loses its place meanwhile is in the ring then.
        self.kept.flip()?;
        for kept in self.kept.spare().iter_mut().flat_map(|cpu| &mut cpu.places) {
            if kept.fingerprint == 0 {
                continue;
            }
            let kept = std::mem::take::<KeptStack>(kept);
            if 0 < kept.hits {
                let entries = kept.entries();
                let entries = first(&entries, kept.depth);
                self.streams
                    .count(entries, &kept.context, kept.hits, kept.first_time);
            }
        }
        self.read(cpus);
        self.streams.take(counts);
        Ok(())
    }
}

/// The first `depth` entries, all where that is too many.
fn first<T>(entries: &[T; MAX_DEPTH], depth: u64) -> &[T] {
    let depth = usize::try_from(depth).unwrap_or(MAX_DEPTH);
    entries.get(..depth).unwrap_or(entries)
}
