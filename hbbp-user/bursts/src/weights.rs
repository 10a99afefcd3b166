//! What a burst counts for.

use std::collections::BTreeMap;

/// A burst, as far as its weight depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighed<P> {
    /// The part of the program that it began in, such as a function.
    pub part: P,
    /// What it takes on a common core, in cycles.
    pub cycles: f64,
}

/// How often each burst was executed, but for one factor of all: the time that the clock gives to its part, by its bursts, by what
/// it takes itself. Bursts begin where time is spent, and a slow one has fewer executions in that time.
///
/// The factor is the frequency of the core over how wrong its model is. Parts that no burst began in have no executions.
pub fn weights<P: Copy + Ord>(bursts: &[Weighed<P>], clock: &BTreeMap<P, f64>) -> Vec<f64> {
    let mut begun = BTreeMap::<P, f64>::new();
    for burst in bursts.iter().filter(|burst| 0.0 < burst.cycles) {
        *begun.entry(burst.part).or_default() += 1.0;
    }
    let weight = |burst: &Weighed<P>| {
        let time = clock.get(&burst.part).copied().unwrap_or(0.0);
        let n = begun.get(&burst.part).copied().unwrap_or(0.0);
        if 0.0 < burst.cycles && 0.0 < n {
            time / n / burst.cycles
        } else {
            0.0
        }
    };
    bursts.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_part_is_that_of_its_bursts() {
        let bursts = [("a", 100.0), ("a", 400.0), ("b", 50.0), ("a", 0.0), ("c", 10.0)];
        let bursts = bursts.map(|(part, cycles)| Weighed { part, cycles });
        let clock = BTreeMap::from([("a", 60.0), ("b", 40.0), ("d", 5.0)]);
        let weights = weights(&bursts, &clock);
        assert_eq!(weights, [0.3, 0.075, 0.8, 0.0, 0.0]);
        let time = |part| {
            let of_part = bursts
                .iter()
                .zip(&weights)
                .filter(|(burst, _)| burst.part == part);
            of_part.map(|(burst, weight)| burst.cycles * weight).sum::<f64>()
        };
        assert_eq!([time("a"), time("b")], [60.0, 40.0]);
    }
}
