//! The sections `modules`, `symbols`, `process` and `branches`: what the counted addresses belong to.
//!
//! ```text
//! modules := module*           module  := name kind build_id
//! symbols := (n symbol[n])*    symbol  := start length name                     in the order of the modules
//! process := process*          process := tgid exec_id comm n mapping[n]
//!                              mapping := start length module image_start from
//! cgroups := path*             tasks   := (cgroup tid [name])*                in the order of the process images
//! branches := branch*          branch  := module addr tracepoint
//! ```
//!
//! `start`, `image_start` and `from` are differences to the row before, and to 0 in the first row of the table.

use prost::bytes::Bytes;

use super::malformed::{Capacity, Malformed};
use super::number::{Reader, Rows};
use crate::addr::{ImageAddr, Va};
use crate::snapshot::{
    CgroupIdx, Mapping, Module, ModuleIdx, ModuleKind, Process, StaticBranch, Symbol, Thread,
};

/// Declares the message of a section that is one table.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, prost::Message)]
            pub(in crate::snapshot) struct $name {
                #[prost(bytes = "bytes", tag = "1")]
                rows: Bytes,
            }

            impl From<Rows> for $name {
                fn from(rows: Rows) -> Self {
                    Self { rows: rows.0.into() }
                }
            }
        )*
    };
}

tables! {
    /// The section `modules`.
    ModulesSection;
    /// The section `symbols`.
    SymbolsSection;
    /// The section `branches`.
    StaticBranchesSection;
}

/// The section `process`.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct ProcessesSection {
    /// The process images.
    #[prost(bytes = "bytes", tag = "1")]
    rows: Bytes,
    /// The paths of cgroups.
    #[prost(bytes = "bytes", tag = "2")]
    cgroups: Bytes,
    /// Cgroup and thread of each process image; empty if none is known.
    #[prost(bytes = "bytes", tag = "3")]
    tasks: Bytes,
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
        let mut rows = Rows::default();
        for module in modules {
            let kind = (0..).zip(KINDS).find(|(_, kind)| *kind == module.kind);
            rows.bytes(module.name.as_bytes());
            rows.number(kind.map_or(0, |(number, _)| number));
            rows.bytes(&module.build_id);
        }
        rows.into()
    }
}

impl ModulesSection {
    /// The modules, without symbols.
    pub(in crate::snapshot) fn read(&self, capacity: &mut Capacity) -> Result<Vec<Module>, Malformed> {
        let mut rows = Reader::new("modules", &self.rows);
        let mut modules = Vec::new();
        while !rows.is_at_end() {
            let name = rows.string()?;
            let kind = rows.number()?;
            let build_id = rows.bytes()?;
            capacity.take(rows.table, size_of::<Module>() + name.len() + build_id.len())?;
            let known = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind));
            modules.push(Module {
                name: name.to_owned(),
                kind: *known.ok_or(Malformed::Value("the kind of a module", kind.cast_signed()))?,
                build_id: build_id.to_vec(),
                symbols: Vec::new(),
            });
        }
        Ok(modules)
    }
}

impl From<&[Module]> for SymbolsSection {
    fn from(modules: &[Module]) -> Self {
        let mut rows = Rows::default();
        let mut start = 0;
        for module in modules {
            rows.number(stored_len(module.symbols.len()));
            for symbol in &module.symbols {
                rows.next(&mut start, symbol.start.0);
                rows.number(symbol.len);
                rows.bytes(symbol.name.as_bytes());
            }
        }
        rows.into()
    }
}

impl SymbolsSection {
    /// Gives the modules their symbols, or leaves them as they are where the section is malformed.
    pub(in crate::snapshot) fn put_into(
        &self,
        modules: &mut [Module],
        capacity: &mut Capacity,
    ) -> Result<(), Malformed> {
        let mut rows = Reader::new("symbols", &self.rows);
        let mut start = 0;
        let mut by_module = Vec::with_capacity(modules.len());
        for _ in modules.iter() {
            let mut symbols = Vec::new();
            for _ in 0..rows.number()? {
                let start = ImageAddr(rows.next(&mut start)?);
                let len = rows.number()?;
                let name = rows.string()?;
                capacity.take(rows.table, size_of::<Symbol>() + name.len())?;
                symbols.push(Symbol {
                    start,
                    len,
                    name: name.to_owned(),
                });
            }
            by_module.push(symbols);
        }
        if !rows.is_at_end() {
            return Err(Malformed::Rows(rows.table));
        }
        for (module, symbols) in modules.iter_mut().zip(by_module) {
            module.symbols = symbols;
        }
        Ok(())
    }
}

impl ProcessesSection {
    /// Process images, and the paths of their cgroups.
    pub(in crate::snapshot) fn new(processes: &[Process], cgroups: &[String]) -> Self {
        let (mut rows, mut paths, mut tasks) = (Rows::default(), Rows::default(), Rows::default());
        let (mut start, mut image_start, mut from) = (0, 0, 0);
        for process in processes {
            rows.number(process.tgid.into());
            rows.number(process.exec_id.into());
            rows.bytes(process.comm.as_bytes());
            rows.number(stored_len(process.mappings.len()));
            for mapping in &process.mappings {
                rows.next(&mut start, mapping.start.0);
                rows.number(mapping.end.0.wrapping_sub(mapping.start.0));
                rows.number(mapping.module.0.into());
                rows.next(&mut image_start, mapping.image_start.0);
                rows.next(&mut from, mapping.from);
            }
        }
        for path in cgroups {
            paths.bytes(path.as_bytes());
        }
        let has_task = |process: &Process| process.cgroup.is_some() || process.thread.is_some();
        if processes.iter().any(has_task) {
            processes.iter().for_each(|process| task(&mut tasks, process));
        }
        Self {
            rows: rows.0.into(),
            cgroups: paths.0.into(),
            tasks: tasks.0.into(),
        }
    }

    /// The process images with their mappings, and the paths of cgroups.
    pub(in crate::snapshot) fn read(
        &self,
        capacity: &mut Capacity,
    ) -> Result<(Vec<Process>, Vec<String>), Malformed> {
        let mut processes = self.read_images(capacity)?;
        let mut rows = Reader::new("cgroups", &self.cgroups);
        let mut cgroups = Vec::new();
        while !rows.is_at_end() {
            let path = rows.string()?;
            capacity.take(rows.table, size_of::<String>() + path.len())?;
            cgroups.push(path.to_owned());
        }
        let mut rows = Reader::new("cgroups and threads of process images", &self.tasks);
        let mut of = processes.iter_mut();
        while !rows.is_at_end() {
            let process = of.next().ok_or(Malformed::Rows(rows.table))?;
            process.cgroup = rows.number32()?.checked_sub(1).map(CgroupIdx);
            let thread = rows.number()?.checked_sub(1);
            if let Some(tid) = thread {
                let tid = u32::try_from(tid).map_err(|_| Malformed::Value(rows.table, tid.cast_signed()))?;
                let name = rows.string()?;
                capacity.take(rows.table, name.len())?;
                process.thread = Some(Thread {
                    tid,
                    name: name.to_owned(),
                });
            }
        }
        Ok((processes, cgroups))
    }

    fn read_images(&self, capacity: &mut Capacity) -> Result<Vec<Process>, Malformed> {
        let mut rows = Reader::new("process images", &self.rows);
        let (mut start, mut image_start, mut from) = (0, 0, 0);
        let mut processes = Vec::new();
        while !rows.is_at_end() {
            let (tgid, exec_id) = (rows.number32()?, rows.number32()?);
            let comm = rows.string()?;
            capacity.take(rows.table, size_of::<Process>() + comm.len())?;
            let mut mappings = Vec::new();
            for _ in 0..rows.number()? {
                let start = rows.next(&mut start)?;
                let len = rows.number()?;
                capacity.take(rows.table, size_of::<Mapping>())?;
                mappings.push(Mapping {
                    start: Va(start),
                    end: Va(start.wrapping_add(len)),
                    module: ModuleIdx(rows.number32()?),
                    image_start: ImageAddr(rows.next(&mut image_start)?),
                    from: rows.next(&mut from)?,
                });
            }
            processes.push(Process {
                tgid,
                exec_id,
                comm: comm.to_owned(),
                mappings,
                ..Process::default()
            });
        }
        Ok(processes)
    }
}

/// Writes the cgroup and the thread of a process image; 0 if there is none, and else one more than the number.
fn task(rows: &mut Rows, process: &Process) {
    rows.number(process.cgroup.map_or(0, |cgroup| u64::from(cgroup.0) + 1));
    match &process.thread {
        None => rows.number(0),
        Some(thread) => {
            rows.number(u64::from(thread.tid) + 1);
            rows.bytes(thread.name.as_bytes());
        }
    }
}

impl From<&[StaticBranch]> for StaticBranchesSection {
    fn from(branches: &[StaticBranch]) -> Self {
        let mut rows = Rows::default();
        let mut addr = 0;
        for branch in branches {
            rows.number(branch.module.0.into());
            rows.next(&mut addr, branch.addr.0);
            rows.number(branch.tracepoint.into());
        }
        rows.into()
    }
}

impl StaticBranchesSection {
    /// The static branches.
    pub(in crate::snapshot) fn read(&self, capacity: &mut Capacity) -> Result<Vec<StaticBranch>, Malformed> {
        let mut rows = Reader::new("static branches", &self.rows);
        let mut addr = 0;
        let mut branches = Vec::new();
        while !rows.is_at_end() {
            capacity.take(rows.table, size_of::<StaticBranch>())?;
            branches.push(StaticBranch {
                module: ModuleIdx(rows.number32()?),
                addr: ImageAddr(rows.next(&mut addr)?),
                tracepoint: rows.choice(1)? == 1,
            });
        }
        Ok(branches)
    }
}

/// A length as it is stored.
pub(super) fn stored_len(len: usize) -> u64 {
    // No target of this crate has a `usize` above 64 bits.
    u64::try_from(len).unwrap_or(u64::MAX)
}
