//! Why a stream cannot have run in the process that it was sampled in, as far as addresses alone tell.

use hbbp_ebpf::is_kernel;

/// The reason to refuse a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// Its ends lie in different rings: an entry between them was dropped.
    Crossing,
    /// It ends before it starts.
    Backward,
    /// It is longer than [`MAX_STREAM`].
    Long,
    /// It is user code from before a context switch, so it belongs to another process.
    Switched,
}

/// The longest stream in bytes. Straight-line code of this length is not met in practice; what looks like it is a pair
/// of entries that are no neighbours.
pub(super) const MAX_STREAM: u64 = 64 << 10;

/// Judges the stream from `start` to `end`; `switched` says whether a context switch stands between it and the sample.
#[inline(always)]
pub(super) const fn refusal(start: u64, end: u64, switched: bool) -> Option<Refusal> {
    if is_kernel(start) != is_kernel(end) {
        Some(Refusal::Crossing)
    } else if MAX_STREAM <= end.wrapping_sub(start) {
        // Nearly all streams are sound, and one comparison finds both reasons.
        Some(if end < start {
            Refusal::Backward
        } else {
            Refusal::Long
        })
    } else if switched && !is_kernel(start) {
        Some(Refusal::Switched)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn each_reason() {
        assert_eq!(refusal(0x1000, 0x1010, false), None);
        assert_eq!(
            refusal(0x1000, 0x1000, false),
            None,
            "one branch alone is a stream"
        );
        assert_eq!(
            refusal(KERNEL, KERNEL + 5, true),
            None,
            "the kernel is the same for all"
        );
        assert_eq!(refusal(0x1000, 0x1010, true), Some(Refusal::Switched));
        assert_eq!(refusal(0x1010, 0x1000, false), Some(Refusal::Backward));
        assert_eq!(refusal(0x1000, KERNEL, false), Some(Refusal::Crossing));
        assert_eq!(refusal(KERNEL, 0x1000, false), Some(Refusal::Crossing));
        assert_eq!(refusal(0x1000, 0x1000 + MAX_STREAM, false), Some(Refusal::Long));
    }
}
