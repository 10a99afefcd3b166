//! What a copy of the kernel's description of a module says (include/linux/module.h, `struct module`): its name, its text and
//! its symbols, and where the next module is.
//!
//! The offsets in it come from the BTF of the kernel's types (`collect::module_layout`).

use super::{LoadedText, SymbolTable, TextPart};
use crate::addr::Va;

/// Offsets in bytes in `struct module`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ModuleLayout {
    /// Length of the structure.
    pub size: u32,
    /// The name, up to a zero.
    pub name: u32,
    /// Address and length in bytes of each part with text.
    pub parts: [(u32, u32); 2],
    /// The table of the symbols that stay, and the pointer to that of all.
    pub tables: Option<(u32, u32)>,
    /// What it takes to go through all modules; `None` if the kernel stores them differently.
    pub list: Option<ModuleListLayout>,
}

/// Offsets in bytes in `struct module` of what links it to others, and of what /proc/kallsyms is printed of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModuleListLayout {
    /// The state, 32 bits.
    pub state: u32,
    /// The links: next and previous.
    pub links: u32,
    /// The pointer to its tables of symbols, types and names.
    pub tables: u32,
    /// The address of the symbols that it exports to all.
    pub exported: u32,
    /// Their number, 32 bits.
    pub n_exported: u32,
}

/// A module in the kernel's list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedModule {
    /// Its name; `None` if it is only being set up and not to be seen (`MODULE_STATE_UNFORMED`).
    pub name: Option<String>,
    /// Its `struct mod_kallsyms`.
    pub tables: Va,
    /// Address and number of the symbols that it exports to all, each a `struct kernel_symbol`.
    pub exported: (Va, u32),
}

impl ModuleLayout {
    /// What a copy of `struct module` says; `None` if it is cut or damaged.
    pub fn parse(&self, bytes: &[u8], gone: bool) -> Option<LoadedText> {
        let word = |at: u32| word_at(bytes, at);
        let half = |at: u32| half_at(bytes, at);
        let name = self.parse_name(bytes)?;
        let mut parts = Vec::new();
        for (start, len) in self.parts {
            let part = TextPart {
                start: Va(word(start)?),
                len: half(len)?.into(),
            };
            if part.start != Va(0) && 0 < part.len {
                parts.push(part);
            }
        }
        let mut symbols = Vec::new();
        if let Some((core, all)) = self.tables {
            let (table, n, names) = (word(core)?, half(core + 8)?, word(core + 16)?);
            symbols.push(SymbolTable::Of {
                symbols: Va(table),
                n,
                names: Va(names),
            });
            symbols.push(SymbolTable::At(Va(word(all)?)));
        }
        Some(LoadedText {
            name: name.to_owned(),
            gone,
            parts,
            symbols,
        })
    }

    /// What a copy says of a module in the kernel's list; `None` if it is cut or damaged.
    pub fn parse_listed(&self, bytes: &[u8]) -> Option<ListedModule> {
        /// `MODULE_STATE_UNFORMED`, the last of the states.
        const UNFORMED: u32 = 3;

        let list = self.list?;
        let word = |at: u32| word_at(bytes, at).map(Va);
        let name = match half_at(bytes, list.state)? {
            UNFORMED => None,
            state if state < UNFORMED => Some(self.parse_name(bytes)?.to_owned()),
            _ => return None,
        };
        Some(ListedModule {
            name,
            tables: word(list.tables)?,
            exported: (word(list.exported)?, half_at(bytes, list.n_exported)?),
        })
    }

    fn parse_name<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        let name = bytes.get(usize::try_from(self.name).ok()?..)?;
        let name = name.get(..name.iter().position(|b| *b == 0)?)?;
        str::from_utf8(name).ok().filter(|name| !name.is_empty())
    }
}

fn word_at(bytes: &[u8], at: u32) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn half_at(bytes: &[u8], at: u32) -> Option<u32> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_parsed_and_a_truncated_one_refused() {
        let layout = ModuleLayout {
            size: 80,
            name: 4,
            parts: [(16, 24), (32, 40)],
            tables: Some((48, 72)),
            list: None,
        };
        let mut bytes = b"\0\0\0\0hello\0\0\0\0\0\0\0".to_vec();
        for word in [0xffff_ffff_c000_0000u64, 0x1000, 0, 7, 0x10, 3, 0x20, 0x30] {
            bytes.extend(word.to_le_bytes());
        }
        let found = layout.parse(&bytes, true).expect("whole");
        let part = TextPart {
            start: Va(0xffff_ffff_c000_0000),
            len: 0x1000,
        };
        let all = SymbolTable::Of {
            symbols: Va(0x10),
            n: 3,
            names: Va(0x20),
        };
        let expected = LoadedText {
            name: "hello".to_owned(),
            gone: true,
            parts: vec![part],
            symbols: vec![all, SymbolTable::At(Va(0x30))],
        };
        assert_eq!(found, expected);
        for len in 0..bytes.len() {
            assert_eq!(layout.parse(&bytes[..len], true), None);
        }
        assert_eq!(layout.parse(&[0; 200], true), None, "no name");
    }

    #[test]
    fn a_listed_module_is_hidden_while_it_is_set_up() {
        let layout = ModuleLayout {
            name: 24,
            list: Some(ModuleListLayout {
                state: 0,
                links: 8,
                tables: 32,
                exported: 40,
                n_exported: 48,
            }),
            ..ModuleLayout::default()
        };
        let copy = |state: u64| {
            let words = [
                state,
                0x10,
                0x20,
                u64::from_le_bytes(*b"hello\0\0\0"),
                0x30,
                0x40,
                7,
            ];
            words.map(u64::to_le_bytes).concat()
        };
        let found = ListedModule {
            name: Some("hello".to_owned()),
            tables: Va(0x30),
            exported: (Va(0x40), 7),
        };
        assert_eq!(layout.parse_listed(&copy(0)), Some(found.clone()));
        let unformed = ListedModule { name: None, ..found };
        assert_eq!(layout.parse_listed(&copy(3)), Some(unformed));
        assert_eq!(layout.parse_listed(&copy(4)), None);
        for len in 0..copy(0).len() - 4 {
            assert_eq!(layout.parse_listed(&copy(0)[..len]), None);
        }
    }
}
