//! The errors of a group: of everything, of a ring, of a module, of a function.

use std::collections::BTreeMap;

use super::amounts::{Amounts, FunctionKey, Method};
use super::evaluation::Evaluation;
use crate::mix::{Accuracy, block_error};

/// Level of grouping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// One group.
    Whole,
    /// By ring.
    Ring,
    /// By ring and module.
    Module,
    /// By ring, module and function.
    Function,
}

/// A group with the amounts of its mnemonics and blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Its key: up to three names, from ring to function.
    pub key: Vec<String>,
    /// Executed instructions by mnemonic.
    pub mnemonics: BTreeMap<String, Amounts>,
    /// Executed instructions by block.
    blocks: Vec<Amounts>,
}

impl Evaluation {
    /// The groups of a level, by falling reference, then by key.
    pub fn groups(&self, level: Level) -> Vec<Group> {
        let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
        let keys: Vec<Vec<String>> = self
            .locations
            .iter()
            .map(|location| level.key(location))
            .collect();
        let key = |location: usize| keys.get(location).cloned().unwrap_or_default();
        for ((location, mnemonic), amounts) in &self.mnemonics {
            let group = groups.entry(key(*location)).or_default();
            group.mnemonics.entry(mnemonic.clone()).or_default().add(amounts);
        }
        for (location, amounts) in &self.blocks {
            groups.entry(key(*location)).or_default().blocks.push(*amounts);
        }
        let mut groups: Vec<Group> = groups
            .into_iter()
            .map(|(key, group)| Group { key, ..group })
            .collect();
        // The sort is stable, and the groups come sorted by key.
        groups.sort_by(|a, b| b.total().reference.total_cmp(&a.total().reference));
        groups
    }
}

impl Level {
    fn key(self, location: &FunctionKey) -> Vec<String> {
        let (ring, module, function) = (
            location.ring.to_string(),
            location.module.clone(),
            location.function.clone(),
        );
        match self {
            Self::Whole => Vec::new(),
            Self::Ring => vec![ring],
            Self::Module => vec![ring, module],
            Self::Function => vec![ring, module, function],
        }
    }

    /// Titles of the names of its groups.
    pub const fn titles(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Ring => &["ring"],
            Self::Module => &["ring", "module"],
            Self::Function => &["ring", "module", "function"],
        }
    }
}

impl Group {
    /// All its instructions.
    pub fn total(&self) -> Amounts {
        let mut total = Amounts::default();
        self.mnemonics.values().for_each(|amounts| total.add(amounts));
        total
    }

    /// The average weighted error of a method, as a fraction; `None` if the reference has nothing.
    pub fn average_weighted(&self, method: Method) -> Option<f64> {
        let column = |of: &dyn Fn(&Amounts) -> f64| -> BTreeMap<String, f64> {
            let column = self
                .mnemonics
                .iter()
                .map(|(key, amounts)| (key.clone(), of(amounts)));
            column.collect()
        };
        let reference = column(&|amounts| amounts.reference);
        let measured = column(&|amounts| amounts.by(method));
        Accuracy::of(&reference, &measured).average_weighted()
    }

    /// The average weighted error of shares: each side is divided by its total, so that a scale which is wrong for all does not
    /// count. `None` if the reference has nothing.
    pub fn share_error(&self, method: Method) -> Option<f64> {
        let total = self.total();
        let shares = self.mnemonics.values().map(|amounts| amounts.shares(&total));
        let off = shares.map(|shares| (shares.reference - shares.by(method)).abs());
        (0.0 < total.reference).then(|| off.sum())
    }

    /// The part of the executions that a method has in the wrong block, as a fraction: half the sum of the absolute differences
    /// of the shares of all blocks (total variation distance). `None` if the reference or the method has nothing.
    pub fn block_distance(&self, method: Method) -> Option<f64> {
        let mut all = Amounts::default();
        self.blocks.iter().for_each(|block| all.add(block));
        let shares = self.blocks.iter().map(|block| block.shares(&all));
        let off: f64 = shares.map(|it| (it.reference - it.by(method)).abs()).sum();
        (0.0 < all.reference && 0.0 < all.by(method)).then_some(off / 2.0)
    }

    /// The accuracy error of the blocks by a method, as a fraction; `None` if the reference has nothing.
    pub fn block_error(&self, method: Method) -> Option<f64> {
        // The amounts are instructions already: each counts one.
        let blocks = self.blocks.iter();
        block_error(blocks.map(|amounts| (1, amounts.reference, amounts.by(method))))
    }
}
