//! The machine: all CPUs and what they share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::layout::{COUNTERS, Counter, EVENT_CLASSES, MAX_CPUS};
use kernel_tests::reference;

use crate::block::{Blocks, ODD};
use crate::count::Accounts;
use crate::cpu::{Cpu, Span};
use crate::memory::{Mapping, Shared};
use crate::random::Random;
use crate::sample::Counting;
use crate::trace::{Trace, Traced};

/// What the CPUs share.
pub(crate) struct PmuModel {
    pub(crate) hardware_profile: HardwareProfile,
    pub(crate) shared: Shared,
    /// The guest's RAM, by physical address.
    pub(crate) ram: Mapping,
    /// Interrupt gates: address of the first instruction to number.
    pub(crate) gates: HashMap<u64, u8>,
    pub(crate) blocks: Blocks,
    pub(crate) accounts: Accounts,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    directory: PathBuf,
    files_written: u32,
}

/// Everything.
pub(crate) struct Machine {
    /// Counts up when a block's last instruction is reached; the emulator adds to it inline.
    pub(crate) reached: u64,
    /// The CPU that `reached` belongs to.
    pub(crate) running: usize,
    pub(crate) cpus: [Cpu; MAX_CPUS],
    pub(crate) model: PmuModel,
}

impl Machine {
    /// A machine with the files that the harness made in `directory`: `shared`, `ram` and `hardware_profile`.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub(crate) fn new(directory: &Path, traced: Traced) -> anyhow::Result<Self> {
        let hardware_profile = HardwareProfile::read(&directory.join("hardware_profile"))?;
        let depth = hardware_profile.depth as u32;
        let shared = Shared::open(&directory.join("shared"), depth, hardware_profile.max_precise)?;
        let durations = Durations::new(&hardware_profile);
        let taken_cycles = hardware_profile.taken_cycles;
        let model = PmuModel {
            random: Random::new(hardware_profile.seed),
            hardware_profile,
            shared,
            ram: Mapping::open(&directory.join("ram"))?,
            gates: HashMap::new(),
            blocks: Blocks::new(durations),
            accounts: Accounts::default(),
            trace: Trace::open(directory, traced)?,
            directory: directory.to_owned(),
            files_written: 0,
        };
        let cpus = std::array::from_fn(|_| Cpu::new(traced == Traced::Branches, taken_cycles));
        Ok(Self {
            reached: 0,
            running: 0,
            cpus,
            model,
        })
    }

    /// Makes `cpu_idx` the running CPU.
    pub(crate) fn switch_to(&mut self, cpu_idx: usize) {
        if self.running != cpu_idx {
            self.cpus[self.running].saved_reached = self.reached;
            self.reached = self.cpus[cpu_idx].saved_reached;
            self.running = cpu_idx;
        }
    }

    /// A marked span begins on a CPU; what it is in the middle of is accounted to the time before.
    pub(crate) fn open_span(&mut self, cpu_idx: usize) {
        self.settle(cpu_idx);
        let cpu = &mut self.cpus[cpu_idx];
        if cpu.active == 0 {
            self.model.trace.preface(cpu_idx, cpu);
            cpu.open_span();
        }
    }

    /// A marked span ends on a CPU.
    pub(crate) fn close_span(&mut self, cpu_idx: usize) {
        self.settle(cpu_idx);
        self.cpus[cpu_idx].close_span();
    }

    /// Retires the block that another CPU finished before it was interrupted by the emulator.
    fn settle(&mut self, cpu_idx: usize) {
        if cpu_idx == self.running {
            return;
        }
        let cpu = &mut self.cpus[cpu_idx];
        let Some(block) = cpu.previous else { return };
        if cpu.saved_reached != 0 && cpu.arrival.is_none() {
            let end = block.n - u32::from(block.flags & crate::block::REP != 0);
            let first = cpu.first;
            self.model
                .retire(cpu, cpu_idx, block, first, end.max(first), None);
            cpu.first = end.max(first);
        }
    }

    /// Writes the reference of all spans so far, as `reference`, then `reference.1` and so on.
    pub(crate) fn write(&mut self) -> std::io::Result<()> {
        let mut totals = Span::default();
        for cpu in &mut self.cpus {
            let active = cpu.active;
            cpu.close_span();
            totals.add(&std::mem::take(&mut cpu.span));
            if active == 1 {
                cpu.open_span();
            }
        }
        let model = &mut self.model;
        model.trace.flush();
        let name = reference::file(model.files_written);
        model.files_written += 1;
        model
            .accounts
            .write(&model.directory.join(name), model.blocks.all(), &totals)
    }

    /// The counters of a CPU stop or go on.
    pub(crate) fn freeze(&mut self, cpu_idx: usize, frozen: bool) {
        let cpu = &mut self.cpus[cpu_idx];
        cpu.frozen = frozen;
        cpu.rearm();
    }

    /// Attaches the counters that the driver configured. A counter that is switched off leaves its final values in
    /// the CPU's area: read before, they would miss what retires between the two.
    pub(crate) fn configure(&mut self, cpu_idx: usize) {
        let cpu = &mut self.cpus[cpu_idx];
        let area = self.model.shared.area(cpu_idx);
        cpu.branch_rings = area.branch_rings;
        for (slot, counter) in area.counters.iter_mut().enumerate() {
            let known = cpu.sampler.counters[slot];
            let goes_on = known.filter(|known| counter.event != 0 && known.generation == counter.generation);
            if let (Some(known), None) = (known, goes_on) {
                let total = cpu.total(known.event, known.rings);
                cpu.sampler.counted[slot] = known.counted(total);
                if counter.event == 0 {
                    read_out(&known, total, counter);
                }
            }
            cpu.sampler.counters[slot] = match goes_on {
                _ if counter.event == 0 => None,
                // Only the period of a running counter can change; it holds from the next overflow on.
                Some(known) => Some(Counting {
                    period: counter.period,
                    ..known
                }),
                None => Some(counting(cpu, slot, counter)),
            };
        }
        let counters = cpu.sampler.counters.iter().flatten();
        cpu.has_classes = counters.map(|it| it.event).any(|event| EVENT_CLASSES <= event);
        cpu.sampler.has_timer = (0..COUNTERS).any(|counter| cpu.is_timer(counter));
        cpu.careful = if cpu.traced || cpu.sampler.has_timer {
            ODD
        } else {
            0
        };
        cpu.rearm();
    }

    /// Brings the counters' values in the CPU's area up to date.
    pub(crate) fn read(&mut self, cpu_idx: usize) {
        let cpu = &self.cpus[cpu_idx];
        let area = self.model.shared.area(cpu_idx);
        for (counting, counter) in cpu.sampler.counters.iter().zip(&mut area.counters) {
            if let Some(counting) = counting {
                read_out(counting, cpu.total(counting.event, counting.rings), counter);
            }
        }
    }
}

/// Shows a counter's values to the driver.
const fn read_out(counting: &Counting, total: u64, counter: &mut Counter) {
    counter.value = total - counting.base;
    counter.left = counting.at.saturating_sub(total);
}

fn counting(cpu: &Cpu, slot: usize, counter: &Counter) -> Counting {
    let total = cpu.total(counter.event, counter.rings);
    Counting {
        event: counter.event,
        rings: counter.rings,
        period: counter.period,
        precise: counter.precise,
        generation: counter.generation,
        base: total,
        before: cpu.sampler.counted[slot],
        at: total + counter.left.max(1),
    }
}
