//! One image for the formats that describe one file: which module it is, and its counts as lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use super::build_id;
use super::counted::{Counted, Scale};
use super::flow::{ControlFlow, ImageFlow};
use crate::addr::ImageAddr;
use crate::snapshot::{ImageLayout, Module, ModuleIdx, ModuleKind, Snapshot};

/// How an image is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The kernel image: `vmlinux`.
    Kernel,
    /// By the beginning of the build id, of at least [`SHORTEST`] digits, or by name: path, file name or module name.
    Named(String),
    /// By the whole build id of a file.
    BuildId(Vec<u8>),
}

/// Fewest digits of a build id that name an image.
pub const SHORTEST: usize = 6;

/// Why no image is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotChosen {
    /// Nothing of the profile has this name.
    Unknown(String),
    /// Several have.
    Ambiguous(String, Vec<String>),
}

impl fmt::Display for NotChosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(wanted) => write!(
                f,
                "the profile has no image `{wanted}`: name a build id, a path, a kernel module, or vmlinux \
                 (`hbbp-sys report --by module` lists what ran)"
            ),
            Self::Ambiguous(wanted, names) => {
                write!(
                    f,
                    "`{wanted}` is several images; name one by its build id: {}",
                    names.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for NotChosen {}

impl Wanted {
    /// From the command line.
    pub fn parse(name: &str) -> Self {
        match name {
            "vmlinux" | "[kernel]" => Self::Kernel,
            name => Self::Named(name.to_owned()),
        }
    }

    fn fits(&self, snapshot: &Snapshot, idx: ModuleIdx, module: &Module) -> bool {
        match self {
            Self::Kernel => module.kind == ModuleKind::Kernel,
            Self::BuildId(id) => module.build_id == *id,
            Self::Named(name) => {
                let file_name = module.name.rsplit('/').next();
                let by_id = || build_id(snapshot, idx).is_some_and(|id| id.starts_with(name.as_str()));
                module.name == *name || file_name == Some(name) || SHORTEST <= name.len() && by_id()
            }
        }
    }

    /// The module of a snapshot; of several, the one whose whole name it is.
    pub fn choose(&self, snapshot: &Snapshot) -> Result<ModuleIdx, NotChosen> {
        let modules = || (0u32..).map(ModuleIdx).zip(&snapshot.modules);
        let found: Vec<(ModuleIdx, &Module)> = modules()
            .filter(|(idx, module)| self.fits(snapshot, *idx, module))
            .collect();
        let wanted = match self {
            Self::Kernel => "vmlinux".to_owned(),
            Self::Named(name) => name.clone(),
            Self::BuildId(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let whole: Vec<ModuleIdx> = found
            .iter()
            .filter(|(_, module)| module.name == wanted)
            .map(|(idx, _)| *idx)
            .collect();
        match (found.as_slice(), whole.as_slice()) {
            ([], _) => Err(NotChosen::Unknown(wanted)),
            ([(idx, _)], _) | (_, [idx]) => Ok(*idx),
            (several, _) => {
                let name = |(idx, module): &(ModuleIdx, &Module)| {
                    let id = build_id(snapshot, *idx).unwrap_or_else(|| "no build id".to_owned());
                    format!("{} ({id})", module.name)
                };
                Err(NotChosen::Ambiguous(wanted, several.iter().map(name).collect()))
            }
        }
    }
}

/// An image whose control flow is written, and where it lies in its file.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    /// Counts of the whole profile, for the scale of whole numbers.
    pub counted: &'a Counted<'a>,
    /// Its ranges and branches.
    pub flow: &'a ImageFlow,
    /// Its file.
    pub layout: &'a ImageLayout,
    /// What its counts are.
    pub scale: Scale,
}

/// What a file holds and what it could not say, in whole numbers of the unit of the profile.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// Sums by the kind of line.
    pub sums: BTreeMap<&'static str, u64>,
    /// What was left out, by reason: a clause that follows the number.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Written {
    pub(super) fn add(&mut self, kind: &'static str, n: u64) {
        let sum = self.sums.entry(kind).or_default();
        *sum = sum.saturating_add(n);
    }

    pub(super) fn leave_out(&mut self, why: &'static str, n: u64) {
        if 0 < n {
            let sum = self.left_out.entry(why).or_default();
            *sum = sum.saturating_add(n);
        }
    }
}

/// A range of an image in terms of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeLine {
    pub(super) start: u64,
    pub(super) last: u64,
    pub(super) count: u64,
    /// Part of `count` that followed a return.
    pub(super) after_return: u64,
}

/// A branch of an image in terms of its file; `None` is an address outside of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchLine {
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    pub(super) count: u64,
    pub(super) mispredicted: u64,
}

/// Text that ran but is not in the file.
pub(super) const NOT_IN_FILE: &str = "in text that is not in the file of the image";

impl Image<'_> {
    /// The ranges, by file addresses that `term` finds, summed and sorted.
    pub(super) fn ranges(
        &self,
        term: impl Fn(ImageAddr) -> Option<u64>,
        written: &mut Written,
    ) -> Vec<RangeLine> {
        let amounts: Vec<f64> = self.flow.ranges.values().map(|range| range.executions).collect();
        let whole = self.counted.whole(&amounts, self.scale);
        let mut lines: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        for (((start, last), range), count) in self.flow.ranges.iter().zip(whole) {
            match (term(*start), term(*last)) {
                (Some(start), Some(last)) if start <= last => {
                    let sum = lines.entry((start, last)).or_default();
                    sum.0 = sum.0.saturating_add(count);
                    sum.1 = sum
                        .1
                        .saturating_add(part(count, range.after_return / range.executions));
                }
                _ => written.leave_out(NOT_IN_FILE, count),
            }
        }
        let line = |((start, last), (count, after_return)): ((u64, u64), (u64, u64))| RangeLine {
            start,
            last,
            count,
            after_return: after_return.min(count),
        };
        lines
            .into_iter()
            .map(line)
            .filter(|line| 0 < line.count)
            .collect()
    }

    /// The branches, likewise.
    pub(super) fn branches(
        &self,
        term: impl Fn(ImageAddr) -> Option<u64>,
        written: &mut Written,
    ) -> Vec<BranchLine> {
        let amounts: Vec<f64> = self
            .flow
            .branches
            .values()
            .map(|branch| branch.executions)
            .collect();
        let whole = self.counted.whole(&amounts, self.scale);
        let mut lines: BTreeMap<(Option<u64>, Option<u64>), (u64, u64)> = BTreeMap::new();
        for (((from, to), branch), count) in self.flow.branches.iter().zip(whole) {
            let ends = [from, to].map(|end| end.and_then(&term));
            if ends == [None, None] {
                written.leave_out(NOT_IN_FILE, count);
                continue;
            }
            let sum = lines.entry((ends[0], ends[1])).or_default();
            sum.0 = sum.0.saturating_add(count);
            sum.1 = sum
                .1
                .saturating_add(part(count, branch.mispredicted / branch.executions));
            if branch.prediction_unknown {
                written.add("branches whose prediction is unknown", count);
            }
        }
        let line = |((from, to), (count, mispredicted)): (_, (u64, u64))| BranchLine {
            from,
            to,
            count,
            mispredicted: mispredicted.min(count),
        };
        lines
            .into_iter()
            .map(line)
            .filter(|line| 0 < line.count)
            .collect()
    }
}

/// A share of a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 1 of a whole number"
)]
fn part(count: u64, share: f64) -> u64 {
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    (count as f64 * share).round() as u64
}

/// Writes one image in a format that describes one.
pub type WriteImage = fn(&Image<'_>, &mut dyn Write) -> io::Result<Written>;

/// Executions of an image's ranges.
pub fn executions(flow: &ControlFlow, module: ModuleIdx) -> f64 {
    let image = flow.images.get(&module);
    image.map_or(0.0, |image| {
        image.ranges.values().map(|range| range.executions).sum()
    })
}
