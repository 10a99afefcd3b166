//! How much room the counts get: the sizes of the banks, and the number of the combining tables in front of them.

use super::object::Room;

/// Counts of a bank for each CPU: two drain intervals of a thousand samples a second, all at different addresses.
const ENTRIES_PER_CPU: u32 = 8192;
/// The smallest bank that is chosen by itself: 2 MB of kernel memory. A drain looks at each of its buckets, so it costs
/// time too.
const LEAST_ENTRIES: u32 = 1 << 14;
/// The smallest bank for branch stacks: a storm of short processes makes new streams all the time, and 20 000 branch
/// stacks of 300 forks filled 2^14 counts.
const LEAST_ENTRIES_FOR_STACKS: u32 = 1 << 16;
/// The largest bank that is chosen by itself: 128 MB of kernel memory.
const MOST_ENTRIES: u32 = 1 << 20;

/// Room for so many CPUs that are online; `counts` is what the user wants of each bank.
pub(super) fn choose(n_online: usize, has_stacks: bool, counts: Option<u32>) -> anyhow::Result<Room> {
    let least = if has_stacks {
        LEAST_ENTRIES_FOR_STACKS
    } else {
        LEAST_ENTRIES
    };
    let n_cpus = u32::try_from(n_online).unwrap_or(u32::MAX);
    let by_cpus = n_cpus.saturating_mul(ENTRIES_PER_CPU).clamp(least, MOST_ENTRIES);
    let possible =
        aya::util::nr_cpus().map_err(|(path, error)| anyhow::anyhow!("failed to read {path}: {error}"))?;
    Ok(Room {
        counts: counts.unwrap_or(by_cpus),
        tables: if has_stacks { u32::try_from(possible)? } else { 1 },
    })
}
