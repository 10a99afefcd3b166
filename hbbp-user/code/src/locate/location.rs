//! Where an address lies: in which text range of the snapshot.

use hbbp_model::addr::ImageAddr;

/// Index of a [`hbbp_model::snapshot::Text`] in [`hbbp_model::snapshot::Snapshot::text`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TextIdx(pub u32);

/// An address in a text range.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Location {
    /// The text range.
    pub text: TextIdx,
    /// The address, inside the range.
    pub addr: ImageAddr,
}
