//! Where the kernel keeps what describes a loaded module, from the BTF of its types, and what a description says.

use btf_rs::{Btf, Type};

use crate::addr::Va;
use crate::record::{LoadedText, SymbolTable, TextPart};

/// Number of the part that is text, and of that which is text for the time of the initialisation (Linux 6.4 and newer;
/// include/linux/module.h, enum `mod_mem_type`).
const TEXT_PARTS: [u32; 2] = [0, 4];

/// Offsets in bytes in `struct module`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModuleLayout {
    /// Length of the structure.
    pub size: u32,
    name: u32,
    /// Address and length in bytes of each part with text.
    parts: [(u32, u32); 2],
    /// The table of the symbols that stay, and the pointer to that of all.
    tables: Option<(u32, u32)>,
}

/// Reads the layout of this kernel, or the reason why it is not known.
pub fn read_module_layout(btf: &Btf) -> Result<ModuleLayout, String> {
    let module = Fields::of(btf, "module")?;
    let parts = match module.at("mem") {
        Some(mem) => {
            let part = Fields::of(btf, "module_memory")?;
            let (base, len) = (part.need("base")?, part.need("size")?);
            TEXT_PARTS.map(|n| (mem + n * part.size + base, mem + n * part.size + len))
        }
        None => {
            let part = Fields::of(btf, "module_layout")?;
            let (base, len) = (part.need("base")?, part.need("text_size")?);
            let (core, init) = (module.need("core_layout")?, module.need("init_layout")?);
            [core, init].map(|at| (at + base, at + len))
        }
    };
    let table = Fields::of(btf, "mod_kallsyms").ok();
    let as_known = |table: &Fields| {
        ["symtab", "num_symtab", "strtab"].map(|name| table.at(name)) == [Some(0), Some(8), Some(16)]
    };
    let tables = module.at("core_kallsyms").zip(module.at("kallsyms"));
    Ok(ModuleLayout {
        size: module.size,
        name: module.need("name")?,
        parts,
        tables: tables.filter(|_| table.as_ref().is_some_and(as_known)),
    })
}

/// The members of a structure.
struct Fields {
    name: &'static str,
    size: u32,
    offsets: Vec<(String, u32)>,
}

impl Fields {
    fn of(btf: &Btf, name: &'static str) -> Result<Self, String> {
        let types = btf
            .resolve_types_by_name(name)
            .map_err(|error| error.to_string())?;
        let found = types.into_iter().find_map(|found| match found {
            Type::Struct(found) => Some(found),
            _ => None,
        });
        let found = found.ok_or_else(|| format!("kernel BTF has no struct {name}"))?;
        let member =
            |member: &btf_rs::Member| Some((btf.resolve_name(member).ok()?, member.bit_offset() / 8));
        Ok(Self {
            name,
            size: u32::try_from(found.size()).unwrap_or(u32::MAX),
            offsets: found.members.iter().filter_map(member).collect(),
        })
    }

    fn at(&self, member: &str) -> Option<u32> {
        self.offsets
            .iter()
            .find(|(name, _)| name == member)
            .map(|(_, at)| *at)
    }

    fn need(&self, member: &str) -> Result<u32, String> {
        self.at(member)
            .ok_or_else(|| format!("kernel BTF has no {}.{member}", self.name))
    }
}

impl ModuleLayout {
    /// What a copy of `struct module` says; `None` where it is cut or damaged.
    pub fn parse(&self, bytes: &[u8], gone: bool) -> Option<LoadedText> {
        let tail = |at: u32| bytes.get(usize::try_from(at).ok()?..);
        let word = |at: u32| tail(at)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        let half = |at: u32| tail(at)?.first_chunk().map(|half| u32::from_le_bytes(*half));
        let name = tail(self.name)?;
        let name = name.get(..name.iter().position(|b| *b == 0)?)?;
        let name = str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::kernel_layout::open_btf;

    #[test]
    fn a_description_is_taken_apart_and_a_cut_one_refused() {
        let layout = ModuleLayout {
            size: 80,
            name: 4,
            parts: [(16, 24), (32, 40)],
            tables: Some((48, 72)),
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
    fn the_kernel_of_this_machine_is_described() {
        let layout = open_btf().and_then(|btf| read_module_layout(&btf));
        match layout {
            Ok(layout) => assert!(layout.name < layout.size && layout.size < 4096, "{layout:?}"),
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
