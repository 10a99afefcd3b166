//! What a copy of an entry in the kernel's list of compiled BPF programs says (include/linux/bpf.h, `struct bpf_ksym`).
//!
//! The offsets in it come from the BTF of the kernel's types (`collect::module_layout`).

use crate::addr::Va;

/// Offsets in bytes in `struct bpf_ksym`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CompiledLayout {
    /// Length of the structure.
    pub size: u32,
    /// First byte of the code.
    pub start: u32,
    /// First byte after it.
    pub end: u32,
    /// The name, up to a zero.
    pub name: u32,
    /// The links, next and previous, which follow the name.
    pub links: u32,
}

/// Compiled code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compiled {
    /// First byte.
    pub start: Va,
    /// First byte after it.
    pub end: Va,
    /// The field of its name: up to a zero, and what follows.
    pub name: Vec<u8>,
}

impl CompiledLayout {
    /// What a copy says; `None` if it is cut.
    pub fn parse(&self, bytes: &[u8]) -> Option<Compiled> {
        let from = |at: u32| bytes.get(usize::try_from(at).ok()?..);
        let word = |at: u32| Some(Va(u64::from_le_bytes(*from(at)?.first_chunk()?)));
        let name = bytes.get(usize::try_from(self.name).ok()?..usize::try_from(self.links).ok()?)?;
        Some(Compiled {
            start: word(self.start)?,
            end: word(self.end)?,
            name: name.to_vec(),
        })
    }
}
