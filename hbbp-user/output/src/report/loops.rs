//! The loops of a profile: what OptiWISE's table of loops shows, with standard errors. As text here.

mod calls;
mod csv;
mod json;
mod run_loops;

use std::io;

use super::named::shown_names;
use super::number::{percent, scaled, several};
use super::page::Page;
use super::pivot_table::per;
use super::table::{Line, Table};
use hbbp_analysis::loops::{Loop, Loops, Region};
use hbbp_estimate::{Figure, Unit};
use hbbp_model::advice::{Advice, Wording};
use hbbp_model::names::{Demangle, file_name};
use hbbp_model::printable::harmless;
pub(super) use json::LoopsJson;
pub(super) use run_loops::RunLoops;
use run_loops::{entered, place, share};

/// Columns of numbers in text: a title, and the lines below it.
type Column = (&'static str, fn(&RunLoops<'_>, &Loop) -> String);

const SHARE: Column = ("%", |run, it| {
    percent(share(it.region.amount.value, run.loops.total))
});
const TIME: Column = ("time %", |run, it| {
    let part = it.region.time.zip(run.loops.time);
    part.map_or_else(String::new, |(part, (_, all))| percent(share(part.value, all)))
});
const INCLUSIVE: Column = ("incl %", |run, it| {
    let part = it.region.inclusive.zip(run.loops.calls.as_ref());
    part.map_or_else(String::new, |(part, calls)| {
        percent(share(part.value, calls.total))
    })
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
        let at_least = it.rounds.and_then(|rounds| rounds.trips_at_least);
        let at_least = at_least.map(|trips| format!(">{}", scaled(trips, 2)));
        known(match entered(it) {
            Some(entered) => trips(entered.trips),
            None => at_least,
        })
    }),
    ("instr/iter", |_, it| {
        let length = it
            .rounds
            .and_then(|rounds| it.region.amount.over(rounds.iterations));
        known(length.map(|length| format!("{:.1}", length.value)))
    }),
];

/// A trip count with its error; `None` if the error leaves nothing of it. Hundredths of hundreds are not significant.
fn trips(Figure { value, std_error }: Figure) -> Option<String> {
    /// For figures so uncertain that not even the first digit is known.
    const MEANINGLESS: f64 = 0.5;
    const MANY: f64 = 100.0;

    let decimals = if value < MANY { 2 } else { 0 };
    (std_error < MEANINGLESS * value).then(|| format!("{value:.decimals$} ±{std_error:.decimals$}"))
}

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
        if self.loops.calls.is_some() {
            columns.push(INCLUSIVE);
        }
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
    pub(super) fn text(&self, wording: Wording, page: &mut Page<'_>) -> io::Result<()> {
        page.line("")?;
        page.entry("", &self.title())?;
        if self.loops.loops.is_empty() {
            page.entry("", "no loop ran")?;
        } else {
            let shares: Vec<f64> = self.shown().iter().map(|it| self.weight(&it.region)).collect();
            let greatest = shares.iter().copied().fold(0.0, f64::max);
            page.table(&self.fitting(page), |row| Some(shares.get(row)? / greatest))?;
        }
        self.calls(page)?;
        let notes = self.notes(wording, page.look.demangle);
        notes.iter().try_for_each(|note| page.entry("  - ", note))
    }

    fn weight(&self, region: &Region) -> f64 {
        region.inclusive.or(region.time).unwrap_or(region.amount).value
    }

    fn title(&self) -> String {
        let amounts = match self.loops.unit {
            Some(Unit::Executions | Unit::RelativeExecutions) => "% of executed instructions",
            Some(Unit::EventWeightedSamples) => "% of event-weighted samples",
            Some(Unit::TimeWeightedSamples) | None => "% of time-weighted samples",
        };
        // The caption of the functions above says what time is counted in.
        let time = match self.loops.time {
            Some(_) => "; CPI ? where executions are too few to divide by",
            None => "",
        };
        let inclusive = match self.loops.calls {
            Some(_) => "; incl: time with what they call, by call chains",
            None => "",
        };
        format!("Loops, {amounts}{time}{inclusive}")
    }

    /// The table with as many columns as fit on the page.
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
    fn notes(&self, wording: Wording, demangle: Demangle) -> Vec<String> {
        let mut notes = Vec::new();
        let irreducible = &self.loops.irreducible;
        if !irreducible.is_empty() {
            let first = irreducible.iter().take(MOST_REGIONS);
            let named: Vec<String> = first
                .map(|region| {
                    let function = hbbp_model::names::function(&region.function, demangle);
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
            notes.push(format!(
                "no cycles were sampled: {} for time and CPI",
                wording(Advice::RecordTime)
            ));
        }
        if 0 < self.loops.left_out {
            notes.push(format!(
                "{} left out: they are nested so deeply that finding them takes too long",
                several(self.loops.left_out, "loop")
            ));
        }
        notes
    }
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trip_counts_without_a_known_digit_are_omitted() {
        let trips = |value, std_error| trips(Figure { value, std_error });
        assert_eq!(trips(3.25, 0.017).as_deref(), Some("3.25 ±0.02"));
        assert_eq!(trips(10_123.44, 48.65).as_deref(), Some("10123 ±49"));
        assert_eq!(trips(10_123.44, 10_148.65), None);
    }
}
