//! What the text of an instruction has in addition to the operands of the nearest one.

/// What is added to the operands, or changed in them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decorations {
    /// A new destination, or a second register that is pushed or popped.
    pub(crate) has_second: bool,
    /// The flags if the condition does not hold: overflow, sign, zero, carry, from the highest bit on.
    pub(crate) default_flags: Option<u8>,
    /// Whether it is the form that leaves the flags as they are.
    pub(crate) leaves_flags: bool,
    /// Whether the source is a tile, of which a register or an immediate value chooses the row.
    pub(crate) has_row: bool,
    /// Whether the result has half of the width of the source.
    pub(crate) has_half_result: bool,
    /// Whether the two operands are in the other order.
    pub(crate) is_reversed: bool,
}
