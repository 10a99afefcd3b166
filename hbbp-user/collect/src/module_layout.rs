//! Where the kernel keeps what describes a loaded module and a compiled BPF program, from the BTF of its types.

use super::btf::{Btf, Structure};
use hbbp_model::record::{CompiledLayout, ModuleLayout, ModuleListLayout};

/// Number of the part that is text, and of that which is text for the time of the initialisation (Linux 6.4 and newer;
/// include/linux/module.h, enum `mod_mem_type`).
const TEXT_PARTS: [u32; 2] = [0, 4];

/// Reads the layout of this kernel, or the reason why it is not known.
pub fn read_module_layout(btf: &Btf) -> Result<ModuleLayout, String> {
    let module = Fields::of(btf, "module")?;
    let parts = match module.at("mem") {
        Some(mem) => {
            let part = Fields::of(btf, "module_memory")?;
            let (base, len) = (part.need("base")?, part.need("size")?);
            TEXT_PARTS.map(|n| (mem + n * part.size() + base, mem + n * part.size() + len))
        }
        None => {
            let part = Fields::of(btf, "module_layout")?;
            let (base, len) = (part.need("base")?, part.need("text_size")?);
            let (core, init) = (module.need("core_layout")?, module.need("init_layout")?);
            [core, init].map(|at| (at + base, at + len))
        }
    };
    let table = Fields::of(btf, "mod_kallsyms").ok();
    let known = [("symtab", 0), ("num_symtab", 8), ("strtab", 16), ("typetab", 24)];
    let known = known.map(|(name, at)| table.as_ref().is_some_and(|table| table.at(name) == Some(at)));
    let (tables, [.., has_types]) = (module.at("core_kallsyms").zip(module.at("kallsyms")), known);
    let has_symbols = known.iter().take(3).all(|known| *known);
    Ok(ModuleLayout {
        size: module.size(),
        name: module.need("name")?,
        parts,
        tables: tables.filter(|_| has_symbols),
        list: list_layout(btf, &module).filter(|_| has_symbols && has_types),
    })
}

/// Where modules have their links, and what they export; `None` where exported symbols are known to be described in
/// another way than by 32-bit distances to the symbol, to its name and to its namespace
/// (include/linux/export-internal.h). Kernels without BTF of them are taken to use these distances, as others of x86-64
/// do.
fn list_layout(btf: &Btf, module: &Fields<'_>) -> Option<ModuleListLayout> {
    let exported = Fields::of(btf, "kernel_symbol").ok();
    let as_known = exported
        .is_none_or(|it| (it.size(), it.at("value_offset"), it.at("name_offset")) == (12, Some(0), Some(4)));
    let layout = ModuleListLayout {
        state: module.at("state")?,
        links: module.at("list")?,
        tables: module.at("kallsyms")?,
        exported: module.at("syms")?,
        n_exported: module.at("num_syms")?,
    };
    as_known.then_some(layout)
}

/// Reads the layout of the entries in the list of compiled BPF programs; `None` where that is not known.
pub fn read_compiled_layout(btf: &Btf) -> Option<CompiledLayout> {
    let entry = Fields::of(btf, "bpf_ksym").ok()?;
    Some(CompiledLayout {
        size: entry.size(),
        start: entry.at("start")?,
        end: entry.at("end")?,
        name: entry.at("name")?,
        links: entry.at("lnode")?,
    })
}

/// The members of a structure.
struct Fields<'a> {
    btf: &'a Btf,
    name: &'static str,
    structure: Structure,
}

impl<'a> Fields<'a> {
    fn of(btf: &'a Btf, name: &'static str) -> Result<Self, String> {
        let structure = btf.structure(name)?;
        Ok(Self { btf, name, structure })
    }

    const fn size(&self) -> u32 {
        self.structure.size
    }

    fn at(&self, member: &str) -> Option<u32> {
        self.btf.offset_of(&self.structure, member)
    }

    fn need(&self, member: &str) -> Result<u32, String> {
        self.at(member)
            .ok_or_else(|| format!("kernel BTF has no {}.{member}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_this_machine_is_described() {
        let layout = Btf::open().and_then(|btf| Ok((read_module_layout(&btf)?, read_compiled_layout(&btf))));
        match layout {
            Ok((module, compiled)) => {
                assert!(module.name < module.size && module.size < 4096, "{module:?}");
                assert!(module.list.is_some(), "{module:?}");
                assert!(
                    compiled.is_some_and(|it| it.name < it.links && it.links < it.size),
                    "{compiled:?}"
                );
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
