//! Address types, one for each address space, and the arithmetic between them.
//!
//! A `Va` is an executed (run-time) address, an `ImageAddr` is a link-time address inside a module, as `objdump` and
//! `addr2line` show it. A `FileOff` is an offset in the file of the module. For the kernel, whose text is read live,
//! `Va` and `ImageAddr` have the same value. Addresses are never passed between modules as bare `u64`.

use std::fmt;

/// A virtual address at run time: a value of the instruction pointer.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Va(pub u64);

/// A link-time address inside a module (ELF `p_vaddr` space).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ImageAddr(pub u64);

/// An offset in bytes into a file.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileOff(pub u64);

/// The privilege ring that an address belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Ring {
    /// Ring 0: the kernel, its modules and BPF programs.
    Kernel,
    /// Ring 3: user code.
    User,
}

impl Ring {
    /// Stable name, used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

impl Va {
    /// The ring by the upper half of the canonical address space (SDM vol. 1, 3.3.7.1).
    pub const fn ring(self) -> Ring {
        if hbbp_ebpf::is_kernel(self.0) {
            Ring::Kernel
        } else {
            Ring::User
        }
    }

    /// Whether a processor can have it in its instruction pointer: the highest bits are equal, seven of them with five levels of
    /// page tables, which are the most (SDM vol. 1, 3.3.7.1).
    pub const fn is_canonical(self) -> bool {
        let highest = self.0 >> 56;
        highest == 0 || highest == 0xff
    }

    /// The address plus `bytes`, or `None` past the end of the address space.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The distance in bytes from `start`, or `None` if `start` is greater.
    pub const fn since(self, start: Self) -> Option<u64> {
        self.0.checked_sub(start.0)
    }
}

impl ImageAddr {
    /// The address plus `bytes`, or `None` past the end of the address space.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The distance in bytes from `start`, or `None` if `start` is greater.
    pub const fn since(self, start: Self) -> Option<u64> {
        self.0.checked_sub(start.0)
    }
}

impl fmt::Display for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for ImageAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn va_ring_follows_the_canonical_half() {
        assert_eq!(Va(0x7fff_ffff_ffff).ring(), Ring::User);
        assert_eq!(Va(0xffff_8000_0000_0000).ring(), Ring::Kernel);
        assert_eq!(Va(0xffff_ffff_8100_0000).ring(), Ring::Kernel);
    }

    #[test]
    fn canonical_addresses_are_those_of_both_ends() {
        for at in [
            0,
            0x7fff_ffff_ffff,
            0xff_ffff_ffff_ffff,
            0xff00_0000_0000_0000,
            u64::MAX,
        ] {
            assert!(Va(at).is_canonical(), "{at:#x}");
        }
        for at in [1 << 56, 1 << 63, 0x8000_0000_0000_1234, 0xfe00_0000_0000_0000] {
            assert!(!Va(at).is_canonical(), "{at:#x}");
        }
    }

    #[test]
    fn address_arithmetic_does_not_wrap() {
        assert_eq!(Va(u64::MAX).checked_add(1), None);
        assert_eq!(ImageAddr(3).since(ImageAddr(4)), None);
        assert_eq!(ImageAddr(4).since(ImageAddr(3)), Some(1));
    }
}
