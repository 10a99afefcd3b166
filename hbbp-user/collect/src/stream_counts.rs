//! Streams of live stacks as the collector's counts: what they are counted under, and their keys.

use hbbp_ebpf::key::{kernel_mask, source_of};
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::stream::Stream;
use hbbp_ebpf::{CountKey, EventTag, Tally};

use hbbp_model::streams::{Counted, KernelCounts, Owner};

/// The process image or thread, the event and the interval of a stack.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct StackOwner {
    /// As in [`Context`], both.
    image: u64,
    kind: u64,
}

impl StackOwner {
    #[inline(always)]
    pub(super) const fn of(context: &Context) -> Self {
        Self {
            image: context.image,
            kind: context.kind,
        }
    }

    /// The key of what was counted under it.
    pub(super) const fn key(self, counted: Counted) -> CountKey {
        match counted {
            Counted::Stream(stream) => self.stream(stream),
            Counted::Oldest(branch) => self.oldest(branch),
        }
    }

    /// The same where slices are distinguished: they are those of all code, and replace the interval.
    pub(super) const fn key_in_slice(self, counted: Counted) -> CountKey {
        let key = self.key(counted);
        let event = key.event.in_interval(self.context().interval());
        CountKey { event, ..key }
    }

    /// A stream is of the interval if its start or the branch that led there is kernel code. So both sides of a branch
    /// in the kernel are counted in one interval.
    const fn stream(self, stream: Stream) -> CountKey {
        let Stream { from, start, end } = stream;
        let context = self.context();
        let [tgid, exec_id, tid] = context.task();
        CountKey {
            address: start,
            source: source_of(start, from),
            tgid,
            exec_id,
            tid,
            event: in_interval(EventTag::stream(context.event()), &context, start | from),
            length: end.wrapping_sub(start) as u32,
        }
    }

    const fn oldest(self, branch: u64) -> CountKey {
        let context = self.context();
        let [tgid, exec_id, tid] = context.task();
        CountKey {
            address: branch,
            source: 0,
            tgid,
            exec_id,
            tid,
            event: in_interval(EventTag::oldest(context.event()), &context, branch),
            length: 0,
        }
    }

    const fn context(self) -> Context {
        Context {
            image: self.image,
            kind: self.kind,
            period: 0,
        }
    }
}

/// The tag in the interval, for an address of kernel code.
const fn in_interval(tag: EventTag, context: &Context, address: u64) -> EventTag {
    tag.in_interval(context.interval() & kernel_mask(address) as u32)
}

impl Owner for StackOwner {
    #[inline(always)]
    fn event(&self) -> u32 {
        self.context().event()
    }

    fn of_kernel(&self, kernel: KernelCounts) -> Self {
        match kernel {
            KernelCounts::Together => Self::of(&self.context().of_no_task()),
            KernelCounts::ByProcess => *self,
        }
    }
}

/// Streams of live stacks.
pub(super) type Streams = hbbp_model::streams::Streams<StackOwner, Tally>;

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn keys_of_kernel_code_are_of_the_interval() {
        let owner = StackOwner::of(&Context::new([7, 1, 9], 2, 4, 300));
        let stream = |from, start| {
            owner.key(Counted::Stream(Stream {
                from,
                start,
                end: start + 8,
            }))
        };
        let user = stream(0x2000, 0x1000);
        assert_eq!((user.address, user.source, user.length), (0x1000, 0x2000, 8));
        assert_eq!([user.tgid, user.exec_id, user.tid], [7, 1, 9]);
        assert_eq!(user.event, EventTag::stream(2));
        assert_eq!(stream(KERNEL, 0x1000).event, EventTag::stream(2).in_interval(4));
        let entered = stream(0x2000, KERNEL);
        assert_eq!((entered.source, entered.event.interval()), (0, 4));
        let of_kernel = owner
            .of_kernel(KernelCounts::Together)
            .key(Counted::Oldest(KERNEL));
        assert_eq!(
            (of_kernel.tgid, of_kernel.tid, of_kernel.event),
            (0, 0, EventTag::oldest(2).in_interval(4))
        );
        assert_eq!(owner.of_kernel(KernelCounts::ByProcess), owner);
    }
}
