//! The time that a burst takes on a core of a common kind: what waits for what.
//!
//! Only ratios between bursts matter, as their times are scaled by the clock. Caches are not modelled: what they hold when a burst
//! begins is not known.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use iced_x86::Instruction;

use crate::form::{Branch, Form, REGISTERS};
use crate::predictor::Predictor;

/// Instructions that enter in a cycle: five of Ice Lake, six of Zen 3, fewer where the front end has bubbles.
const WIDTH: f64 = 5.0;
/// Instructions between the oldest that waits and the newest (Zen 3: 256).
const WINDOW: usize = 256;
/// Cycles from a load's address to its value, from the nearest cache (Zen 3: 4, Ice Lake: 5).
const LOAD: f64 = 4.0;
/// Cycles that a branch costs which was not foreseen (Zen 3: 13 to 16).
const UNFORESEEN: f64 = 15.0;
/// Most words of memory whose last store is known.
const MOST_STORES: usize = 1 << 12;

/// A core that a burst runs on.
#[derive(Debug)]
pub(crate) struct Core {
    /// When the next instruction enters, in cycles.
    front: f64,
    ready: Box<[f64; REGISTERS]>,
    /// When what was stored last can be loaded, by the word of 8 bytes.
    stored: HashMap<u64, f64, FixedState>,
    /// When each of the last instructions had left, in order.
    left: VecDeque<f64>,
    last_left: f64,
    divider: f64,
    last_taken: f64,
    /// Whether the last instruction is one that a conditional branch after it is fused with.
    fuses: bool,
}

/// What an instruction did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) it: Instruction,
    /// The address of its operand in memory, where it is known.
    pub(crate) memory: Option<u64>,
    /// Where it led, if it is a branch that was taken.
    pub(crate) taken: Option<u64>,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            front: 0.0,
            ready: Box::new([0.0; REGISTERS]),
            stored: HashMap::default(),
            left: VecDeque::with_capacity(WINDOW),
            last_left: 0.0,
            divider: 0.0,
            last_taken: 0.0,
            fuses: false,
        }
    }

    /// When the last instruction had left, in cycles since the burst began.
    pub(crate) const fn time(&self) -> f64 {
        self.last_left
    }

    /// Executes an instruction.
    pub(crate) fn execute(&mut self, form: &Form, effect: &Effect, predictor: &mut Predictor) {
        if self.left.len() == WINDOW
            && let Some(left) = self.left.pop_front()
        {
            self.front = self.front.max(left);
        }
        let entered = self.front;
        if !(self.fuses && form.branch == Branch::Conditional) {
            self.front += 1.0 / WIDTH;
        }
        self.fuses = form.fuses;
        let mut begins = self.latest(entered, &form.addresses);
        let word = effect.memory.map(|address| address >> 3);
        if form.loads {
            let stored = word
                .and_then(|word| self.stored.get(&word))
                .copied()
                .unwrap_or(0.0);
            begins = begins.max(stored) + LOAD;
        }
        begins = self.latest(begins, &form.reads);
        if 0.0 < form.divider {
            begins = begins.max(self.divider);
            self.divider = begins + form.divider;
        }
        let done = begins + form.latency;
        for register in &form.writes {
            self.ready[*register] = done;
        }
        if let Some(word) = word.filter(|_| form.stores) {
            if MOST_STORES <= self.stored.len() {
                self.stored.clear();
            }
            self.stored.insert(word, done);
        }
        self.branch(form.branch, effect, done, predictor);
        self.last_left = self.last_left.max(done);
        self.left.push_back(self.last_left);
    }

    /// The latest of a time and of when these registers are ready.
    fn latest(&self, time: f64, registers: &[usize]) -> f64 {
        registers
            .iter()
            .fold(time, |latest, register| latest.max(self.ready[*register]))
    }

    fn branch(&mut self, branch: Branch, effect: &Effect, done: f64, predictor: &mut Predictor) {
        let is_foreseen = match branch {
            Branch::Foreseen => true,
            Branch::Conditional => predictor.direction(effect.it.ip(), effect.taken.is_some()),
            Branch::Indirect => predictor.target(effect.it.ip(), effect.taken.unwrap_or(0)),
        };
        if !is_foreseen {
            self.front = self.front.max(done + UNFORESEEN);
        }
        if effect.taken.is_some() {
            // One taken branch in a cycle.
            self.front = self.front.max(self.last_taken + 1.0);
            self.last_taken = self.front;
        }
    }
}
