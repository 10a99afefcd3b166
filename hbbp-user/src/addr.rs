//! Addresses, each kind a type of its own, and the only arithmetic between them.
//!
//! A `Va` is an address as it was executed, an `ImageAddr` is an address inside a module as its own file states it
//! (the link-time address that `objdump` and `addr2line` show), a `FileOff` is an offset into the file that holds it.
//! The kernel's text is known only as it runs, so there a `Va` and its `ImageAddr` have the same value.
//! No bare `u64` that means an address crosses a module of this crate.

use std::fmt;

/// An address as executed: what the instruction pointer held.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Va(pub u64);

/// An address inside a module, as the module's own file states it (ELF `p_vaddr` space).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ImageAddr(pub u64);

/// An offset in bytes into a file.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileOff(pub u64);

/// The privilege ring that an address belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Ring {
    /// Ring 0: the kernel, its modules and what it compiles.
    Kernel,
    /// Ring 3: user code.
    User,
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

    /// The address `bytes` further on, or `None` past the end of the address space.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The distance in bytes from `start`, or `None` where `start` lies behind.
    pub const fn since(self, start: Self) -> Option<u64> {
        self.0.checked_sub(start.0)
    }
}

impl ImageAddr {
    /// The address `bytes` further on, or `None` past the end of the address space.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The distance in bytes from `start`, or `None` where `start` lies behind.
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
    fn ring_follows_the_canonical_halves() {
        assert_eq!(Va(0x7fff_ffff_ffff).ring(), Ring::User);
        assert_eq!(Va(0xffff_8000_0000_0000).ring(), Ring::Kernel);
        assert_eq!(Va(0xffff_ffff_8100_0000).ring(), Ring::Kernel);
    }

    #[test]
    fn arithmetic_does_not_wrap() {
        assert_eq!(Va(u64::MAX).checked_add(1), None);
        assert_eq!(ImageAddr(3).since(ImageAddr(4)), None);
        assert_eq!(ImageAddr(4).since(ImageAddr(3)), Some(1));
    }
}
