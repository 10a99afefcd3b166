//! The eBPF object: loaded and verified, its constants set, its programs and maps handed out.
//!
//! For a security review: while the object is loaded, one short-lived thread of the process leaves the file system
//! context that it shares with the others (`unshare(CLONE_FS)`), and makes /proc its root. It opens nothing but
//! /sys/kernel/btf/vmlinux, which is not there, and ends. No other thread is affected, and no privilege changes. The
//! reason is aya 0.14, whose loader parses the kernel's types without an option to decline (`loader_without_btf`).

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, anyhow};
use aya::maps::Map;
use aya::programs::{PerfEvent, Program, RawTracePoint};
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use hbbp_ebpf::count_map::buckets_for;
use hbbp_ebpf::key::PER_THREAD;
use hbbp_ebpf::{MAX_EVENTS, name};
use rustix::process::chroot;

use super::pid_namespace::PidNamespace;
use super::source::SliceEvents;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::slices::SliceCut;
use hbbp_model::streams::ThreadCounts;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/hbbp"));

/// The same programs with messages about what they refuse.
static VERBOSE_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/hbbp-verbose"));

/// Hands the messages of the programs to the log.
pub(crate) type ProgramLog = EbpfLogger<&'static dyn log::Log>;

/// The object in the kernel. Maps and programs live as long as this or what was taken from it.
#[derive(Debug)]
pub struct Object {
    ebpf: Ebpf,
}

/// What the loader decides about the programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constants {
    /// Offset of `self_exec_id` in the kernel's `task_struct`; `None` where it is not known.
    pub exec_id_offset: Option<u32>,
    /// Our pid namespace; `None` where it is the initial one.
    pub pid_namespace: Option<PidNamespace>,
    /// Whether the threads of a process share counts.
    pub threads: ThreadCounts,
    /// Stacks may hold entries that were never executed.
    pub wrong_paths: bool,
    /// Bytes of the kernel's `struct module`; `None` where it is not known or not asked for.
    pub module_size: Option<u32>,
    /// What makes a slice, and what counts it; `None` where slices are not distinguished.
    pub slices: Option<(SliceCut, SliceEvents)>,
    /// Offset of `count` in the kernel's `struct perf_event`; `None` where it is not known or not asked for.
    pub event_count_offset: Option<u32>,
    /// Offset of `thread.fsbase` in the kernel's `task_struct`; `None` where it is not known or not asked for.
    pub fs_base_offset: Option<u32>,
    /// Whether the programs say what they refuse.
    pub messages: Messages,
}

/// Messages of the programs about what they refuse, and why.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Messages {
    /// None: the programs hold no instruction for them.
    #[default]
    Off,
    /// To the log.
    On,
}

/// Sizes of the maps.
#[derive(Clone, Copy, Debug)]
pub struct MapSizes {
    /// Counts in each count map.
    pub counts: u32,
    /// Different streams of branch stacks between two drains.
    pub streams: u32,
    /// Threads whose progress is known in a run, where slices are distinguished.
    pub threads: u32,
    /// CPUs that may come online.
    pub cpus: u32,
    /// CPUs that have a slot for branch stacks.
    pub places: u32,
    /// Branch stacks in the ring of each slot, a power of two; 0 where there are none.
    pub ring: u32,
    /// Slots of each table of call chains; 1 where callers are not asked for.
    pub chains: u32,
    /// Bytes of the ring of bursts, a power of two; 0 where they are not asked for.
    pub(crate) bursts: u32,
}

/// Processes whose pages bursts ask for at one time: 160 bytes of kernel memory each.
const BURST_PROCESSES: u32 = 1024;

impl Default for MapSizes {
    /// The least: enough to see whether the kernel takes the object.
    fn default() -> Self {
        Self {
            counts: 1,
            streams: 1,
            threads: 1,
            cpus: 1,
            places: 1,
            ring: 0,
            chains: 1,
            bursts: 0,
        }
    }
}

/// What makes slices, as [`name::SLICE_RINGS`] has it, and whether each thread has its own.
fn slice_bits(cut: SliceCut, counting: SliceEvents) -> (u32, u32) {
    let threads = cut.threads == ThreadCounts::Apart;
    // Each CPU has an idle task of its own, and none is a thread.
    let in_idle = counting.in_idle && !threads;
    let rings = u32::from(cut.rings.user) | u32::from(cut.rings.kernel) << 1 | u32::from(in_idle) << 2;
    (rings, u32::from(threads))
}

impl Object {
    /// Loads the maps of the object; its programs are verified when they are asked for.
    pub fn load(constants: Constants, sizes: MapSizes) -> anyhow::Result<Self> {
        let exec_id_offset = u64::from(constants.exec_id_offset.unwrap_or(0));
        let (namespace, device) = constants
            .pid_namespace
            .map_or((0, 0), |own| (own.inode, own.device));
        let namespace = match constants.threads {
            ThreadCounts::Together => namespace,
            ThreadCounts::Apart => namespace | PER_THREAD,
        };
        let wrong_paths = u32::from(constants.wrong_paths);
        let module_size = u64::from(constants.module_size.unwrap_or(0));
        let fs_base_offset = u64::from(constants.fs_base_offset.unwrap_or(0));
        let event_count_offset = u64::from(constants.event_count_offset.unwrap_or(0));
        let buckets = buckets_for(sizes.counts);
        // The library draws its keys from the kernel's random numbers.
        let (cut, counting) = constants.slices.unwrap_or_default();
        let (slice_rings, slice_threads) = slice_bits(cut, counting);
        let seed = RandomState::new().build_hasher().finish();
        let mut loader = loader_without_btf();
        let with_stacks = if sizes.ring == 0 { 1 } else { sizes.places };
        let ring = sizes.ring.max(1);
        for (counts, cached) in name::COUNT_MAPS.into_iter().zip(name::CACHED_MAPS) {
            loader.map_max_entries(counts, buckets);
            loader.map_max_entries(cached, with_stacks);
        }
        for chains in name::CHAIN_MAPS {
            loader.map_max_entries(chains, sizes.chains);
        }
        if constants.slices.is_some() {
            loader.map_max_entries(name::PROGRESS, sizes.threads);
            loader.map_max_entries(name::LAST_COUNTS, sizes.threads);
        }
        make_room_for_bursts(&mut loader, sizes.bursts);
        loader.map_max_entries(name::CPUS, sizes.cpus);
        loader.map_max_entries(name::STACKS, with_stacks.saturating_mul(ring));
        let ebpf = loader
            .btf(None)
            .override_global(name::MODULE_SIZE, &module_size, true)
            .override_global(name::BUCKETS, &buckets, true)
            .override_global(name::SEED, &seed, true)
            .override_global(name::CHAIN_SLOTS, &sizes.chains, true)
            .override_global(name::RING, &ring, true)
            .override_global(name::WRONG_PATHS, &wrong_paths, true)
            .override_global(name::EXEC_ID_OFFSET, &exec_id_offset, true)
            .override_global(name::FS_BASE_OFFSET, &fs_base_offset, true)
            .override_global(name::PID_NAMESPACE, &namespace, true)
            .override_global(name::PID_NAMESPACE_DEVICE, &device, true)
            .override_global(name::SLICE, &cut.length, true)
            .override_global(name::EVENT_COUNT_OFFSET, &event_count_offset, true)
            .override_global(name::SLICE_EVENTS, &counting.events, true)
            .override_global(name::SLICE_RINGS, &slice_rings, true)
            .override_global(name::SLICE_THREADS, &slice_threads, true)
            .load(match constants.messages {
                Messages::Off => OBJECT,
                Messages::On => VERBOSE_OBJECT,
            })
            .context(Advised::new(
                "failed to load the eBPF object",
                Advice::CheckMachineOrSmallerMaps,
            ))?;
        Ok(Self { ebpf })
    }

    /// The program for samples without a branch stack of the event with the given number.
    pub fn on_ip(&mut self, event: usize) -> anyhow::Result<OwnedFd> {
        self.on_event(&name::ON_IP, event)
    }

    /// The program for the same samples, which counts their call chains as well.
    pub fn on_chain(&mut self, event: usize) -> anyhow::Result<OwnedFd> {
        self.on_event(&name::ON_CHAIN, event)
    }

    /// The program for samples with a branch stack of the event with the given number.
    pub fn on_branch(&mut self, event: usize) -> anyhow::Result<OwnedFd> {
        self.on_event(&name::ON_BRANCH, event)
    }

    /// The program for samples of user code that begin bursts.
    pub fn on_burst(&mut self) -> anyhow::Result<OwnedFd> {
        self.perf_event(name::ON_BURST)
    }

    fn on_event(&mut self, names: &[&str; MAX_EVENTS], event: usize) -> anyhow::Result<OwnedFd> {
        let name = names
            .get(event)
            .ok_or_else(|| anyhow!("too many events: the eBPF object has no more programs"))?;
        self.perf_event(name)
    }

    /// The program that copies kernel text.
    pub fn read_text(&mut self) -> anyhow::Result<OwnedFd> {
        let program: &mut RawTracePoint = self.program(name::READ_TEXT)?.try_into()?;
        program
            .load()
            .context("the kernel refused the program that reads kernel text")?;
        Ok(program.fd()?.as_fd().try_clone_to_owned()?)
    }

    /// Attaches the programs that report modules, until the object is dropped.
    pub fn attach_modules(&mut self) -> anyhow::Result<()> {
        for (name, tracepoint) in name::ON_MODULE {
            let program: &mut RawTracePoint = self.program(name)?.try_into()?;
            program
                .load()
                .with_context(|| format!("the kernel refused program {name}"))?;
            program
                .attach(tracepoint)
                .with_context(|| format!("the kernel has no tracepoint {tracepoint}"))?;
        }
        Ok(())
    }

    /// The log of the programs, to be flushed from time to time; only an object with messages has one.
    pub fn take_log(&mut self) -> anyhow::Result<ProgramLog> {
        EbpfLogger::init(&mut self.ebpf).context("failed to open the log of the programs")
    }

    /// A map of the object, which then belongs to the caller.
    pub(crate) fn take_map(&mut self, name: &str) -> anyhow::Result<Map> {
        self.ebpf
            .take_map(name)
            .ok_or_else(|| anyhow!("the eBPF object has no map {name}"))
    }

    fn perf_event(&mut self, name: &str) -> anyhow::Result<OwnedFd> {
        let program: &mut PerfEvent = self.program(name)?.try_into()?;
        program
            .load()
            .with_context(|| format!("the kernel refused program {name}"))?;
        Ok(program.fd()?.as_fd().try_clone_to_owned()?)
    }

    fn program(&mut self, name: &str) -> anyhow::Result<&mut Program> {
        self.ebpf
            .program_mut(name)
            .ok_or_else(|| anyhow!("the eBPF object has no program {name}"))
    }
}

/// Gives the maps of bursts their sizes, if the ring has any bytes.
fn make_room_for_bursts(loader: &mut EbpfLoader<'_>, ring: u32) {
    if 0 < ring {
        loader.map_max_entries(name::BURSTS, ring);
        loader.map_max_entries(name::WANTED, BURST_PROCESSES);
    }
}

/// A loader that has not read the kernel's BTF: the object has no relocations for kernel types.
/// aya parses all 100,000 of them whenever it makes a loader, also for one that then does without, which is
/// a tenth of what a short run costs. So the loader is made by a thread for which /proc is the root, and which finds no
/// BTF below it; where that is refused, the types are parsed for nothing.
fn loader_without_btf() -> EbpfLoader<'static> {
    let elsewhere = || {
        // SAFETY: from here on this thread has a root and folders of its own, and nothing else changes.
        if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
            let _ = chroot("/proc");
        }
        EbpfLoader::new()
    };
    std::thread::spawn(elsewhere)
        .join()
        .unwrap_or_else(|_| EbpfLoader::new())
}
