//! Why a distinct stream cannot have run, as far as the addresses of its ends tell.

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
}

/// The longest stream in bytes. Straight-line code of this length is not met in practice; what looks like it is a pair
/// of entries that are no neighbours.
pub(super) const MAX_STREAM: u64 = 64 << 10;

/// Judges the stream from `start` to `end`.
#[inline(always)]
pub(super) const fn refusal(start: u64, end: u64) -> Option<Refusal> {
    if is_kernel(start) != is_kernel(end) {
        Some(Refusal::Crossing)
    } else if MAX_STREAM <= end.wrapping_sub(start) {
        // Nearly all streams are possible, and one comparison finds both reasons.
        Some(if end < start {
            Refusal::Backward
        } else {
            Refusal::Long
        })
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
        assert_eq!(refusal(0x1000, 0x1010), None);
        assert_eq!(refusal(0x1000, 0x1000), None, "one branch alone is a stream");
        assert_eq!(refusal(0x1010, 0x1000), Some(Refusal::Backward));
        assert_eq!(refusal(0x1000, KERNEL), Some(Refusal::Crossing));
        assert_eq!(refusal(KERNEL, 0x1000), Some(Refusal::Crossing));
        assert_eq!(refusal(0x1000, 0x1000 + MAX_STREAM), Some(Refusal::Long));
    }
}
