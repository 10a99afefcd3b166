//! The timer of cycles: a clock whose interrupt comes after the instruction that waits, and never while interrupts are off.
//!
//! The emulator's own clock ticks by instructions or by the host, so samples of it say nothing of time. This one counts the
//! cycles of the cost model. When its period ends within an instruction, that instruction is completed first (Intel SDM
//! volume 3, 6.6: interrupts are taken on instruction boundaries); while RFLAGS.IF is clear, the interrupt waits. Periods that
//! end meanwhile are one interrupt, as with the kernel's timers (`hrtimer_forward_now`).
//!
//! POPF is not followed: since Linux 5.13 the kernel restores interrupts by STI (arch/x86/include/asm/irqflags.h).

use iced_x86::{Instruction, Mnemonic};
use kernel_tests::layout::{COUNTERS, EVENT_TIMER};

use crate::block::IRET;
use crate::cpu::{Arrival, Cpu};
use crate::machine::PmuModel;
use crate::sample::{Overflow, Retired};

/// Interrupts of the kernel within each other whose frames are remembered.
const NESTED: usize = 16;
/// RFLAGS.IF.
const IF: u64 = 1 << 9;

/// Whether a CPU takes interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupts {
    Off,
    /// STI retired: they are taken after the instruction that follows it (Intel SDM volume 2, STI).
    AfterNext,
    On,
}

impl Interrupts {
    /// What an instruction makes of them, if anything; IRET depends on its frame.
    pub(crate) fn after(instruction: &Instruction) -> Option<Self> {
        match instruction.mnemonic() {
            // The kernel's mask of SYSCALL has IF (arch/x86/kernel/cpu/common.c, `syscall_init`).
            Mnemonic::Cli | Mnemonic::Syscall => Some(Self::Off),
            Mnemonic::Sti => Some(Self::AfterNext),
            Mnemonic::Sysret | Mnemonic::Sysretq => Some(Self::On),
            _ => None,
        }
    }
}

/// An interrupt that waits.
#[derive(Clone, Copy)]
struct Due {
    generation: u32,
    /// Events that the counter had counted, and instructions the CPU had executed, when its period ended.
    at: [u64; 2],
}

/// What an interrupt gate leaves to return to.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// Address of the instruction.
    pub(crate) resume: u64,
    /// RFLAGS.
    pub(crate) flags: u64,
}

impl Frame {
    /// The likely one, where it cannot be read.
    pub(crate) fn unknown(arrival: &Arrival) -> Self {
        Self {
            resume: arrival.before.map_or(0, |block| block.fall),
            flags: IF,
        }
    }
}

/// The timers of one CPU.
pub(crate) struct Timers {
    interrupts: Interrupts,
    due: [Option<Due>; COUNTERS],
    /// Interrupted kernel code, the outermost first.
    frames: Vec<Frame>,
}

impl Timers {
    /// The perf core switches counters on while interrupts are off.
    pub(crate) const fn new() -> Self {
        Self {
            interrupts: Interrupts::Off,
            due: [None; COUNTERS],
            frames: Vec::new(),
        }
    }

    /// An interrupt gate is entered.
    pub(crate) fn enter_gate(&mut self, frame: Frame) {
        self.interrupts = Interrupts::Off;
        if frame.resume >> 63 == 1 {
            if self.frames.len() == NESTED {
                self.frames.remove(0);
            }
            self.frames.push(frame);
        }
    }

    /// IRET goes to this address.
    fn iret(&mut self, to: u64) {
        self.interrupts = Interrupts::On;
        if to >> 63 == 0 {
            self.frames.clear();
        } else if let Some(at) = self.frames.iter().rposition(|frame| frame.resume == to) {
            if self.frames[at].flags & IF == 0 {
                self.interrupts = Interrupts::Off;
            }
            self.frames.truncate(at);
        }
    }

    fn is_quiet(&self) -> bool {
        self.interrupts != Interrupts::AfterNext && self.due.iter().all(Option::is_none)
    }
}

impl Cpu {
    pub(crate) fn is_timer(&self, counter: usize) -> bool {
        self.sampler.counters[counter].is_some_and(|counting| counting.event == EVENT_TIMER)
    }
}

impl PmuModel {
    /// Instructions retire, the last of them before the one at `next`: periods end, and interrupts that can be taken are.
    pub(crate) fn tick(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        retired: &Retired,
        ended: &[Overflow],
        next: u64,
    ) {
        let block = retired.block;
        let is_iret = block.flags & IRET != 0 && retired.end == block.n;
        if ended.is_empty() && block.interrupts.is_empty() && !is_iret && cpu.timers.is_quiet() {
            return;
        }
        for index in retired.first..retired.end {
            for overflow in ended.iter().filter(|overflow| overflow.index == index) {
                self.end_period(cpu, cpu_idx, overflow);
            }
            let before = cpu.timers.interrupts;
            let change = block.interrupts.iter().find(|(at, _)| *at == index);
            match change {
                Some((_, Interrupts::AfterNext)) if before == Interrupts::On => {}
                Some((_, after)) => cpu.timers.interrupts = *after,
                None if before == Interrupts::AfterNext => cpu.timers.interrupts = Interrupts::On,
                None => {}
            }
            let is_last = index + 1 == retired.end;
            if is_last && is_iret {
                cpu.timers.iret(next);
            }
            if cpu.timers.interrupts == Interrupts::On && !cpu.frozen {
                let ip = if is_last { next } else { block.address(index + 1) };
                self.interrupt(cpu, cpu_idx, ip);
            }
        }
    }

    fn end_period(&mut self, cpu: &mut Cpu, cpu_idx: usize, overflow: &Overflow) {
        let Some(counting) = cpu.sampler.counters[overflow.counter] else {
            return;
        };
        let due = &mut cpu.timers.due[overflow.counter];
        if due.is_none_or(|due| due.generation != counting.generation) {
            let area = self.shared.area(cpu_idx);
            area.overflows += 1;
            area.lost_stopped += u64::from(due.is_some());
        }
        *due = Some(Due {
            generation: counting.generation,
            at: [overflow.counted, overflow.executed],
        });
    }

    /// Takes the interrupts that wait, before the instruction at `ip`.
    fn interrupt(&mut self, cpu: &mut Cpu, cpu_idx: usize, ip: u64) {
        for counter in 0..COUNTERS {
            let Some(due) = cpu.timers.due[counter].take() else {
                continue;
            };
            let generation = cpu.sampler.counters[counter].map(|counting| counting.generation);
            if generation == Some(due.generation) {
                self.sample(cpu, cpu_idx, counter, due.at, ip, 0);
            } else {
                self.shared.area(cpu_idx).lost_stopped += 1;
            }
        }
    }
}
