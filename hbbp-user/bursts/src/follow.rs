//! Bursts of live processes, followed to their ends.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use hbbp_ebpf::burst::{BurstHead, BurstPage, STACK_PAGES, first_stack_page};
use hbbp_emulate::{Branch, End, Limits, Machine, Value};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic};

use crate::core::{Core, Effect};
use crate::form::Form;
use crate::predictor::Predictor;
use crate::process::{LiveProcess, PAGE, Use};
use crate::wanted::Wanted;

/// Processes that are known at one time.
const MOST_PROCESSES: usize = 256;
/// The numbers of registers (SDM vol. 2, 2.1.5).
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;

/// A burst that was followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The branches that were taken, the oldest first.
    pub branches: Vec<Branch>,
    /// Instructions that were executed.
    pub steps: u64,
    /// What the streams between the first and the last branch take on a common core, in cycles.
    pub cycles: f64,
    /// Why it ended.
    pub end: End,
    /// Pages that the process may write, and that were read later than the sample.
    pub late: usize,
    /// What its later bursts should read with the sample, as [`hbbp_ebpf::burst::WantedPages`] has it, most wanted first.
    pub wanted: Vec<u64>,
}

/// All that is known of processes whose bursts are followed.
#[derive(Debug, Default)]
pub struct Followers {
    processes: HashMap<(u32, u32), Follower, FixedState>,
}

impl Followers {
    /// Follows a burst from its registers and the pages that were read with them. Its process image is known by thread group and
    /// exec id. `None` if the process is gone, or its memory may not be read.
    pub fn follow(&mut self, head: &BurstHead, pages: &[BurstPage], limits: Limits) -> Option<Followed> {
        let BurstHead { tgid, time, .. } = *head;
        let image = (tgid, head.exec_id);
        let is_known = self.processes.get_mut(&image).map(|of| of.process.refresh(time));
        if is_known == Some(false) {
            self.processes.remove(&image);
            return None;
        }
        if is_known.is_none() {
            if MOST_PROCESSES <= self.processes.len() {
                self.processes.clear();
            }
            self.processes.insert(image, Follower::open(tgid, time)?);
        }
        Some(
            self.processes
                .get_mut(&image)?
                .follow(machine(head, pages), limits),
        )
    }
}

/// The thread where its burst begins.
fn machine(head: &BurstHead, pages: &[BurstPage]) -> Machine {
    let mut machine = Machine::new(head.rip);
    machine.registers = head.registers.map(Value::known);
    machine.flags = Value::known(head.flags);
    machine.fs_base = head.fs_base;
    for page in pages {
        // A burst has few pages, and as many fit.
        let _ = machine.memory.add(page.address, &page.bytes);
    }
    machine
}

/// What is known of a process.
#[derive(Debug)]
struct Follower {
    process: LiveProcess,
    wanted: Wanted,
    predictor: Predictor,
}

impl Follower {
    fn open(tgid: u32, time: u64) -> Option<Self> {
        Some(Self {
            process: LiveProcess::open(tgid, time)?,
            wanted: Wanted::default(),
            predictor: Predictor::default(),
        })
    }

    /// Emulates a burst to its end. Pages that it lacks are read when they are needed.
    fn follow(&mut self, mut machine: Machine, limits: Limits) -> Followed {
        let registers = machine.registers;
        let first = first_stack_page(registers[RSP].bits);
        let stack = first..first.saturating_add(STACK_PAGES as u64 * PAGE);
        let mut late = Late::default();
        let mut core = Core::new();
        let mut forms: HashMap<u64, Form, FixedState> = HashMap::default();
        let mut infos = InstructionInfoFactory::new();
        let (mut steps, mut first, mut last) = (0, None, 0.0);
        let end = loop {
            if limits.branches <= machine.branches().len() {
                break End::Branches;
            }
            if limits.steps <= steps {
                break End::Steps;
            }
            let it = match machine.fetch() {
                Ok(it) => it,
                Err(End::TextNotRead(at)) if late.read(&self.process, &mut machine, at) => continue,
                Err(end) => break end,
            };
            let form = forms.entry(it.ip()).or_insert_with(|| Form::of(&it, &mut infos));
            let memory = machine.address(&it).ok().flatten();
            if form.loads {
                late.read_loaded(&self.process, &mut machine, &it, memory);
            }
            let before = machine.branches().len();
            if let Err(end) = machine.step() {
                break end;
            }
            steps += 1;
            let taken = machine.branches().get(before).map(|branch| branch.to);
            let effect = Effect { it, memory, taken };
            core.execute(form, &effect, &mut self.predictor);
            if taken.is_some() {
                last = core.time();
                first.get_or_insert(last);
            }
        };
        let needed = machine.memory.used().filter(|page| !stack.contains(page));
        let process = &self.process;
        let writable = needed.filter(|page| process.use_of(*page) == Some(Use::Writable));
        self.wanted.burst(writable, &registers);
        Followed {
            branches: machine.branches().to_vec(),
            steps,
            cycles: last - first.unwrap_or(last),
            end,
            late: late.writable,
            wanted: self.wanted.most(),
        }
    }
}

/// Pages that were read after the sample.
#[derive(Debug, Default)]
struct Late {
    tried: HashSet<u64, FixedState>,
    /// How many of them the process may have written since.
    writable: usize,
}

impl Late {
    /// Reads the page of an address; `false` if it was read before, or is not in memory.
    fn read(&mut self, process: &LiveProcess, machine: &mut Machine, address: u64) -> bool {
        let page = address & !(PAGE - 1);
        if !self.tried.insert(page) {
            return false;
        }
        let of = process.use_of(page);
        let Some((of, bytes)) = of.zip(of.and_then(|_| process.read(page))) else {
            return false;
        };
        if of == Use::Writable {
            self.writable += 1;
        }
        let added = match of {
            Use::Text => machine.memory.add_text(page, &bytes),
            Use::Constant | Use::Writable => machine.memory.add(page, &bytes),
        };
        added.is_ok()
    }

    /// Reads what an instruction is about to load, and is not there.
    fn read_loaded(
        &mut self,
        process: &LiveProcess,
        machine: &mut Machine,
        it: &Instruction,
        memory: Option<u64>,
    ) {
        let pointers: &[usize] = match it.mnemonic() {
            Mnemonic::Leave => &[RBP],
            _ if it.is_stack_instruction() => &[RSP],
            _ if it.is_string_instruction() => &[RSI, RDI],
            _ => &[],
        };
        let pointers = pointers.iter().map(|of| machine.registers[*of].bits);
        let addresses: Vec<u64> = pointers.chain(memory).collect();
        for address in addresses {
            let last = address.saturating_add(it.memory_size().size().max(8) as u64 - 1);
            for address in [address, last] {
                if !machine.memory.is_read(address, 1) {
                    self.read(process, machine, address);
                }
            }
        }
    }
}
