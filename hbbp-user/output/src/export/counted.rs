//! A snapshot with its blocks and their executions, which every export of executions starts from.

use std::collections::BTreeMap;

use hbbp_analysis::mix::{Estimated, apportion};
use hbbp_code::blocks::{BlockId, BlockMap, Flow, Instruction};
use hbbp_code::locate::{Located, Site, TextIdx};
use hbbp_estimate::{BlockCounts, Method, Rule, Unit};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Module, ModuleIdx, ProcessIdx, Snapshot};

/// Relative executions are counted in thousandths: balanced streams have fractional weights.
const PER_RELATIVE_EXECUTION: f64 = 1000.0;

/// What the whole numbers of a format count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scale {
    /// Executions; thousandths of them where they are relative.
    Executions,
    /// The number of recorded streams, divided in proportion to their executions.
    Recorded,
}

/// How amounts in the unit of the estimates become the whole numbers of a file.
#[derive(Clone, Copy, Debug)]
pub struct WholeNumbers {
    factor: f64,
    /// What the numbers are, for people.
    pub noun: &'static str,
}

impl WholeNumbers {
    /// Those for a profile of runs, which have one unit.
    pub fn new(runs: &[Counted<'_>], scale: Scale) -> Self {
        let unit = runs
            .first()
            .map_or(Unit::Executions, |run| run.counts.assignment.unit);
        let (factor, noun) = match (scale, unit) {
            (Scale::Recorded, _) => (recorded_per_execution(runs), "recorded streams, weighted"),
            (Scale::Executions, Unit::RelativeExecutions) => {
                (PER_RELATIVE_EXECUTION, "thousandths of relative executions")
            }
            (Scale::Executions, unit) => (1.0, unit.noun()),
        };
        Self { factor, noun }
    }

    /// Whole numbers for amounts, which add up to the rounded sum of the amounts.
    pub(crate) fn of(self, amounts: &[f64]) -> Vec<u64> {
        let sum: f64 = amounts.iter().sum();
        apportion(amounts, rounded(sum * self.factor))
    }
}

/// Recorded streams for each execution that they represent.
fn recorded_per_execution(runs: &[Counted<'_>]) -> f64 {
    let streams = || runs.iter().flat_map(|run| &run.counts.streams);
    let hits: f64 = streams().map(|stream| stream.hits as f64).sum();
    let executions: f64 = streams().map(|stream| stream.weight).sum();
    if 0.0 < executions { hits / executions } else { 1.0 }
}

/// A snapshot whose blocks were counted.
pub struct Counted<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// Its counts by location.
    pub located: Located,
    /// Its blocks.
    pub map: BlockMap,
    /// Their executions.
    pub counts: BlockCounts,
}

impl<'a> Counted<'a> {
    /// Counts the blocks of a snapshot; the rule chooses between EBS and LBR.
    pub fn new(snapshot: &'a Snapshot, rule: &Rule) -> Self {
        Self::of(Estimated::new(snapshot, rule))
    }

    /// The snapshot whose blocks were counted.
    pub(crate) fn of(estimated: Estimated<'a>) -> Self {
        let Estimated {
            snapshot,
            located,
            map,
            counts,
            ..
        } = estimated;
        Self {
            snapshot,
            located,
            map,
            counts,
        }
    }

    /// The module of a site.
    pub fn module(&self, site: Site) -> Option<&'a Module> {
        self.snapshot.modules.get(site.module.0 as usize)
    }

    /// The block of the instruction that begins at a site, and the index of that instruction, in the first version of its text.
    pub(crate) fn find(&self, site: Site) -> Option<(BlockId, u32)> {
        let texts = &self.map.texts;
        let after = texts.partition_point(|text| (text.module, text.start) <= (site.module, site.addr));
        let last = texts.get(after.checked_sub(1)?)?;
        let idx = texts.partition_point(|text| (text.module, text.start) < (last.module, last.start));
        let text = texts.get(idx).filter(|text| text.module == site.module)?;
        let instruction = text.find(site.addr).ok()?;
        let block = BlockId {
            text: TextIdx(u32::try_from(idx).ok()?),
            block: text.block_of(instruction),
        };
        Some((block, instruction))
    }

    /// The instruction that begins at a site.
    pub(crate) fn instruction_at(&self, site: Site) -> Option<Instruction> {
        let (block, instruction) = self.find(site)?;
        self.map.text(block.text)?.instruction(instruction)
    }

    /// Whether the instruction at a site returns to its caller or to what was interrupted.
    pub(crate) fn is_return(&self, site: Site) -> bool {
        let flow = self.instruction_at(site).map(|instruction| instruction.flow);
        matches!(flow, Some(Flow::Return | Flow::InterruptReturn))
    }

    /// Whole numbers for executions, which add up to the rounded sum of the amounts.
    pub fn whole(&self, amounts: &[f64]) -> Vec<u64> {
        WholeNumbers::new(std::slice::from_ref(self), Scale::Executions).of(amounts)
    }

    /// What the whole numbers of amounts are, for people.
    pub(crate) fn noun(&self) -> &'static str {
        WholeNumbers::new(std::slice::from_ref(self), Scale::Executions).noun
    }

    /// Samples and streams of the events that serve which are in no block: their number and a sentence that follows it.
    pub fn left_out(&self) -> Vec<(u64, &'static str)> {
        let (located, outcome) = (&self.located, &self.counts.outcome);
        let assignment = &self.counts.assignment;
        let mut left_out: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut add = |sentence: &'static str, n: u64| {
            let sum = left_out.entry(sentence).or_default();
            *sum = sum.saturating_add(n);
        };
        for ((event, why), n) in located.discarded.0.iter().chain(&outcome.discarded.0) {
            if assignment.lbr.contains(event) {
                add(why.sentence(), n.total());
            }
        }
        for ((event, why), n) in located.unresolved.0.iter().chain(&outcome.unresolved.0) {
            if assignment.ebs.contains(event) {
                add(why.sentence(), n.total());
            }
        }
        let some = left_out.into_iter().filter(|(_, n)| 0 < *n);
        some.map(|(sentence, n)| (n, sentence)).collect()
    }
}

/// The modules of an image; `None` for all modules.
pub type Only<'a> = Option<&'a [ModuleIdx]>;

/// Whether a module is exported.
pub fn is_in(only: Only<'_>, module: ModuleIdx) -> bool {
    only.is_none_or(|modules| modules.contains(&module))
}

/// An executed instruction in one process image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executed {
    /// Where it is.
    pub site: Site,
    /// Index of its block in [`BlockCounts::blocks`].
    pub block: usize,
    /// The process image.
    pub process: ProcessIdx,
    /// The instruction.
    pub instruction: Instruction,
    /// Its ring.
    pub ring: Ring,
    /// Where its count comes from.
    pub method: Method,
    /// Executions, in the unit of the estimate.
    pub executions: f64,
}

impl Counted<'_> {
    /// Those of some modules, or of all.
    pub fn executed_in(&self, only: Only<'_>) -> impl Iterator<Item = Executed> {
        self.counts.parts.iter().flat_map(move |part| {
            let block = self.counts.blocks.get(part.block);
            let text = block.and_then(|block| Some((block, self.map.text(block.block.text)?)));
            let wanted = text.filter(|(_, text)| is_in(only, text.module));
            wanted.into_iter().flat_map(move |(block, text)| {
                let instructions = self.map.instructions(block.block).iter().zip(0..);
                let executed = instructions.filter(|(_, at)| part.is_of(*at));
                executed.map(move |(instruction, _)| Executed {
                    site: Site {
                        module: text.module,
                        addr: text.addr(*instruction),
                    },
                    block: part.block,
                    process: part.process,
                    instruction: *instruction,
                    ring: block.ring,
                    method: block.method,
                    executions: part.count,
                })
            })
        })
    }

    /// Samples of the eventing IPs that serve as EBS, by site and process image.
    pub fn samples(&self) -> BTreeMap<(Site, ProcessIdx), u64> {
        let mut samples: BTreeMap<(Site, ProcessIdx), u64> = BTreeMap::new();
        let serving = |event| self.counts.assignment.ebs.contains(&event);
        for ip in self.located.ips.iter().filter(|ip| serving(ip.event)) {
            if let Some(text) = self.map.text(ip.location.text)
                && let Ok(found) = text.find(ip.location.addr)
                && let Some(instruction) = text.instruction(found)
            {
                let site = Site {
                    module: text.module,
                    addr: text.addr(instruction),
                };
                let sum = samples.entry((site, ip.process)).or_default();
                *sum = sum.saturating_add(ip.hits);
            }
        }
        samples
    }

    /// Bytes of an instruction of a block.
    pub fn bytes(&self, executed: &Executed) -> &[u8] {
        let block = self.counts.blocks.get(executed.block);
        let bytes = || {
            let text = self.snapshot.text.get(block?.block.text.0 as usize)?;
            let at = executed.instruction.offset as usize;
            text.bytes.get(at..at + usize::from(executed.instruction.len))
        };
        bytes().unwrap_or(&[])
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of executions are not negative; what is not finite or too large saturates"
)]
fn rounded(amount: f64) -> u64 {
    amount.round() as u64
}
