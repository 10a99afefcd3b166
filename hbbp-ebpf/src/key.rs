//! Key and value of the map of counts.

/// What is counted: an address, or a stream that starts there, under an event, in a process image or one of its threads.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CountKey {
    /// Eventing IP of a sample, or first address of a stream.
    pub address: u64,
    /// Address of the branch that led to the stream, as [`source_of`] gives it; 0 for an instruction pointer.
    pub source: u64,
    /// Thread group id in the pid namespace of user space, [`OUTSIDE`] where it has none there; 0 where kernel addresses
    /// are counted once for the system.
    pub tgid: u32,
    /// Low half of the task's `self_exec_id`, which grows at each exec (`fs/exec.c`); 0 as above.
    pub exec_id: u32,
    /// Thread id where threads are counted separately, in the same pid namespace; else a [moment](MOMENT), or 0, and 0 as above.
    pub tid: u32,
    /// The event, and what is known of the sample.
    pub event: EventTag,
    /// Length in bytes of the stream that starts at `address`; 0 for an instruction pointer.
    pub length: u32,
}

impl CountKey {
    /// The key of an instruction pointer as the four numbers of a slot of the count map. Streams, which have a source and a
    /// length, are not counted there.
    #[inline(always)]
    pub const fn words(&self) -> [u64; 4] {
        [
            self.address,
            self.tid as u64,
            self.tgid as u64 | (self.exec_id as u64) << 32,
            self.event.0 as u64,
        ]
    }

    /// The key with these numbers.
    #[inline(always)]
    pub const fn of_words(words: &[u64; 4]) -> Self {
        let [address, tid, image, event] = *words;
        Self {
            address,
            source: 0,
            tgid: image as u32,
            exec_id: (image >> 32) as u32,
            tid: tid as u32,
            event: EventTag(event as u32),
            length: 0,
        }
    }
}

/// Which event sampled, what is counted, whether the processor vouches for the address, and the interval of the count
/// where kernel code has a part in it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct EventTag(pub u32);

/// Set together with the inode of the pid namespace ([`crate::name::PID_NAMESPACE`]) where threads are counted
/// separately; one load then shows whether anything but the thread group id in the initial namespace is asked for. An
/// inode has 32 bits.
pub const PER_THREAD: u64 = 1 << 32;

/// Instead of a thread id, where threads are counted together: a moment, in units of 2^[`MOMENT_SHIFT`] ns modulo this. A process
/// whose libraries take turns at one address has its counts in moments, so that each belongs to the library that was there.
/// Ids are at most 2^22 (include/linux/threads.h, `PID_MAX_LIMIT`).
pub const MOMENT: u32 = 1 << 23;
/// A moment is about a millisecond: as long as the shortest turn of a library that is loaded and unloaded.
pub const MOMENT_SHIFT: u32 = 20;

/// The thread that a key names; 0 where it names a moment.
pub const fn thread_of(tid: u32) -> u32 {
    if tid & MOMENT == 0 { tid } else { 0 }
}

/// The bit of a process in [`crate::cpu::Cpu::turning`].
#[inline(always)]
pub const fn turning_bit(tgid: u32) -> u64 {
    1 << (tgid & 63)
}

/// The thread group id of a process that is not in the pid namespace of user space. No process has it.
pub const OUTSIDE: u32 = u32::MAX;

/// Intervals are distinguished modulo this.
pub const INTERVALS: u32 = 1 << 20;

/// Instead of a slice: the progress of the thread has no slot.
pub const NO_PLACE: u32 = INTERVALS - 1;

/// Instead of a slice: its number is this or a greater one.
pub const BEHIND_LAST_SLICE: u32 = INTERVALS - 2;

/// How often something was counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Samples.
    pub hits: u64,
    /// Sum of the periods of these samples, in units of the event; for streams of period / (N-1) over the stacks of N
    /// entries that held them (paper section III.B), in 1 / [`WEIGHT_ONE`] of a unit. Where the event counts near
    /// branches only, a stack right after a far branch has twice the weight, as the far branch cannot trigger one.
    pub weight: u64,
    /// Time of the first one in ns of CLOCK_MONOTONIC: it decides which program the process was executing.
    pub first_time: u64,
}

/// One unit of an event in the weight of a stream: fine enough for a relative error of 1e-4 at a period of 1000, and
/// small enough for 2^56 units in a run.
pub const WEIGHT_ONE: u64 = 1 << 8;

const _: () = assert!(size_of::<Tally>() == 24 && align_of::<Tally>() == 8);

/// `PERF_EFLAGS_EXACT`: the kernel sets this bit of the sampled flags where the address is that of the instruction
/// which caused the event (`arch/x86/include/asm/perf_event.h`).
const EFLAGS_EXACT: u64 = 1 << 3;

impl EventTag {
    const EXACT: u32 = 1 << 31;
    const OLDEST: u32 = 1 << 30;
    const REFUSED: u32 = 1 << 29;
    const EVENT: u32 = (1 << Self::INTERVAL_SHIFT) - 1;
    const INTERVAL_SHIFT: u32 = 8;
    const INTERVAL: u32 = (INTERVALS - 1) << Self::INTERVAL_SHIFT;

    /// The tag of a sample of event number `event` with the sampled `eflags`.
    #[inline(always)]
    pub const fn new(event: u32, eflags: u64) -> Self {
        if eflags & EFLAGS_EXACT == 0 {
            Self(event)
        } else {
            Self(event | Self::EXACT)
        }
    }

    /// The tag of a stream, or of a branch in any but the oldest slot.
    pub const fn stream(event: u32) -> Self {
        Self(event)
    }

    /// The tag of a branch in the oldest slot of a stack, where it ends no stream: the paper's `entry[0]`.
    pub const fn oldest(event: u32) -> Self {
        Self(event | Self::OLDEST)
    }

    /// The tag of a stack that its ring had no room for, counted at its newest branch.
    #[inline(always)]
    pub const fn refused(event: u32) -> Self {
        Self(event | Self::REFUSED)
    }

    /// The number of the event.
    pub const fn event(self) -> u32 {
        self.0 & Self::EVENT
    }

    /// The same in an interval, which counts modulo [`INTERVALS`].
    #[inline(always)]
    pub const fn in_interval(self, interval: u32) -> Self {
        Self(self.0 & !Self::INTERVAL | interval << Self::INTERVAL_SHIFT & Self::INTERVAL)
    }

    /// The interval modulo [`INTERVALS`].
    pub const fn interval(self) -> u32 {
        (self.0 & Self::INTERVAL) >> Self::INTERVAL_SHIFT
    }

    /// Whether it counts a branch in the oldest slot.
    pub const fn is_oldest(self) -> bool {
        self.0 & Self::OLDEST != 0
    }

    /// Whether it counts a stack that was refused.
    pub const fn is_refused(self) -> bool {
        self.0 & Self::REFUSED != 0
    }

    /// Whether what it counts was executed as often: a sample or a stream, and not where a stack ended or was refused.
    pub const fn is_execution(self) -> bool {
        self.0 & (Self::OLDEST | Self::REFUSED) == 0
    }

    /// Whether the processor vouches for the address.
    pub const fn exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }
}

/// Whether an address belongs to ring 0: the upper half of the canonical address space (SDM vol. 1, 3.3.7.1).
#[inline(always)]
pub const fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// All bits for an address of ring 0, none for one of ring 3: where a branch in a program would double the paths that
/// the verifier explores.
#[inline(always)]
pub const fn kernel_mask(address: u64) -> u64 {
    (address.cast_signed() >> 63).cast_unsigned()
}

/// The source of a stream that starts at `start`: the branch at `from` led there. 0 where kernel code starts that user code
/// led to: kernel streams are counted once for all processes, and each address of theirs would split them.
#[inline(always)]
pub const fn source_of(start: u64, from: u64) -> u64 {
    from & !kernel_mask(start & !from)
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
    unsafe impl aya::Pod for super::Tally {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_user_code_do_not_split_kernel_streams() {
        let (user, kernel) = (0x40_1000, 0xffff_ffff_8100_0000);
        assert_eq!(source_of(kernel, user), 0);
        assert_eq!(source_of(kernel, kernel + 1), kernel + 1);
        assert_eq!((source_of(user, kernel), source_of(user, user)), (kernel, user));
    }

    #[test]
    fn words_are_the_key() {
        let key = CountKey {
            address: u64::MAX - 1,
            tgid: 3,
            exec_id: u32::MAX,
            tid: u32::MAX - 2,
            event: EventTag::new(5, EFLAGS_EXACT).in_interval(7),
            ..CountKey::default()
        };
        assert_eq!(CountKey::of_words(&key.words()), key);
    }

    #[test]
    fn tag_separates_event_and_exactness() {
        let exact = EventTag::new(3, 0x246 | EFLAGS_EXACT);
        let inexact = EventTag::new(3, 0x246);
        assert_eq!((exact.event(), exact.exact()), (3, true));
        assert_eq!((inexact.event(), inexact.exact()), (3, false));
        let later = EventTag::oldest(5).in_interval(INTERVALS + 7);
        assert_eq!((later.event(), later.is_oldest(), later.interval()), (5, true, 7));
        assert_eq!(later.in_interval(0), EventTag::oldest(5));
        let refused = EventTag::refused(5).in_interval(INTERVALS - 1);
        assert_eq!(
            (refused.event(), refused.is_refused(), refused.is_oldest()),
            (5, true, false)
        );
        assert_eq!(
            [EventTag::stream(5), exact, later, refused].map(EventTag::is_execution),
            [true, true, false, false]
        );
    }
}
