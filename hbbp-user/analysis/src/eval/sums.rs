//! The sums of both sides of a comparison: by location and mnemonic, and by address, which the blocks of the reference join.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::amounts::{Amounts, FunctionKey, NO_TEXT, UNKNOWN, amount};
use super::block::{Address, blocks_of_reference};
use super::evaluation::{Evaluation, HottestFunctions};
use super::exact::{Exact, Names};
use super::pairs::Pairs;
use super::truth::{self, Ran};
use crate::mix::{Analysis, function, mnemonics};
use hbbp_code::blocks::{BlockMap, Instruction, TextBlocks};
use hbbp_code::locate::Site;
use hbbp_estimate::{BlockCounts, Estimate};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// What the reference counts of a profile.
enum Scope {
    /// Everything.
    All,
    /// User code, by its addresses.
    User,
    /// The code of these modules.
    Modules(BTreeSet<ModuleIdx>),
    /// User code, without addresses, by names of its own.
    Mnemonics(Names),
}

/// Sums of both sides.
pub(super) struct Sums<'a> {
    snapshot: &'a Snapshot,
    map: &'a BlockMap,
    scope: Scope,
    mnemonics: Vec<String>,
    locations: HashMap<FunctionKey, usize>,
    of_site: HashMap<(Ring, Option<Site>), usize>,
    by_mnemonic: BTreeMap<(usize, String), Amounts>,
    by_address: HashMap<(Ring, Site), Address>,
    /// Instructions of the reference outside all modules of the profile, each with its location.
    unplaced: Vec<(usize, Amounts)>,
    left_out: f64,
}

impl<'a> Sums<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, map: &'a BlockMap, exact: &Exact) -> Self {
        let scope = match exact {
            Exact::Blocks(_) => Scope::All,
            Exact::Addresses(counts) if counts.is_complete => Scope::User,
            Exact::Addresses(counts) => {
                let modules = counts.modules.keys();
                Scope::Modules(modules.filter_map(|name| truth::module(snapshot, name)).collect())
            }
            Exact::Mnemonics(counts) => Scope::Mnemonics(counts.names),
        };
        let mut mnemonics = mnemonics(map);
        if let Scope::Mnemonics(names) = scope {
            for mnemonic in &mut mnemonics {
                *mnemonic = names.of_profile(mnemonic);
            }
        }
        Self {
            snapshot,
            map,
            scope,
            mnemonics,
            locations: HashMap::new(),
            of_site: HashMap::new(),
            by_mnemonic: BTreeMap::new(),
            by_address: HashMap::new(),
            unplaced: Vec::new(),
            left_out: 0.0,
        }
    }

    /// Adds what the profile estimates, as far as the reference counts it.
    pub(super) fn add_measured(&mut self, analysis: &Analysis) {
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
            if !self.counts(block.ring, text.module) {
                self.left_out += one.hybrid * instructions.len() as f64;
                continue;
            }
            let Some(first) = instructions.first() else {
                continue;
            };
            let site = |addr| Site {
                module: text.module,
                addr,
            };
            // A block is in the function of its start.
            let start = site(text.addr(*first));
            for instruction in instructions {
                let mnemonic = self.mnemonics.get(usize::from(instruction.form.0));
                let ran = Ran {
                    ring: block.ring,
                    site: Some(site(text.addr(*instruction))),
                    mnemonic: mnemonic.cloned().unwrap_or_default(),
                    instruction: Some(*instruction),
                    executions: 0.0,
                };
                self.add(ran, Some(start), &one);
            }
        }
    }

    /// Adds the exact counts.
    pub(super) fn add_reference(&mut self, exact: &Exact) {
        match exact {
            Exact::Blocks(reference) => {
                for ran in truth::ran(self.snapshot, reference) {
                    self.add_ran(ran);
                }
            }
            Exact::Addresses(counts) => {
                for ran in truth::listed(self.snapshot, counts) {
                    let instruction = ran.site.and_then(|site| self.instruction_at(site));
                    let mnemonic = instruction.and_then(|it| self.mnemonics.get(usize::from(it.form.0)));
                    let mnemonic = mnemonic.cloned().unwrap_or_else(|| NO_TEXT.to_owned());
                    self.add_ran(Ran {
                        mnemonic,
                        instruction,
                        ..ran
                    });
                }
            }
            Exact::Mnemonics(counts) => {
                for (name, executions) in &counts.counts {
                    self.add_ran(Ran {
                        ring: Ring::User,
                        site: None,
                        mnemonic: counts.names.of_tool(name),
                        instruction: None,
                        executions: amount(*executions),
                    });
                }
            }
        }
    }

    /// Scales the instructions of each method to the sum of the reference: executions without a scale are compared by
    /// their shares.
    pub(super) fn scale_to_reference(&mut self) {
        let mut all = Amounts::default();
        self.by_mnemonic.values().for_each(|one| all.add(one));
        let scale = |of: f64| if 0.0 < of { all.reference / of } else { 0.0 };
        let scales = Amounts {
            reference: 1.0,
            ebs: scale(all.ebs),
            lbr: scale(all.lbr),
            hybrid: scale(all.hybrid),
        };
        let of_addresses = self.by_address.values_mut().map(|address| &mut address.amounts);
        for one in self.by_mnemonic.values_mut().chain(of_addresses) {
            one.scale(&scales);
        }
    }

    fn add_ran(&mut self, ran: Ran) {
        let one = Amounts {
            reference: ran.executions,
            ..Amounts::default()
        };
        let site = ran.site;
        self.add(ran, site, &one);
    }

    /// Adds an instruction of either side, in the function of `start`.
    fn add(&mut self, ran: Ran, start: Option<Site>, one: &Amounts) {
        let Ran { ring, mnemonic, .. } = ran;
        let has_addresses = !matches!(self.scope, Scope::Mnemonics(_));
        let location = self.location(ring, start.filter(|_| has_addresses));
        self.by_mnemonic.entry((location, mnemonic)).or_default().add(one);
        if !has_addresses {
            return;
        }
        match ran.site {
            Some(site) => {
                let address = self.by_address.entry((ring, site));
                let address = address.or_insert_with(|| Address::new(location));
                address.add(ran.instruction, one);
            }
            None => self.unplaced.push((location, *one)),
        }
    }

    fn counts(&self, ring: Ring, module: ModuleIdx) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::User | Scope::Mnemonics(_) => ring == Ring::User,
            Scope::Modules(modules) => modules.contains(&module),
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

    /// The instruction at a site in the first version of its text, which represents all versions.
    fn instruction_at(&self, site: Site) -> Option<Instruction> {
        let text = first_text(self.map, site.module, site.addr)?;
        text.instruction(text.find(site.addr).ok()?)
    }

    pub(super) fn close(self, counts: &BlockCounts, exact: &Exact) -> Evaluation {
        let mut locations: Vec<(FunctionKey, usize)> = self.locations.into_iter().collect();
        locations.sort_unstable_by_key(|(_, number)| *number);
        let mut addresses: Vec<_> = self.by_address.into_iter().collect();
        // In a fixed order, so that sums of fractions are the same in each run.
        addresses.sort_unstable_by_key(|(key, _)| *key);
        let locations: Vec<FunctionKey> = locations.into_iter().map(|(location, _)| location).collect();
        let blocks = blocks_of_reference(&addresses);
        let has_addresses = !matches!(self.scope, Scope::Mnemonics(_));
        let pairs =
            has_addresses.then(|| Pairs::of(self.map, counts, &addresses, &self.unplaced, &locations));
        let addresses = addresses.into_iter().map(|(_, address)| address.amounts);
        let unplaced = self.unplaced.iter().map(|(_, amounts)| *amounts);
        let (taken, iterates) = match exact {
            Exact::Blocks(reference) => {
                let [user, kernel] = reference.taken;
                (Some(amount(user) + amount(kernel)), false)
            }
            Exact::Addresses(counts) => (None, counts.iterates),
            Exact::Mnemonics(_) => (None, true),
        };
        Evaluation {
            locations,
            mnemonics: self.by_mnemonic,
            addresses: addresses.chain(unplaced).collect(),
            pairs,
            blocks: blocks.into_iter().chain(self.unplaced).collect(),
            taken,
            left_out: self.left_out,
            iterates,
            samples: counts.sampling.n_samples,
            stacks: counts.sampling.n_stacks,
            calibration: None,
            hottest: HottestFunctions::default(),
        }
    }
}

/// The first text of a module that covers an address; texts are sorted by module, start and version.
fn first_text(map: &BlockMap, module: ModuleIdx, addr: ImageAddr) -> Option<&TextBlocks> {
    let after = map
        .texts
        .partition_point(|text| (text.module, text.start) <= (module, addr));
    let last = map.texts.get(after.checked_sub(1)?)?;
    let first = map
        .texts
        .partition_point(|text| (text.module, text.start) < (last.module, last.start));
    map.texts.get(first).filter(|text| text.module == module)
}
