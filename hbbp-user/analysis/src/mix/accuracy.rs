//! Accuracy of a measured mix against a reference: the metrics of the papers.
//!
//! Per mnemonic (paper section VI.B): Error(M) = |Vref(M) - Vmeasured(M)| / Vref(M), and over all mnemonics the average
//! weighted error = sum of Error(M) x Vref(M) / instructions.
//! Per block ("Establishing a Base of Trust", ATC 2015, section 3.3): the sum of the deviations of all blocks, in instructions, over the net
//! instruction count.

use std::collections::BTreeMap;

/// The error of one key, such as a mnemonic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyError {
    /// The key.
    pub key: String,
    /// Reference value, in executions.
    pub reference: f64,
    /// Measured value, in executions.
    pub measured: f64,
}

/// The errors of a mix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accuracy {
    /// Every key that either side has, sorted by key.
    pub keys: Vec<KeyError>,
}

impl KeyError {
    /// Error(M), as a fraction; `None` if the reference is 0, since the formula divides by it.
    #[cfg(test)]
    fn error(&self) -> Option<f64> {
        (0.0 < self.reference).then(|| self.deviation() / self.reference)
    }

    fn deviation(&self) -> f64 {
        (self.reference - self.measured).abs()
    }
}

impl Accuracy {
    /// Compares two mixes: executions by key.
    pub(crate) fn of(reference: &BTreeMap<String, f64>, measured: &BTreeMap<String, f64>) -> Self {
        let value = |values: &BTreeMap<String, f64>, key: &String| values.get(key).copied().unwrap_or(0.0);
        let mut keys: Vec<&String> = reference.keys().chain(measured.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let error = |key: &String| KeyError {
            key: key.clone(),
            reference: value(reference, key),
            measured: value(measured, key),
        };
        Self {
            keys: keys.into_iter().map(error).collect(),
        }
    }

    /// The average weighted error, as a fraction; `None` without any reference.
    ///
    /// Each error is weighted by its reference value, which cancels the division: the result is the sum of all
    /// deviations over the reference instructions. In this form it includes mnemonics that were measured but were never
    /// executed.
    pub(crate) fn average_weighted(&self) -> Option<f64> {
        let instructions: f64 = self.keys.iter().map(|key| key.reference).sum();
        let deviations: f64 = self.keys.iter().map(KeyError::deviation).sum();
        (0.0 < instructions).then(|| deviations / instructions)
    }
}

/// The accuracy error of block counts, as a fraction; `None` without any reference.
///
/// `blocks` are (instructions in the block, reference executions, measured executions) of every block of either side.
pub(crate) fn block_error(blocks: impl IntoIterator<Item = (u32, f64, f64)>) -> Option<f64> {
    let (mut deviations, mut instructions) = (0.0, 0.0);
    for (length, reference, measured) in blocks {
        deviations += f64::from(length) * (measured - reference).abs();
        instructions += f64::from(length) * reference;
    }
    (0.0 < instructions).then(|| deviations / instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), *value))
            .collect()
    }

    #[test]
    fn accuracy_matches_the_example_of_the_paper() {
        let accuracy = Accuracy::of(&mix(&[("MOV", 500.0)]), &mix(&[("MOV", 510.0)]));
        assert_eq!(accuracy.keys[0].error(), Some(0.02));
        assert_eq!(accuracy.average_weighted(), Some(0.02));
    }

    #[test]
    fn mnemonic_errors_are_weighted_by_executions() {
        let reference = mix(&[("MOV", 900.0), ("DIV", 100.0)]);
        let measured = mix(&[("MOV", 909.0), ("DIV", 50.0), ("UD2", 1.0)]);
        let accuracy = Accuracy::of(&reference, &measured);
        let errors: Vec<Option<f64>> = accuracy.keys.iter().map(KeyError::error).collect();
        assert_eq!(errors, [Some(0.5), Some(0.01), None]);
        assert_eq!(accuracy.average_weighted(), Some(0.06));
        assert_eq!(Accuracy::of(&mix(&[]), &measured).average_weighted(), None);
    }

    #[test]
    fn block_error_counts_instructions() {
        assert_eq!(
            block_error([(10, 30.0, 33.0), (5, 100.0, 94.0)]),
            Some(60.0 / 800.0)
        );
        assert_eq!(block_error([]), None);
    }
}
