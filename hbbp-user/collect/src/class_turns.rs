//! What an event that counts a class has counted, turn by turn.

use super::perf::Counting;
use hbbp_model::snapshot::{ClassCount, InstructionClass, Turns};

/// An event that counts a class in one ring.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RingEvent {
    pub(super) class: InstructionClass,
    /// Its name in reports.
    pub(super) name: String,
    pub(super) counting: Counting,
}

/// What an event counted in a turn, over all CPUs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Measured {
    pub(super) count: u64,
    /// Time in ns in which it had a counter.
    pub(super) running: u64,
    /// Instructions of its ring in the same time; 0 where these were not counted with it.
    pub(super) instructions: u64,
}

/// The sum of the turns of an event.
pub(super) struct Tally {
    pub(super) event: RingEvent,
    sum: Measured,
    turns: Turns,
    last: Option<Measured>,
}

impl RingEvent {
    /// Whether it counts every instruction.
    pub(super) fn is_instructions(&self) -> bool {
        self.class == InstructionClass::Instructions
    }
}

impl Measured {
    /// What turns are compared by.
    const fn measure(self) -> f64 {
        if 0 < self.instructions {
            self.instructions as f64
        } else {
            self.running as f64
        }
    }
}

impl Tally {
    pub(super) fn new(event: RingEvent) -> Self {
        Self {
            event,
            sum: Measured::default(),
            turns: Turns::default(),
            last: None,
        }
    }

    /// Adds a turn.
    pub(super) fn add(&mut self, turn: Measured) {
        self.sum.count = self.sum.count.saturating_add(turn.count);
        self.sum.running = self.sum.running.saturating_add(turn.running);
        self.sum.instructions = self.sum.instructions.saturating_add(turn.instructions);
        self.turns.n += 1;
        if let Some(last) = self.last.replace(turn) {
            let count = turn.count as f64 - last.count as f64;
            self.turns.add(count, turn.measure() - last.measure());
        }
    }

    /// What it counted since the last call, of `enabled` ns of sampling.
    pub(super) fn take(&mut self, enabled: u64) -> ClassCount {
        self.last = None;
        let sum = std::mem::take(&mut self.sum);
        ClassCount {
            class: self.event.class,
            ring: self.event.counting.ring,
            event: self.event.name.clone(),
            count: sum.count,
            enabled,
            running: sum.running,
            instructions: sum.instructions,
            turns: std::mem::take(&mut self.turns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::Ring;

    #[test]
    fn turns_add_up_and_begin_anew() {
        let mut tally = Tally::new(RingEvent {
            class: InstructionClass::Loads,
            name: "cpu/loads/".to_owned(),
            counting: Counting {
                kind: 4,
                config: 0x81d0,
                ring: Ring::User,
            },
        });
        for (count, instructions) in [(10, 30), (14, 40), (8, 30)] {
            tally.add(Measured {
                count,
                running: 5,
                instructions,
            });
        }
        let counted = tally.take(60);
        assert_eq!(
            (counted.count, counted.instructions, counted.share()),
            (32, 100, 0.25)
        );
        let turns = Turns {
            n: 3,
            count: 16.0 + 36.0,
            product: 40.0 + 60.0,
            measure: 200.0,
        };
        assert_eq!(counted.turns, turns);
        assert_eq!(tally.take(60).turns, Turns::default());
    }
}
