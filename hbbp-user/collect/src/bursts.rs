//! Starts of bursts: a clock of its own samples user code, and hands over its registers and some pages of its memory.
//!
//! What code does from there on is emulated (`hbbp-bursts`), outside of the collection.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use aya::maps::{HashMap, MapData, PerCpuArray, PerCpuValues, RingBuf};
use hbbp_ebpf::burst::{BurstHead, BurstPage, BurstStats, STACK_PAGES, WANTED_PAGES, WantedPages};
use hbbp_ebpf::name;

use super::btf::Btf;
use super::object::{Constants, MapSizes, Object};
use super::perf::Perf;
use super::scope::{Scope, open_counters};
use super::source::{Source, clock};
use super::{cpu_list, kernel_layout, pid_namespace};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::run::{Counter, Period};
use hbbp_model::snapshot::{Event, EventUnit, Loss, Losses};

/// Time between two bursts of a CPU, in ns: 20 a second, and a prime number, so that they do not keep step with what happens each
/// millisecond.
pub const PERIOD: u64 = 50_000_017;

/// Bytes of the ring for each CPU: ten bursts of all pages, half a second of them.
const RING_OF_CPU: usize = 1 << 20;
/// All CPUs together take no more.
const MOST_RING: usize = 16 << 20;

/// A burst to be emulated.
#[derive(Debug)]
pub struct Burst {
    /// The registers, and whose they are.
    pub head: BurstHead,
    /// The memory that was read with them, at most [`STACK_PAGES`] and [`WANTED_PAGES`].
    pub pages: Vec<BurstPage>,
}

impl Drop for Burst {
    /// What was read of other users' processes does not outlive its burst.
    fn drop(&mut self) {
        for page in &mut self.pages {
            page.bytes.fill(0);
            // So that the compiler keeps the writes.
            black_box(&page.bytes);
        }
    }
}

/// The clock of bursts, and what its program hands over.
pub struct Bursts {
    ring: RingBuf<MapData>,
    wanted: HashMap<MapData, u32, WantedPages>,
    stats: PerCpuArray<MapData, BurstStats>,
    clocks: Vec<Perf>,
    unread: u64,
    /// Those of a command begin with its exec.
    starts_by_exec: bool,
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
            starts_by_exec: matches!(scope, Scope::Command(_)),
        })
    }

    /// Starts the clocks.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn enable(&self) -> anyhow::Result<()> {
        if self.starts_by_exec {
            return Ok(());
        }
        let mut clocks = self.clocks.iter();
        clocks.try_for_each(|clock| clock.enable().context("failed to start the clock of bursts"))
    }

    /// The bursts since the last call, whole: the ring has a head before its pages, and shows it after they were written.
    pub fn read(&mut self) -> Vec<Burst> {
        let (mut bursts, mut of_cpus) = (Vec::new(), BTreeMap::<u64, Burst>::new());
        while let Some(item) = self.ring.next() {
            match item.len() {
                HEAD => {
                    let head = head(&item);
                    // All memory at once, so that no copy of it is left where it grows.
                    let pages = Vec::with_capacity(STACK_PAGES + WANTED_PAGES);
                    bursts.extend(of_cpus.insert(head.cpu, Burst { head, pages }));
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

    /// What notifies that there are bursts to be read.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn ready(&self) -> anyhow::Result<OwnedFd> {
        let ring = self.ring.as_fd().try_clone_to_owned();
        ring.context("failed to watch the ring of bursts")
    }

    /// Stops the clocks, and returns what they sampled as an event.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn stop(&self) -> anyhow::Result<Event> {
        for clock in &self.clocks {
            clock.disable().context("failed to stop the clock of bursts")?;
        }
        self.event()
    }

    /// How the samples of each CPU ended so far.
    fn stats_by_cpu(&self) -> anyhow::Result<PerCpuValues<BurstStats>> {
        let by_cpu = self.stats.get(&0, 0);
        by_cpu.context("failed to read the counts of bursts")
    }

    /// How the samples ended so far.
    ///
    /// # Errors
    /// When the kernel refuses to read them.
    pub fn stats(&self) -> anyhow::Result<BurstStats> {
        let by_cpu = self.stats_by_cpu()?;
        Ok(by_cpu.iter().fold(BurstStats::default(), |sum, of| sum.plus(*of)))
    }

    /// The event of the samples so far. The kernel takes none where the clock finds its own code and counts that time all the same,
    /// so that those that there are were due.
    fn event(&self) -> anyhow::Result<Event> {
        let by_cpu = self.stats_by_cpu()?;
        let counter = |cpu: Option<u32>, runs: u64| -> anyhow::Result<Counter> {
            let clock = self.clocks.iter().find(|clock| clock.cpu() == cpu);
            let read = clock.map_or_else(|| Ok(Counter::default()), Perf::read);
            Ok(Counter {
                cpu,
                count: runs.saturating_mul(PERIOD),
                runs: cpu.map(|_| runs),
                ..read.context("failed to read the clock of bursts")?
            })
        };
        let runs = by_cpu.iter().fold(0, |sum: u64, of| sum.saturating_add(of.runs));
        let mut cpus: Vec<u32> = self.clocks.iter().filter_map(Perf::cpu).collect();
        cpus.dedup();
        let of_cpu = |cpu: u32| by_cpu.get(cpu as usize).map_or(0, |of| of.runs);
        let counters: anyhow::Result<Vec<Counter>> = if cpus.is_empty() {
            Ok(vec![counter(None, runs)?])
        } else {
            cpus.iter().map(|cpu| counter(Some(*cpu), of_cpu(*cpu))).collect()
        };
        Ok(Event {
            name: "bursts of cpu-clock".to_owned(),
            unit: EventUnit::Nanoseconds,
            ring: Some(Ring::User),
            branch_stack: true,
            period: Period::Fixed(PERIOD),
            runs,
            counters: counters?,
            ..Event::default()
        })
    }

    /// Adds what was lost so far of the samples.
    ///
    /// # Errors
    /// When the kernel refuses to read it.
    pub fn add_losses(&self, losses: &mut Losses) -> anyhow::Result<()> {
        let stats = self.stats()?;
        losses.add(Loss::BurstsFull, stats.full);
        losses.add(Loss::BurstsOf32Bits, stats.compatible);
        losses.add(Loss::BurstsOutside, stats.outside);
        losses.add(Loss::BurstsUnread, self.unread);
        Ok(())
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

/// The head of a burst, in the order of [`BurstHead`].
fn head(bytes: &[u8]) -> BurstHead {
    let mut words = words(bytes);
    let mut next = || words.next().unwrap_or(0);
    let registers = [(); 16].map(|()| next());
    let [rip, flags, fs_base, time, took, image, cpu] = [(); 7].map(|()| next());
    BurstHead {
        registers,
        rip,
        flags,
        fs_base,
        time,
        took,
        tgid: image as u32,
        exec_id: (image >> 32) as u32,
        cpu,
    }
}

/// Adds a page to the burst of its CPU, in the order of [`BurstPage`]. A burst has those that it has room for.
fn add_page(of_cpus: &mut BTreeMap<u64, Burst>, bytes: &[u8]) {
    let mut words = words(bytes);
    let (address, cpu) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if let Some(burst) = of_cpus.get_mut(&cpu)
        && burst.pages.len() < burst.pages.capacity()
        && let Some(bytes) = bytes.last_chunk()
    {
        let bytes = *bytes;
        burst.pages.push(BurstPage { address, cpu, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::burst::PAGE_BYTES;
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
        let burst_of = |cpu| Burst {
            head: head(&head_of(cpu)),
            pages: Vec::with_capacity(1),
        };
        let mut of_cpus: BTreeMap<u64, Burst> = [0, 1].map(|cpu| (cpu, burst_of(cpu))).into();
        let page = [bytes(&[0x5000, 1]), vec![7; PAGE_BYTES]].concat();
        assert_eq!(page.len(), PAGE);
        add_page(&mut of_cpus, &page);
        add_page(&mut of_cpus, &page);
        let pages = |cpu| &of_cpus[&cpu].pages;
        assert_eq!(
            (pages(0).len(), pages(1).len()),
            (0, 1),
            "no more than there is room for"
        );
        assert_eq!(
            (pages(1)[0].address, pages(1)[0].bytes),
            (0x5000, [7; PAGE_BYTES])
        );
        let BurstHead {
            tgid,
            exec_id,
            time,
            took,
            rip,
            fs_base,
            ..
        } = of_cpus[&1].head;
        assert_eq!((tgid, exec_id, time, took), (8, 9, 5, 6));
        assert_eq!(
            (rip, fs_base, of_cpus[&1].head.registers[4]),
            (0x40_1000, 0x7000, 104)
        );
    }
}
