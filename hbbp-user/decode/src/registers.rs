//! The numbers of general registers, which the nearest instruction has without their higher half.

/// Numbers by the field of the encoding, without the lowest three bits but for the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    /// Of ModRM.reg.
    pub(crate) reg: u8,
    /// Of ModRM.rm, of the base of an address, and of an opcode.
    pub(crate) base: u8,
    /// Of the index of an address.
    pub(crate) index: u8,
    /// Of the second source or the new destination, with its lowest bits.
    pub(crate) second: u8,
}

/// The field of an encoding that has the number of a register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Field {
    Reg,
    Base,
    Second,
}

impl Field {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Reg, Self::Base, Self::Second];
}

impl Registers {
    /// The number in a field, whose lowest bits are those of `low`.
    pub(crate) const fn number(self, field: Field, low: u8) -> u8 {
        low & 7
            | match field {
                Field::Reg => self.reg,
                Field::Base => self.base,
                Field::Second => self.second & !7,
            }
    }
}
