//! Where to search among sorted numbers: a search of all instructions of a large text misses the caches at nearly every step,
//! and estimates make some for each stream.

/// For each line of [`LINE`] numbers how many of the sorted ones lie before it.
#[derive(Clone, Debug)]
pub(super) struct Near(Box<[u32]>);

/// Numbers in a line, as a power of two: some fifteen instructions of text, or blocks of code. The table then takes a fiftieth
/// of what the instructions take.
const LINE: u32 = 6;

impl Near {
    /// The table of these numbers, which rise.
    pub(super) fn new(sorted: impl Iterator<Item = u32>) -> Self {
        let (mut before, mut n) = (vec![0], 0u32);
        for number in sorted {
            let line = (number >> LINE) as usize;
            if before.len() <= line {
                before.resize(line + 1, n);
            }
            n = n.saturating_add(1);
        }
        before.push(n);
        Self(before.into())
    }

    /// How many of the numbers that the table was made of are at most `value`; `key` is the number of each of `sorted`.
    pub(super) fn up_to<T>(&self, sorted: &[T], value: u32, key: impl Fn(&T) -> u32) -> usize {
        let line = (value >> LINE) as usize;
        let before = |line: usize| self.0.get(line).map_or(sorted.len(), |n| *n as usize);
        let from = before(line);
        let within = sorted.get(from..before(line.saturating_add(1))).unwrap_or(&[]);
        from + within.partition_point(|it| key(it) <= value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_as_a_search_of_all(mut numbers in prop::collection::vec(0u32..1000, 0..60), value in 0u32..1200) {
            numbers.sort_unstable();
            let near = Near::new(numbers.iter().copied());
            prop_assert_eq!(near.up_to(&numbers, value, |n| *n), numbers.partition_point(|n| *n <= value));
        }
    }
}
