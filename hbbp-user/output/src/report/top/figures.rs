//! What one interval says: facts of the measurement, the classes of both rings, a table, the code of a function.

use std::io;

use super::super::no_executions::without_executions;
use super::super::{AnnotatedReport, Look, Shown, TextOrJson};
use super::row::Row;
use super::screen::{Rings, Tab};
use super::table::Table;
use hbbp_analysis::annotate::{Heat, annotated, hottest};
use hbbp_analysis::mix::{Axis, Category, Dimension, Estimated, Filter, Mix, Query, Sort, Unit, Value};
use hbbp_code::locate::{PerRing, Tally, Unresolved};
use hbbp_model::addr::Ring;
use hbbp_model::advice::Wording;
use hbbp_model::names::Demangle;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::loss::LossUnit;
use hbbp_model::snapshot::{Event, Snapshot, SourceLocations};

/// An interval whose blocks were counted.
pub struct Figures<'a> {
    snapshot: &'a Snapshot,
    estimated: &'a Estimated<'a>,
    demangle: Demangle,
    wording: Wording,
}

/// What the head of the screen says.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Why there are no executions; `None` where there are.
    pub without_executions: Option<String>,
    /// Name of the host.
    pub(super) host: String,
    /// Length of the interval in ns.
    pub(super) duration: u64,
    /// Samples and branch stacks that reached the collector.
    pub(super) reached: u64,
    /// Share of the expected ones that did; `None` if the kernel chose the period.
    pub(super) complete: Option<f64>,
    /// Samples that were refused, and those that no instruction was found for.
    pub(super) lost: u64,
    /// Share of the CPU time of the machine that the tool itself took.
    pub(super) overhead: f64,
    /// What the shares are of.
    pub(super) unit: Unit,
    /// Both rings, the kernel first.
    pub(super) rings: [RingShare; 2],
}

/// One ring: its share of everything, and what it executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RingShare {
    /// Share of all instructions.
    pub(super) share: f64,
    /// Categories with their share of all instructions, in the order of [`Category::ALL`].
    pub(super) categories: Vec<(Category, f64)>,
}

impl<'a> Figures<'a> {
    /// Of an estimate.
    pub const fn new(estimated: &'a Estimated<'a>, demangle: Demangle, wording: Wording) -> Self {
        Self {
            snapshot: estimated.snapshot,
            estimated,
            demangle,
            wording,
        }
    }

    /// The profile.
    pub const fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// The head of the screen.
    pub fn facts(&self) -> Facts {
        let run = &self.snapshot.run;
        let events = &run.events;
        let reached = events.iter().map(|event| event.runs).sum();
        let due: Option<Vec<u64>> = events.iter().map(Event::due).collect();
        let due: Option<u64> = due.map(|due| due.iter().sum());
        let unresolved = &self.estimated.counts().outcome.unresolved;
        let total = |tally: &Tally<Unresolved>| tally.0.values().copied().map(PerRing::total).sum::<u64>();
        let unresolved = total(&self.estimated.located.unresolved) + total(unresolved);
        let of_machine = run.duration as f64 * f64::from(run.host.n_cpus.max(1));
        let mix = self.mix(&Query::by([Dimension::Category]));
        Facts {
            without_executions: without_executions(self.estimated, self.wording),
            host: harmless(&run.host.name),
            duration: run.duration,
            reached,
            complete: due.map(|due| part(reached as f64, due as f64).min(1.0)),
            lost: self.snapshot.losses.total(LossUnit::Sample) + unresolved,
            overhead: part(run.overhead.cpu as f64, of_machine),
            unit: mix.unit,
            rings: [Ring::Kernel, Ring::User].map(|ring| ring_share(&mix, ring)),
        }
    }

    /// A table.
    pub fn table(&self, tab: Tab, rings: Rings) -> Table {
        let query = Query {
            rows: tab.dimensions().iter().copied().map(Axis::from).collect(),
            columns: vec![Dimension::Ring.into()],
            filters: rings
                .filter()
                .and_then(|text| Filter::parse(text, &[]).ok())
                .into_iter()
                .collect(),
            values: vec![Value::Share],
            sort: Sort::Total,
        };
        let mix = self.mix(&query);
        let kernel = column(&mix, Ring::Kernel);
        let of_all = |amount: f64| part(amount, mix.all.amount);
        let rows = mix.rows.into_iter().filter(|row| 0.0 < row.total.amount);
        let rows = rows.map(|row| Row {
            share: of_all(row.total.amount),
            error: of_all(row.total.std_error.unwrap_or(0.0)),
            kernel: of_all(
                kernel
                    .and_then(|nth| row.cells.get(nth))
                    .map_or(0.0, |cell| cell.amount),
            ),
            key: row.key,
        });
        Table {
            by: tab.dimensions(),
            demangle: self.demangle,
            rows: rows.collect(),
        }
    }

    /// The annotated code of the function of a row, as lines; `None` if a row is none.
    pub fn code(&self, row: &Row, width: usize) -> Option<Vec<String>> {
        let [name, module] = row.key.as_slice() else {
            return None;
        };
        let is_it = |heat: &Heat| {
            let of = self.snapshot.modules.get(heat.code.module.0 as usize);
            heat.code.name == *name && of.is_some_and(|of| of.name == *module)
        };
        let code = hottest(self.estimated).into_iter().find(is_it)?.code;
        let function = annotated(
            self.estimated,
            &code,
            self.demangle,
            &mut |_, _| None,
            &mut |_, _| None,
        )?;
        let unit = self.estimated.counts().assignment.unit;
        let report = AnnotatedReport::new(self.snapshot, unit, std::slice::from_ref(&function), &[]);
        let look = Look {
            width,
            demangle: self.demangle,
            ..Look::default()
        };
        let mut text = Vec::new();
        let written: io::Result<()> = report.write(TextOrJson::Text, look, Shown::Executed, &mut text);
        written.ok()?;
        let text = String::from_utf8_lossy(&text);
        Some(text.lines().map(str::to_owned).collect())
    }

    fn mix(&self, query: &Query) -> Mix {
        self.estimated.mix(query, &SourceLocations::new())
    }
}

fn ring_share(mix: &Mix, ring: Ring) -> RingShare {
    let Some(nth) = column(mix, ring) else {
        return RingShare::default();
    };
    let share = |category: Category| {
        let row = mix
            .rows
            .iter()
            .find(|row| row.key.first().is_some_and(|key| key == category.name()));
        let amount = row
            .and_then(|row| row.cells.get(nth))
            .map_or(0.0, |cell| cell.amount);
        (0.0 < amount).then(|| (category, part(amount, mix.all.amount)))
    };
    RingShare {
        share: mix
            .columns
            .get(nth)
            .map_or(0.0, |column| part(column.total.amount, mix.all.amount)),
        categories: Category::ALL.into_iter().filter_map(share).collect(),
    }
}

/// The column of a ring.
fn column(mix: &Mix, ring: Ring) -> Option<usize> {
    mix.columns.iter().position(|column| column.name() == ring.name())
}

/// `part / whole`, 0 of nothing.
fn part(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}
