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
use super::combine::Combiner;
use super::object::Object;

type Bank = HashMap<MapData, CountKey, Tally>;

/// Entries asked for in one syscall. Large enough for few syscalls, small enough for 200 kB of buffers.
const BATCH: usize = 4096;

/// The two banks, and the combining tables in front of them where there are branch stacks.
pub struct Banks {
    shown: ArrayOfMaps<MapData, Bank>,
    /// The bank that the programs count in.
    counting: Bank,
    /// The empty one.
    spare: Bank,
    combiner: Option<Combiner>,
}

impl Banks {
    /// Takes the two banks of the object and shows one of them to the programs.
    pub fn open(object: &mut Object) -> anyhow::Result<Self> {
        let mut shown = ArrayOfMaps::try_from(object.take_map(name::BANK)?)?;
        let [counting, spare] = name::BANKS;
        let counting = Bank::try_from(object.take_map(counting)?)?;
        let spare = Bank::try_from(object.take_map(spare)?)?;
        shown
            .set(0, &counting, 0)
            .context("failed to show the bank of counts to the programs")?;
        Ok(Self {
            shown,
            counting,
            spare,
            combiner: None,
        })
    }

    /// Puts combining tables in front of the banks, which programs on branch stacks need.
    pub fn combine(&mut self, object: &mut Object) -> anyhow::Result<()> {
        self.combiner = Some(Combiner::open(object)?);
        Ok(())
    }

    /// Lets the programs count elsewhere from now on, and takes out what was counted.
    pub fn drain(&mut self) -> anyhow::Result<Vec<(CountKey, Tally)>> {
        // The tables go first: what they send to a bank until then still reaches this one.
        if let Some(combiner) = &mut self.combiner {
            combiner.flip()?;
        }
        self.shown
            .set(0, &self.spare, 0)
            .context("failed to change the bank of counts")?;
        mem::swap(&mut self.counting, &mut self.spare);
        let mut entries = Vec::new();
        {
            let _pinned = Pinned::here();
            bpf::take_entries(self.spare.map().fd().as_fd(), BATCH, |key, tally| {
                entries.push((key, tally));
            })
            .context("failed to read the counts from the kernel")?;
        }
        if let Some(combiner) = &mut self.combiner {
            combiner.take(|key, tally| entries.push((key, tally)));
            merge_equal(&mut entries);
        }
        Ok(entries)
    }
}

/// The tables of several CPUs and the bank may hold the same key.
fn merge_equal(entries: &mut Vec<(CountKey, Tally)>) {
    entries.sort_unstable_by_key(|(key, _)| {
        (
            key.address,
            key.source,
            key.length,
            key.event.0,
            key.tgid,
            key.exec_id,
        )
    });
    entries.dedup_by(|(key, tally), (kept, sum)| {
        let equal = key == kept;
        if equal {
            sum.hits += tally.hits;
            sum.weight += tally.weight;
            sum.first_time = sum.first_time.min(tally.first_time);
        }
        equal
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_become_one_and_nothing_is_lost() {
        let entry = |address, hits, first_time| {
            let key = CountKey {
                address,
                ..CountKey::default()
            };
            (
                key,
                Tally {
                    hits,
                    weight: 2 * hits,
                    first_time,
                },
            )
        };
        let mut entries = vec![entry(7, 1, 30), entry(5, 2, 10), entry(7, 4, 20)];
        merge_equal(&mut entries);
        assert_eq!(entries, [entry(5, 2, 10), entry(7, 5, 20)]);
    }
}
