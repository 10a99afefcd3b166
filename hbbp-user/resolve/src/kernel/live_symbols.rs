//! The symbols of the running kernel: its own tables through /proc/kcore, else /proc/kallsyms.
//!
//! The tables and lists lack what only the printed text has: pages of ftrace and kprobes that were there before. That text is
//! read where such a page is hit (`space`).

use std::io;

use super::bpf_list::read_bpf_list;
use super::kallsyms::{Kallsyms, KallsymsBuilder, read_kallsyms};
use super::kcore::{Kcore, open_kcore};
use super::module_list::read_module_list;
use super::modules::LoadedModule;
use super::symbol_tables::SymbolTables;
use hbbp_model::addr::Va;
use hbbp_model::record::{CompiledLayout, ModuleLayout};

/// What is known of the running kernel before its symbols are read.
#[derive(Clone, Copy, Debug)]
pub struct KernelFacts<'a> {
    /// As uname gives it.
    pub release: &'a str,
    /// How it describes its modules; `None` if that is not known or there are none.
    pub modules: Option<ModuleLayout>,
    /// How it keeps compiled BPF programs; `None` if that is not known.
    pub compiled: Option<CompiledLayout>,
    /// The functions of BPF programs, each with its first byte and its length: /proc/kallsyms has no lengths.
    pub programs: &'a [(Va, u64)],
}

/// Whether the printed text of the symbols was read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Printed {
    /// It was.
    #[default]
    Read,
    /// Not yet: the tables have the image and the modules.
    NotYet,
    /// It hides addresses.
    Hidden,
}

/// Reads the symbols of the kernel and of its modules, which are `loaded`.
///
/// # Errors
/// The tables cannot be read, and /proc/kallsyms cannot either.
pub fn read_live_symbols(
    facts: &KernelFacts<'_>,
    loaded: &[LoadedModule],
) -> io::Result<(Kallsyms, Printed)> {
    let kcore = open_kcore().ok();
    let Some((kcore, image)) =
        kcore.and_then(|kcore| read_image(&kcore, facts.release).map(|it| (kcore, it)))
    else {
        return Ok((read_kallsyms()?, Printed::Read));
    };
    if let Some(all) = add_modules(image, &kcore, facts, loaded) {
        return Ok((all.finish(), Printed::NotYet));
    }
    match (read_kallsyms(), read_image(&kcore, facts.release)) {
        (Ok(printed), Some(image)) if printed.hidden => Ok((image.finish(), Printed::Hidden)),
        (printed, _) => Ok((printed?, Printed::Read)),
    }
}

/// Whether the kernel's own tables can be read, which `kernel.kptr_restrict` does not hide.
pub fn has_symbol_tables(release: &str) -> bool {
    open_kcore().is_ok_and(|kcore| read_image(&kcore, release).is_some())
}

/// The symbols of the image by its tables.
fn read_image(kcore: &Kcore, release: &str) -> Option<KallsymsBuilder> {
    let tables = SymbolTables::read(&kcore.vmcoreinfo()?, release, &mut |at, bytes| {
        kcore.read(at, bytes)
    })?;
    let mut all = KallsymsBuilder::default();
    tables.for_each(KallsymsBuilder::takes_name, |symbol| all.add(symbol))?;
    Some(all)
}

/// The same with the symbols of all modules, and with BPF programs.
fn add_modules(
    mut all: KallsymsBuilder,
    kcore: &Kcore,
    facts: &KernelFacts<'_>,
    loaded: &[LoadedModule],
) -> Option<KallsymsBuilder> {
    if !loaded.is_empty() {
        let (head, layout) = all.image().modules.zip(facts.modules)?;
        let names: Vec<&str> = loaded.iter().map(|module| module.name.as_str()).collect();
        let mut read = |at, bytes: &mut [u8]| kcore.read(at, bytes);
        read_module_list(head, &layout, &names, &mut read, &mut |symbol| all.add(symbol))?;
    }
    if let Some((head, layout)) = all.image().bpf_programs.zip(facts.compiled) {
        let mut read = |at, bytes: &mut [u8]| kcore.read_structure(at, bytes);
        // A program that is not found there is looked for in the printed text where it is hit.
        let _ = read_bpf_list(head, &layout, &mut read, &mut |symbol| all.add(symbol));
    }
    Some(all)
}
