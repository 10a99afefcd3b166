//! The banks of counts: one is counted in, the other is read; the only reader of both.
//!
//! While a map syscall runs, the kernel skips programs on perf events on that CPU without any count
//! (kernel/events/core.c, `bpf_overflow_handler`), so a drain happens rarely and stays on one CPU.
//! The bank that is read is quiescent: the update of the outer map returns only when no program uses it any more.

use std::mem;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use aya::maps::{ArrayOfMaps, HashMap, IterableMap as _, MapData};
use hbbp_ebpf::{CountKey, Tally, name};

use super::bpf;
use super::object::Object;

type Bank = HashMap<MapData, CountKey, Tally>;

/// Entries asked for in one syscall. Large enough for few syscalls, small enough for 200 kB of buffers.
const BATCH: usize = 4096;

/// The two banks.
#[derive(Debug)]
pub struct Banks {
    shown: ArrayOfMaps<MapData, Bank>,
    /// The bank that the programs count in.
    counting: Bank,
    /// The empty one.
    spare: Bank,
}

impl Banks {
    /// Creates two banks of `entries` counts each and shows one of them to the programs.
    pub fn create(object: &mut Object, entries: u32) -> anyhow::Result<Self> {
        let mut shown = ArrayOfMaps::try_from(object.take_map(name::BANK)?)?;
        let bank = || {
            Bank::create(entries, 0).with_context(|| {
                format!("failed to create a bank of {entries} counts; try a smaller --map-entries")
            })
        };
        let (counting, spare) = (bank()?, bank()?);
        shown
            .set(0, &counting, 0)
            .context("failed to show the bank of counts to the programs")?;
        Ok(Self {
            shown,
            counting,
            spare,
        })
    }

    /// Lets the programs count in the other bank from now on, and takes out what the last one holds.
    pub fn drain(&mut self) -> anyhow::Result<Vec<(CountKey, Tally)>> {
        self.shown
            .set(0, &self.spare, 0)
            .context("failed to change the bank of counts")?;
        mem::swap(&mut self.counting, &mut self.spare);
        let mut entries = Vec::new();
        let _pinned = Pinned::here();
        bpf::take_entries(self.spare.map().fd().as_fd(), BATCH, |key, tally| {
            entries.push((key, tally))
        })
        .context("failed to read the counts from the kernel")?;
        Ok(entries)
    }
}

/// The calling thread on the CPU that it runs on, until this is dropped.
struct Pinned(Option<libc::cpu_set_t>);

impl Pinned {
    fn here() -> Self {
        // SAFETY: a cpu_set_t is plain bits, and all zeroes is the empty set.
        let (mut before, mut here): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { mem::zeroed() };
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: the set is as large as stated.
        if unsafe { libc::sched_getaffinity(0, size, &raw mut before) } != 0 {
            return Self(None);
        }
        // SAFETY: no arguments.
        let Ok(cpu) = usize::try_from(unsafe { libc::sched_getcpu() }) else {
            return Self(None);
        };
        if libc::CPU_SETSIZE.cast_unsigned() as usize <= cpu {
            return Self(None);
        }
        // SAFETY: the number was checked against the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut here) };
        // SAFETY: the set is as large as stated.
        let done = unsafe { libc::sched_setaffinity(0, size, &raw const here) } == 0;
        Self(done.then_some(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set is as large as stated. A failure leaves the thread where it is, which does no harm.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), before) };
        }
    }
}
