//! What is known around an address that was hit.

use std::ops::Range;

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

/// What is known around an address: the function, or the gap between functions, or neither.
#[derive(Default)]
pub(super) struct FunctionOrGap {
    pub(super) function: Option<Symbol>,
    pub(super) gap: Option<Range<ImageAddr>>,
}

/// The part of `bounds` that lies in a gap, where there is one.
pub(super) fn within(bounds: Range<ImageAddr>, gap: Option<Range<ImageAddr>>) -> Range<ImageAddr> {
    match gap {
        Some(gap) => bounds.start.max(gap.start)..bounds.end.min(gap.end),
        None => bounds,
    }
}
