//! What is off, and what it means.

use super::executions::{CallErrors, Compared, Executions, LoadErrors};
use super::time::LoadTime;
use crate::advice::words;
use hbbp_output::report::Miss;

/// Standard errors that chance alone seldom exceeds: once in 16,000 figures.
const CHANCE: f64 = 4.0;

/// Relative errors that pass whatever the standard error is, as fractions: what is left of the faults of processors after
/// their correction. The worst workload of the emulated machine has 1.3 % (`kernel-tests/results/summary.tsv`).
const OF_LOAD: f64 = 0.02;
/// Of all loads together, where faults of single blocks cancel.
const OF_ALL: f64 = 0.003;
/// Of the shares of time, in points: interrupts and the start of the loads count for the system calls.
const OF_TIME: f64 = 0.01;

/// Where chance alone may be off by more than this, a figure that is not off says nothing.
const VAGUE: f64 = 0.25;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Pass,
    Off,
    /// It is not off, but by chance it could be by much.
    TooFewSamples,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Off => "OFF",
            Self::TooFewSamples => "too few samples",
        }
    }
}

/// What was tested.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tested {
    /// The profile has nothing of the loads.
    Nothing,
    /// Executions.
    Executions(Executions),
    /// Shares of time on a clock.
    Time(Vec<LoadTime>),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) tested: Tested,
    /// What is off, sentence by sentence.
    pub(super) off: Vec<String>,
    /// What may have cost accuracy, and is not the fault of this machine.
    pub(super) notes: Vec<String>,
}

impl Found {
    /// Judges what was tested, with the limits of quality that the measurement missed.
    pub(super) fn new(tested: Tested, misses: &[Miss]) -> Self {
        let mut off = match &tested {
            Tested::Nothing => vec![
                "the profile has nothing of the loads: their process or their text was not found".to_owned(),
            ],
            Tested::Executions(executions) => executions.off(),
            Tested::Time(times) => times.iter().filter_map(LoadTime::off).collect(),
        };
        let counts_executions = matches!(tested, Tested::Executions(_));
        let mut notes = Vec::new();
        for miss in misses {
            let of_machine = match miss {
                Miss::Counted { .. } => true,
                // A clock fires late on a busy machine, whose fault that is not.
                Miss::Residual { .. } | Miss::Completeness { .. } => counts_executions,
                // Text of others.
                Miss::Resolved { .. } | Miss::NoSamples { .. } => false,
            };
            let into = if of_machine { &mut off } else { &mut notes };
            into.push(miss.in_words(words));
        }
        Self { tested, off, notes }
    }

    /// Whether something is off.
    pub(super) const fn is_off(&self) -> bool {
        !self.off.is_empty()
    }
}

impl Compared {
    /// Whether it is off by more than chance and this part of it.
    fn is_off_by(&self, part: f64) -> bool {
        CHANCE * self.relative_error() + part < self.relative().abs()
    }

    /// The verdict on its row.
    fn verdict(&self, is_off: bool) -> Verdict {
        match (is_off, VAGUE < CHANCE * self.relative_error()) {
            (true, _) => Verdict::Off,
            (false, true) => Verdict::TooFewSamples,
            (false, false) => Verdict::Pass,
        }
    }
}

impl Executions {
    fn off(&self) -> Vec<String> {
        let all = (self.has_scale && self.all.is_off_by(OF_ALL)).then(|| {
            format!(
                "all loads together: their instructions are off by {:+.2} %, with a standard error of {:.2} %: the \
                 weight or the number of samples is not what the kernel says",
                100.0 * self.all.relative(),
                100.0 * self.all.relative_error()
            )
        });
        let loads = self.loads.iter().flat_map(|load| load.off(self.has_scale));
        let calls = self.calls.iter().filter(|_| self.has_scale);
        all.into_iter()
            .chain(loads)
            .chain(calls.filter_map(CallErrors::off))
            .collect()
    }
}

impl LoadErrors {
    pub(super) fn verdict(&self, has_scale: bool) -> Verdict {
        self.instructions.verdict(!self.off(has_scale).is_empty())
    }

    fn off(&self, has_scale: bool) -> Vec<String> {
        let (name, instructions) = (self.name, &self.instructions);
        let [mnemonics, ..] = self.mnemonics;
        let Some(mnemonics) = mnemonics else {
            return vec![format!(
                "{name}: not one of its instructions was seen: its text was not found"
            )];
        };
        let amount = (has_scale && instructions.is_off_by(OF_LOAD)).then(|| {
            format!(
                "{name}: its instructions are off by {:+.2} %, with a standard error of {:.2} %: code of its kind looks \
                 hotter or colder than it is",
                100.0 * instructions.relative(),
                100.0 * instructions.relative_error()
            )
        });
        let limit = CHANCE * self.mnemonics_by_chance + OF_LOAD;
        let mix = (limit < mnemonics).then(|| {
            format!(
                "{name}: {:.2} % of its mix is wrong, {:.2} % by chance: branch records or addresses have a fault that is not \
                 corrected",
                100.0 * mnemonics,
                100.0 * self.mnemonics_by_chance
            )
        });
        amount.into_iter().chain(mix).collect()
    }
}

impl CallErrors {
    pub(super) fn verdict(&self) -> Verdict {
        self.calls.verdict(self.off().is_some())
    }

    /// What is off of it.
    fn off(&self) -> Option<String> {
        self.calls.is_off_by(OF_LOAD).then(|| {
            format!(
                "{}: its calls are off by {:+.2} %, with a standard error of {:.2} %: executions of kernel code are not \
                 what they were",
                self.function,
                100.0 * self.calls.relative(),
                100.0 * self.calls.relative_error()
            )
        })
    }
}

impl LoadTime {
    pub(super) fn verdict(&self) -> Verdict {
        match self.off() {
            Some(_) => Verdict::Off,
            None => Verdict::Pass,
        }
    }

    /// What is off of it.
    fn off(&self) -> Option<String> {
        let difference = self.sampled - self.cpu;
        (CHANCE * self.std_error + OF_TIME < difference.abs()).then(|| {
            format!(
                "{}: {:.2} % of the samples, and {:.2} % of the CPU time, with a standard error of {:.2} %: the clock does \
                 not sample all code alike",
                self.name,
                100.0 * self.sampled,
                100.0 * self.cpu,
                100.0 * self.std_error
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(estimated: f64, mnemonics: f64) -> LoadErrors {
        LoadErrors {
            name: "a",
            instructions: Compared {
                exact: 1000.0,
                estimated,
                std_error: 1.0,
            },
            mnemonics: [Some(mnemonics), None, None],
            mnemonics_by_chance: 0.001,
            blocks: [None; 3],
        }
    }

    /// Of a load that is alone.
    fn off(load: LoadErrors) -> Vec<String> {
        let executions = Executions {
            has_scale: true,
            all: load.instructions,
            loads: vec![load],
            calls: Vec::new(),
            unseen: Vec::new(),
        };
        Found::new(Tested::Executions(executions), &[]).off
    }

    #[test]
    fn figures_beyond_chance_and_limit_are_off() {
        assert_eq!(off(load(1000.0, 0.0)), [""; 0]);
        assert_eq!(off(load(1006.9, 0.0239)), [""; 0]);
        let all = off(load(990.0, 0.0));
        assert!(all.len() == 1 && all[0].contains("-1.00 %"), "{all:?}");
        assert_eq!(off(load(1030.0, 0.0)).len(), 2);
        let mut of_few = load(1000.0, 0.0);
        assert_eq!(of_few.verdict(true), Verdict::Pass);
        of_few.instructions.std_error = 63.0;
        assert_eq!(of_few.verdict(true), Verdict::TooFewSamples);
        assert_eq!(load(1030.0, 0.0).verdict(true), Verdict::Off);
        assert!(off(load(1000.0, 0.0241))[0].contains("mix is wrong"));
        let unseen = LoadErrors {
            mnemonics: [None; 3],
            ..load(0.0, 0.0)
        };
        assert!(off(unseen)[1].contains("its text was not found"));
    }

    #[test]
    fn lost_samples_are_off_where_executions_are_counted() {
        let lost = [Miss::Completeness {
            event: "x".to_owned(),
            share: 0.9,
            of_tasks: false,
        }];
        let clock = Found::new(Tested::Time(Vec::new()), &lost);
        assert_eq!((clock.off.len(), clock.notes.len()), (0, 1));
        let executions = Executions {
            has_scale: true,
            all: load(1000.0, 0.0).instructions,
            loads: Vec::new(),
            calls: Vec::new(),
            unseen: Vec::new(),
        };
        let counted = Found::new(Tested::Executions(executions), &lost);
        assert!(
            counted.off[0].contains("only 90.00 % of the expected samples"),
            "{counted:?}"
        );
    }

    #[test]
    fn shares_of_time_are_off_beyond_chance_and_a_point() {
        let time = |sampled| LoadTime {
            name: "a",
            cpu: 0.1,
            sampled,
            std_error: 0.002,
        };
        assert!(time(0.1175).off().is_none() && time(0.0825).off().is_none());
        assert!(time(0.1185).off().is_some() && time(0.0815).off().is_some());
    }
}
