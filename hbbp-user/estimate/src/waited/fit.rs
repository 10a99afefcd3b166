//! The times of instruction forms, from samples of the same form elsewhere.
//!
//! A block whose cheap instructions have samples shows how often it was executed, and the samples behind its other instructions
//! are as many as these executions times their time. That is a Poisson rate with a gamma prior (Gelman et al.,
//! Bayesian Data Analysis, section 2.6). The mean of the prior is the known time; the factor by which that may be wrong is its spread.
//! What one place takes differs from another; the variance that is known counts as that of one place.

use super::code::Place;
use super::interrupts::Interrupts;
use super::times::{Time, Times};
use crate::sources::ebs::Hits;
use hbbp_code::locate::TextIdx;

/// What the samples of a form show.
#[derive(Clone, Copy, Default)]
struct Seen {
    samples: f64,
    /// Samples for each cycle that it takes.
    rate: f64,
    /// Sum of the squared rates of its places, and of the rates times the squared times.
    squared_rates: f64,
    squared_times: f64,
}

impl Times {
    /// As samples show them.
    pub(super) fn shown(mut self, interrupts: &Interrupts<'_>, hits: &Hits) -> Self {
        let code = &interrupts.code;
        let mut seen = vec![Seen::default(); self.of_forms.len()];
        let mut last = None;
        for (text, at) in hits.keys() {
            let Some(blocks) = code.map.text(*text) else {
                continue;
            };
            let block = (*text, blocks.block_of(*at));
            if last.replace(block) != Some(block) {
                self.add_block(&mut seen, interrupts, hits, block);
            }
        }
        for (time, seen) in self.of_forms.iter_mut().zip(seen) {
            *time = time.with(seen);
        }
        self
    }

    fn add_block(
        &self,
        seen: &mut [Seen],
        interrupts: &Interrupts<'_>,
        hits: &Hits,
        (text, block): (TextIdx, u32),
    ) -> Option<()> {
        let code = &interrupts.code;
        let blocks = code.map.text(text)?;
        let range = blocks.block(block);
        let within: Vec<(Place, f64)> = (range.start..range.end.checked_sub(1)?)
            .map(|at| (text, at))
            .filter(|at| interrupts.has_own_samples(*at))
            .map(|at| (at, hits.get(&(text, at.1 + 1)).copied().unwrap_or_default()))
            .collect();
        let cheap = within.iter().filter(|(at, _)| self.is_plain(code, *at));
        let (samples, cycles) = cheap.fold((0.0, 0.0), |(samples, cycles), (at, of_it)| {
            (samples + of_it, cycles + self.of(code, *at).cycles)
        });
        if cycles <= 0.0 {
            return None;
        }
        let rate = samples / cycles;
        for (at, samples) in within.into_iter().filter(|(at, _)| !self.is_plain(code, *at)) {
            let form = blocks.instruction(at.1)?.form;
            let seen = seen.get_mut(usize::from(form.0))?;
            seen.samples += samples;
            seen.rate += rate;
            if 0.0 < rate {
                seen.squared_rates += rate * rate;
                seen.squared_times += samples * samples / rate;
            }
        }
        Some(())
    }
}

impl Time {
    /// With what samples show.
    fn with(self, seen: Seen) -> Self {
        if seen.squared_rates <= 0.0 || self.variance <= 0.0 {
            return self;
        }
        // A gamma distribution of this shape has this variance of its logarithm, or nearly so.
        let shape = 1.0 / self.variance;
        let cycles = (shape + seen.samples) / (shape / self.cycles + seen.rate);
        let places = seen.rate * seen.rate / seen.squared_rates;
        let mean_square =
            seen.squared_times / seen.rate - 2.0 * cycles * seen.samples / seen.rate + cycles * cycles;
        let between = (mean_square / (cycles * cycles)).max(0.0);
        Self {
            cycles,
            variance: (self.variance + places * between) / (1.0 + places) + 1.0 / (shape + seen.samples),
        }
    }
}
