//! The contract between the kernel half and the user half of hbbp-sys.
//!
//! What both sides must agree on is here and nowhere else: keys and values of the maps, the counters, the names
//! of programs, maps and constants.
//! Everything is `repr(C)` without padding, and a size assertion is next to each layout: the object and its loader
//! are built from the same sources in one build, so a layout may change freely as long as both sides compile.
//! Logic of the programs that does not need the kernel is a plain function here, with unit tests on the host.
#![no_std]

pub mod branch;
pub mod burst;
pub mod chain;
pub mod count_map;
pub mod cpu;
pub mod key;
pub mod module;
pub mod stack;
pub mod stat;
pub mod stream;

pub use key::{CountKey, EventTag, Tally, is_kernel};
pub use stat::EventStats;

/// Names by which user space finds what the object defines. The kernel keeps 15 characters of a program's or map's.
pub mod name {
    /// Program on the event with tag `n`: counts the instruction pointer of the sample.
    pub const ON_IP: [&str; super::MAX_EVENTS] =
        ["on_ip_0", "on_ip_1", "on_ip_2", "on_ip_3", "on_ip_4", "on_ip_5"];
    /// Program on the event with tag `n`: counts the sample's branch stack, or hands it to user space.
    pub const ON_BRANCH: [&str; super::MAX_EVENTS] = [
        "on_branch_0",
        "on_branch_1",
        "on_branch_2",
        "on_branch_3",
        "on_branch_4",
        "on_branch_5",
    ];
    /// Program on the event with tag `n`: counts the instruction pointer of the sample, and its call chain.
    pub const ON_CHAIN: [&str; super::MAX_EVENTS] = [
        "on_chain_0",
        "on_chain_1",
        "on_chain_2",
        "on_chain_3",
        "on_chain_4",
        "on_chain_5",
    ];
    /// Program on the event of bursts: hands the registers of the sample to user space, and pages of memory.
    pub const ON_BURST: &str = "on_burst";
    /// Ring of [`super::burst::BurstHead`] and [`super::burst::BurstPage`].
    pub const BURSTS: &str = "BURSTS";
    /// [`super::burst::WantedPages`] by thread group id.
    pub const WANTED: &str = "WANTED";
    /// One [`super::burst::BurstStats`] for each CPU.
    pub const BURST_STATS: &str = "BURST_STATS";
    /// `u64`: offset of `thread.fsbase` in the kernel's `task_struct`, 0 where it is not known.
    pub const FS_BASE_OFFSET: &str = "FS_BASE_OFFSET";
    /// Raw tracepoint program, run by hand: copies kernel text to user space.
    pub const READ_TEXT: &str = "read_text";
    /// Raw tracepoint programs that report modules, and the tracepoints that they belong to.
    pub const ON_MODULE: [(&str, &str); 2] = [
        ("on_module_load", "module_load"),
        ("on_module_free", "module_free"),
    ];
    /// Ring of [`super::module::ModuleEvent`].
    pub const MODULES: &str = "MODULES";
    /// One `u64`: how many of these found the ring full.
    pub const MODULES_LOST: &str = "MODULES_LOST";
    /// `u64`: bytes of the kernel's `struct module`, 0 where that is not known.
    pub const MODULE_SIZE: &str = "MODULE_SIZE";
    /// Array of one map: the count map that is counted in now.
    pub const COUNTS: &str = "COUNTS";
    /// The two count maps.
    pub const COUNT_MAPS: [&str; 2] = ["COUNTS_0", "COUNTS_1"];
    /// What each thread has executed, in units of the counting event, by thread id; under 0 what all threads have where
    /// they share one number.
    pub const PROGRESS: &str = "PROGRESS";
    /// What each perf event had counted at its last sample, by its address in the kernel.
    pub const LAST_COUNTS: &str = "LAST_COUNTS";
    /// `u64`: offset of `count` in the kernel's `struct perf_event`, 0 where it is not known.
    pub const EVENT_COUNT_OFFSET: &str = "EVENT_COUNT_OFFSET";
    /// `u64`: units of the counting event in a slice, 0 where slices are not distinguished.
    pub const SLICE: &str = "SLICE";
    /// `u32`: which events, by the bit of their number, count what makes a slice.
    pub const SLICE_EVENTS: &str = "SLICE_EVENTS";
    /// `u32`: what makes slices: bit 0 user code, bit 1 the kernel, bit 2 the kernel in the idle task too.
    pub const SLICE_RINGS: &str = "SLICE_RINGS";
    /// `u32`: 1 where each thread has slices of its own, 0 where all have the same.
    pub const SLICE_THREADS: &str = "SLICE_THREADS";
    /// One [`super::cpu::Cpu`] for each CPU, mapped by user space.
    pub const CPUS: &str = "CPUS";
    /// The rings of all CPUs, one after the other: [`super::stack::Stack`].
    pub const STACKS: &str = "STACKS";
    /// Ring of `u64`: one arrives where the ring of a CPU is a quarter full.
    pub const WAKE: &str = "WAKE";
    /// Array of one map: the cached stacks in use, one [`super::stack::CachedStacks`] for each CPU.
    pub const CACHED: &str = "CACHED";
    /// Those that take turns.
    pub const CACHED_MAPS: [&str; 2] = ["CACHED_0", "CACHED_1"];
    /// Array of one map: the table of chains in use, of [`super::chain::Chain`].
    pub const CHAINS: &str = "CHAINS";
    /// Those that take turns.
    pub const CHAIN_MAPS: [&str; 2] = ["CHAINS_0", "CHAINS_1"];
    /// One [`super::chain::ChainStats`] for each CPU.
    pub const CHAIN_STATS: &str = "CHAIN_STATS";
    /// `u32`: slots of a table of chains.
    pub const CHAIN_SLOTS: &str = "CHAIN_SLOTS";
    /// One window of [`super::TEXT_WINDOW`] bytes, mapped by user space.
    pub const TEXT: &str = "TEXT";
    /// `u64`: offset of `self_exec_id` in the kernel's `task_struct`, 0 where it is not known.
    pub const EXEC_ID_OFFSET: &str = "EXEC_ID_OFFSET";
    /// `u64`: inode of the pid namespace that user space lives in, 0 where that is the initial one; and
    /// [`super::key::PER_THREAD`] where threads are counted separately.
    pub const PID_NAMESPACE: &str = "PID_NAMESPACE";
    /// `u64`: the device of that inode, as the kernel numbers it.
    pub const PID_NAMESPACE_DEVICE: &str = "PID_NAMESPACE_DEVICE";
    /// `u32`: buckets of a count map.
    pub const BUCKETS: &str = "BUCKETS";
    /// `u64`: the seed of the hashes, different in each run, so that no program can aim at the slots of another.
    pub const SEED: &str = "SEED";
    /// `u32`: stacks that the ring of one CPU holds, a power of two.
    pub const RING: &str = "RING";
    /// `u32`: 1 where a stack may hold entries that were never executed (AMD).
    pub const WRONG_PATHS: &str = "WRONG_PATHS";
}

/// How many events one run samples at the most: two on each of three kinds of core (Arrow Lake-H).
pub const MAX_EVENTS: usize = 6;

/// Entries of the deepest branch stack of any processor so far.
pub const MAX_DEPTH: usize = 32;

/// Bytes of kernel text that one run of the text program copies.
pub const TEXT_WINDOW: usize = 1 << 20;
