//! The sections `modules`, `symbols`, `process` and `text`: what the counted addresses belong to.

use super::{Malformed, differences, joined, pieces, same_length, stored_len, sums};
use crate::addr::{ImageAddr, Va};
use crate::snapshot::{Mapping, Module, ModuleIdx, ModuleKind, Process, Symbol, Text};

/// The section `modules`: one row for each module.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct ModulesSection {
    #[prost(message, repeated, tag = "1")]
    modules: Vec<ModuleMessage>,
}

/// A module without its symbols.
#[derive(Clone, PartialEq, prost::Message)]
struct ModuleMessage {
    #[prost(string, tag = "1")]
    name: String,
    /// Place in [`KINDS`].
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(bytes = "vec", tag = "3")]
    build_id: Vec<u8>,
}

/// The section `symbols`: one row for each symbol, those of one module together and in its order.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct SymbolsSection {
    /// One entry for each module: how many of the rows are its symbols.
    #[prost(uint64, repeated, tag = "1")]
    in_module: Vec<u64>,
    #[prost(sint64, repeated, tag = "2")]
    start: Vec<i64>,
    #[prost(uint64, repeated, tag = "3")]
    len: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    name_len: Vec<u64>,
    /// All names, one behind the other.
    #[prost(bytes = "vec", tag = "5")]
    names: Vec<u8>,
}

/// The section `process`: one row for each process image, and one for each mapping.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct ProcessesSection {
    #[prost(uint32, repeated, tag = "1")]
    tgid: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    exec_id: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    comm_len: Vec<u64>,
    /// All command names, one behind the other.
    #[prost(bytes = "vec", tag = "4")]
    comms: Vec<u8>,
    /// How many of the mappings are those of this process image.
    #[prost(uint64, repeated, tag = "5")]
    n_mappings: Vec<u64>,
    #[prost(sint64, repeated, tag = "6")]
    start: Vec<i64>,
    /// Length in bytes, modulo 2^64.
    #[prost(uint64, repeated, tag = "7")]
    len: Vec<u64>,
    #[prost(uint32, repeated, tag = "8")]
    module: Vec<u32>,
    #[prost(sint64, repeated, tag = "9")]
    image_start: Vec<i64>,
    #[prost(sint64, repeated, tag = "10")]
    from: Vec<i64>,
}

/// The section `text`: one row for each stretch.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct TextSection {
    #[prost(uint32, repeated, tag = "1")]
    module: Vec<u32>,
    #[prost(sint64, repeated, tag = "2")]
    start: Vec<i64>,
    #[prost(uint64, repeated, tag = "3")]
    len: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    since: Vec<u32>,
    /// All bytes, one stretch behind the other.
    #[prost(bytes = "vec", tag = "5")]
    bytes: Vec<u8>,
}

/// The numbers of the kinds of modules: new ones go to the end, and an older reader refuses them.
const KINDS: [ModuleKind; 8] = [
    ModuleKind::Kernel,
    ModuleKind::KernelModule,
    ModuleKind::Bpf,
    ModuleKind::Trampoline,
    ModuleKind::Elf64,
    ModuleKind::Elf32,
    ModuleKind::Vdso,
    ModuleKind::Anonymous,
];

impl From<&[Module]> for ModulesSection {
    fn from(modules: &[Module]) -> Self {
        let number = |kind| {
            (0_u32..)
                .zip(KINDS)
                .find(|(_, k)| *k == kind)
                .map_or(0, |(number, _)| number)
        };
        let modules = modules.iter().map(|module| ModuleMessage {
            name: module.name.clone(),
            kind: number(module.kind),
            build_id: module.build_id.clone(),
        });
        Self {
            modules: modules.collect(),
        }
    }
}

impl TryFrom<ModulesSection> for Vec<Module> {
    type Error = Malformed;

    fn try_from(section: ModulesSection) -> Result<Self, Malformed> {
        let module = |message: ModuleMessage| {
            let kind = usize::try_from(message.kind)
                .ok()
                .and_then(|number| KINDS.get(number).copied());
            Ok(Module {
                name: message.name,
                kind: kind.ok_or(Malformed::Value("the kind of a module", message.kind.into()))?,
                build_id: message.build_id,
                symbols: Vec::new(),
            })
        };
        section.modules.into_iter().map(module).collect()
    }
}

impl From<&[Module]> for SymbolsSection {
    fn from(modules: &[Module]) -> Self {
        let symbols = || modules.iter().flat_map(|m| &m.symbols);
        Self {
            in_module: modules.iter().map(|m| stored_len(m.symbols.len())).collect(),
            start: differences(symbols().map(|s| s.start.0)),
            len: symbols().map(|s| s.len).collect(),
            name_len: symbols().map(|s| stored_len(s.name.len())).collect(),
            names: joined(symbols().map(|s| s.name.as_bytes())),
        }
    }
}

impl SymbolsSection {
    /// Gives the modules their symbols, or leaves them as they are where the section is malformed.
    pub(in crate::snapshot) fn put_into(&self, modules: &mut [Module]) -> Result<(), Malformed> {
        const WHAT: &str = "symbols";
        same_length(WHAT, self.start.len(), &[self.len.len(), self.name_len.len()])?;
        same_length("modules with symbols", modules.len(), &[self.in_module.len()])?;
        let names = pieces(WHAT, &self.name_len, &self.names)?;
        let rows = sums(&self.start).zip(&self.len).zip(names);
        let symbols = rows.map(|((start, len), name)| {
            Ok(Symbol {
                start: ImageAddr(start),
                len: *len,
                name: str::from_utf8(name)?.to_owned(),
            })
        });
        let symbols = symbols.collect::<Result<Vec<_>, Malformed>>()?;
        let by_module = shares(WHAT, &self.in_module, symbols)?;
        for (module, symbols) in modules.iter_mut().zip(by_module) {
            module.symbols = symbols;
        }
        Ok(())
    }
}

impl From<&[Process]> for ProcessesSection {
    fn from(processes: &[Process]) -> Self {
        let mappings = || processes.iter().flat_map(|p| &p.mappings);
        Self {
            tgid: processes.iter().map(|p| p.tgid).collect(),
            exec_id: processes.iter().map(|p| p.exec_id).collect(),
            comm_len: processes.iter().map(|p| stored_len(p.comm.len())).collect(),
            comms: processes.iter().flat_map(|p| p.comm.bytes()).collect(),
            n_mappings: processes.iter().map(|p| stored_len(p.mappings.len())).collect(),
            start: differences(mappings().map(|m| m.start.0)),
            len: mappings().map(|m| m.end.0.wrapping_sub(m.start.0)).collect(),
            module: mappings().map(|m| m.module.0).collect(),
            image_start: differences(mappings().map(|m| m.image_start.0)),
            from: differences(mappings().map(|m| m.from)),
        }
    }
}

impl TryFrom<ProcessesSection> for Vec<Process> {
    type Error = Malformed;

    fn try_from(section: ProcessesSection) -> Result<Self, Malformed> {
        let rows = &section;
        let columns = [rows.exec_id.len(), rows.comm_len.len(), rows.n_mappings.len()];
        same_length("process images", rows.tgid.len(), &columns)?;
        let columns = [
            rows.len.len(),
            rows.module.len(),
            rows.image_start.len(),
            rows.from.len(),
        ];
        same_length("mappings", rows.start.len(), &columns)?;
        let places = sums(&rows.start).zip(&rows.len).zip(sums(&rows.image_start));
        let mappings = places.zip(&rows.module).zip(sums(&rows.from));
        let mappings = mappings.map(|((((start, len), image_start), module), from)| Mapping {
            start: Va(start),
            end: Va(start.wrapping_add(*len)),
            module: ModuleIdx(*module),
            image_start: ImageAddr(image_start),
            from,
        });
        let by_process = shares("mappings", &rows.n_mappings, mappings.collect())?;
        let comms = pieces("command names", &rows.comm_len, &rows.comms)?;
        let rows = rows.tgid.iter().zip(&rows.exec_id).zip(comms).zip(by_process);
        let processes = rows.map(|(((tgid, exec_id), comm), mappings)| {
            let comm = str::from_utf8(comm)?.to_owned();
            Ok(Process {
                tgid: *tgid,
                exec_id: *exec_id,
                comm,
                mappings,
            })
        });
        processes.collect()
    }
}

impl From<&[Text]> for TextSection {
    fn from(text: &[Text]) -> Self {
        Self {
            module: text.iter().map(|t| t.module.0).collect(),
            start: differences(text.iter().map(|t| t.start.0)),
            len: text.iter().map(|t| stored_len(t.bytes.len())).collect(),
            since: text.iter().map(|t| t.since).collect(),
            bytes: joined(text.iter().map(|t| t.bytes.as_slice())),
        }
    }
}

impl TryFrom<TextSection> for Vec<Text> {
    type Error = Malformed;

    fn try_from(section: TextSection) -> Result<Self, Malformed> {
        let columns = [section.start.len(), section.len.len(), section.since.len()];
        same_length("text", section.module.len(), &columns)?;
        let bytes = pieces("text", &section.len, &section.bytes)?;
        let rows = section
            .module
            .iter()
            .zip(sums(&section.start))
            .zip(&section.since)
            .zip(bytes);
        let text = rows.map(|(((module, start), since), bytes)| Text {
            module: ModuleIdx(*module),
            start: ImageAddr(start),
            bytes: bytes.to_vec(),
            since: *since,
        });
        Ok(text.collect())
    }
}

/// Deals `rows` out in order, so many to each; nothing may be left over.
fn shares<T>(what: &'static str, lens: &[u64], rows: Vec<T>) -> Result<Vec<Vec<T>>, Malformed> {
    let mut rest = rows.into_iter();
    let mut shares = Vec::with_capacity(lens.len());
    for len in lens {
        let len = usize::try_from(*len).map_err(|_| Malformed::Lengths(what))?;
        if rest.len() < len {
            return Err(Malformed::Lengths(what));
        }
        shares.push(rest.by_ref().take(len).collect());
    }
    if rest.len() == 0 {
        Ok(shares)
    } else {
        Err(Malformed::Lengths(what))
    }
}
