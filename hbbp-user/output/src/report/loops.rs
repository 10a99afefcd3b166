//! The loops of a profile: what OptiWISE's table of loops shows, with standard errors. As text here.

mod calls;
mod columns;
mod csv;
mod functions;
mod json;
mod run_loops;

use std::io;

use super::named::shown_names;
use super::number::several;
use super::page::Page;
use super::table::{Line, Table};
use columns::{Column, LEFT_OUT};
use hbbp_analysis::loops::{Loop, Loops, Region};
use hbbp_estimate::Unit;
use hbbp_model::advice::{Advice, Wording};
use hbbp_model::names::{Demangle, file_name};
use hbbp_model::printable::harmless;
pub(super) use json::LoopsJson;
pub(super) use run_loops::RunLoops;
use run_loops::place;

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
        self.functions(page)?;
        self.calls(page)?;
        let notes = self.notes(wording, page.look.demangle);
        notes.iter().try_for_each(|note| page.entry("  - ", note))
    }

    fn weight(&self, region: &Region) -> f64 {
        let inclusive = region.inclusive.map(|inclusive| inclusive.time);
        inclusive.or(region.time).unwrap_or(region.amount).value
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
            Some(_) => "; incl: time, and instructions, with what they call, by call chains",
            None => "",
        };
        format!("Loops, {amounts}{time}{inclusive}")
    }

    /// The table with as many columns as fit on the page.
    fn fitting(&self, page: &Page<'_>) -> Table {
        let (mut of_regions, mut of_rounds) = (self.of_regions(), self.of_rounds().to_vec());
        let mut table = self.table(page, &of_regions, &of_rounds);
        for left_out in LEFT_OUT {
            if table.fits(page.look.width) {
                break;
            }
            of_regions.retain(|(title, _)| *title != left_out);
            of_rounds.retain(|(title, _)| *title != left_out);
            table = self.table(page, &of_regions, &of_rounds);
        }
        table
    }

    fn table(&self, page: &Page<'_>, of_regions: &[Column<Region>], of_rounds: &[Column<Loop>]) -> Table {
        let shown = self.shown();
        let key = |it: &Loop| [self.module(&it.region).to_owned(), it.region.function.clone()];
        let keys: Vec<[String; 2]> = shown.iter().map(key).collect();
        let keys: Vec<&[String]> = keys.iter().map(<[String; 2]>::as_slice).collect();
        let mut names = shown_names(&["module", "function"], &keys, page.look.demangle);
        for (names, it) in names.iter_mut().zip(shown) {
            names.push(place(it));
        }
        let row = |(it, names): (&Loop, Vec<String>)| {
            let of_region = of_regions.iter().map(|(_, text)| text(self, &it.region));
            let of_rounds = of_rounds.iter().map(|(_, text)| text(self, it));
            Line::Row(names, of_region.chain(of_rounds).collect())
        };
        let titles = of_regions.iter().map(|(title, _)| *title);
        let titles = titles.chain(of_rounds.iter().map(|(title, _)| *title));
        let numbers: Vec<String> = titles.map(str::to_owned).collect();
        let left = self.loops.loops.len() - shown.len();
        let more = (0 < left).then(|| {
            let title = format!("({})", several(left as u64, "more loop"));
            let blanks = |n| std::iter::repeat_n(String::new(), n);
            Line::Row(
                std::iter::once(title).chain(blanks(2)).collect(),
                blanks(numbers.len()).collect(),
            )
        });
        Table {
            names: ["module", "function", "loop"].map(str::to_owned).to_vec(),
            lines: shown.iter().zip(names).map(row).chain(more).collect(),
            numbers,
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
