//! What was estimated of the loads, compared with what they executed.

use hbbp_analysis::eval::{Exact, Group, Level, Method, NoExecutions, amount, evaluate};
use hbbp_analysis::mix::{Dimension, Estimated, Mix, Query, Unit, function};
use hbbp_estimate::Rule;
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::{Snapshot, SourceLocations};
use hbbp_reference::{Block, Reference};

use super::image::ADDRESS;
use super::program::{KernelCalls, Program};
use super::run_loads::Ran;

/// The process of the loads, as the profile has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadProcess {
    pub(super) tgid: u32,
    /// Name of the module that holds the text of the loads.
    pub(super) module: String,
}

impl LoadProcess {
    /// Finds it by its mapping; `None` if the profile has none there.
    pub(super) fn find(snapshot: &Snapshot) -> Option<Self> {
        snapshot.processes.iter().find_map(|process| {
            let mapping = process
                .mappings
                .iter()
                .find(|mapping| mapping.start <= Va(ADDRESS) && Va(ADDRESS) < mapping.end)?;
            let module = snapshot.modules.get(mapping.module.0 as usize)?;
            Some(Self {
                tgid: process.tgid,
                module: module.name.clone(),
            })
        })
    }
}

/// An estimate and what it is of, with what the profile says of its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Compared {
    /// Exact.
    pub(super) exact: f64,
    /// Estimated, by the rule.
    pub(super) estimated: f64,
    /// Standard error of `estimated`, as it is printed.
    pub(super) std_error: f64,
}

impl Compared {
    /// Estimated over exact, less 1.
    pub(super) fn relative(&self) -> f64 {
        self.estimated / self.exact - 1.0
    }

    /// The standard error over the exact amount.
    pub(super) fn relative_error(&self) -> f64 {
        self.std_error / self.exact
    }
}

/// A load of user code: errors as fractions, each in the order of [`Method::ALL`], and `None` of a method without samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadErrors {
    pub(super) name: &'static str,
    /// Its instructions.
    pub(super) instructions: Compared,
    /// The part of its executions that is at a wrong mnemonic, counted on both sides.
    pub(super) mnemonics: [Option<f64>; 3],
    /// What that is expected to be by the standard errors that are printed.
    pub(super) mnemonics_by_chance: f64,
    /// The part of its executions that is in a wrong block.
    pub(super) blocks: [Option<f64>; 3],
}

/// A function of the kernel, whose calls are known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallErrors {
    pub(super) function: &'static str,
    /// Its calls: executions of its first block.
    pub(super) calls: Compared,
}

/// All loads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Executions {
    /// Whether amounts have a scale; otherwise shares alone can be compared.
    pub(super) has_scale: bool,
    /// The instructions of all loads.
    pub(super) all: Compared,
    pub(super) loads: Vec<LoadErrors>,
    /// Those that the profile has the symbol of.
    pub(super) calls: Vec<CallErrors>,
    /// Functions of the kernel that it has no symbol of.
    pub(super) unseen: Vec<&'static str>,
}

impl Executions {
    /// Compares them; an error where the profile holds time.
    pub(super) fn of(
        snapshot: &Snapshot,
        process: &LoadProcess,
        program: &Program,
        ran: &[Ran],
        rule: &Rule,
    ) -> Result<Self, NoExecutions> {
        let exact = Exact::Blocks(reference(process.tgid, program, ran));
        let groups = evaluate(snapshot, &exact, rule)?.groups(Level::Function);
        let estimated = Estimated::new(snapshot, rule);
        let mix = |by: &[Dimension]| estimated.mix(&Query::by(by.iter().copied()), &SourceLocations::new());
        let by_function = mix(&[Dimension::Module, Dimension::Function]);
        let by_mnemonic = mix(&[Dimension::Module, Dimension::Function, Dimension::Mnemonic]);
        let loads = program.loads.iter().zip(ran).map(|(load, ran)| {
            let key = [process.module.as_str(), load.name];
            let std_errors = |mix: &Mix| {
                let rows = mix.rows.iter().filter(|row| row.key.iter().take(2).eq(key));
                rows.map(|row| row.total.std_error.unwrap_or(0.0)).sum::<f64>()
            };
            let group = groups.iter().find(|group| group.key.iter().skip(1).eq(key));
            let instructions = Compared {
                exact: amount(load.retired().saturating_mul(ran.calls)),
                estimated: group.map_or(0.0, |group| group.total().hybrid),
                std_error: std_errors(&by_function),
            };
            LoadErrors {
                name: load.name,
                instructions,
                mnemonics: by_method(group, Group::share_error),
                mnemonics_by_chance: MEAN_OF_NORMAL * std_errors(&by_mnemonic) / instructions.exact,
                blocks: by_method(group, Group::block_distance),
            }
        });
        let loads: Vec<LoadErrors> = loads.collect();
        let all = Compared {
            std_error: by_function_total(&by_function, &process.module),
            exact: loads.iter().map(|it| it.instructions.exact).sum(),
            estimated: loads.iter().map(|it| it.instructions.estimated).sum(),
        };
        let (calls, unseen) = all_calls(&estimated, program, ran);
        Ok(Self {
            has_scale: estimated.counts().assignment.unit == Unit::Executions,
            all,
            loads,
            calls,
            unseen,
        })
    }
}

/// An error of a load by each method that has seen it.
fn by_method(group: Option<&Group>, error: fn(&Group, Method) -> Option<f64>) -> [Option<f64>; 3] {
    Method::ALL.map(|method| {
        let seen = group.filter(|group| 0.0 < group.total().by(method))?;
        error(seen, method)
    })
}

/// Mean of the absolute value of a normal variable with standard deviation 1: the root of 2 / pi.
const MEAN_OF_NORMAL: f64 = 0.797_884_560_802_865_4;

/// The standard error of all functions of a module, as a report prints that of a sum: those of the functions are added as if they
/// were independent.
fn by_function_total(mix: &Mix, module: &str) -> f64 {
    let rows = mix
        .rows
        .iter()
        .filter(|row| row.key.first().is_some_and(|it| it == module));
    let squares = rows.map(|row| row.total.std_error.unwrap_or(0.0).powi(2));
    squares.sum::<f64>().sqrt()
}

/// The exact counts of user code; those of the kernel are not known block by block.
fn reference(tgid: u32, program: &Program, ran: &[Ran]) -> Reference {
    let counted = program.loads.iter().zip(ran).flat_map(|(load, ran)| {
        let instructions = load.instructions.iter();
        instructions.map(|it| (&it.bytes, it.executions.saturating_mul(ran.calls)))
    });
    let blocks = counted.map(|(bytes, executions)| Block {
        owner: tgid,
        n_instructions: 1,
        start: ADDRESS + bytes.start as u64,
        executions,
        bytes: program.text.get(bytes.clone()).unwrap_or_default().to_vec(),
    });
    let blocks: Vec<Block> = blocks.collect();
    Reference {
        instructions: [blocks.iter().map(|block| block.executions).sum(), 0],
        blocks,
        ..Reference::default()
    }
}

/// Calls of all functions of the kernel that the loads call, and those of them that the profile has nothing of.
fn all_calls(
    estimated: &Estimated<'_>,
    program: &Program,
    ran: &[Ran],
) -> (Vec<CallErrors>, Vec<&'static str>) {
    let mut calls = Vec::new();
    let mut unseen = Vec::new();
    for (load, ran) in program.loads.iter().zip(ran) {
        let Some(KernelCalls {
            function,
            calls: each,
        }) = load.kernel
        else {
            continue;
        };
        match calls_of(estimated, function, amount(each.saturating_mul(ran.calls))) {
            Some(compared) => calls.push(CallErrors {
                function,
                calls: compared,
            }),
            None => unseen.push(function),
        }
    }
    (calls, unseen)
}

/// Calls of a function of the kernel: executions of its first block. `None` if nothing of it is in the profile.
fn calls_of(estimated: &Estimated<'_>, name: &str, exact: f64) -> Option<Compared> {
    let (map, snapshot) = (&estimated.map, estimated.snapshot);
    let blocks = estimated
        .counts()
        .blocks
        .iter()
        .filter(|block| block.ring == Ring::Kernel);
    let located = blocks.filter_map(|block| {
        let text = map.text(block.block.text)?;
        let start: ImageAddr = text.addr(*map.instructions(block.block).first()?);
        let module = snapshot.modules.get(text.module.0 as usize)?;
        (function(module, start)? == name).then(|| (start, block.chosen()))
    });
    let located: Vec<_> = located.collect();
    let first = located.iter().map(|(start, _)| *start).min()?;
    let entries = || located.iter().filter(|(start, _)| *start == first);
    Some(Compared {
        exact,
        estimated: entries().map(|(_, estimate)| estimate.count).sum(),
        std_error: entries().map(|(_, estimate)| estimate.std_error).sum(),
    })
}
