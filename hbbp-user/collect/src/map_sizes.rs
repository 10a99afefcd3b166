//! The sizes of the count maps, and of the rings of branch stacks.

use anyhow::Context as _;
use hbbp_ebpf::stack::Stack;

use super::cpu_list;
use super::object::MapSizes;

/// Counts of a count map for each CPU: two drain intervals of a thousand samples a second, all at different addresses.
const ENTRIES_PER_CPU: u32 = 8192;
/// The smallest default of a count map: 2 MB of kernel memory. A drain visits each bucket, so larger maps also cost time.
const LEAST_ENTRIES: u32 = 1 << 14;
/// The largest default of a count map: 128 MB of kernel memory.
const MOST_ENTRIES: u32 = 1 << 20;

/// Where slices are distinguished, there is room for the progress of one thread for each four counts. A thread takes 160 bytes of
/// kernel memory.
const COUNTS_OF_THREAD: u32 = 4;

/// Different streams that are counted between two drains, at the most that is chosen by itself: 128 MB of memory. At half
/// of them, a drain comes early.
const STREAMS: u32 = 1 << 20;

/// How many taken branches a CPU may take in the time that a ring lasts: those of a system call of five hundred million
/// instructions, every other one a taken branch, that never yields the CPU; one that chooses functions to trace has
/// taken a hundred million instructions on Linux 6.1. That is 0.25 s at a thousand million a second, which is more than
/// any takes for long. From a quarter of that on user space is awake, and has the remaining time to get a CPU.
const BRANCHES: u64 = 250_000_000;
/// The most stacks in the ring of a CPU, as periods below 15,000 branches have on few CPUs: 26 MB.
const MOST_STACKS: u64 = 1 << 15;
/// The fewest: 0.2 MB.
const LEAST_STACKS: u64 = 1 << 8;
/// All rings together take no more memory than this, unless there are too many CPUs for the fewest.
const ALL_STACKS: usize = 128 << 20;

/// In addition to the CPUs online at the start, the same number may come online later and have a slot for branch
/// stacks, and this number in any case. A host may say that a hundred times as many are possible, as virtual machines
/// do that can grow.
const COMING: u32 = 8;

/// Call chains of a CPU between two drains: two seconds of two thousand samples, all with chains of their own. A slot takes 1.1
/// KiB of kernel memory, in both tables.
const CHAINS_PER_CPU: u32 = 4096;
/// The fewest slots, 18 MB with both tables, and the most, 71 MB.
const CHAINS: [u32; 2] = [1 << 13, 1 << 15];

/// Sizes for this number of online CPUs.
///
/// `stack_period` is the shortest period of events with branch stacks, if there are any. `counts` is the capacity that the user
/// wants of each count map, and of the table of streams. `callers` says whether call chains are counted.
pub(super) fn choose(
    n_online: usize,
    stack_period: Option<u64>,
    counts: Option<u32>,
    callers: bool,
) -> anyhow::Result<MapSizes> {
    let n_cpus = u32::try_from(n_online).unwrap_or(u32::MAX);
    let by_cpus = n_cpus
        .saturating_mul(ENTRIES_PER_CPU)
        .clamp(LEAST_ENTRIES, MOST_ENTRIES);
    let possible = cpu_list::read_possible().context("failed to list the CPUs")?;
    // Maps are indexed by their numbers, which may have gaps.
    let possible = possible.last().map_or(1, |last| last + 1);
    let places = places_for(n_cpus, possible);
    let ring = stack_period.map_or(0, |period| ring_for(places as usize, period));
    Ok(MapSizes {
        counts: counts.unwrap_or(by_cpus),
        streams: counts.unwrap_or(STREAMS),
        threads: (counts.unwrap_or(by_cpus) / COUNTS_OF_THREAD).max(1),
        cpus: possible,
        places,
        ring: u32::try_from(ring)?,
        chains: if callers {
            n_cpus.saturating_mul(CHAINS_PER_CPU).clamp(CHAINS[0], CHAINS[1])
        } else {
            1
        },
        bursts: 0,
    })
}

/// CPUs that have a slot for branch stacks, of those that are possible.
fn places_for(n_online: u32, possible: u32) -> u32 {
    let coming = n_online.max(COMING);
    n_online.saturating_add(coming).min(possible).max(1)
}

/// Stacks in the ring of a CPU, of this number of CPUs: a power of two.
fn ring_for(n_cpus: usize, period: u64) -> u64 {
    let fit = ALL_STACKS / size_of::<Stack>() / n_cpus.max(1);
    // The powers of two at or below what fits, and at or above what is wanted.
    let fit = (u64::MAX >> 1).min(fit as u64 + 1).next_power_of_two() / 2;
    let wanted = (BRANCHES / period.max(1)).next_power_of_two();
    wanted.min(MOST_STACKS).min(fit).max(LEAST_STACKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::cpu::Cpu;
    use hbbp_ebpf::stack::CachedStacks;

    #[test]
    fn slots_follow_the_online_cpus() {
        let places = [(4, 4), (4, 6), (4, 8192), (64, 256), (256, 256), (1, 1)];
        let places = places.map(|(n_online, possible)| places_for(n_online, possible));
        assert_eq!(places, [4, 6, 12, 128, 256, 1]);
    }

    /// All that is sized by CPUs, at the default period for seconds.
    #[test]
    fn memory_follows_the_cpus_that_are_online() {
        let memory = |n_online, possible| {
            let places = places_for(n_online, possible) as usize;
            let ring = usize::try_from(ring_for(places, 100_003)).unwrap() * size_of::<Stack>();
            let cached = 2 * size_of::<CachedStacks>();
            (places * (ring + cached) + possible as usize * size_of::<Cpu>()) >> 20
        };
        let memory = [(2, 2), (4, 256), (64, 256), (4, 8192), (256, 8192)].map(|(on, all)| memory(on, all));
        assert_eq!(memory, [6, 39, 119, 43, 176], "MiB");
    }

    #[test]
    fn rings_are_powers_of_two_that_fit_together() {
        for n_cpus in [1, 2, 8, 40, 64, 128, 640] {
            for period in [1, 401, 100_003, 10_000_019] {
                let ring = ring_for(n_cpus, period);
                assert!(ring.is_power_of_two() && (LEAST_STACKS..=MOST_STACKS).contains(&ring));
                assert!(
                    ring as usize * n_cpus * size_of::<Stack>() <= ALL_STACKS,
                    "{n_cpus}, {period}"
                );
            }
        }
        let defaults = [1, 64, 128, 8192].map(|n_cpus| ring_for(n_cpus, 100_003));
        assert_eq!(defaults, [4096, 2048, 1024, LEAST_STACKS]);
        assert_eq!(
            [1, 16, 32].map(|n_cpus| ring_for(n_cpus, 401)),
            [32768, 8192, 4096]
        );
    }
}
