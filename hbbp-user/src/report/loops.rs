//! The loops of a profile as text, as JSON and as CSV: what OptiWISE's table of loops shows, with standard errors.

use std::io::{self, Write};

use serde::Serialize;

use super::named::shown_names;
use super::number::{percent, scaled, several};
use super::page::Page;
use super::pivot_table::per;
use super::table::{Line, Table};
use crate::estimate::{Figure, Unit};
use crate::loops::{Entered, Loop, Loops, Region};
use crate::names::{Demangle, file_name};
use crate::printable::harmless;
use crate::snapshot::{EventUnit, Snapshot};

/// The loops of one run within a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLoops<'a> {
    /// The run.
    pub(super) snapshot: &'a Snapshot,
    /// Its loops.
    pub(super) loops: &'a Loops,
    /// Most loops; `None` for all.
    pub(super) top: Option<usize>,
}

/// The loops of a run as JSON: part of `hbbp-sys.mix/2`.
#[derive(Serialize)]
pub(super) struct LoopsJson<'a> {
    unit: Option<&'static str>,
    /// `cycles` or `ns`; null where time was not sampled beside executions.
    time_unit: Option<&'static str>,
    /// What all code executed, in the unit.
    total: f64,
    /// The time of all code.
    total_time: Option<f64>,
    /// Those within `--top`.
    loops: Vec<LoopJson<'a>>,
    n_loops: usize,
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
    /// These are null where branch stacks do not tell.
    iterations: Option<FigureJson>,
    invocations: Option<FigureJson>,
    trips: Option<FigureJson>,
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
    /// Time for each instruction; null where executions are too few to divide by.
    cpi: Option<FigureJson>,
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

/// Columns of numbers in text: a title, and what stands below it.
type Column = (&'static str, fn(&RunLoops<'_>, &Loop) -> String);

const SHARE: Column = ("%", |run, it| {
    percent(share(it.region.amount.value, run.loops.total))
});
const TIME: Column = ("time %", |run, it| {
    let part = it.region.time.zip(run.loops.time);
    part.map_or_else(String::new, |(part, (_, all))| percent(share(part.value, all)))
});
const CPI: Column = ("CPI", |_, it| {
    it.region
        .cpi()
        .map_or_else(|| "?".to_owned(), |cpi| per(cpi.value, Some(cpi.std_error)))
});
const ROUNDS: [Column; 4] = [
    ("iterations", |_, it| {
        known(it.rounds.map(|rounds| scaled(rounds.iterations.value, 4)))
    }),
    ("invocations", |_, it| {
        known(entered(it).map(|entered| scaled(entered.invocations.value, 4)))
    }),
    ("trips", |_, it| {
        known(entered(it).map(|entered| {
            let Figure { value, std_error } = entered.trips;
            format!("{value:.2} ±{std_error:.2}")
        }))
    }),
    ("instr/iter", |_, it| {
        let length = it
            .rounds
            .and_then(|rounds| it.region.amount.over(rounds.iterations));
        known(length.map(|length| format!("{:.1}", length.value)))
    }),
];

/// Irreducible regions that text names.
const MOST_REGIONS: usize = 5;

impl<'a> RunLoops<'a> {
    fn shown(&self) -> &'a [Loop] {
        let all = self.loops.loops.as_slice();
        all.get(..self.top.unwrap_or(usize::MAX).min(all.len()))
            .unwrap_or(all)
    }

    /// The module of a region.
    fn module(&self, region: &Region) -> &'a str {
        let module = self.snapshot.modules.get(region.module.0 as usize);
        module.map_or("", |module| &module.name)
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        if self.loops.time.is_some() {
            columns.extend([TIME, CPI]);
        }
        columns.push(SHARE);
        if self.loops.unit.is_some_and(Loops::has_executions) {
            columns.extend(ROUNDS);
        }
        columns
    }

    /// Writes the table, under a sentence on what its figures are.
    pub(super) fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.line("")?;
        page.entry("", &self.title())?;
        if self.loops.loops.is_empty() {
            page.entry("", "no loop ran")?;
        } else {
            let shares: Vec<f64> = self.shown().iter().map(|it| self.weight(&it.region)).collect();
            let greatest = shares.iter().copied().fold(0.0, f64::max);
            page.table(&self.fitting(page), |row| Some(shares.get(row)? / greatest))?;
        }
        let notes = self.notes(page.look.demangle);
        notes.iter().try_for_each(|note| page.entry("  - ", note))
    }

    fn weight(&self, region: &Region) -> f64 {
        region.time.unwrap_or(region.amount).value
    }

    fn title(&self) -> String {
        let amounts = match self.loops.unit {
            Some(Unit::Executions | Unit::RelativeExecutions) => "% of executed instructions",
            Some(Unit::EventWeightedSamples) => "% of event-weighted samples",
            Some(Unit::TimeWeightedSamples) | None => "% of time-weighted samples",
        };
        let time = match self.loops.time {
            Some((EventUnit::Cycles, _)) => {
                "; time in core cycles, CPI ? where executions are too few to divide by"
            }
            Some(_) => {
                "; time in ns of a clock, CPI in ns for each instruction, ? where executions are too few"
            }
            None => "",
        };
        format!("Loops with the loops inside them, without what they call, {amounts}{time}")
    }

    /// The table with as many columns as the page has room for.
    fn fitting(&self, page: &Page<'_>) -> Table {
        let mut columns = self.columns();
        let mut table = self.table(page, &columns);
        for left_out in ["instr/iter", "invocations"] {
            if table.fits(page.look.width) {
                break;
            }
            columns.retain(|(title, _)| *title != left_out);
            table = self.table(page, &columns);
        }
        table
    }

    fn table(&self, page: &Page<'_>, columns: &[Column]) -> Table {
        let shown = self.shown();
        let key = |it: &Loop| [self.module(&it.region).to_owned(), it.region.function.clone()];
        let keys: Vec<[String; 2]> = shown.iter().map(key).collect();
        let keys: Vec<&[String]> = keys.iter().map(<[String; 2]>::as_slice).collect();
        let mut names = shown_names(&["module", "function"], &keys, page.look.demangle);
        for (names, it) in names.iter_mut().zip(shown) {
            names.push(place(it));
        }
        let row = |(it, names): (&Loop, Vec<String>)| {
            Line::Row(names, columns.iter().map(|(_, text)| text(self, it)).collect())
        };
        let left = self.loops.loops.len() - shown.len();
        let more = (0 < left).then(|| {
            let title = format!("({})", several(left as u64, "more loop"));
            let blanks = |n| std::iter::repeat_n(String::new(), n);
            Line::Row(
                std::iter::once(title).chain(blanks(2)).collect(),
                blanks(columns.len()).collect(),
            )
        });
        Table {
            names: ["module", "function", "loop"].map(str::to_owned).to_vec(),
            numbers: columns.iter().map(|(title, _)| (*title).to_owned()).collect(),
            lines: shown.iter().zip(names).map(row).chain(more).collect(),
        }
    }

    /// What the table does not say.
    fn notes(&self, demangle: Demangle) -> Vec<String> {
        let mut notes = Vec::new();
        let irreducible = &self.loops.irreducible;
        if !irreducible.is_empty() {
            let first = irreducible.iter().take(MOST_REGIONS);
            let named: Vec<String> = first
                .map(|region| {
                    let function = crate::names::function(&region.function, demangle);
                    let module = file_name(self.module(region)).trim_matches(['[', ']']);
                    format!("{function} [{}]", harmless(module))
                })
                .collect();
            notes.push(format!(
                "{} entered at several blocks, which makes no natural loop (irreducible): {}{}",
                several(irreducible.len() as u64, "region"),
                named.join(", "),
                if MOST_REGIONS < irreducible.len() {
                    ", .."
                } else {
                    ""
                }
            ));
        }
        if !self.loops.unit.is_some_and(Loops::has_executions) {
            notes.push(
                "no event counts executions: iterations, invocations, trip counts and CPI are not known, and loops are those of \
                 the code, whether or not all of it ran"
                    .to_owned(),
            );
        } else if self.loops.time.is_none() {
            notes.push("no cycles were sampled beside executions: record --time for time and CPI".to_owned());
        }
        if 0 < self.loops.left_out {
            notes.push(format!(
                "{} left out: they are nested so deeply that finding them takes too long",
                several(self.loops.left_out, "loop")
            ));
        }
        notes
    }

    pub(super) fn json(&self) -> LoopsJson<'a> {
        let loops = self.shown().iter().map(|it| LoopJson {
            region: self.region(&it.region),
            header: it.header.0,
            tail: it.tail.0,
            depth: it.depth,
            parent: it.parent,
            iterations: it.rounds.map(|rounds| rounds.iterations.into()),
            invocations: entered(it).map(|entered| entered.invocations.into()),
            trips: entered(it).map(|entered| entered.trips.into()),
        });
        let irreducible = self.loops.irreducible.iter();
        LoopsJson {
            unit: self.loops.unit.map(Unit::id),
            time_unit: self.loops.time.map(|(unit, _)| super::json::unit_id(unit)),
            total: self.loops.total,
            total_time: self.loops.time.map(|(_, all)| all),
            loops: loops.collect(),
            n_loops: self.loops.loops.len(),
            irreducible: irreducible
                .take(self.top.unwrap_or(usize::MAX))
                .map(|region| self.region(region))
                .collect(),
            n_irreducible: self.loops.irreducible.len(),
            left_out: self.loops.left_out,
        }
    }

    fn region(&self, region: &'a Region) -> RegionJson<'a> {
        RegionJson {
            module: self.module(region),
            function: &region.function,
            ring: region.ring.to_string(),
            lines: region.lines.as_deref(),
            n_blocks: region.blocks.len(),
            amount: region.amount.into(),
            time: region.time.map(Into::into),
            cpi: region.cpi().map(Into::into),
        }
    }

    /// Writes one line for each loop, RFC 4180 with line feeds; what is not known is empty.
    pub(super) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        const TITLES: [&str; 21] = [
            "module",
            "function",
            "ring",
            "header",
            "tail",
            "lines",
            "depth",
            "amount",
            "amount_std_error",
            "share",
            "time",
            "time_std_error",
            "time_share",
            "cpi",
            "cpi_std_error",
            "iterations",
            "iterations_std_error",
            "invocations",
            "invocations_std_error",
            "trips",
            "trips_std_error",
        ];
        let mut lines = csv::Writer::from_writer(out);
        lines.write_record(TITLES)?;
        let both = |figure: Option<Figure>| {
            let text = |of: fn(Figure) -> f64| figure.map(|it| of(it).to_string()).unwrap_or_default();
            [text(|it| it.value), text(|it| it.std_error)]
        };
        for it in self.shown() {
            let region = &it.region;
            let [amount, amount_error] = both(Some(region.amount));
            let [time, time_error] = both(region.time);
            let time_share = region.time.zip(self.loops.time);
            let time_share = time_share.map(|(part, (_, all))| share(part.value, all).to_string());
            let figures = [
                region.cpi(),
                it.rounds.map(|rounds| rounds.iterations),
                entered(it).map(|entered| entered.invocations),
                entered(it).map(|entered| entered.trips),
            ];
            let first = [
                harmless(self.module(region)),
                harmless(&region.function),
                region.ring.to_string(),
                format!("{:x}", it.header.0),
                format!("{:x}", it.tail.0),
                region.lines.as_deref().map(harmless).unwrap_or_default(),
                it.depth.to_string(),
                amount,
                amount_error,
                share(region.amount.value, self.loops.total).to_string(),
                time,
                time_error,
                time_share.unwrap_or_default(),
            ];
            lines.write_record(first.into_iter().chain(figures.into_iter().flat_map(both)))?;
        }
        lines.flush()
    }
}

/// Where a loop is: its source lines, or its first and last address in the module.
fn place(it: &Loop) -> String {
    let place = match &it.region.lines {
        Some(lines) => harmless(lines),
        None => format!("{:x}..{:x}", it.header.0, it.tail.0),
    };
    let depth = usize::try_from(it.depth).unwrap_or(usize::MAX).min(8);
    "›".repeat(depth) + &place
}

fn entered(it: &Loop) -> Option<Entered> {
    it.rounds?.entered
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "?".to_owned())
}

fn share(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}
