//! Sums by index or by key, and quotients of sums, where there may be nothing: then they are 0, and nothing is added.

/// A quotient, 0 where there is nothing to divide by.
pub(crate) fn over(amount: f64, n: f64) -> f64 {
    if 0.0 < n { amount / n } else { 0.0 }
}

/// The number at an index, 0 where there is none.
pub(crate) fn at(numbers: &[f64], n: usize) -> f64 {
    numbers.get(n).copied().unwrap_or_default()
}

/// Adds to the number at an index.
pub(crate) fn add(sums: &mut [f64], n: usize, amount: f64) {
    if let Some(sum) = sums.get_mut(n) {
        *sum += amount;
    }
}

/// Adds up what has the same key; the result is sorted by key.
/// The sort is stable, so that sums of fractions are always made in the same order.
pub(crate) fn merged<T, K: Ord>(mut all: Vec<T>, key: impl Fn(&T) -> K, add: impl Fn(&mut T, &T)) -> Vec<T> {
    all.sort_by_key(&key);
    all.dedup_by(|next, kept| {
        let is_same = key(next) == key(kept);
        if is_same {
            add(kept, next);
        }
        is_same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!((over(6.0, 2.0), over(6.0, 0.0)), (3.0, 0.0));
        let mut sums = [1.0];
        add(&mut sums, 0, 2.0);
        add(&mut sums, 1, 2.0);
        assert_eq!((at(&sums, 0), at(&sums, 1)), (3.0, 0.0));
    }

    #[test]
    fn what_has_the_same_key_is_added_up() {
        let add = |kept: &mut (u32, f64), next: &(u32, f64)| kept.1 += next.1;
        let all = vec![(2, 1.0), (1, 2.0), (2, 4.0)];
        assert_eq!(merged(all, |it| it.0, add), [(1, 2.0), (2, 5.0)]);
    }
}
