//! The loops of a run as JSON.

use serde::Serialize;

use super::super::json::unit_id;
use super::run_loops::{RunLoops, entered};
use hbbp_analysis::loops::{CallSite, Calls, Region};
use hbbp_estimate::{Figure, Unit};

/// The loops of a run as JSON: part of `hbbp-sys.mix/2`.
#[derive(Serialize)]
pub(in crate::report) struct LoopsJson<'a> {
    unit: Option<&'static str>,
    /// `cycles` or `ns`; null if time was not sampled in addition to executions.
    time_unit: Option<&'static str>,
    /// What all code executed, in the unit.
    total: f64,
    /// The time of all code.
    total_time: Option<f64>,
    /// What was called from where; null if no call chains were sampled.
    calls: Option<CallsJson<'a>>,
    /// Those within `--top`.
    loops: Vec<LoopJson<'a>>,
    n_loops: usize,
    /// Functions, by falling time with what they call; none if no call chains were sampled.
    functions: Vec<RegionJson<'a>>,
    n_functions: usize,
    irreducible: Vec<RegionJson<'a>>,
    n_irreducible: usize,
    left_out: u64,
}

#[derive(Serialize)]
struct LoopJson<'a> {
    #[serde(flatten)]
    region: RegionJson<'a>,
    /// Address of the block that each iteration begins with.
    header: u64,
    /// Address of the branch that went back to it most often.
    tail: u64,
    depth: u64,
    /// The innermost loop that it lies in, as an index; that of an outer loop is less.
    parent: Option<usize>,
    /// These are null where branch stacks do not show them.
    iterations: Option<FigureJson>,
    invocations: Option<FigureJson>,
    trips: Option<FigureJson>,
    /// Where no stack shows the loop being entered.
    trips_at_least: Option<f64>,
    /// The calls that led into it, with its inclusive figures for each.
    callers: Vec<CallJson<'a>>,
}

#[derive(Serialize)]
struct CallsJson<'a> {
    time_unit: &'static str,
    /// The time of all samples with a call chain.
    total: f64,
    samples: u64,
    /// Samples whose chain says nothing, or ends, by cause.
    unresolved: u64,
    interrupted: u64,
    without_caller: u64,
    cut_short: u64,
    no_call: u64,
    sites: Vec<CallJson<'a>>,
    n_sites: usize,
}

#[derive(Serialize)]
struct CallJson<'a> {
    module: &'a str,
    function: &'a str,
    address: u64,
    line: Option<&'a str>,
    /// The innermost loop that it lies in, as an index.
    r#loop: Option<usize>,
    time: FigureJson,
    /// Executed instructions; null where these are not counted.
    amount: Option<FigureJson>,
}

#[derive(Serialize)]
struct RegionJson<'a> {
    module: &'a str,
    function: &'a str,
    ring: String,
    lines: Option<&'a str>,
    n_blocks: usize,
    /// Executed instructions, in the unit.
    amount: FigureJson,
    time: Option<FigureJson>,
    /// Time with what it called; null if no call chains were sampled.
    inclusive_time: Option<FigureJson>,
    /// Executed instructions with those of what it called; null without executions or call chains.
    inclusive_amount: Option<FigureJson>,
    /// Time for each instruction; null if executions are too few to divide by.
    cpi: Option<FigureJson>,
    /// The same with what it called.
    inclusive_cpi: Option<FigureJson>,
}

#[derive(Serialize)]
struct FigureJson {
    value: f64,
    std_error: f64,
}

impl From<Figure> for FigureJson {
    fn from(figure: Figure) -> Self {
        Self {
            value: figure.value,
            std_error: figure.std_error,
        }
    }
}

impl<'a> RunLoops<'a> {
    pub(in crate::report) fn json(&self) -> LoopsJson<'a> {
        let loops = self.shown().iter().map(|it| LoopJson {
            region: self.region(&it.region),
            header: it.header.0,
            tail: it.tail.0,
            depth: it.depth,
            parent: it.parent,
            iterations: it.rounds.map(|rounds| rounds.iterations.into()),
            invocations: entered(it).map(|entered| entered.invocations.into()),
            trips: entered(it).map(|entered| entered.trips.into()),
            trips_at_least: it.rounds.and_then(|rounds| rounds.trips_at_least),
            callers: it.callers.iter().map(|site| self.call_json(site)).collect(),
        });
        let shown = self.top.unwrap_or(usize::MAX);
        let regions = |all: &'a [Region]| all.iter().take(shown).map(|region| self.region(region)).collect();
        LoopsJson {
            unit: self.loops.unit.map(Unit::id),
            time_unit: self.loops.time.map(|(unit, _)| unit_id(unit)),
            total: self.loops.total,
            total_time: self.loops.time.map(|(_, all)| all),
            calls: self.loops.calls.as_ref().map(|calls| self.calls_json(calls)),
            loops: loops.collect(),
            n_loops: self.loops.loops.len(),
            functions: regions(&self.loops.functions),
            n_functions: self.loops.functions.len(),
            irreducible: regions(&self.loops.irreducible),
            n_irreducible: self.loops.irreducible.len(),
            left_out: self.loops.left_out,
        }
    }

    fn calls_json(&self, calls: &'a Calls) -> CallsJson<'a> {
        let ends = calls.ends;
        CallsJson {
            time_unit: unit_id(calls.unit),
            total: calls.total,
            samples: ends.samples,
            unresolved: ends.unresolved,
            interrupted: ends.interrupted,
            without_caller: ends.without_caller,
            cut_short: ends.cut_short,
            no_call: ends.no_call,
            sites: calls.sites.iter().map(|site| self.call_json(site)).collect(),
            n_sites: calls.n_sites,
        }
    }

    fn call_json(&self, site: &'a CallSite) -> CallJson<'a> {
        let module = self.snapshot.modules.get(site.module.0 as usize);
        let is_shown = |n: &usize| *n < self.shown().len();
        CallJson {
            module: module.map_or("", |module| &module.name),
            function: &site.function,
            address: site.addr.0,
            line: site.line.as_deref(),
            r#loop: site.within.filter(is_shown),
            time: site.called.time.into(),
            amount: site.called.instructions.map(Into::into),
        }
    }

    fn region(&self, region: &'a Region) -> RegionJson<'a> {
        let inclusive = region.inclusive;
        RegionJson {
            module: self.module(region),
            function: &region.function,
            ring: region.ring.to_string(),
            lines: region.lines.as_deref(),
            n_blocks: region.blocks.len(),
            amount: region.amount.into(),
            time: region.time.map(Into::into),
            inclusive_time: inclusive.map(|inclusive| inclusive.time.into()),
            inclusive_amount: inclusive.and_then(|it| it.instructions).map(Into::into),
            cpi: region.cpi().map(Into::into),
            inclusive_cpi: inclusive.and_then(|it| it.cpi).map(Into::into),
        }
    }
}
