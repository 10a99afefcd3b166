//! Starts of bursts: a clock of its own samples user code, and hands over its registers and some pages of its memory.
//!
//! What code does from there on is emulated (`hbbp-emulate`), outside of the collection.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use aya::maps::{HashMap, MapData, PerCpuArray, RingBuf};
use hbbp_ebpf::burst::{BurstHead, BurstPage, BurstStats, PAGE_BYTES, WANTED_PAGES, WantedPages};
use hbbp_ebpf::name;
use hbbp_emulate::{Machine, Value};

use super::btf::Btf;
use super::object::{Constants, MapSizes, Object};
use super::perf::Perf;
use super::scope::{Scope, open_counters};
use super::source::{Source, clock};
use super::{cpu_list, kernel_layout, pid_namespace};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::run::Period;

/// Time between two bursts of a CPU, in ns: 20 a second, and a prime number, so that they do not keep step with what happens each
/// millisecond.
const PERIOD: u64 = 50_000_017;

/// Bytes of the ring for each CPU: ten bursts of all pages, half a second of them.
const RING_OF_CPU: usize = 1 << 20;
/// All CPUs together take no more.
const MOST_RING: usize = 16 << 20;

/// A burst to be emulated.
#[derive(Debug)]
pub struct Burst {
    /// Thread group id.
    pub tgid: u32,
    /// Low half of the task's `self_exec_id`; 0 where that is not known.
    pub exec_id: u32,
    /// Time of the sample in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// How long interrupts were off for it, in ns.
    pub took: u64,
    /// The registers, and the memory that was read with them.
    pub machine: Machine,
}

/// The clock of bursts, and what its program hands over.
pub struct Bursts {
    ring: RingBuf<MapData>,
    wanted: HashMap<MapData, u32, WantedPages>,
    stats: PerCpuArray<MapData, BurstStats>,
    clocks: Vec<Perf>,
    unread: u64,
}

impl Bursts {
    /// Loads the program and opens its clocks, disabled. It has an object of its own.
    ///
    /// # Errors
    /// When the kernel refuses the object, the program or a clock.
    pub fn open(scope: &Scope) -> anyhow::Result<Self> {
        let online = cpu_list::read_online().context("failed to list the CPUs")?;
        let btf = Btf::open().ok();
        // Without them, all programs of a process are one, and what a thread has of its own is unknown to its bursts.
        let offset = |read: fn(&Btf) -> Result<u32, String>| read(btf.as_ref()?).ok();
        let constants = Constants {
            exec_id_offset: offset(kernel_layout::read_exec_id_offset),
            fs_base_offset: offset(kernel_layout::read_fs_base_offset),
            pid_namespace: pid_namespace::read_pid_namespace(),
            ..Constants::default()
        };
        let ring = (online.len() * RING_OF_CPU).next_power_of_two().min(MOST_RING);
        let sizes = MapSizes {
            bursts: u32::try_from(ring)?,
            ..MapSizes::default()
        };
        let mut object = Object::load(constants, sizes)?;
        let program = object.on_burst()?;
        let clocks = open_counters(&source(), scope, &online)?;
        for clock in &clocks {
            let attached = clock.attach(program.as_fd());
            attached.context("the kernel refused the program of bursts on a clock")?;
        }
        Ok(Self {
            ring: RingBuf::try_from(object.take_map(name::BURSTS)?)?,
            wanted: HashMap::try_from(object.take_map(name::WANTED)?)?,
            stats: PerCpuArray::try_from(object.take_map(name::BURST_STATS)?)?,
            clocks,
            unread: 0,
        })
    }

    /// Starts the clocks.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn enable(&self) -> anyhow::Result<()> {
        let mut clocks = self.clocks.iter();
        clocks.try_for_each(|clock| clock.enable().context("failed to start the clock of bursts"))
    }

    /// The bursts since the last call, whole: the ring has a head before its pages, and shows it after they were written.
    pub fn read(&mut self) -> Vec<Burst> {
        let (mut bursts, mut of_cpus) = (Vec::new(), BTreeMap::<u64, Burst>::new());
        while let Some(item) = self.ring.next() {
            match item.len() {
                HEAD => {
                    let (cpu, burst) = head(&item);
                    bursts.extend(of_cpus.insert(cpu, burst));
                }
                PAGE => add_page(&mut of_cpus, &item),
                _ => self.unread += 1,
            }
        }
        bursts.extend(of_cpus.into_values());
        bursts
    }

    /// Has later bursts of a process read these first [`WANTED_PAGES`] pages, in addition to its stack.
    ///
    /// # Errors
    /// When there are too many processes.
    pub fn want(&mut self, tgid: u32, pages: impl Iterator<Item = u64>) -> anyhow::Result<()> {
        let mut wanted = WantedPages::default();
        for (to, page) in wanted.0.iter_mut().zip(pages.take(WANTED_PAGES)) {
            *to = page;
        }
        let inserted = self.wanted.insert(tgid, wanted, 0);
        inserted.context("failed to ask for the pages of a process")
    }

    /// How the samples ended so far.
    ///
    /// # Errors
    /// When the kernel refuses to read them.
    pub fn stats(&self) -> anyhow::Result<BurstStats> {
        let by_cpu = self
            .stats
            .get(&0, 0)
            .context("failed to read the counts of bursts")?;
        let sum = by_cpu.iter().fold(BurstStats::default(), |sum, of| sum.plus(*of));
        Ok(sum)
    }

    /// What was lost so far, a sentence for each kind.
    ///
    /// # Errors
    /// When the kernel refuses to read it.
    pub fn losses(&self) -> anyhow::Result<Vec<String>> {
        let stats = self.stats()?;
        let lost = [
            (
                stats.full,
                "bursts found the ring full: their samples came faster than they were read",
            ),
            (
                stats.compatible,
                "bursts began in code of 32 bits, which is not emulated",
            ),
            (
                stats.outside,
                "bursts began in processes outside this container, whose memory cannot be read: start it in the host PID namespace",
            ),
            (
                stats.pages_full,
                "pages of bursts found the ring full, and are read late or unknown",
            ),
            (
                stats.pages_absent,
                "pages that bursts asked for were not in memory, or not mapped there in that process",
            ),
            (
                self.unread,
                "records of bursts have no known length: the program and its reader differ",
            ),
        ];
        let lost = lost.iter().filter(|(n, _)| 0 < *n);
        Ok(lost.map(|(n, what)| format!("{n} {what}")).collect())
    }
}

const HEAD: usize = size_of::<BurstHead>();
const PAGE: usize = size_of::<BurstPage>();

/// The clock of user code.
fn source() -> Source {
    let mut source = clock();
    source.request.period = Period::Fixed(PERIOD);
    source.request.ring = Some(Ring::User);
    source
}

/// The words of a record.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// The CPU of a burst and its start, in the order of [`BurstHead`].
fn head(bytes: &[u8]) -> (u64, Burst) {
    let mut words = words(bytes);
    let mut next = || words.next().unwrap_or(0);
    let registers = [(); 16].map(|()| Value::known(next()));
    let mut machine = Machine::new(next());
    machine.registers = registers;
    machine.flags = Value::known(next());
    machine.fs_base = next();
    let (time, took, image, cpu) = (next(), next(), next(), next());
    let burst = Burst {
        tgid: image as u32,
        exec_id: (image >> 32) as u32,
        time,
        took,
        machine,
    };
    (cpu, burst)
}

/// Adds a page to the burst of its CPU, in the order of [`BurstPage`].
fn add_page(of_cpus: &mut BTreeMap<u64, Burst>, bytes: &[u8]) {
    let mut words = words(bytes);
    let (address, cpu) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if let Some(burst) = of_cpus.get_mut(&cpu)
        && let Some(bytes) = bytes.get(PAGE - PAGE_BYTES..)
    {
        // A burst has few pages, and as many fit.
        let _ = burst.machine.memory.add(address, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::run::is_prime;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn the_period_keeps_no_step() {
        assert!(is_prime(PERIOD));
    }

    #[test]
    fn a_page_belongs_to_the_burst_of_its_cpu() {
        let head_of = |cpu: u64| {
            let mut words: Vec<u64> = (100..116).collect();
            words.extend([0x40_1000, 0x246, 0x7000, 5, 6, 9 << 32 | 8, cpu]);
            bytes(&words)
        };
        assert_eq!(head_of(0).len(), HEAD);
        let mut of_cpus: BTreeMap<u64, Burst> = [0, 1].map(|cpu| head(&head_of(cpu))).into();
        let page = [bytes(&[0x5000, 1]), vec![7; PAGE_BYTES]].concat();
        assert_eq!(page.len(), PAGE);
        add_page(&mut of_cpus, &page);
        let mut byte = [0];
        let mut known = |cpu| {
            of_cpus
                .get_mut(&cpu)
                .map(|burst| burst.machine.memory.load(0x5fff, &mut byte))
        };
        assert_eq!((known(0), known(1)), (Some(0), Some(1)));
        let burst = &of_cpus[&1];
        assert_eq!((burst.tgid, burst.exec_id, burst.time, burst.took), (8, 9, 5, 6));
        assert_eq!((burst.machine.rip, burst.machine.fs_base), (0x40_1000, 0x7000));
        assert_eq!(burst.machine.registers[4], Value::known(104));
    }
}
