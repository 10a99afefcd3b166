//! How much room the counts get: the sizes of the banks, and of the rings of branch stacks.

use hbbp_ebpf::stack::Stack;

use super::object::Room;

/// Counts of a bank for each CPU: two drain intervals of a thousand samples a second, all at different addresses.
const ENTRIES_PER_CPU: u32 = 8192;
/// The smallest bank that is chosen by itself: 2 MB of kernel memory. A drain looks at each of its buckets, so it costs
/// time too.
const LEAST_ENTRIES: u32 = 1 << 14;
/// The largest bank that is chosen by itself: 128 MB of kernel memory.
const MOST_ENTRIES: u32 = 1 << 20;

/// Different streams that are counted between two drains, at the most that is chosen by itself: 64 MB of memory. At half
/// of them, a drain comes early.
const STREAMS: u32 = 1 << 20;

/// Stacks in the ring of a CPU: at ten thousand a second, which is a taken branch in a hundred thousand of a processor that
/// takes a thousand million a second, user space has 0.2 s from being woken until some are lost. They take 3.2 MB.
const MOST_STACKS: u32 = 1 << 12;
/// The fewest, where there are many CPUs.
const LEAST_STACKS: u32 = 1 << 8;
/// All rings together take no more memory than this, unless there are too many CPUs for that.
const ALL_STACKS: usize = 128 << 20;

/// Room for so many CPUs that are online; `counts` is what the user wants of each bank, and of the table of streams.
pub(super) fn choose(n_online: usize, has_stacks: bool, counts: Option<u32>) -> anyhow::Result<Room> {
    let n_cpus = u32::try_from(n_online).unwrap_or(u32::MAX);
    let by_cpus = n_cpus
        .saturating_mul(ENTRIES_PER_CPU)
        .clamp(LEAST_ENTRIES, MOST_ENTRIES);
    let possible =
        aya::util::nr_cpus().map_err(|(path, error)| anyhow::anyhow!("failed to read {path}: {error}"))?;
    let cpus = u32::try_from(possible)?.max(1);
    Ok(Room {
        counts: counts.unwrap_or(by_cpus),
        streams: counts.unwrap_or(STREAMS),
        cpus,
        ring: if has_stacks { ring_for(possible) } else { 0 },
    })
}

/// Stacks in the ring of each of so many CPUs: a power of two.
fn ring_for(n_cpus: usize) -> u32 {
    let each = ALL_STACKS / size_of::<Stack>() / n_cpus.max(1);
    let each = u32::try_from(each).unwrap_or(u32::MAX);
    let power = if each.is_power_of_two() {
        each
    } else {
        each.checked_next_power_of_two()
            .map_or(MOST_STACKS, |next| next / 2)
    };
    power.clamp(LEAST_STACKS, MOST_STACKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_powers_of_two_that_fit_together() {
        for n_cpus in [1, 2, 8, 40, 64, 128, 640] {
            let ring = ring_for(n_cpus);
            assert!(ring.is_power_of_two() && (LEAST_STACKS..=MOST_STACKS).contains(&ring));
            assert!(
                ring as usize * n_cpus * size_of::<Stack>() <= ALL_STACKS,
                "{n_cpus}"
            );
        }
        assert_eq!((ring_for(1), ring_for(8192)), (MOST_STACKS, LEAST_STACKS));
    }
}
