//! The streams of branch stacks, counted: from stacks as the processor took them to how often each stream was seen.
//!
//! A stack makes up to 31 streams, hot code makes the same ones again and again, and all that a report says of branch stacks
//! begins here, so that this is the busiest loop of user space: for each stream one multiplication and a look at one line of
//! a hash table ([`follow`]). It judges nothing: what is not to be counted never stands in the table, or stands there under
//! a number that this loop does not look for.

use std::collections::HashMap;
use std::slice;

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::key::{WEIGHT_ONE, kernel_mask, source_of};
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::{CountKey, EventTag, MAX_EVENTS, Tally, is_kernel};

use super::object::KernelCounts;
use super::refusal::{Refusal, refusal};

/// What must be known of the machine to judge its stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Bit n: event number n counts near branches alone, while its stacks hold far ones too.
    pub near_only: u32,
    /// The processor repeats the newest entry of a stack now and then (Skylake).
    pub duplicated_heads: bool,
    /// Address and length of the kernel's `__switch_to_asm`; zero where they are not known.
    pub switch: (u64, u64),
    /// Which kernel addresses share a count.
    pub kernel: KernelCounts,
}

/// What became of the entries of an event's branch stacks. Three sums close: `entries` = `stacks` + `streams` + all that was
/// discarded + `refused`, each stack has one branch in its oldest slot, and `entries` are those that were executed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StackStats {
    /// Stacks with at least one entry.
    pub stacks: u64,
    /// Entries that were executed.
    pub entries: u64,
    /// Streams that were counted.
    pub streams: u64,
    /// Streams made of a repeated newest entry (Skylake).
    pub duplicated: u64,
    /// Streams that end before they start.
    pub backward: u64,
    /// Streams between the rings.
    pub crossing: u64,
    /// Streams longer than [`super::refusal::MAX_STREAM`].
    pub long: u64,
    /// User streams older than a context switch: they belong to another process.
    pub switched: u64,
    /// Streams that found the table full.
    pub refused: u64,
    /// Branches in the oldest slot that found it full.
    pub refused_oldest: u64,
}

/// Streams and branches in oldest slots, counted since the last time that they were taken.
#[derive(Debug)]
pub struct Streams {
    habits: Habits,
    /// A power of two of them, at most half of them used.
    slots: Vec<Slot>,
    /// Those that are used.
    used: Vec<u32>,
    /// So many are used at most.
    most: usize,
    /// What streams were counted under, by its number.
    contexts: Vec<Under>,
    /// The numbers of these.
    numbers: HashMap<Under, u64>,
    /// The last context, and its numbers.
    last: Option<(Context, Ids)>,
    /// By event.
    stats: [StackStats; MAX_EVENTS],
}

/// One stream, or one branch that stood in oldest slots; free where it has no hits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Slot {
    /// The branch that led there; 0 for a branch in an oldest slot.
    from: u64,
    /// First address, or the branch in an oldest slot.
    start: u64,
    /// Address of the branch at its end; 0 for a branch in an oldest slot.
    end: u64,
    /// The number of its context.
    id: u64,
    hits: u64,
    weight: u64,
    first_time: u64,
    /// How often it was the oldest stream of its stack, so that the branch which led there stood in the oldest slot.
    oldest: u64,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What a stream is counted under.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Under {
    owner: [u32; 2],
    event: u32,
    interval: u32,
}

/// The numbers of a context: for user code and for kernel code, by the highest bit of an address.
type Ids = [u64; 2];

/// A stream, and the branch that led there.
#[derive(Clone, Copy, Debug)]
struct Stream {
    from: u64,
    start: u64,
    end: u64,
}

/// What all streams of one stack have in common.
#[derive(Clone, Copy, Debug)]
struct Each {
    times: u64,
    /// What each of them weighs, all times together.
    weight: u64,
    time: u64,
}

/// Slots at the start: half a MiB, for as many streams as a quiet machine has.
const FEW: usize = 1 << 13;

/// Set in the number under which branches in oldest slots are counted.
const OLDEST: u64 = 1 << 63;
/// Set in the number of streams that end where the kernel changes tasks, so that each of them is looked at.
const WATCHED: u64 = 1 << 62;
/// No stream is counted under this.
const NOWHERE: u64 = u64::MAX;

impl Streams {
    /// With room for so many different ones.
    pub fn new(most: u32, habits: Habits) -> Self {
        Self {
            habits,
            slots: vec![Slot::default(); FEW],
            used: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            contexts: Vec::new(),
            numbers: HashMap::new(),
            last: None,
            stats: [StackStats::default(); MAX_EVENTS],
        }
    }

    /// Where the kernel changes from one task to the next: address and length of the function.
    pub const fn tell_switch(&mut self, switch: (u64, u64)) {
        self.habits.switch = switch;
    }

    /// Whether it is time to take what was counted.
    pub fn is_half_full(&self) -> bool {
        self.most / 2 < self.used.len()
    }

    /// What became of the stacks of an event.
    pub fn stats(&self, event: u32) -> StackStats {
        let stats = self.stats.get(event as usize);
        stats.copied().unwrap_or_default()
    }

    /// Counts a stack that was seen so many times, newest entry first, up to the first empty entry. `time` is that of the
    /// first time in ns.
    pub fn count(&mut self, entries: &[BranchEntry], context: &Context, times: u64, time: u64) {
        let entries = executed(entries);
        let Some((newest, older)) = entries.split_first() else {
            return;
        };
        let n = entries.len() as u64;
        let event = context.event();
        let Some(stats) = self.stats.get_mut(event as usize) else {
            return;
        };
        stats.stacks += times;
        stats.entries += n * times;
        let stands_for = if self.habits.near_only >> event & 1 == 0 {
            1
        } else {
            stands_for(entries)
        };
        let unit = if n < 2 {
            0
        } else {
            context.period.saturating_mul(WEIGHT_ONE) / (n - 1)
        };
        let each = Each {
            times,
            weight: unit.saturating_mul(stands_for).saturating_mul(times),
            time,
        };
        let mut older = older;
        if self.habits.duplicated_heads
            && let Some((next, rest)) = older.split_first()
            && newest.is_same(next)
        {
            stats.duplicated += times;
            older = rest;
        }
        // All, until one is refused.
        stats.streams += older.len() as u64 * times;
        let ids = self.ids(context);
        let last = self.walk(newest.from, older, ids, each, event);
        if let Some(oldest) = entries.last() {
            self.count_oldest(oldest.from, last, ids, (event, each));
        }
    }

    /// Counts the streams that end at `end` and, one after the other, at the sources of these branches. Returns the place of
    /// the oldest one, if it was counted.
    fn walk(
        &mut self,
        mut end: u64,
        older: &[BranchEntry],
        mut ids: Ids,
        each: Each,
        event: u32,
    ) -> Option<usize> {
        let mut older = older.iter();
        let mut last = None;
        let mut switched = false;
        while let Some(stream) = follow(&mut self.slots, &mut older, &mut end, &mut last, (&ids, each)) {
            let Stream { start, end, .. } = stream;
            let (switch, len) = self.habits.switch;
            let watched = end.wrapping_sub(switch) < len;
            if watched {
                // User code from here on is that of another process.
                (switched, ids[0]) = (true, NOWHERE);
            }
            let refused = refusal(start, end, switched);
            last = match refused {
                Some(_) => None,
                None => self.add(stream, of_ring(&ids, start) | if watched { WATCHED } else { 0 }, each),
            };
            if last.is_none() {
                self.refuse(event, refused, each.times);
            }
        }
        last
    }

    /// Counts the branch in the oldest slot. Mostly it led to the last stream, and is counted with that.
    #[inline]
    fn count_oldest(&mut self, from: u64, last: Option<usize>, ids: Ids, (event, each): (u32, Each)) {
        if let Some(slot) = last.and_then(|last| self.slots.get_mut(last))
            && slot.from == from
            && kernel_mask(from ^ slot.start) == 0
        {
            slot.oldest += each.times;
            return;
        }
        let oldest = Stream {
            from: 0,
            start: from,
            end: 0,
        };
        let each = Each { weight: 0, ..each };
        if self.add(oldest, of_ring(&ids, from) | OLDEST, each).is_none()
            && let Some(stats) = self.stats.get_mut(event as usize)
        {
            stats.refused_oldest += each.times;
        }
    }

    /// Adds to the count of a stream, wherever it stands. Returns the place; none if it is new and there is no room.
    #[inline(never)]
    fn add(&mut self, stream: Stream, id: u64, each: Each) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let home = place_of(stream, id) & mask;
        let mut place = home;
        loop {
            let slot = self.slots.get_mut(place)?;
            if slot.is_of(stream, id) {
                slot.hits += each.times;
                slot.weight = slot.weight.wrapping_add(each.weight);
                let hits = slot.hits;
                if self.slots.get(home)?.hits < hits {
                    // The one that stands where this one belongs came first, and is seen less often. It may stand behind
                    // its own place too, as all places between are used.
                    self.slots.swap(home, place);
                    place = home;
                }
                return Some(place);
            }
            if slot.hits == 0 {
                return self.begin(place, stream, id, each);
            }
            place = (place + 1) & mask;
        }
    }

    /// Takes a free slot.
    #[cold]
    fn begin(&mut self, place: usize, stream: Stream, id: u64, each: Each) -> Option<usize> {
        if self.most <= self.used.len() {
            return None;
        }
        let slot = self.slots.get_mut(place)?;
        let Stream { from, start, end } = stream;
        *slot = Slot {
            from,
            start,
            end,
            id,
            hits: each.times,
            weight: each.weight,
            first_time: each.time,
            oldest: 0,
        };
        self.used.push(place as u32);
        if self.slots.len() / 2 < self.used.len() {
            return self.grow(place);
        }
        Some(place)
    }

    /// Makes room for twice as many. Returns where the slot at `place` stands now.
    fn grow(&mut self, place: usize) -> Option<usize> {
        let more = vec![Slot::default(); 2 * self.slots.len()];
        let mask = more.len() - 1;
        let fewer = std::mem::replace(&mut self.slots, more);
        let mut stands = None;
        for used in &mut self.used {
            let before = *used as usize;
            let slot = *fewer.get(before)?;
            let mut place_now = place_of(slot.stream(), slot.id) & mask;
            while self.slots.get(place_now)?.hits != 0 {
                place_now = (place_now + 1) & mask;
            }
            *self.slots.get_mut(place_now)? = slot;
            *used = place_now as u32;
            if before == place {
                stands = Some(place_now);
            }
        }
        stands
    }

    /// Takes a stream back that was counted as sound: for a reason, or because there was no room.
    #[cold]
    fn refuse(&mut self, event: u32, refusal: Option<Refusal>, times: u64) {
        let Some(stats) = self.stats.get_mut(event as usize) else {
            return;
        };
        let counter = match refusal {
            Some(Refusal::Crossing) => &mut stats.crossing,
            Some(Refusal::Backward) => &mut stats.backward,
            Some(Refusal::Long) => &mut stats.long,
            Some(Refusal::Switched) => &mut stats.switched,
            None => &mut stats.refused,
        };
        *counter += times;
        stats.streams -= times;
    }

    /// The numbers of a context. Mostly it is that of the last stack.
    #[inline(always)]
    fn ids(&mut self, context: &Context) -> Ids {
        match self.last {
            // The period is no part of it.
            Some((last, ids)) if last.image == context.image && last.kind == context.kind => ids,
            _ => self.look_up(context),
        }
    }

    #[cold]
    fn look_up(&mut self, context: &Context) -> Ids {
        let user = Under {
            owner: context.owner(),
            event: context.event(),
            interval: context.interval(),
        };
        let kernel = match self.habits.kernel {
            KernelCounts::Together => Under {
                owner: [0, 0],
                ..user
            },
            KernelCounts::ByProcess => user,
        };
        let mut id = |under: Under| {
            *self.numbers.entry(under).or_insert_with(|| {
                self.contexts.push(under);
                self.contexts.len() as u64 - 1
            })
        };
        let ids = [id(user), id(kernel)];
        self.last = Some((*context, ids));
        ids
    }

    /// Takes out what was counted since the last time. Some keys may stand there twice.
    pub fn take(&mut self, counts: &mut Vec<(CountKey, Tally)>) {
        counts.reserve(self.used.len());
        for place in self.used.drain(..) {
            let Some(slot) = self.slots.get_mut(place as usize) else {
                continue;
            };
            let slot = std::mem::take(slot);
            let number = slot.id & !(OLDEST | WATCHED);
            if let Some(under) = self.contexts.get(number as usize) {
                slot.push(under, counts);
            }
        }
        self.contexts.clear();
        self.numbers.clear();
        self.last = None;
    }
}

/// Counts streams as long as they stand where they are looked for first. Returns the first one that does not.
#[inline(always)]
fn follow(
    slots: &mut [Slot],
    older: &mut slice::Iter<'_, BranchEntry>,
    end: &mut u64,
    last: &mut Option<usize>,
    (ids, each): (&Ids, Each),
) -> Option<Stream> {
    let mask = slots.len() - 1;
    for entry in older {
        let stream = Stream {
            from: entry.from,
            start: entry.to,
            end: *end,
        };
        *end = entry.from;
        let id = of_ring(ids, stream.start);
        let place = place_of(stream, id) & mask;
        match slots.get_mut(place) {
            Some(slot) if slot.is_of(stream, id) => {
                slot.hits += each.times;
                slot.weight = slot.weight.wrapping_add(each.weight);
                *last = Some(place);
            }
            _ => return Some(stream),
        }
    }
    None
}

impl Slot {
    #[inline(always)]
    const fn is_of(&self, stream: Stream, id: u64) -> bool {
        self.start == stream.start && self.from == stream.from && self.end == stream.end && self.id == id
    }

    const fn stream(&self) -> Stream {
        let Self { from, start, end, .. } = *self;
        Stream { from, start, end }
    }

    /// Adds what it counted, and where it is a stream also the branch that led there in oldest slots.
    fn push(&self, under: &Under, counts: &mut Vec<(CountKey, Tally)>) {
        let tally = Tally {
            hits: self.hits,
            weight: self.weight,
            first_time: self.first_time,
        };
        if self.id & OLDEST != 0 {
            counts.push((under.oldest(self.start), tally));
            return;
        }
        let length = self.end.wrapping_sub(self.start) as u32;
        counts.push((under.stream(self.from, self.start, length), tally));
        if self.oldest != 0 {
            let oldest = Tally {
                hits: self.oldest,
                weight: 0,
                ..tally
            };
            counts.push((under.oldest(self.from), oldest));
        }
    }
}

impl Under {
    /// The key of the stream from `start`, of `length` bytes, to which the branch at `from` led. It is of the interval if
    /// one of the two is kernel code, so that both sides of a branch in the kernel are counted in one interval.
    const fn stream(&self, from: u64, start: u64, length: u32) -> CountKey {
        let [tgid, exec_id] = self.owner;
        CountKey {
            address: start,
            source: source_of(start, from),
            tgid,
            exec_id,
            event: self.tag(EventTag::stream(self.event), start | from),
            length,
        }
    }

    /// The key of the branch in the oldest slot.
    const fn oldest(&self, address: u64) -> CountKey {
        let [tgid, exec_id] = self.owner;
        CountKey {
            address,
            source: 0,
            tgid,
            exec_id,
            event: self.tag(EventTag::oldest(self.event), address),
            length: 0,
        }
    }

    const fn tag(&self, tag: EventTag, address: u64) -> EventTag {
        tag.in_interval(self.interval & kernel_mask(address) as u32)
    }
}

/// The entries before the first zero entry: a stack that is not full yet ends in such.
#[inline(always)]
fn executed(entries: &[BranchEntry]) -> &[BranchEntry] {
    if entries.last().is_some_and(|oldest| !oldest.is_empty()) {
        return entries;
    }
    let n = entries.iter().position(BranchEntry::is_empty);
    entries.get(..n.unwrap_or(0)).unwrap_or_default()
}

/// How many stacks this one stands for. Where an event counts near branches alone, no stack is taken at a far one; the
/// next near branch, whose stack begins right behind it, has the chance of both. Without this, whatever runs shortly before
/// a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
fn stands_for(entries: &[BranchEntry]) -> u64 {
    let far = |n: usize| entries.get(n).is_some_and(BranchEntry::changes_ring);
    match (far(1), far(2)) {
        (false, _) => 1,
        (true, false) => 2,
        // As where an interrupt comes upon the return to user code.
        (true, true) => 3,
    }
}

/// The number of a context for an address.
#[inline(always)]
const fn of_ring(ids: &Ids, address: u64) -> u64 {
    let [user, kernel] = *ids;
    if is_kernel(address) { kernel } else { user }
}

/// Where to look for a stream first.
#[inline(always)]
const fn place_of(stream: Stream, id: u64) -> usize {
    /// 2^64 divided by the golden ratio, for Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, 6.4).
    const PHI: u64 = 0x9e37_79b9_7f4a_7c15;
    let Stream { from, start, end } = stream;
    // Neighbours differ in their lower bits, and multiples of eight in the sum with the others move these apart.
    let ends = start.wrapping_add(end.wrapping_mul(8));
    ((ends ^ from.rotate_left(20) ^ id).wrapping_mul(PHI) >> 32) as usize
}

#[cfg(test)]
mod tests;
