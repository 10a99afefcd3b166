//! Looking up addresses: the running process image, and the text, which is read if needed.

use std::mem;

use super::lookup_cache::HeldText;
use super::raw::TaskKey;
use super::resolver::Resolver;
use super::user::hits::Hit;
use hbbp_model::addr::{Ring, Va};
use hbbp_model::snapshot::ProcessIdx;

/// A longer stream is not a straight line of code.
const MAX_STREAM: u64 = 64 << 10;

impl Resolver {
    /// Begins the counts of an interval.
    pub(super) fn begin_lookups(&mut self) {
        self.lookups.last = Default::default();
        self.forget_changed();
    }

    /// Resolves one address: the running process image.
    pub(super) fn one(&mut self, task: TaskKey, time: u64, at: Va) -> ProcessIdx {
        match self.lookups.last(task, time, at) {
            Some(text) => text.process,
            None => self.hit(task, time, at).0,
        }
    }

    /// Resolves one address: the running process image, and the end of the contiguous text at the address.
    pub(super) fn hit(&mut self, task: TaskKey, time: u64, at: Va) -> (ProcessIdx, Option<Va>) {
        match at.ring() {
            Ring::Kernel => {
                let end = self.kernel_hit(time, at);
                (self.in_kernel(task, time), end)
            }
            Ring::User => {
                if let Some((_, text)) = self.lookups.user.get(task, time, at) {
                    return (text.process, Some(text.end));
                }
                let Hit { process, text } = self.user.hit(task, time, at, &mut self.losses);
                self.forget_changed();
                let end = text.map(|(end, validity)| {
                    self.lookups.user.add(at, &validity, HeldText { process, end });
                    end
                });
                (process, end)
            }
        }
    }

    /// The process image that executed kernel code; that of the kernel in its idle task.
    fn in_kernel(&mut self, task: TaskKey, time: u64) -> ProcessIdx {
        if task.tgid == 0 {
            ProcessIdx::KERNEL
        } else {
            self.user.process_at(task, time, &mut self.losses)
        }
    }

    /// Resolves an address of the kernel in any process: the end of the contiguous text at the address.
    pub(super) fn kernel_hit(&mut self, time: u64, at: Va) -> Option<Va> {
        if let Some((_, text)) = self.lookups.kernel.get(TaskKey::KERNEL, time, at) {
            return Some(text.end);
        }
        let hit = self.kernel.hit(at, time, &mut self.losses);
        self.forget_changed();
        let (end, validity) = hit?;
        let process = ProcessIdx::KERNEL;
        self.lookups.kernel.add(at, &validity, HeldText { process, end });
        Some(end)
    }

    /// Forgets the results that may be valid no more.
    fn forget_changed(&mut self) {
        let now = (self.user.n_changes(), self.kernel.n_regions());
        let (n_changes, n_regions) = mem::replace(&mut self.lookups.known_of, now);
        if n_changes != now.0 {
            self.lookups.user.clear();
            self.lookups.last = Default::default();
        }
        if n_regions != now.1 {
            self.lookups.kernel.clear();
            self.lookups.last = Default::default();
        }
    }

    /// Loads the text of the branch that led to a stream, if needed.
    pub(super) fn source(&mut self, task: TaskKey, time: u64, source: Va) {
        if self.lookups.last(task, time, source).is_some() {
            return;
        }
        match source.ring() {
            Ring::Kernel => _ = self.kernel_hit(time, source),
            Ring::User => _ = self.hit(task, time, source),
        }
    }

    /// Resolves a stream: all text from its start to the instruction at its end.
    pub(super) fn stream(&mut self, task: TaskKey, time: u64, start: Va, end: Va) -> ProcessIdx {
        let inside = |text: &HeldText| start <= end && end < text.end;
        if let Some(text) = self.lookups.last(task, time, start).filter(inside) {
            return text.process;
        }
        match start.ring() {
            Ring::Kernel => {
                let known = self.lookups.kernel.get(TaskKey::KERNEL, time, start);
                if known.is_some_and(|(_, text)| inside(text)) {
                    return self.in_kernel(task, time);
                }
            }
            Ring::User => {
                if let Some((validity, text)) = self.lookups.user.get(task, time, start) {
                    self.lookups.last = (validity.clone(), *text);
                    if inside(text) {
                        return text.process;
                    }
                }
            }
        }
        self.new_stream(task, time, start, end)
    }

    fn new_stream(&mut self, task: TaskKey, time: u64, start: Va, end: Va) -> ProcessIdx {
        let (process, mut held) = self.hit(task, time, start);
        if is_stream(start.0, end.0) {
            let mut at = start;
            while let Some(next) = held.filter(|next| at < *next && *next <= end) {
                at = next;
                held = self.hit(task, time, at).1;
                if at.ring() == Ring::Kernel {
                    self.kernel.entered(at, time);
                }
            }
            if held.is_some_and(|held| end < held) {
                return process;
            }
        }
        self.hit(task, time, end);
        process
    }
}

/// Whether a stream can be a straight line of code; both ends are inclusive.
fn is_stream(start: u64, end: u64) -> bool {
    start <= end && end - start < MAX_STREAM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_short_and_goes_forward() {
        assert!(is_stream(1, 1) && !is_stream(2, 1) && !is_stream(0, MAX_STREAM));
    }
}
