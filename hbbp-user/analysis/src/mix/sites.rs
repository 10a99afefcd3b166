//! Values of the dimensions that depend on where an instruction is: its module, function, source line, process image,
//! and what its surroundings say of it.

use hbbp_decode::{Decoder, Modern};
use iced_x86::Instruction as Decoded;

use super::attributes::Attributes;
use super::axis::NO_GROUP;
use super::dimension::Dimension;
use super::mitigation::mitigations;
use super::patch::patches;
use super::query::Query;
use super::symbols::function;
use hbbp_code::blocks::{BlockMap, Flow, Instruction, TextBlocks};
use hbbp_estimate::BlockCount;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{
    Module, ModuleIdx, Process, ProcessIdx, Snapshot, SourceLocations, StaticBranch, Text, Thread,
};

/// The block whose instructions are asked for.
pub(super) struct Sites<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    locations: &'a SourceLocations,
    asks_source: bool,
    asks_mitigation: bool,
    asks_patch: bool,
    here: Option<Here<'a>>,
}

/// A function: its module and its start.
pub(super) type FunctionAt = (ModuleIdx, ImageAddr);

/// What all instructions of a block have in common.
struct Here<'a> {
    block: BlockCount,
    process: ProcessIdx,
    text: &'a TextBlocks,
    /// The bytes of the text.
    bytes: &'a Text,
    module: &'a Module,
    /// Address of the block.
    start: ImageAddr,
    /// Of each instruction of kernel text, where that is requested.
    mitigations: Vec<&'static str>,
    /// The same for sites that the kernel patches.
    patches: Vec<&'static str>,
}

impl<'a> Sites<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        map: &'a BlockMap,
        query: &Query,
        locations: &'a SourceLocations,
    ) -> Self {
        Self {
            snapshot,
            map,
            locations,
            asks_source: query.asks_source(),
            asks_mitigation: query.asks(Dimension::Mitigation),
            asks_patch: query.asks(Dimension::Patch),
            here: None,
        }
    }

    /// Selects a block that `process` runs.
    pub(super) fn enter(&mut self, block: &BlockCount, process: ProcessIdx) {
        self.here = self.find(block, process);
        let Some(here) = &self.here else { return };
        if !here.module.kind.is_kernel() || !(self.asks_mitigation || self.asks_patch) {
            return;
        }
        let block = self.map.instructions(here.block.block);
        let decoded: Vec<Decoded> = block.iter().map(|it| here.decode(*it)).collect();
        let mut mitigated = Vec::new();
        if self.asks_mitigation {
            let function = function(here.module, here.start).unwrap_or_default();
            mitigated = mitigations(&function, &decoded, here.before());
        }
        let mut patched = Vec::new();
        if self.asks_patch {
            let target = |at| self.kernel_function(at);
            patched = patches(
                here.module,
                self.static_branches(here.text.module),
                &decoded,
                target,
            );
        }
        if let Some(here) = &mut self.here {
            (here.mitigations, here.patches) = (mitigated, patched);
        }
    }

    /// The static branches of a module.
    fn static_branches(&self, module: ModuleIdx) -> &'a [StaticBranch] {
        let all = &self.snapshot.static_branches;
        let from = all.partition_point(|branch| branch.module < module);
        let to = all.partition_point(|branch| branch.module <= module);
        all.get(from..to).unwrap_or(&[])
    }

    /// The function at an address of the kernel.
    fn kernel_function(&self, at: ImageAddr) -> Option<String> {
        let module = self.kernel_module(Va(at.0))?;
        function(self.snapshot.modules.get(module.0 as usize)?, at)
    }

    fn find(&self, block: &BlockCount, process: ProcessIdx) -> Option<Here<'a>> {
        let text = self.map.text(block.block.text)?;
        let first = self.map.instructions(block.block).first()?;
        Some(Here {
            block: *block,
            process,
            text,
            bytes: self.snapshot.text.get(block.block.text.0 as usize)?,
            module: self.snapshot.modules.get(text.module.0 as usize)?,
            start: text.addr(*first),
            mitigations: Vec::new(),
            patches: Vec::new(),
        })
    }

    /// The function that the block belongs to.
    pub(super) fn function(&self) -> Option<FunctionAt> {
        let here = self.here.as_ref()?;
        let symbol = here.module.symbol_at(here.start)?;
        Some((here.text.module, symbol.start))
    }

    /// The value of a dimension for the instruction of this index in the block.
    pub(super) fn value(&self, dimension: Dimension, at: usize, instruction: Instruction) -> String {
        let Some(here) = &self.here else {
            return String::new();
        };
        let location = || {
            let at = (here.text.module, here.text.addr(instruction));
            self.locations.get(&at)
        };
        let source = || location().filter(|_| self.asks_source);
        match dimension {
            Dimension::Ring => here.block.ring.to_string(),
            Dimension::Module => here.module.name.clone(),
            Dimension::Function => here.function(),
            Dimension::Line => source()
                .and_then(|it| it.line.clone())
                .unwrap_or_else(|| here.function()),
            Dimension::Inlined => source()
                .and_then(|it| it.function.clone())
                .unwrap_or_else(|| here.function()),
            Dimension::File => {
                let line = source().and_then(|it| it.line.as_deref());
                let file = line.map(|line| line.rsplit_once(':').map_or(line, |(file, _)| file));
                file.unwrap_or(&here.module.name).to_owned()
            }
            Dimension::Loop => {
                let innermost = location().and_then(|it| it.innermost_loop.as_deref());
                innermost.unwrap_or(NO_GROUP).to_owned()
            }
            Dimension::Callee => self.callee(here, instruction),
            Dimension::Mitigation => here.mitigations.get(at).copied().unwrap_or("none").to_owned(),
            Dimension::Patch => here.patches.get(at).copied().unwrap_or("none").to_owned(),
            Dimension::Process => self.process(here.process),
            Dimension::Pid => {
                let image = self.image(here.process);
                image.map_or_else(|| "0".to_owned(), Process::which)
            }
            Dimension::Command => self.command(here.process),
            Dimension::Thread => self.of_image(here.process, thread),
            Dimension::Cgroup => self.of_image(here.process, |process| self.cgroup(process)),
            Dimension::Source => here.block.method.name().to_owned(),
            Dimension::Block => format!("{}+{}", here.module.name, here.start),
            of_operands => here.of_operands(of_operands, instruction),
        }
    }

    /// The function that a call leads to, with its module if that is another one; nothing for other instructions.
    fn callee(&self, here: &Here<'_>, instruction: Instruction) -> String {
        match instruction.flow {
            Flow::IndirectCall => return "(indirect)".to_owned(),
            Flow::Call => {}
            _ => return String::new(),
        }
        let target = ImageAddr(here.decode(instruction).near_branch_target());
        let own = here.text.module;
        let called = if here.module.kind.is_kernel() {
            // Addresses of kernel text are those at run time.
            self.kernel_module(Va(target.0)).unwrap_or(own)
        } else {
            own
        };
        let module = self.snapshot.modules.get(called.0 as usize);
        let name = module.map_or("", |module| &module.name);
        let named = module.and_then(|module| function(module, target));
        let named = named.unwrap_or_else(|| format!("{name}+{target}"));
        if called == own {
            named
        } else {
            format!("{named} [{}]", name.trim_matches(['[', ']']))
        }
    }

    /// The module of an address in the kernel; of several mappings, the last one.
    fn kernel_module(&self, va: Va) -> Option<ModuleIdx> {
        let mappings = &self.snapshot.processes.first()?.mappings;
        let after = mappings.partition_point(|mapping| mapping.start <= va);
        let mut before = mappings.get(..after)?.iter().rev();
        before
            .find(|mapping| va < mapping.end)
            .map(|mapping| mapping.module)
    }

    /// The process image, unless it is that of the kernel.
    fn image(&self, idx: ProcessIdx) -> Option<&'a Process> {
        let process = self.snapshot.processes.get(idx.0 as usize);
        process.filter(|_| idx != ProcessIdx::KERNEL)
    }

    fn command(&self, idx: ProcessIdx) -> String {
        self.of_image(idx, |process| process.comm.clone())
    }

    fn process(&self, idx: ProcessIdx) -> String {
        self.of_image(idx, |process| format!("{} ({})", process.comm, process.which()))
    }

    fn cgroup(&self, process: &Process) -> String {
        let path = process
            .cgroup
            .and_then(|it| self.snapshot.cgroups.get(it.0 as usize));
        path.map_or("(unknown)", String::as_str).to_owned()
    }

    /// The name that a process image has in a dimension, or that of the kernel, or of all images beyond a bound.
    fn of_image(&self, idx: ProcessIdx, name: impl FnOnce(&Process) -> String) -> String {
        match self.image(idx) {
            _ if idx == ProcessIdx::OTHERS => "[other processes]".to_owned(),
            Some(process) => name(process),
            None => "[kernel]".to_owned(),
        }
    }
}

/// The thread of a process image: name and id.
fn thread(process: &Process) -> String {
    match &process.thread {
        None => "(all threads)".to_owned(),
        Some(Thread {
            tid: Thread::OTHERS, ..
        }) => "[other threads]".to_owned(),
        Some(Thread { tid, name }) if name.is_empty() => format!("{} ({tid})", process.comm),
        Some(Thread { tid, name }) => format!("{name} ({tid})"),
    }
}

impl Here<'_> {
    fn function(&self) -> String {
        let name = &self.module.name;
        function(self.module, self.start).unwrap_or_else(|| format!("[{name}]"))
    }

    fn decode(&self, instruction: Instruction) -> Decoded {
        self.decode_modern(instruction).0
    }

    /// The instruction, and what it is where it differs from that.
    fn decode_modern(&self, instruction: Instruction) -> (Decoded, Option<Modern>) {
        let bits = self.module.kind.bits();
        let from = instruction.offset as usize;
        let bytes = self.bytes.bytes.get(from..).unwrap_or(&[]);
        let addr = self.text.addr(instruction);
        match Decoder::try_with_ip(bits, bytes, addr.0) {
            Ok(mut decoder) => (decoder.decode(), decoder.modern()),
            Err(_) => (Decoded::new(), None),
        }
    }

    /// The value of a dimension of operands; nothing for those of the form, and for bytes that are no instruction.
    fn of_operands(&self, dimension: Dimension, instruction: Instruction) -> String {
        let (decoded, modern) = self.decode_modern(instruction);
        let value = Attributes::new(&decoded, modern).value(dimension);
        value.filter(|_| !decoded.is_invalid()).unwrap_or_default()
    }

    /// The bytes of the text before the block.
    fn before(&self) -> &[u8] {
        let offset = self.start.since(self.text.start).unwrap_or(0);
        let offset = usize::try_from(offset).unwrap_or(0);
        self.bytes.bytes.get(..offset).unwrap_or(&[])
    }
}
