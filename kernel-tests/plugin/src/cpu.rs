//! One virtual CPU: what it retired, its branch stack, and the step from one block to the next.
//!
//! The fast path ([`Cpu::step_fast`]) is taken hundreds of millions of times a second; it knows only whole
//! blocks in which no counter overflows. Everything else goes through [`crate::retire`].

use kernel_tests::classes::{self, Class};
use kernel_tests::layout::{Branch, COUNTERS};
use kernel_tests::reference::KERNEL;

use crate::block::{ALWAYS, BRANCH, Block, NEAR, ODD};
use crate::count::Accounts;
use crate::sample::{Sampler, Skid};
use crate::timer::Timers;

/// Branches that are remembered: twice the deepest stack, so that a stack can also begin further back.
pub(crate) const HISTORY: usize = 64;

/// An interrupt whose return address is not yet known.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// The block executed before the gate.
    pub(crate) before: Option<&'static Block>,
    /// Whether its last instruction was reached.
    pub(crate) reached: bool,
    /// The gate's block.
    pub(crate) gate: &'static Block,
    /// Whether it has been left: the emulator's budget of instructions may end in it before the gate's first store.
    pub(crate) passed: bool,
}

/// State of one CPU.
pub(crate) struct Cpu {
    /// The debug trace is on.
    pub(crate) traced: bool,
    /// [`ODD`] if every block takes the careful path, else 0.
    pub(crate) careful: u32,
    /// The block that is executing, or executed last.
    pub(crate) previous: Option<&'static Block>,
    /// First instruction of `previous` that is not yet accounted (after a mark in its middle).
    pub(crate) first: u32,
    /// Cycles until the first counter may overflow or the first sample may land: no event counts more than the cycles that pass.
    pub(crate) until: i64,
    /// Cycles that a near taken branch takes in addition.
    pub(crate) taken_cycles: u32,
    /// 1 in a marked span, else 0.
    pub(crate) active: u64,
    /// Owner of the code of each ring.
    pub(crate) owner: [u32; 2],
    /// What retired while the counters were enabled, and while they were frozen.
    pub(crate) counts: [Counts; 2],
    /// The counters are frozen.
    pub(crate) frozen: bool,
    /// Whether a counter counts a class of instructions: the sums of the classes are kept up only then.
    pub(crate) has_classes: bool,
    /// The same two in marked spans, up to the last start of one.
    pub(crate) span: Span,
    /// The last branches, at index `branches % HISTORY`.
    pub(crate) history: [Branch; HISTORY],
    /// The cycles of both rings when each of them was recorded.
    pub(crate) recorded_at: [u64; HISTORY],
    /// Branches recorded.
    pub(crate) branches: u64,
    /// Branches before this one are not in the stack (wiped).
    pub(crate) wiped: u64,
    /// The oldest entry of the last branch stack.
    pub(crate) oldest: Option<Branch>,
    /// Rings whose branches are recorded.
    pub(crate) branch_rings: u32,
    /// An interrupt that is being taken.
    pub(crate) arrival: Option<Arrival>,
    /// A gate that was interrupted before its first instruction.
    pub(crate) nested_gate: u64,
    /// `Machine::reached` while another CPU runs.
    pub(crate) saved_reached: u64,
    /// The counters.
    pub(crate) sampler: Sampler,
    /// Samples in progress.
    pub(crate) skids: Vec<Skid>,
    /// Timers among the counters.
    pub(crate) timers: Timers,
}

/// Events of each ring.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Instructions.
    pub(crate) retired: [u64; 2],
    /// Near taken branches.
    pub(crate) taken: [u64; 2],
    /// Near branch instructions, taken or not.
    pub(crate) branch_instructions: [u64; 2],
    pub(crate) cycles: [u64; 2],
    /// Instructions of each class, while [`Cpu::has_classes`] holds.
    pub(crate) classes: [[u64; classes::N]; 2],
}

impl Counts {
    /// Adds instructions by class, the last of which branched elsewhere if `taken`.
    #[inline(always)]
    pub(crate) fn add_classes(&mut self, ring: usize, classes: &[u64; classes::N], taken: bool) {
        for (sum, n) in self.classes[ring].iter_mut().zip(classes) {
            *sum += n;
        }
        if taken {
            self.classes[ring][Class::NotTaken as usize] -= classes[Class::NotTaken as usize];
        }
    }
}

/// Counts at the beginning of the marked span, and the sums of the spans before it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) executed_at_start: [u64; 2],
    pub(crate) taken_at_start: [u64; 2],
    pub(crate) executed: [u64; 2],
    pub(crate) taken: [u64; 2],
}

impl Span {
    /// Adds the sums of another CPU.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, number) in self.executed.iter_mut().zip(other.executed) {
            *sum += number;
        }
        for (sum, number) in self.taken.iter_mut().zip(other.taken) {
            *sum += number;
        }
    }
}

impl Cpu {
    pub(crate) fn new(traced: bool, taken_cycles: u32) -> Self {
        Self {
            traced,
            careful: if traced { ODD } else { 0 },
            previous: None,
            first: 0,
            until: i64::MAX,
            taken_cycles,
            active: 0,
            owner: [0, KERNEL],
            counts: [Counts::default(); 2],
            frozen: false,
            has_classes: false,
            span: Span::default(),
            history: [Branch::default(); HISTORY],
            recorded_at: [0; HISTORY],
            branches: 0,
            wiped: 0,
            oldest: None,
            branch_rings: 3,
            arrival: None,
            nested_gate: 0,
            saved_reached: 0,
            sampler: Sampler {
                counters: [const { None }; COUNTERS],
                counted: [0; COUNTERS],
                has_timer: false,
            },
            skids: Vec::new(),
            timers: Timers::new(),
        }
    }

    /// Accounts `previous` when it was executed whole, no counter overflows in it and neither it nor `next` is a
    /// special case. Returns whether it did.
    #[inline(always)]
    pub(crate) fn step_fast(&mut self, next: &'static Block, reached: u64) -> bool {
        let Some(block) = self.previous else { return false };
        let ring = (block.ring & 1) as usize;
        let plain = (block.flags | next.flags | self.careful) & ODD == 0;
        let quiet = i64::from(block.cycles + self.taken_cycles) < self.until;
        if !plain || reached != 1 || !quiet || self.first != 0 || block.owner.get() != self.owner[ring] {
            return false;
        }
        let falls = next.start == block.fall && block.flags & ALWAYS == 0;
        if !falls && block.flags & BRANCH == 0 {
            return false;
        }
        let near = u32::from(block.flags & NEAR != 0);
        let taken = if falls { 0 } else { near };
        let cycles = block.cycles + taken * self.taken_cycles;
        let counts = &mut self.counts[usize::from(self.frozen)];
        counts.retired[ring] += u64::from(block.n);
        counts.cycles[ring] += u64::from(cycles);
        counts.branch_instructions[ring] += u64::from(near);
        counts.taken[ring] += u64::from(taken);
        if self.has_classes {
            counts.add_classes(ring, &block.classes, !falls);
        }
        self.until -= i64::from(cycles);
        if !falls && !self.frozen {
            self.record(
                Branch {
                    from: block.last,
                    to: next.start,
                },
                ring,
            );
        }
        block.count.set(block.count.get() + self.active);
        self.previous = Some(next);
        true
    }

    /// Puts a taken branch into the stack, unless branches of its ring are filtered out. Returns whether it did.
    #[inline(always)]
    pub(crate) fn record(&mut self, branch: Branch, ring: usize) -> bool {
        let wanted = self.branch_rings >> ring & 1 == 1;
        if wanted {
            self.history[self.branches as usize % HISTORY] = branch;
            self.recorded_at[self.branches as usize % HISTORY] = self.counted().cycles.iter().sum();
            self.branches += 1;
        }
        wanted
    }

    /// Cycles from the branch before it to the branch of this number, as a record shows them; 0 if that one is forgotten.
    pub(crate) fn cycles_since_branch(&self, number: u64) -> u16 {
        let Some(before) = number.checked_sub(1) else {
            return 0;
        };
        if before + (HISTORY as u64) < self.branches {
            return 0;
        }
        let at = |number: u64| self.recorded_at[number as usize % HISTORY];
        u16::try_from(at(number) - at(before)).unwrap_or(u16::MAX)
    }

    /// Accounts executions of the instructions `first..end` of a block by its owner.
    pub(crate) fn account(&mut self, accounts: &mut Accounts, block: &'static Block, first: u32, end: u32) {
        let owner = self.owner[(block.ring & 1) as usize];
        if block.owner.get() != owner {
            accounts.flush(block);
            block.owner.set(owner);
        }
        if self.active == 0 {
            return;
        }
        if (first, end) == (0, block.n) {
            block.count.set(block.count.get() + 1);
        } else {
            accounts.part(owner, block, first, end);
        }
    }

    /// What the counters counted.
    pub(crate) const fn counted(&self) -> &Counts {
        &self.counts[0]
    }

    /// Instructions retired in a ring since the machine was attached.
    pub(crate) fn executed(&self, ring: usize) -> u64 {
        self.counts.iter().map(|counts| counts.retired[ring]).sum()
    }

    /// The marked span ends: its totals are added up.
    pub(crate) fn close_span(&mut self) {
        if self.active == 0 {
            return;
        }
        for ring in 0..2 {
            self.span.executed[ring] += self.executed(ring) - self.span.executed_at_start[ring];
            self.span.taken[ring] += self.counted().taken[ring] - self.span.taken_at_start[ring];
        }
        self.active = 0;
    }

    /// A marked span begins.
    pub(crate) fn open_span(&mut self) {
        if self.active == 1 {
            return;
        }
        self.span.executed_at_start = [self.executed(0), self.executed(1)];
        self.span.taken_at_start = self.counted().taken;
        self.active = 1;
    }
}
