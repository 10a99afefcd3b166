//! Addresses for files that a text names by their build ids or paths, with addresses as the files state them.
//!
//! Counts hold addresses as executed. Such a text has none, so each file gets a range of its own, above all addresses
//! that a program can have. Addresses without a file stay as they are. Where a text has mappings, its addresses are those of
//! processes, and paths after them say nothing new.

use std::collections::HashSet;

use super::entry_text::TextAddress;
use hbbp_model::addr::Va;

/// First range: half of the canonical user half is beyond what Linux gives to programs with four levels of tables.
const FIRST: Va = Va(1 << 55);
/// 64 GiB for each file.
const ROOM: u64 = 1 << 36;
/// More files than any text names.
const MAX_MODULES: usize = 4096;
/// Addresses of a file that are remembered: enough to see whether they are those of its code.
const MAX_ADDRESSES: usize = 1 << 14;

/// How a text names a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TextFile {
    /// Not at all: the program.
    Program,
    /// By its build id, in hexadecimal.
    BuildId(String),
    /// By its path.
    Path(String),
}

/// A file of a text.
#[derive(Clone, Debug)]
pub struct TextModule {
    /// Which.
    pub file: TextFile,
    /// The address of its address 0.
    pub base: Va,
    /// Length in bytes of the addresses from there on.
    pub len: u64,
    /// Some of the addresses that the text names of it.
    pub addresses: HashSet<u64>,
}

/// The files of a text, the program first.
#[derive(Clone, Debug)]
pub struct TextModules {
    modules: Vec<TextModule>,
    /// Whether addresses are those of the processes, so that only build ids name files.
    pub(super) are_mapped: bool,
}

impl Default for TextModules {
    fn default() -> Self {
        let program = TextModule {
            file: TextFile::Program,
            base: Va(0),
            len: FIRST.0,
            addresses: HashSet::new(),
        };
        Self {
            modules: vec![program],
            are_mapped: false,
        }
    }
}

impl TextModules {
    /// The address that represents the one in the text; `None` if there are too many files.
    pub(super) fn place(&mut self, address: TextAddress<'_>) -> Option<Va> {
        // BOLT writes X for an object that it does not know.
        if address.build_id == Some("X") {
            return Some(Va(0));
        }
        let idx = self.idx(address)?;
        let module = self.modules.get(idx)?;
        if module.len <= address.address && idx != 0 {
            return Some(Va(0));
        }
        module.base.checked_add(address.address)
    }

    /// The same, and remembers the address.
    pub(super) fn meet(&mut self, address: TextAddress<'_>) -> Option<Va> {
        let place = self.place(address)?;
        let idx = self.idx(address)?;
        let met = &mut self.modules.get_mut(idx)?.addresses;
        if met.len() < MAX_ADDRESSES {
            met.insert(address.address);
        }
        Some(place)
    }

    /// The files, with what the text names of them.
    pub fn iter(&self) -> impl Iterator<Item = &TextModule> {
        self.modules.iter()
    }

    /// The number of a file; `None` if there are too many.
    fn idx(&mut self, address: TextAddress<'_>) -> Option<usize> {
        // Addresses beyond are those of a process or of the kernel, which no file states.
        let has_path = address.file.is_some() && !self.are_mapped && address.address < ROOM;
        if address.build_id.is_none() && !has_path {
            return Some(0);
        }
        let is = |known: &TextFile| match (known, address.build_id) {
            (TextFile::BuildId(known), Some(id)) => known == id,
            (TextFile::Path(known), None) => Some(known.as_str()) == address.file,
            _ => false,
        };
        if let Some(idx) = self.modules.iter().position(|known| is(&known.file)) {
            return Some(idx);
        }
        let file = match address.build_id {
            Some(id) => TextFile::BuildId(id.to_owned()),
            None => TextFile::Path(address.file.unwrap_or_default().to_owned()),
        };
        let idx = self.modules.len();
        if MAX_MODULES < idx {
            return None;
        }
        self.modules.push(TextModule {
            file,
            base: base(idx - 1),
            len: ROOM,
            addresses: HashSet::new(),
        });
        Some(idx)
    }
}

fn base(idx: usize) -> Va {
    Va(FIRST.0 + ROOM * u64::try_from(idx).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(build_id: Option<&'a str>, address: u64, file: Option<&'a str>) -> TextAddress<'a> {
        TextAddress {
            build_id,
            address,
            file,
        }
    }

    #[test]
    fn files_do_not_share_addresses() {
        let mut modules = TextModules::default();
        let mut place = |build_id: Option<&str>, address| modules.place(named(build_id, address, None));
        assert_eq!(place(None, 5), Some(Va(5)));
        assert_eq!(place(Some("X"), 5), Some(Va(0)));
        let (a, b) = (place(Some("a"), 5).unwrap(), place(Some("b"), 5).unwrap());
        assert_eq!(b.since(a), Some(ROOM));
        assert_eq!(place(Some("a"), ROOM), Some(Va(0)));
        for n in 0..MAX_MODULES {
            place(Some(&format!("{n:x}z")), 1);
        }
        assert_eq!(place(Some("last"), 1), None);
    }

    #[test]
    fn paths_name_files_where_nothing_is_mapped() {
        let mut modules = TextModules::default();
        let libc = modules.meet(named(None, 0x1000, Some("/lib/libc.so.6"))).unwrap();
        assert!(FIRST <= libc);
        assert_eq!(modules.meet(named(None, 0x1000, None)), Some(Va(0x1000)));
        let of_process = named(None, 0x7f00_0000_1000, Some("/lib/libc.so.6"));
        assert_eq!(modules.place(of_process), Some(Va(0x7f00_0000_1000)));
        let met: Vec<usize> = modules.iter().map(|module| module.addresses.len()).collect();
        assert_eq!(met, [1, 1]);
        modules.are_mapped = true;
        assert_eq!(
            modules.place(named(None, 0x1000, Some("/lib/libc.so.6"))),
            Some(Va(0x1000))
        );
    }
}
