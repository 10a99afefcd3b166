//! The maps and the constants that the loader fills in.

use aya_ebpf::Global;
use aya_ebpf::bindings::{BPF_F_INNER_MAP, BPF_F_MMAPABLE};
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use hbbp_ebpf::TEXT_WINDOW;
use hbbp_ebpf::burst::{BurstStats, PAGE_BYTES, WantedPages};
use hbbp_ebpf::chain::{Chain, ChainStats};
use hbbp_ebpf::count_map::Bucket;
use hbbp_ebpf::cpu::Cpu;
use hbbp_ebpf::module::{MODULE_RING, ModuleEvent};
use hbbp_ebpf::stack::{CachedStacks, Stack};

use crate::work::ChainWork;

/// A count map ([`hbbp_ebpf::count_map`]). There are two, of which user space shows one in [`COUNTS`]; the loader gives them
/// room for a drain interval each, the capacity here is a placeholder. User space maps them to read them without a syscall.
pub(crate) type CountMap = Array<Bucket, 1, { (BPF_F_MMAPABLE | BPF_F_INNER_MAP) as usize }>;

/// The count map that is counted in. Replacing it waits until no program uses the old one (kernel/bpf/syscall.c,
/// `maybe_wait_bpf_programs`), so the old count map is quiescent when the update returns.
#[btf_map]
pub(crate) static COUNTS: ArrayOfMaps<CountMap, 1> = ArrayOfMaps::new();

/// The two count maps. They are declared here, and not created by user space on demand. Linux 6.1 takes as an inner
/// map only one with the type information of the template (kernel/bpf/map_in_map.c, `bpf_map_meta_equal`).
#[btf_map]
pub(crate) static COUNTS_0: CountMap = CountMap::new();

/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static COUNTS_1: CountMap = CountMap::new();

/// See [`hbbp_ebpf::name::PROGRESS`]. The loader gives room where slices are distinguished, here and below.
#[btf_map]
pub(crate) static PROGRESS: HashMap<u32, u64, 1> = HashMap::new();

/// See [`hbbp_ebpf::name::LAST_COUNTS`].
#[btf_map]
pub(crate) static LAST_COUNTS: HashMap<u64, u64, 1> = HashMap::new();

/// What each CPU counts of its samples, by CPU number. The loader gives room for all that there may be, here and in the maps
/// below.
#[btf_map]
pub(crate) static CPUS: Array<Cpu, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// The rings of branch stacks, [`RING`] for each CPU, by its slot ([`Cpu::place`]).
#[btf_map]
pub(crate) static STACKS: Array<Stack, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// What wakes user space: how much each ring has taken, where it is a quarter full.
#[btf_map]
pub(crate) static WAKE: RingBuf<u64, 4096> = RingBuf::new();

/// Cached stacks by the slot of a CPU, double-buffered as the count maps are.
pub(crate) type Cached = Array<CachedStacks, 1, { (BPF_F_MMAPABLE | BPF_F_INNER_MAP) as usize }>;

/// the cached stacks in use.
#[btf_map]
pub(crate) static CACHED: ArrayOfMaps<Cached, 1> = ArrayOfMaps::new();

/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static CACHED_0: Cached = Cached::new();

/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static CACHED_1: Cached = Cached::new();

/// A table of chains; there are two, as of the count map.
pub(crate) type Chains = Array<Chain, 1, { (BPF_F_MMAPABLE | BPF_F_INNER_MAP) as usize }>;

/// The table of chains in use.
#[btf_map]
pub(crate) static CHAINS: ArrayOfMaps<Chains, 1> = ArrayOfMaps::new();

/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static CHAINS_0: Chains = Chains::new();

/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static CHAINS_1: Chains = Chains::new();

/// What the programs on chains work on.
#[btf_map]
pub(crate) static CHAIN_WORK: PerCpuArray<ChainWork, 1> = PerCpuArray::new();

/// What they count.
#[btf_map]
pub(crate) static CHAIN_STATS: PerCpuArray<ChainStats, 1> = PerCpuArray::new();

/// What user space receives of bursts. The loader gives room where they are asked for, here and below.
#[btf_map]
pub(crate) static BURSTS: RingBuf<u8, PAGE_BYTES> = RingBuf::new();

/// Pages that bursts of a process lacked, by thread group id.
#[btf_map]
pub(crate) static WANTED: HashMap<u32, WantedPages, 1> = HashMap::new();

/// How the samples of bursts ended.
#[btf_map]
pub(crate) static BURST_STATS: PerCpuArray<BurstStats, 1> = PerCpuArray::new();

/// The window through which kernel text reaches user space.
#[btf_map]
pub(crate) static TEXT: Array<[u8; TEXT_WINDOW], 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// What user space receives about modules that come and go.
#[btf_map]
pub(crate) static MODULES: RingBuf<ModuleEvent, MODULE_RING> = RingBuf::new();

/// How often the ring was full.
#[btf_map]
pub(crate) static MODULES_LOST: Array<u64, 1> = Array::new();

/// See [`hbbp_ebpf::name::MODULE_SIZE`].
#[unsafe(no_mangle)]
pub(crate) static MODULE_SIZE: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::FS_BASE_OFFSET`].
#[unsafe(no_mangle)]
pub(crate) static FS_BASE_OFFSET: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::EXEC_ID_OFFSET`].
#[unsafe(no_mangle)]
pub(crate) static EXEC_ID_OFFSET: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::PID_NAMESPACE`].
#[unsafe(no_mangle)]
pub(crate) static PID_NAMESPACE: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::PID_NAMESPACE_DEVICE`].
#[unsafe(no_mangle)]
pub(crate) static PID_NAMESPACE_DEVICE: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::BUCKETS`].
#[unsafe(no_mangle)]
pub(crate) static BUCKETS: Global<u32> = Global::new(0);

/// See [`hbbp_ebpf::name::CHAIN_SLOTS`].
#[unsafe(no_mangle)]
pub(crate) static CHAIN_SLOTS: Global<u32> = Global::new(1);

/// See [`hbbp_ebpf::name::SEED`].
#[unsafe(no_mangle)]
pub(crate) static SEED: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::RING`].
#[unsafe(no_mangle)]
pub(crate) static RING: Global<u32> = Global::new(1);

/// See [`hbbp_ebpf::name::WRONG_PATHS`].
#[unsafe(no_mangle)]
pub(crate) static WRONG_PATHS: Global<u32> = Global::new(0);

/// See [`hbbp_ebpf::name::SLICE`].
#[unsafe(no_mangle)]
pub(crate) static SLICE: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::EVENT_COUNT_OFFSET`].
#[unsafe(no_mangle)]
pub(crate) static EVENT_COUNT_OFFSET: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::SLICE_EVENTS`].
#[unsafe(no_mangle)]
pub(crate) static SLICE_EVENTS: Global<u32> = Global::new(0);

/// See [`hbbp_ebpf::name::SLICE_RINGS`].
#[unsafe(no_mangle)]
pub(crate) static SLICE_RINGS: Global<u32> = Global::new(0);

/// See [`hbbp_ebpf::name::SLICE_THREADS`].
#[unsafe(no_mangle)]
pub(crate) static SLICE_THREADS: Global<u32> = Global::new(0);
