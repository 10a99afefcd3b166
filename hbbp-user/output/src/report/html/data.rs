//! The table embedded in the page: every block with its executions, and its instructions with their classes.
//!
//! A document of JSON names what occurs: strings, classes of instructions, functions and modules. Numbers follow it in
//! columns ([`super::columns`]). Each text is stored once, and disassembly in parts ([`super::template`]), so that the
//! code of a whole system fits into a page. Indices count from 0; every text is an index into `strings`. The sums that
//! the page shows are sums over instructions, of `block.count`, or of `instruction.amount` where figures are samples. So they
//! equal those of the other formats.

use std::collections::HashMap;

use serde::Serialize;

use super::changes::Changes;
use super::columns::{Column, Columns};
use super::table::{FunctionKey, PageBlock, Table};
use hbbp_analysis::mix::{Analysis, Axis, Class, DependsOn, Dimension, OverTime, Taxonomy, function};
use hbbp_estimate::{BlockCount, Method};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::leb128::zigzag;
use hbbp_model::names;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::ModuleIdx;

/// The page's content, without its columns.
#[derive(Serialize)]
pub(super) struct Page {
    /// Name and version of this table.
    format: &'static str,
    head: Head,
    strings: Vec<String>,
    /// Names of the classes of an instruction.
    attributes: Vec<String>,
    /// For each class of instructions, the string of each attribute.
    forms: Vec<Vec<u32>>,
    modules: Vec<PageModule>,
    /// What changed against another profile.
    changes: Option<Changes>,
    /// When instructions were executed.
    time: Option<Time>,
    /// The columns that follow.
    columns: Vec<Column>,
}

/// What is shown above the views.
#[derive(Serialize)]
pub(super) struct Head {
    /// Why there are no executions.
    #[serde(rename = "withoutExecutions")]
    pub(super) without_executions: Option<String>,
    pub(super) run: String,
    pub(super) unit: String,
    #[serde(rename = "unitWords")]
    pub(super) unit_words: &'static str,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) made: String,
}

/// The periods of the run; `time.amount` has a number for each class in each ring in each period.
#[derive(Serialize)]
struct Time {
    /// Start and end in seconds from the start of the run.
    periods: Vec<[f64; 2]>,
}

#[derive(Serialize)]
struct PageModule {
    name: u32,
    /// Lowest address of its functions, in hexadecimal, as numbers of a script end at 2^53. Other addresses are relative to it.
    start: String,
}

impl Table<'_> {
    /// The page, and the bytes of its columns.
    pub(super) fn finish(
        mut self,
        analysis: &Analysis,
        head: Head,
        changes: Option<Changes>,
    ) -> (Page, Vec<u8>) {
        let attributes = attributes();
        let forms = self.forms_by(&attributes, analysis);
        let (modules, mut columns) = self.columns();
        let time = self.over_time.map(|over_time| self.time(over_time, &mut columns));
        let page = Page {
            format: "hbbp-sys.page/2",
            head,
            attributes: attributes.iter().map(|axis| axis.name().to_owned()).collect(),
            forms,
            modules,
            changes,
            time,
            columns: columns.index,
            strings: self.strings.keys,
        };
        (page, columns.bytes)
    }

    /// The values of the attributes of each class.
    fn forms_by(&mut self, attributes: &[Axis], analysis: &Analysis) -> Vec<Vec<u32>> {
        let mut forms = Vec::with_capacity(self.forms.keys.len());
        for (idx, flow, mitigation) in &self.forms.keys {
            let form = analysis.map.forms.get(usize::from(idx.0));
            let class = form.and_then(|form| Class::of(form, *flow));
            let values = attributes.iter().map(|attribute| {
                if attribute.is(Dimension::Mitigation) {
                    return (*mitigation).to_owned();
                }
                let values = class.as_ref().map(|class| class.values(attribute));
                values.unwrap_or_default().join(" + ")
            });
            forms.push(values.map(|value| self.strings.of(value)).collect());
        }
        forms
    }

    /// The functions in the order of their addresses, and the position of each of their numbers in it.
    fn sorted_functions(&self) -> (Vec<FunctionKey>, Vec<u32>) {
        let mut functions: Vec<(FunctionKey, u32)> = self.functions.keys.iter().copied().zip(0..).collect();
        functions.sort_unstable();
        let mut places = vec![0_u32; functions.len()];
        for ((_, number), at) in functions.iter().zip(0_u32..) {
            if let Some(place) = places.get_mut(*number as usize) {
                *place = at;
            }
        }
        (functions.into_iter().map(|(key, _)| key).collect(), places)
    }

    /// Modules, and all that is numbers. Functions are in the order of their addresses, so that numbers are close to their
    /// neighbours.
    fn columns(&mut self) -> (Vec<PageModule>, Columns) {
        let (functions, places) = self.sorted_functions();
        let place = |number: u32| places.get(number as usize).copied().map_or(0, u64::from);
        let mut modules: Vec<(ModuleIdx, ImageAddr)> = Vec::new();
        // Of each function, the number of its module.
        let mut numbers = Vec::with_capacity(functions.len());
        for (module, start, _) in &functions {
            if modules.last().is_none_or(|(last, _)| last != module) {
                modules.push((*module, *start));
            }
            numbers.push(modules.len() as u64 - 1);
        }
        let base: HashMap<ModuleIdx, ImageAddr> = modules.iter().copied().collect();
        let relative =
            |module, addr: ImageAddr| addr.0.wrapping_sub(base.get(module).map_or(0, |base| base.0));
        let starts = functions
            .iter()
            .map(|(module, start, _)| relative(module, *start));
        let block_start = |block: &PageBlock| {
            let function = self.functions.keys.get(block.function as usize);
            function.map_or(0, |(module, ..)| relative(module, block.start))
        };
        let mut columns = Columns::default();
        columns.delta("function.module", numbers);
        columns.delta("function.start", starts);
        columns.delta(
            "block.function",
            self.blocks.iter().map(|block| place(block.function)),
        );
        columns.delta("block.start", self.blocks.iter().map(block_start));
        columns.delta("block.since", self.blocks.iter().map(|block| block.since));
        self.add_counts(&mut columns);
        columns.unsigned("kind.text", self.kinds.keys.iter().map(|kind| u64::from(kind.0)));
        columns.unsigned("kind.form", self.kinds.keys.iter().map(|kind| u64::from(kind.1)));
        columns.unsigned("kind.len", self.kinds.keys.iter().map(|kind| u64::from(kind.2)));
        columns.unsigned(
            "instruction.kind",
            self.instructions.kinds.iter().copied().map(u64::from),
        );
        if !self.instructions.samples.is_empty() {
            columns.double("instruction.amount", self.instructions.samples.iter().copied());
        }
        columns.unsigned("instruction.numbers", self.instructions.numbers.iter().copied());
        // Most branches stay in their function, and callees are often neighbours.
        let calls = self.instructions.calls.iter();
        let calls = calls.map(|(from, to)| zigzag(place(*from), place(*to)));
        columns.unsigned("instruction.functions", calls);
        let names = self.function_names(&functions);
        let names: Vec<u32> = names.into_iter().map(|name| self.strings.of(name)).collect();
        columns.delta("function.name", names.into_iter().map(u64::from));
        let modules = modules.into_iter().map(|(idx, start)| {
            let module = self.snapshot.modules.get(idx.0 as usize);
            let name = harmless(module.map_or("", |module| &module.name));
            PageModule {
                name: self.strings.of(name),
                start: format!("{:x}", start.0),
            }
        });
        (modules.collect(), columns)
    }

    fn time(&self, over_time: &OverTime, columns: &mut Columns) -> Time {
        let forms = (0_u32..).zip(&self.forms.keys).map(|(form, _)| form);
        let rings = [Ring::Kernel, Ring::User].into_iter();
        let cells = rings.flat_map(|ring| forms.clone().map(move |form| (ring, form)));
        let periods = 0..over_time.periods.len();
        let keys = periods.flat_map(|period| cells.clone().map(move |(ring, form)| (period, ring, form)));
        columns.single(
            "time.amount",
            keys.map(|key| Some(self.amounts.get(&key).copied().unwrap_or(0.0))),
        );
        let seconds = |ns: u64| ns as f64 / 1e9;
        let periods = over_time.periods.iter();
        Time {
            periods: periods
                .map(|period| [seconds(period.start), seconds(period.end)])
                .collect(),
        }
    }

    /// What was counted of each block.
    fn add_counts(&self, columns: &mut Columns) {
        let counts = || self.blocks.iter().map(|block| &block.count);
        columns.unsigned("block.ring", counts().map(|it| u64::from(it.ring == Ring::User)));
        columns.unsigned(
            "block.method",
            counts().map(|it| u64::from(it.method == Method::Lbr)),
        );
        columns.unsigned("block.size", counts().map(|it| u64::from(it.instructions)));
        columns.double("block.count", counts().map(|it| it.chosen().count));
        columns.single("block.error", counts().map(|it| Some(it.chosen().std_error)));
        let other = |count: &BlockCount| match count.method {
            Method::Ebs => count.lbr,
            Method::Lbr => count.ebs,
        };
        columns.single("block.other", counts().map(|it| other(it).map(|it| it.count)));
    }

    /// How the functions are shown; different ones with one name in the symbol tables share it.
    fn function_names(&self, keys: &[FunctionKey]) -> Vec<String> {
        let name = |(idx, start, is_named): &FunctionKey| {
            let module = self.snapshot.modules.get(idx.0 as usize);
            let name = module.and_then(|module| function(module, *start));
            name.filter(|_| *is_named)
                .unwrap_or_else(|| format!("[{}]", module.map_or("", |module| &module.name)))
        };
        let names: Vec<String> = keys.iter().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = names::functions(&names, self.demangle);
        shown.iter().map(|name| harmless(name)).collect()
    }
}

/// The properties that distinguish instructions on the page.
fn attributes() -> Vec<Axis> {
    let dimensions = Dimension::ALL.iter().copied();
    let of_forms = dimensions
        .filter(|dimension| dimension.depends_on() == DependsOn::Form || *dimension == Dimension::Mitigation);
    let taxonomies = Taxonomy::built_in().into_iter().map(Axis::Taxonomy);
    of_forms.map(Axis::Dimension).chain(taxonomies).collect()
}
