//! What all streams of one stack are counted under: the process image that ran, the event, the interval, and their weight.

use crate::key::{CountKey, EventTag, kernel_mask, source_of};

/// What the streams of a stack are counted under.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Context {
    /// Thread group id and exec id for user code.
    pub user: [u32; 2],
    /// The same for kernel code: zeros where that is counted once for the system.
    pub kernel: [u32; 2],
    /// The number of the event.
    pub event: u32,
    /// The interval of kernel code.
    pub interval: u32,
    /// What each stream weighs: period / (N-1), in units of [`crate::Tally::weight`].
    pub unit: u64,
}

const _: () = assert!(size_of::<Context>() == 32);

/// No stream is counted under this.
pub const NOWHERE: u64 = 1;

/// Set in the id of streams that come next to a change of tasks: it is not in the id of any context, so that they are
/// looked at each time.
pub const WATCHED: u64 = 1;

impl Context {
    /// A number for it, for kernel code and for user code apart: equal for equal contexts, and for others by an accident of
    /// one in 2^61 alone, since each part is multiplied with an odd constant (those of SplitMix64 and MurmurHash3) and
    /// none is chosen by a process. Neither is 0 nor [`NOWHERE`].
    #[inline(always)]
    pub const fn ids(&self) -> Ids {
        let event = self.event as u64 | (self.interval as u64) << 8;
        let both = event.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.unit.wrapping_mul(0x94d0_49bb_1331_11eb);
        Ids {
            user: (both ^ number(self.user).wrapping_mul(0xff51_afd7_ed55_8ccd)) & !7 | 2,
            kernel: (both ^ number(self.kernel).wrapping_mul(0xff51_afd7_ed55_8ccd)) & !7 | 6,
        }
    }

    /// The key of the stream from `start`, of `length` bytes, to which the branch at `from` led. It is of the interval if
    /// one of the two is kernel code, so that both sides of a branch in the kernel are counted in one interval.
    #[inline(always)]
    pub const fn stream(&self, from: u64, start: u64, length: u32) -> CountKey {
        let [tgid, exec_id] = self.owner(start);
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
    #[inline(always)]
    pub const fn oldest(&self, address: u64) -> CountKey {
        let [tgid, exec_id] = self.owner(address);
        CountKey {
            address,
            source: 0,
            tgid,
            exec_id,
            event: self.tag(EventTag::oldest(self.event), address),
            length: 0,
        }
    }

    #[inline(always)]
    const fn owner(&self, address: u64) -> [u32; 2] {
        let kernel = kernel_mask(address) as u32;
        [
            self.user[0] & !kernel | self.kernel[0] & kernel,
            self.user[1] & !kernel | self.kernel[1] & kernel,
        ]
    }

    #[inline(always)]
    const fn tag(&self, tag: EventTag, address: u64) -> EventTag {
        tag.in_interval(self.interval & kernel_mask(address) as u32)
    }
}

/// The numbers of a context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ids {
    /// For user code.
    pub user: u64,
    /// For kernel code.
    pub kernel: u64,
}

/// The number that branches in oldest slots are counted under, where `id` is that of their context.
#[inline(always)]
pub const fn number_of_oldest(id: u64) -> u64 {
    !id
}

const fn number(owner: [u32; 2]) -> u64 {
    owner[0] as u64 | (owner[1] as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_makes_another_number() {
        let base = Context {
            user: [7, 1],
            unit: 1000,
            ..Context::default()
        };
        let others = [
            Context { user: [8, 1], ..base },
            Context { user: [7, 2], ..base },
            Context { event: 1, ..base },
            Context { interval: 1, ..base },
            Context { unit: 1001, ..base },
        ];
        for other in others {
            assert_ne!(base.ids().user, other.ids().user, "{other:?}");
        }
        let other = Context { user: [8, 1], ..base };
        assert_eq!(
            base.ids().kernel,
            other.ids().kernel,
            "kernel code is counted once for all"
        );
        for id in [base.ids().user, base.ids().kernel] {
            assert!(id != 0 && id & WATCHED == 0);
        }
        let Ids { user, kernel } = base.ids();
        let all = [
            user,
            kernel,
            user | WATCHED,
            kernel | WATCHED,
            number_of_oldest(user),
            number_of_oldest(kernel),
        ];
        for (n, id) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|other| id & 7 != other & 7));
        }
    }
}
