//! What the programs count on each CPU, and the ends of its ring of branch stacks, read through a mapping
//! ([`hbbp_ebpf::cpu`]).

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use hbbp_ebpf::cpu::Cpu;
use hbbp_ebpf::key::turning_bit;
use hbbp_ebpf::{EventStats, name};

use super::mapped::Mapped;
use super::object::Object;

/// All CPUs that there may be, by number.
pub(crate) struct Cpus {
    mapped: Mapped<Cpu>,
    /// How many have a slot for branch stacks, and how many may have one.
    placed: AtomicU32,
    places: u32,
}

impl Cpus {
    /// Takes them from the object, which has this number of slots for branch stacks, and gives one to each that is
    /// online.
    pub(crate) fn open(object: &mut Object, places: u32, online: &[u32]) -> anyhow::Result<Self> {
        let cpus = Self {
            mapped: Mapped::open(object, name::CPUS)?,
            placed: AtomicU32::new(0),
            places,
        };
        for cpu in online {
            cpus.give_place(*cpu)
                .with_context(|| format!("failed to measure CPU {cpu}"))?;
        }
        Ok(cpus)
    }

    /// Gives a CPU a slot for its branch stacks, which it then keeps. To be called before events run there, by one
    /// thread.
    ///
    /// # Errors
    /// When all are taken.
    pub(crate) fn give_place(&self, cpu: u32) -> anyhow::Result<()> {
        let Some(place) = self.number(cpu as usize, offset_of!(Cpu, place)) else {
            bail!("the kernel did not say that it is possible");
        };
        if place.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let placed = self.placed.load(Ordering::Relaxed);
        if self.places <= placed {
            bail!(
                "there is no memory for the branch stacks of more than {} CPUs; start hbbp-sys again",
                self.places
            );
        }
        self.placed.store(placed + 1, Ordering::Relaxed);
        place.store(u64::from(placed) + 1, Ordering::Release);
        Ok(())
    }

    /// Which of the rings is that of a CPU; `None` where it has none.
    pub(crate) fn place(&self, cpu: usize) -> Option<u64> {
        let place = self.number(cpu, offset_of!(Cpu, place))?;
        place.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Begins an interval of kernel code.
    pub(crate) fn begin_interval(&self, interval: u32) {
        self.write_all(offset_of!(Cpu, interval), interval.into());
    }

    /// Has counts of these processes, and of some more, carry the moment from now on; others do not.
    pub(crate) fn name_turning(&self, tgids: impl Iterator<Item = u32>) {
        let turning = tgids.map(turning_bit).fold(0, |all, one| all | one);
        self.write_all(offset_of!(Cpu, turning), turning);
    }

    /// The numbers of all.
    pub(crate) const fn all(&self) -> Range<usize> {
        self.mapped.all()
    }

    /// How the samples of an event ended, by CPU. While the event runs, these may be of slightly different times.
    pub(crate) fn stats(&self, event: usize) -> Vec<EventStats> {
        let stats = |cpu| {
            let cpu = self.mapped.at(cpu)?;
            // SAFETY: the CPU is mapped as long as `self` lives; the programs may count meanwhile, so each number is read as
            // it is, once.
            let cpu = unsafe { cpu.read_volatile() };
            cpu.events.get(event).copied()
        };
        self.all().filter_map(stats).collect()
    }

    /// How many counts all CPUs together began in a count map.
    pub(crate) fn begun(&self) -> u64 {
        let begun = |cpu| self.number(cpu, offset_of!(Cpu, begun));
        let begun = self.all().filter_map(begun);
        begun.map(|begun| begun.load(Ordering::Relaxed)).sum()
    }

    /// The stacks in the ring of a CPU that wait to be read. What they hold was written before they are seen here.
    pub(crate) fn unread(&self, cpu: usize) -> Range<u64> {
        let head = self.number(cpu, offset_of!(Cpu, head));
        let tail = self.number(cpu, offset_of!(Cpu, tail));
        match (head, tail) {
            (Some(head), Some(tail)) => tail.load(Ordering::Relaxed)..head.load(Ordering::Acquire),
            _ => 0..0,
        }
    }

    /// Releases the entries of all stacks before this one to the programs.
    pub(crate) fn read_until(&self, cpu: usize, next: u64) {
        if let Some(tail) = self.number(cpu, offset_of!(Cpu, tail)) {
            tail.store(next, Ordering::Release);
        }
    }

    /// Writes a number of all CPUs that does not have this value.
    fn write_all(&self, offset: usize, value: u64) {
        for number in self.all().filter_map(|cpu| self.number(cpu, offset)) {
            if number.load(Ordering::Relaxed) != value {
                number.store(value, Ordering::Release);
            }
        }
    }

    fn number(&self, cpu: usize, offset: usize) -> Option<&AtomicU64> {
        let cpu = self.mapped.at(cpu)?;
        // SAFETY: one of the numbers of a CPU.
        let number = unsafe { cpu.byte_add(offset) }.cast();
        // SAFETY: aligned, mapped as long as `self` lives, and written as a whole by both sides.
        Some(unsafe { AtomicU64::from_ptr(number.as_ptr()) })
    }
}
