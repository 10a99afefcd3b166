//! How many stacks those of a run are worth after a balance: the effective sample size.
//!
//! Where stacks have no bias, a balance moves counts only by what chance had moved them before. Suppose that the second
//! of two estimates does not gain by a combination with the first. Then the variance of their difference is the
//! difference of their variances (Hausman, Specification Tests in Econometrics, Econometrica 46, 1978). So how far
//! counts moved, in their errors by chance, says what part of the variance the balance took off:
//!
//! ```text
//! stacks / effective stacks = 1 - mean over mnemonics of moved^2 / variance
//! ```
//!
//! One sum says little of that, and those of all mnemonics of a run say enough, although those of one loop move together. Other sums are
//! taken to be alike: functions gain more on the emulated machine (kernel-tests/results/statistics.txt, 5).

use std::collections::BTreeMap;

use hbbp_decode::Modern;
use iced_x86::{Instruction, Mnemonic};

use super::super::sources::SeenBlocks;
use super::{Dispersion, Replicate, Spread, Strata};
use hbbp_code::blocks::{BlockId, BlockMap, Form};

/// Most of a variance that a balance takes off. What is moved beyond says that the errors by chance are too small: of two loads of the
/// emulated machine they are, by 3.5 and 4.5 in squares, and these moved by 0.7 and 2.0. 97.8 % of 810 mnemonics are then within two
/// errors, 98.6 with a half and 96.7 without a limit (kernel-tests/results/statistics.txt, 5).
const MOST: f64 = 2.0 / 3.0;

/// Most that one mnemonic says, in squares of its error: by more than two errors chance moves one in twenty, and where it is by many
/// the error is wrong.
const FARTHEST: f64 = 4.0;

/// Least share of all instructions that a mnemonic must have: what is rarer is in too few stacks to have an error of its own.
const LEAST: f64 = 1e-3;

/// Fewest mnemonics that say anything.
const FEWEST: usize = 8;

/// What is known of the instructions of one mnemonic.
#[derive(Clone, Debug, Default)]
struct OfMnemonic {
    moved: f64,
    amount: f64,
    /// The amount, each part times its dispersion.
    dispersed: f64,
    spread: Spread,
}

/// What a balance moved, by block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    by: Vec<f64>,
    /// The counts that it left.
    counts: Vec<f64>,
}

impl Moved {
    /// By the weights that streams have now, and what it changed them by.
    pub(crate) fn new(seen: &SeenBlocks, weights: &[f64], changes: impl Iterator<Item = f64>) -> Self {
        Self {
            by: seen.executions(changes),
            counts: seen.executions(weights.iter().copied()),
        }
    }

    /// The effective number of `n_stacks`.
    pub(crate) fn effective_stacks(
        &self,
        map: &BlockMap,
        seen: &SeenBlocks,
        replicates: &[Replicate],
        strata: &Strata,
        dispersion: &Dispersion,
        n_stacks: f64,
    ) -> f64 {
        let of_blocks = mnemonics(map, seen);
        let mut sums: Vec<OfMnemonic> = Vec::new();
        for (block, of_block) in of_blocks.iter().enumerate() {
            let of = |amounts: &[f64]| amounts.get(block).copied().unwrap_or_default();
            for (mnemonic, n) in of_block {
                sums.resize_with(sums.len().max(mnemonic + 1), OfMnemonic::default);
                if let Some(sum) = sums.get_mut(*mnemonic) {
                    let amount = n * of(&self.counts);
                    sum.amount += amount;
                    sum.dispersed += amount * dispersion.of_block(block);
                    sum.moved += n * of(&self.by);
                }
            }
        }
        for replicate in replicates {
            let mut shown: BTreeMap<usize, f64> = BTreeMap::new();
            for run in &replicate.runs {
                for (mnemonic, n) in of_blocks.get(run.blocks.clone()).into_iter().flatten().flatten() {
                    *shown.entry(*mnemonic).or_default() += n * run.times;
                }
            }
            for (mnemonic, amount) in shown {
                if let Some(sum) = sums.get_mut(mnemonic) {
                    sum.spread.add(replicate.phase, amount);
                }
            }
        }
        n_stacks / left(&sums, strata, n_stacks)
    }
}

/// The part of the variances that is left.
fn left(sums: &[OfMnemonic], strata: &Strata, n_stacks: f64) -> f64 {
    let all: f64 = sums.iter().map(|sum| sum.amount).sum();
    let moved = |sum: &OfMnemonic| {
        let relative = sum.spread.relative_variance(strata)?;
        let variance = sum.amount * sum.dispersed * relative / n_stacks.max(1.0);
        let moved = sum.moved * sum.moved / variance;
        (LEAST * all <= sum.amount && moved.is_finite()).then_some(moved.min(FARTHEST))
    };
    let moved: Vec<f64> = sums.iter().filter_map(moved).collect();
    if moved.len() < FEWEST {
        return 1.0;
    }
    let mean = moved.iter().sum::<f64>() / moved.len() as f64;
    // Of variances that are too small by a factor, at least a third is left.
    let too_small = (mean / MOST).max(1.0);
    (too_small - mean).min(1.0)
}

/// For each block, the mnemonics of its instructions by number, and how many it has of each.
fn mnemonics(map: &BlockMap, seen: &SeenBlocks) -> Vec<Vec<(usize, f64)>> {
    let of_form = |form: &Form| {
        form.decoded()
            .map_or(0, |decoded| number(&decoded, form.modern()))
    };
    let of_forms: Vec<usize> = map.forms.iter().map(of_form).collect();
    let of_block = |id: &BlockId| {
        let mut of_block: BTreeMap<usize, f64> = BTreeMap::new();
        if let Some(text) = map.text(id.text) {
            let instructions = text.block(id.block).filter_map(|n| text.instruction(n));
            for instruction in instructions {
                let mnemonic = of_forms.get(usize::from(instruction.form.0)).copied();
                *of_block.entry(mnemonic.unwrap_or_default()).or_default() += 1.0;
            }
        }
        of_block.into_iter().collect()
    };
    seen.ids.iter().map(of_block).collect()
}

/// The number of a mnemonic; those that iced-x86 does not know follow its own.
fn number(decoded: &Instruction, modern: Option<Modern>) -> usize {
    let Some(name) = modern.and_then(|modern| modern.mnemonic) else {
        return decoded.mnemonic() as usize;
    };
    let is_named = |known: &Mnemonic| format!("{known:?}").eq_ignore_ascii_case(name);
    Mnemonic::values().find(is_named).map_or_else(
        || {
            let position = hbbp_decode::mnemonics().position(|known| known == name);
            Mnemonic::values().len() + position.unwrap_or_default()
        },
        |known| known as usize,
    )
}

#[cfg(test)]
mod tests {
    use hbbp_decode::Decoder;

    use super::super::strata::Allocation;
    use super::*;

    /// Sums whose standard deviation over a hundred stacks is a hundred, and that were moved by so much.
    fn left_of(moved: &[f64]) -> f64 {
        let strata = Strata {
            stacks: Allocation::new(&[400.0], &[]),
            ..Strata::default()
        };
        let sum = |moved: &f64| {
            let mut sum = OfMnemonic {
                moved: *moved,
                amount: 1000.0,
                dispersed: 1000.0,
                spread: Spread::default(),
            };
            // Ten in the mean of the stacks, with a standard deviation of ten.
            (0..200).for_each(|_| sum.spread.add(0, 20.0));
            sum
        };
        let sums: Vec<OfMnemonic> = moved.iter().map(sum).collect();
        left(&sums, &strata, 100.0)
    }

    #[test]
    fn what_moved_is_off_the_variance() {
        let near = |moved: [f64; 8], expected: f64| {
            let left = left_of(&moved);
            assert!((left - expected).abs() < 0.01, "{left} is not {expected}");
        };
        near([0.0; 8], 1.0);
        near([50.0, -50.0, 50.0, -50.0, 50.0, 50.0, 50.0, 50.0], 0.75);
        near([0.0, 0.0, 0.0, 0.0, 100.0, -100.0, 100.0, 100.0], 0.5);
        // They cannot move by their variance: it is more. And nothing says that it is more than was stated.
        near([100.0; 8], 0.5);
        near([400.0; 8], 1.0);
        // One alone cannot say that all are.
        near([1e6, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0], 0.36);
    }

    #[test]
    fn mnemonics_of_apx_are_their_own() {
        let number = |bytes: &[u8]| {
            let mut decoder = Decoder::try_with_ip(64, bytes, 0).unwrap();
            let decoded = decoder.decode();
            number(&decoded, decoder.modern())
        };
        // add rbx, [rcx], 0x11 and shl rbx, [rcx], 0x11, which are rewritten to comparisons.
        assert_eq!(
            number(&[0x62, 0xf4, 0xe4, 0x18, 0x83, 0x01, 0x11]),
            Mnemonic::Add as usize
        );
        assert_eq!(
            number(&[0x62, 0xf4, 0xe4, 0x18, 0xc1, 0x21, 0x11]),
            Mnemonic::Shl as usize
        );
        assert_eq!(number(&[0x48, 0x01, 0xc8]), Mnemonic::Add as usize);
        // ccmpne and ctestne, which iced-x86 has no names for.
        let (compare, test) = (
            [0x62, 0xf4, 0x84, 0x05, 0x39, 0xc1],
            [0x62, 0xf4, 0x84, 0x05, 0x85, 0xc1],
        );
        assert!(Mnemonic::values().len() <= number(&compare));
        assert_ne!(number(&compare), number(&test));
    }

    #[test]
    fn few_mnemonics_say_nothing() {
        assert_eq!(left_of(&[70.0; 7]), 1.0);
    }
}
