//! Call chains that the programs counted ([`hbbp_ebpf::chain`]): two tables that take turns, as the count maps do.

use std::fs;
use std::mem;

use anyhow::Context as _;
use aya::maps::{MapData, PerCpuArray};
use hbbp_ebpf::chain::{Chain, ChainStats, WORDS};
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::{Tally, name};

use super::mapped::Pair;
use super::object::Object;
use hbbp_model::snapshot::{Loss, Losses};

/// The two tables of chains.
pub(crate) struct Chains {
    tables: Pair<Chain>,
    stats: PerCpuArray<MapData, ChainStats>,
    /// What the programs had counted when that was taken last.
    taken: ChainStats,
    /// Addresses of the deepest chain that the kernel unwinds.
    deepest: usize,
    /// Chains that may have been deeper since that was taken last.
    n_cut: u64,
}

/// A chain with its counts.
#[derive(Clone, Debug)]
pub struct Chained {
    /// The sampled address.
    pub ip: u64,
    /// Thread group id, exec id and thread id of the task, as in [`hbbp_ebpf::CountKey`].
    pub task: [u32; 3],
    /// The number of the event.
    pub event: u32,
    /// The interrupted address and the return addresses, innermost first.
    pub frames: Vec<u64>,
    /// The value on top of the user stack; 0 where that could not be read.
    pub top: u64,
    /// Samples, and their periods.
    pub tally: Tally,
}

impl Chains {
    /// The tables, where they are asked for.
    pub(crate) fn open_if(asked: bool, object: &mut Object) -> anyhow::Result<Option<Self>> {
        asked.then(|| Self::open(object)).transpose()
    }

    /// Takes the tables of the object and shows the first to the programs.
    pub(crate) fn open(object: &mut Object) -> anyhow::Result<Self> {
        Ok(Self {
            tables: Pair::open(object, name::CHAINS, name::CHAIN_MAPS)?,
            stats: PerCpuArray::try_from(object.take_map(name::CHAIN_STATS)?)?,
            taken: ChainStats::default(),
            deepest: read_deepest(),
            n_cut: 0,
        })
    }

    /// Takes out what was counted since the last call. A chain may be there twice.
    pub(crate) fn drain(&mut self) -> anyhow::Result<Vec<Chained>> {
        self.tables.flip()?;
        let mut chains = Vec::new();
        for slot in self.tables.spare().iter_mut().filter(|slot| !slot.is_free()) {
            let context = Context {
                image: slot.image,
                kind: slot.kind,
                period: 0,
            };
            let frames: Vec<u64> = slot.addresses().collect();
            if self.deepest <= frames.len() {
                self.n_cut = self.n_cut.saturating_add(slot.tally.hits);
            }
            chains.push(Chained {
                ip: slot.ip,
                task: context.task(),
                event: context.event(),
                frames,
                top: slot.top,
                tally: slot.tally,
            });
            slot.state = 0;
        }
        Ok(chains)
    }

    /// Adds what was lost since the last call.
    pub(crate) fn take_losses(&mut self, losses: &mut Losses) -> anyhow::Result<()> {
        let by_cpu = self
            .stats
            .get(&0, 0)
            .context("failed to read the counters of call chains")?;
        let sum = |of: fn(&ChainStats) -> u64| by_cpu.iter().map(of).fold(0, u64::saturating_add);
        let now = ChainStats {
            runs: sum(|it| it.runs),
            counted: sum(|it| it.counted),
            full: sum(|it| it.full),
            raced: sum(|it| it.raced),
            none: sum(|it| it.none),
        };
        let before = mem::replace(&mut self.taken, now);
        losses.add(Loss::ChainsFull, now.full.saturating_sub(before.full));
        losses.add(Loss::ChainsRaced, now.raced.saturating_sub(before.raced));
        losses.add(Loss::ChainsMissing, now.none.saturating_sub(before.none));
        losses.add(Loss::ChainsCut, mem::take(&mut self.n_cut));
        Ok(())
    }
}

/// Addresses of the deepest chain that is unwound: the limit of the kernel, or that of the programs.
fn read_deepest() -> usize {
    /// Words that are no addresses.
    const MARKS: usize = 2;
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
    limit.unwrap_or(usize::MAX).min(WORDS - MARKS)
}
