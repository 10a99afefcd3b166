//! Evaluation against exact counts: the papers' errors of EBS, LBR and hybrid.
//!
//! Both sides are reduced to executed instructions, by location (ring, module, function) and mnemonic for the paper's
//! error (HBBP, ISPASS 2018, section VI.B), and by block for the accuracy error of "Establishing a Base of Trust" (ATC
//! 2015, section 3.3).
//! Instructions that only one side has count as errors too.

mod group;
mod truth;

use std::collections::{BTreeMap, HashMap};

use crate::addr::{ImageAddr, Ring};
use crate::blocks::{BlockId, BlockMap, TextBlocks};
use crate::estimate::{BlockCounts, Estimate, Rule, Unit};
use crate::locate::{Site, TextIdx};
use crate::mix::{Analysis, Query, analyse, function, mnemonics};
use crate::snapshot::{ModuleIdx, Snapshot};
pub use group::{Group, Level};
use hbbp_reference::Reference;

/// A method of estimation, as in the columns of the paper's Figure 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Eventing IPs alone.
    Ebs,
    /// Streams of branch stacks alone.
    Lbr,
    /// For each block the method that the rule chooses.
    Hybrid,
}

/// Executed instructions: exact, and by each method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Exact.
    pub reference: f64,
    /// By [`Method::Ebs`].
    pub ebs: f64,
    /// By [`Method::Lbr`].
    pub lbr: f64,
    /// By [`Method::Hybrid`].
    pub hybrid: f64,
}

/// A function: the finest location that groups distinguish.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FunctionKey {
    /// Their ring.
    pub ring: Ring,
    /// Name of the module; [`UNKNOWN`] if it is not in the profile.
    pub module: String,
    /// Name of the function; the module name in brackets if no symbol covers it.
    pub function: String,
}

/// Module of instructions that are in no mapping of the profile.
pub const UNKNOWN: &str = "[unknown]";

/// A profile and its reference.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    locations: Vec<FunctionKey>,
    /// By location and mnemonic.
    mnemonics: BTreeMap<(usize, String), Amounts>,
    /// By block, with its location, in instructions.
    blocks: Vec<(usize, Amounts)>,
    /// Near taken branches of the reference: user code and kernel.
    pub taken: f64,
    /// Samples of instruction pointers, and stacks, that the estimates come from.
    pub samples: f64,
    /// As `samples`.
    pub stacks: f64,
}

/// A profile that cannot be compared with execution counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the profile holds {}, which cannot be compared with executions: record with --event instructions \
         or branches", .0.noun())]
pub struct NoExecutions(pub Unit);

/// Compares a snapshot, whose hybrid follows `rule`, with the reference of the same run; relative executions by their
/// shares.
pub fn evaluate(snapshot: &Snapshot, reference: &Reference, rule: &Rule) -> Result<Evaluation, NoExecutions> {
    let analysis = analyse(snapshot, &Query::whole(), rule);
    let unit = analysis.counts.assignment.unit;
    let mut sums = Sums::new(snapshot, &analysis.map);
    sums.add_measured(&analysis);
    match unit {
        Unit::Executions => {}
        Unit::RelativeExecutions => {
            let [user, kernel] = reference.instructions;
            sums.scale_to(amount(user) + amount(kernel));
        }
        Unit::TimeWeightedSamples | Unit::EventWeightedSamples => return Err(NoExecutions(unit)),
    }
    sums.add_reference(reference);
    let [user, kernel] = reference.taken;
    Ok(sums.close(&analysis.counts, amount(user) + amount(kernel)))
}

/// A count as an amount; beyond 2^53 it is rounded.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of branches and instructions of a run stay far below 2^53"
)]
pub(crate) fn amount(count: u64) -> f64 {
    count as f64
}

/// Sums of both sides.
struct Sums<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    mnemonics: Vec<String>,
    locations: HashMap<FunctionKey, usize>,
    of_site: HashMap<(Ring, Option<Site>), usize>,
    by_mnemonic: BTreeMap<(usize, String), Amounts>,
    by_block: BTreeMap<BlockId, (usize, Amounts)>,
    /// Instructions of the reference outside all blocks of the profile.
    elsewhere: BTreeMap<usize, f64>,
}

impl<'a> Sums<'a> {
    fn new(snapshot: &'a Snapshot, map: &'a BlockMap) -> Self {
        Self {
            snapshot,
            map,
            mnemonics: mnemonics(map),
            locations: HashMap::new(),
            of_site: HashMap::new(),
            by_mnemonic: BTreeMap::new(),
            by_block: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
        }
    }

    fn add_measured(&mut self, analysis: &Analysis) {
        for block in &analysis.counts.blocks {
            let count = |estimate: Option<Estimate>| estimate.unwrap_or_default().count;
            let one = Amounts {
                reference: 0.0,
                ebs: count(block.ebs),
                lbr: count(block.lbr),
                hybrid: block.chosen().count,
            };
            let Some(text) = self.map.text(block.block.text) else {
                continue;
            };
            let instructions = self.map.instructions(block.block);
            let Some(first) = instructions.first() else {
                continue;
            };
            let site = Site {
                module: text.module,
                addr: text.addr(*first),
            };
            let location = self.location(block.ring, Some(site));
            let id = self.block_at(site).unwrap_or(block.block);
            for instruction in instructions {
                let mnemonic = self.mnemonics.get(usize::from(instruction.form.0));
                let key = (location, mnemonic.cloned().unwrap_or_default());
                self.by_mnemonic.entry(key).or_default().add(&one);
                let (_, sum) = self
                    .by_block
                    .entry(id)
                    .or_insert_with(|| (location, Amounts::default()));
                sum.add(&one);
            }
        }
    }

    /// Makes all instructions of each method together as many as these: executions without a scale are compared by their
    /// shares.
    fn scale_to(&mut self, instructions: f64) {
        let mut all = Amounts::default();
        self.by_mnemonic.values().for_each(|one| all.add(one));
        let scale = |of: f64| if 0.0 < of { instructions / of } else { 0.0 };
        let (ebs, lbr, hybrid) = (scale(all.ebs), scale(all.lbr), scale(all.hybrid));
        let of_blocks = self.by_block.values_mut().map(|(_, one)| one);
        for one in self.by_mnemonic.values_mut().chain(of_blocks) {
            one.ebs *= ebs;
            one.lbr *= lbr;
            one.hybrid *= hybrid;
        }
    }

    fn add_reference(&mut self, reference: &Reference) {
        for ran in truth::ran(self.snapshot, reference) {
            let location = self.location(ran.ring, ran.site);
            let one = Amounts {
                reference: ran.executions,
                ..Amounts::default()
            };
            self.by_mnemonic
                .entry((location, ran.mnemonic))
                .or_default()
                .add(&one);
            match ran.site.and_then(|site| self.block_at(site)) {
                Some(id) => {
                    let (_, sum) = self
                        .by_block
                        .entry(id)
                        .or_insert_with(|| (location, Amounts::default()));
                    sum.add(&one);
                }
                None => *self.elsewhere.entry(location).or_default() += ran.executions,
            }
        }
    }

    fn location(&mut self, ring: Ring, site: Option<Site>) -> usize {
        if let Some(location) = self.of_site.get(&(ring, site)) {
            return *location;
        }
        let module = site.and_then(|site| self.snapshot.modules.get(site.module.0 as usize));
        let name = module.map_or(UNKNOWN, |module| module.name.as_str());
        let function = module
            .zip(site)
            .and_then(|(module, site)| function(module, site.addr));
        let location = FunctionKey {
            ring,
            module: name.to_owned(),
            function: function.unwrap_or_else(|| format!("[{name}]")),
        };
        let next = self.locations.len();
        let number = *self.locations.entry(location).or_insert(next);
        self.of_site.insert((ring, site), number);
        number
    }

    /// The block at a site in the first version of its text, which stands for all versions.
    fn block_at(&self, site: Site) -> Option<BlockId> {
        let (text, idx) = first_text(self.map, site.module, site.addr)?;
        let instruction = text.find(site.addr).ok()?;
        Some(BlockId {
            text: idx,
            block: text.block_of(instruction),
        })
    }

    fn close(self, counts: &BlockCounts, taken: f64) -> Evaluation {
        let mut locations: Vec<(FunctionKey, usize)> = self.locations.into_iter().collect();
        locations.sort_unstable_by_key(|(_, number)| *number);
        let elsewhere = self.elsewhere.into_iter().map(|(location, reference)| {
            let amounts = Amounts {
                reference,
                ..Amounts::default()
            };
            (location, amounts)
        });
        Evaluation {
            locations: locations.into_iter().map(|(location, _)| location).collect(),
            mnemonics: self.by_mnemonic,
            blocks: self.by_block.into_values().chain(elsewhere).collect(),
            taken,
            samples: counts.samples,
            stacks: counts.n_stacks,
        }
    }
}

/// The first text of a module that covers an address; texts are sorted by module, start and version.
fn first_text(map: &BlockMap, module: ModuleIdx, addr: ImageAddr) -> Option<(&TextBlocks, TextIdx)> {
    let after = map
        .texts
        .partition_point(|text| (text.module, text.start) <= (module, addr));
    let last = map.texts.get(after.checked_sub(1)?)?;
    let first = map
        .texts
        .partition_point(|text| (text.module, text.start) < (last.module, last.start));
    let text = map.texts.get(first).filter(|text| text.module == module)?;
    Some((text, TextIdx(u32::try_from(first).ok()?)))
}

impl Method {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Hybrid, Self::Lbr, Self::Ebs];

    /// Name of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
            Self::Hybrid => "hybrid",
        }
    }
}

impl Amounts {
    /// The estimate of a method.
    pub const fn by(&self, method: Method) -> f64 {
        match method {
            Method::Ebs => self.ebs,
            Method::Lbr => self.lbr,
            Method::Hybrid => self.hybrid,
        }
    }

    fn add(&mut self, other: &Self) {
        self.reference += other.reference;
        self.ebs += other.ebs;
        self.lbr += other.lbr;
        self.hybrid += other.hybrid;
    }
}
