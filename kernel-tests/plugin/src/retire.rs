//! The careful step from one block to the next: exceptions, interrupts, REP, marks and overflows.

use kernel_tests::layout::Branch;

use crate::block::{ALWAYS, BRANCH, Block, GATE, IRET, NEAR, REP, SOFT_INT};
use crate::cpu::{Arrival, Cpu};
use crate::machine::PmuModel;
use crate::sample::{Overflow, Retired};
use crate::timer::Frame;

/// How far a block came, and by which branch it was left.
struct Left {
    end: u32,
    branch: Option<Branch>,
}

/// Gates of faults: the instruction they name did not retire (Intel SDM volume 3, table 6-1).
fn is_fault(vector: u8) -> bool {
    matches!(vector, 0 | 5 | 6 | 7 | 10..=14 | 16 | 17 | 19..=21)
}

impl PmuModel {
    /// `next` begins to execute. `reached` says whether the block before it came to its last instruction.
    pub(crate) fn step(&mut self, cpu: &mut Cpu, cpu_idx: usize, next: &'static Block, reached: bool) {
        if let Some(arrival) = cpu.arrival.take() {
            if next.start == arrival.gate.fall && !arrival.passed {
                cpu.previous = Some(next);
                cpu.arrival = Some(Arrival {
                    passed: true,
                    ..arrival
                });
                return;
            }
            // The gate's block left without a store that shows the frame.
            self.shared.anomaly();
            self.arrive(cpu, cpu_idx, arrival, Frame::unknown(&arrival));
        }
        let previous = cpu.previous.replace(next);
        let back_to_gate =
            next.start == cpu.nested_gate && previous.is_some_and(|block| block.flags & IRET != 0);
        if back_to_gate {
            cpu.nested_gate = 0;
        } else if next.flags & GATE != 0 {
            cpu.arrival = Some(Arrival {
                before: previous,
                reached,
                gate: next,
                passed: false,
            });
            return;
        }
        if let Some(block) = previous {
            self.leave(cpu, cpu_idx, block, reached, next.start, false);
        }
        cpu.first = 0;
    }

    /// The gate's first store shows the frame of the interrupted code.
    pub(crate) fn arrive(&mut self, cpu: &mut Cpu, cpu_idx: usize, arrival: Arrival, frame: Frame) {
        let gate = arrival.gate;
        let resume = frame.resume;
        if let Some(block) = arrival.before {
            let software = block.flags & SOFT_INT != 0 && resume == block.fall && arrival.reached;
            if self.gates.contains_key(&resume) && resume != gate.start {
                // Interrupted before the first instruction of another gate, whose own frame is not known.
                self.leave(cpu, cpu_idx, block, arrival.reached, block.fall, false);
                self.branch(
                    cpu,
                    cpu_idx,
                    Branch {
                        from: block.fall,
                        to: resume,
                    },
                );
                cpu.nested_gate = resume;
            } else {
                self.leave(
                    cpu,
                    cpu_idx,
                    block,
                    arrival.reached,
                    resume,
                    is_fault(gate.vector),
                );
            }
            let from = if software { block.last } else { resume };
            self.branch(cpu, cpu_idx, Branch { from, to: gate.start });
        }
        cpu.timers.enter_gate(frame);
        if arrival.passed {
            self.retire(cpu, cpu_idx, gate, 0, gate.n, None);
        }
        cpu.first = 0;
    }

    /// A block is left for the instruction at `next`.
    fn leave(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        block: &'static Block,
        reached: bool,
        next: u64,
        fault: bool,
    ) {
        let Left { end, branch } = self.resolve(block, reached, next, fault);
        let first = cpu.first;
        cpu.first = 0;
        self.retire(cpu, cpu_idx, block, first, end.max(first), branch);
    }

    fn resolve(&mut self, block: &Block, reached: bool, next: u64, fault: bool) -> Left {
        let whole = block.n;
        let branch = Some(Branch {
            from: block.last,
            to: next,
        });
        if !reached {
            // An exception in the middle, or the emulator took the block up again from there.
            let end = block.index_of(next).unwrap_or_else(|| {
                self.shared.anomaly();
                0
            });
            return Left { end, branch: None };
        }
        let left = match block.flags & (REP | BRANCH | ALWAYS) {
            flags if flags & REP != 0 => Left {
                end: if next == block.fall { whole } else { whole - 1 },
                branch: None,
            },
            flags if flags & BRANCH != 0 => match (fault && next == block.last, next == block.fall) {
                (true, _) => Left {
                    end: whole - 1,
                    branch: None,
                },
                (_, true) if flags & ALWAYS == 0 => Left {
                    end: whole,
                    branch: None,
                },
                _ => Left { end: whole, branch },
            },
            _ if next == block.fall => Left {
                end: whole,
                branch: None,
            },
            _ if next == block.last => Left {
                end: whole - 1,
                branch: None,
            },
            _ => {
                self.shared.anomaly();
                Left { end: whole, branch }
            }
        };
        if block.flags & REP != 0 && next != block.fall && next != block.last {
            self.shared.anomaly();
        }
        left
    }

    /// Instructions `first..end` of a block retire, the last of them through `branch` if there is one.
    pub(crate) fn retire(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        block: &'static Block,
        first: u32,
        end: u32,
        branch: Option<Branch>,
    ) {
        let ring = (block.ring & 1) as usize;
        let near = block.flags & NEAR != 0 && first < end && end == block.n;
        let retired = Retired {
            ring,
            block,
            first,
            end,
            near,
            taken: branch.is_some() && near,
        };
        cpu.account(&mut self.accounts, block, first, end);
        let next = branch.map_or(block.address(end), |branch| branch.to);
        let mut ended = Vec::new();
        if (retired.cycles(cpu.taken_cycles) as i64) < cpu.until {
            cpu.count(&retired);
            if let Some(branch) = branch {
                self.branch(cpu, cpu_idx, branch);
            }
        } else {
            ended = self.sampled(cpu, cpu_idx, &retired, branch, next);
            cpu.rearm();
        }
        if cpu.sampler.has_timer {
            self.tick(cpu, cpu_idx, &retired, &ended, next);
        }
    }

    /// Counts what retires before the instruction at `next`, while counters may overflow in it and samples may land. Returns the
    /// overflows of timers.
    fn sampled(
        &mut self,
        cpu: &mut Cpu,
        cpu_idx: usize,
        retired: &Retired,
        branch: Option<Branch>,
        next: u64,
    ) -> Vec<Overflow> {
        let (block, clock) = (retired.block, cpu.clock());
        let (ended, overflows): (Vec<_>, Vec<_>) = cpu
            .overflows(retired)
            .into_iter()
            .partition(|overflow| cpu.is_timer(overflow.counter));
        let mut pending = overflows.iter().peekable();
        for index in retired.first..retired.end {
            if pending.peek().is_none() && cpu.skids.is_empty() {
                break;
            }
            let ip = block.address(index);
            let after = clock + retired.cycles_before(index + 1);
            self.skid(cpu, cpu_idx, ip, clock + retired.cycles_before(index)..after);
            if index + 1 == retired.end {
                break;
            }
            while let Some(overflow) = pending.next_if(|overflow| overflow.index == index) {
                self.overflow(cpu, cpu_idx, overflow, after, [ip, block.address(index + 1)]);
            }
        }
        cpu.count(retired);
        if let Some(branch) = branch {
            self.branch(cpu, cpu_idx, branch);
        }
        for overflow in pending {
            let ip = block.address(overflow.index);
            self.overflow(cpu, cpu_idx, overflow, cpu.clock(), [ip, next]);
        }
        ended
    }

    /// A branch of any kind is taken. Branch records freeze with the counters. Processors freeze both when the
    /// counter's interrupt comes (Intel SDM volume 3, "Freezing LBR and Performance Counters on PMI"). The kernel
    /// stops both while it handles the interrupt (arch/x86/events/intel/core.c, `intel_pmu_handle_irq`).
    pub(crate) fn branch(&mut self, cpu: &mut Cpu, cpu_idx: usize, branch: Branch) {
        let ring = (branch.from >> 63) as usize;
        if cpu.frozen || cpu.record(branch, ring) {
            self.trace.branch(cpu_idx, cpu, branch);
        }
    }
}
