//! The text under the kernel addresses of a recording.

use crate::addr::{Ring, Va};
use crate::resolve::kernel::space::KernelSpace;
use crate::resolve::text::is_stream;
use crate::snapshot::{Interval, Losses};

/// Finds the text of all kernel counts of an interval.
pub(super) fn resolve(kernel: &mut KernelSpace, interval: &Interval, losses: &mut Losses) {
    let time = interval.end.saturating_sub(1);
    let mut hit = |at: Va| {
        if at.ring() == Ring::Kernel {
            kernel.hit(at, time, losses).map(|(behind, _)| behind)
        } else {
            None
        }
    };
    for count in &interval.ips {
        hit(count.ip);
    }
    for count in &interval.branches {
        hit(count.from);
        hit(count.to);
    }
    for count in &interval.streams {
        let mut behind = hit(count.start);
        hit(count.end);
        if !is_stream(count.start.0, count.end.0) {
            continue;
        }
        // A stream may run through several functions.
        let mut at = count.start;
        while let Some(next) = behind.filter(|next| at < *next && *next <= count.end) {
            at = next;
            behind = hit(at);
        }
    }
}
