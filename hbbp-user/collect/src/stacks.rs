//! Branch stacks as they come from the programs: out of the ring of each CPU, and out of the tables of cached ones.
//!
//! Rings are read while the programs go on, without a syscall, during which the kernel would skip programs on that CPU.
//! A thread of its own does that as soon as one is a quarter full: the other one may be busy with a drain for longer
//! than a ring lasts. The cached stacks are double-buffered in two tables, as the counts are.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use aya::maps::{MapData, RingBuf};
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::stack::{CachedStack, CachedStacks, Context, Stack};
use hbbp_ebpf::{CountKey, MAX_DEPTH, Tally, name};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use tokio::sync::Notify;

use super::cpus::Cpus;
use super::mapped::{Mapped, Pair};
use super::object::{MapSizes, Object};
use super::stream_counts::{StackOwner, Streams};
use hbbp_model::streams::{Counted, Quirks, StackStats, Taken};

/// The rings, the cached stacks, and the streams that were made of both.
pub(crate) struct Stacks {
    cached: Pair<CachedStacks>,
    shared: Arc<Shared>,
    /// The key of what was counted of an owner.
    keyed: fn(StackOwner, Counted) -> CountKey,
    /// Makes the thread end.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works on.
struct Shared {
    rings: Mutex<Rings>,
    /// Notified when the table of streams is half full, so that a drain comes.
    half_full: Arc<Notify>,
}

/// The rings, and the streams of the stacks read from them.
struct Rings {
    cpus: Arc<Cpus>,
    stacks: Mapped<Stack>,
    /// Stacks in the ring of a CPU, a power of two.
    each: u64,
    wake: RingBuf<MapData>,
    streams: Streams,
}

/// Stacks after which their entries of the ring are given back to the programs.
const AT_ONCE: u64 = 64;

impl Stacks {
    /// Takes the maps of the object, which has been loaded with these sizes, and begins to read.
    pub(super) fn open(
        object: &mut Object,
        cpus: &Arc<Cpus>,
        sizes: MapSizes,
        quirks: Quirks,
        keyed: fn(StackOwner, Counted) -> CountKey,
    ) -> anyhow::Result<Self> {
        let rings = Rings {
            cpus: cpus.clone(),
            stacks: Mapped::open(object, name::STACKS)?,
            each: sizes.ring.into(),
            wake: RingBuf::try_from(object.take_map(name::WAKE)?)?,
            streams: Streams::new(sizes.streams, quirks),
        };
        let wake = rings.wake.as_fd().try_clone_to_owned();
        let wake = wake.context("failed to wait for branch stacks")?;
        let shared = Arc::new(Shared {
            rings: Mutex::new(rings),
            half_full: Arc::new(Notify::new()),
        });
        let stop = eventfd(0, EventfdFlags::CLOEXEC).context("failed to wait for branch stacks")?;
        let stop = Arc::new(stop);
        let thread = {
            let (shared, stop) = (shared.clone(), stop.clone());
            let reader = thread::Builder::new().name("stacks".to_owned());
            reader.spawn(move || shared.read_until_stopped(&wake, &stop))
        };
        Ok(Self {
            cached: Pair::open(object, name::CACHED, name::CACHED_MAPS)?,
            shared,
            keyed,
            stop,
            thread: Some(thread.context("failed to start the thread that reads branch stacks")?),
        })
    }

    /// See [`super::Collector::tell_switch`].
    pub(crate) fn tell_switch(&self, start: u64, len: u64) {
        self.shared.rings().streams.set_switch(start, len);
    }

    /// See [`super::Collector::half_full`].
    pub(crate) fn half_full(&self) -> Arc<Notify> {
        self.shared.half_full.clone()
    }

    /// What became of the stacks of an event that were read.
    pub(crate) fn stats(&self, event: u32) -> StackStats {
        self.shared.rings().streams.stats(event)
    }

    /// Takes out all that was counted. No stack of the time before is missing, but those that a program reads just now.
    pub(crate) fn drain(&mut self, counts: &mut Vec<(CountKey, Tally)>) -> anyhow::Result<()> {
        let keyed = self.keyed;
        // The cached ones go first: a stack that loses its slot meanwhile is in the ring then.
        self.cached.flip()?;
        let mut rings = self.shared.rings();
        for cached in self.cached.spare().iter_mut().flat_map(|cpu| &mut cpu.slots) {
            if !cached.is_used() {
                continue;
            }
            let cached = std::mem::take::<CachedStack>(cached);
            if 0 < cached.hits {
                let entries = cached.entries();
                let entries = first(&entries, cached.depth);
                count(
                    &mut rings.streams,
                    entries,
                    &cached.context,
                    cached.hits,
                    cached.first_time,
                );
            }
        }
        rings.read();
        rings
            .streams
            .take_possible(|owner, counted, tally| counts.push((keyed(*owner, counted), tally)));
        Ok(())
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        // Without the word it would not end.
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Also where a thread has panicked with the rings in its hands: it left no more than [`AT_ONCE`] stacks to be counted
    /// twice.
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends also where waiting fails for good: the rings are then read by drains alone, and what finds them full is counted.
    fn read_until_stopped(&self, wake: &OwnedFd, stop: &OwnedFd) {
        loop {
            let mut events = [wake, stop].map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
            match poll(&mut events, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let [_, stopped] = &events;
            if !stopped.revents().is_empty() {
                return;
            }
            let mut rings = self.rings();
            rings.read();
            if rings.streams.is_half_full() {
                self.half_full.notify_one();
            }
        }
    }
}

impl Rings {
    /// Reads all rings.
    fn read(&mut self) {
        // First, so that a ring that fills up meanwhile wakes again.
        while self.wake.next().is_some() {}
        for cpu in self.cpus.all() {
            self.read_one(cpu);
        }
    }

    fn read_one(&mut self, cpu: usize) {
        let Some(place) = self.cpus.place(cpu) else {
            return;
        };
        let mut unread = self.cpus.unread(cpu);
        // What comes meanwhile is left for the next time, or a CPU that is faster than this one would keep it here.
        let last = unread.end.min(unread.start.wrapping_add(self.each));
        while unread.start < last {
            let until = last.min(unread.start + AT_ONCE);
            for number in unread.start..until {
                let at = place * self.each + number % self.each;
                let stack = usize::try_from(at).ok().and_then(|at| self.stacks.at(at));
                if let Some(stack) = stack {
                    // SAFETY: mapped as long as `self` lives, any bits are a value, and nothing is written there until
                    // its entry is released.
                    let stack = unsafe { stack.as_ref() };
                    let entries = first(&stack.entries, stack.depth);
                    count(&mut self.streams, entries, &stack.context, 1, stack.time);
                }
            }
            self.cpus.read_until(cpu, until);
            unread.start = until;
        }
    }
}

/// Counts the streams of a stack, by how often it was seen and when for the first time.
#[inline(always)]
fn count(streams: &mut Streams, entries: &[BranchEntry], context: &Context, times: u64, time: u64) {
    let taken = Taken {
        period: context.period,
        times,
        time,
    };
    streams.count(entries, StackOwner::of(context), &taken);
}

/// The first `depth` entries, all where that is too many.
fn first<T>(entries: &[T; MAX_DEPTH], depth: u64) -> &[T] {
    let depth = usize::try_from(depth).unwrap_or(MAX_DEPTH);
    entries.get(..depth).unwrap_or(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = BranchEntry> {
        let address = prop_oneof![any::<u64>(), 0x1000_u64..0x1400];
        (address.clone(), address, any::<u64>()).prop_map(|(from, to, flags)| BranchEntry { from, to, flags })
    }

    proptest! {
        /// Any bits are a stack: what a program wrote half, or what is left from before, must do no harm.
        #[test]
        fn any_stacks(
            stacks in prop::collection::vec(
                (prop::collection::vec(entry(), MAX_DEPTH), any::<u64>(), any::<[u64; 3]>(), any::<[u64; 2]>()),
                0..20,
            ),
        ) {
            let mut streams = Streams::new(64, Quirks::default());
            for (entries, depth, [image, kind, period], times) in &stacks {
                let entries: [BranchEntry; MAX_DEPTH] = entries.as_slice().try_into().expect("as many");
                // Programs write the numbers of events alone.
                let (image, kind, period) = (*image, *kind & !0xffff_ffff | *kind & 3, *period);
                let context = Context { image, kind, period };
                count(&mut streams, first(&entries, *depth % 64), &context, times[0], times[1]);
            }
            let mut keys = Vec::new();
            streams.take_possible(|owner, counted, _| keys.push(owner.key(counted)));
            prop_assert!(keys.len() <= MAX_DEPTH * stacks.len());
        }
    }
}
