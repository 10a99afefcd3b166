//! The mixes of processes at intervals, in the CSV of Intel's processwatch 1.3 or as a table.
//!
//! CSV: one line of titles, `interval,pid,name` and the columns; for each interval, counted from 0, a line of all processes
//! named `ALL,ALL`, one for each process, and an empty line. Figures are percent of the process's instructions with six
//! decimals, so a line with all columns adds up to 100.

use std::io::{self, Write};

use super::look::Look;
use super::no_executions::without_executions;
use super::number::{percent, several};
use super::page::Page;
use super::table::{Line, Table};
use hbbp_analysis::mix::{Cell, Estimated, Mix, NO_GROUP, Row};
use hbbp_model::advice::Wording;
use hbbp_model::printable::{csv_name, harmless};

/// The form of a watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// For people: aligned text.
    Table,
    /// For scripts.
    Csv,
}

/// How the intervals of a watch are printed.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// The form.
    pub layout: Layout,
    /// Names of the columns; those that a mix does not have are 0.
    pub columns: &'a [String],
    /// How text looks.
    pub look: Look,
    /// Puts advice into words.
    pub wording: Wording,
}

/// `1 sample`, `1,234 samples`.
fn counted(samples: f64) -> String {
    match samples.round() {
        1.0 => "1 sample".to_owned(),
        n => format!("{n:.0} samples"),
    }
}

/// The column of instructions that the categories do not know.
const INVALID: &str = "INVALID";

impl Watch<'_> {
    /// Prints the titles of the whole watch.
    pub fn begin(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.layout == Layout::Csv {
            writeln!(out, "interval,pid,name,{}", self.columns.join(","))?;
        }
        out.flush()
    }

    /// Prints an interval; the rows of its mix are process ids and command names. The first one begins with why there are
    /// no executions.
    pub fn interval(
        &self,
        number: u32,
        estimated: &Estimated<'_>,
        mix: &Mix,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let why = without_executions(estimated, self.wording).filter(|_| number == 0);
        self.write(number, why.as_deref(), mix, out)
    }

    /// The CSV has no line for the reason, as scripts read each.
    fn write(&self, number: u32, why: Option<&str>, mix: &Mix, out: &mut dyn Write) -> io::Result<()> {
        match self.layout {
            Layout::Csv => self.csv(number, mix, out),
            Layout::Table => {
                let page = &mut Page { look: self.look, out };
                why.map_or(Ok(()), |why| page.entry("", why))?;
                self.table(number, mix, page)
            }
        }?;
        out.flush()
    }

    fn csv(&self, number: u32, mix: &Mix, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = csv::WriterBuilder::new().flexible(true).from_writer(&mut *out);
        for (pid, name, shares) in self.lines(mix) {
            let shares = shares.iter().map(|share| format!("{:.6}", 100.0 * share));
            lines.write_record(
                [number.to_string(), pid, csv_name(&name)]
                    .into_iter()
                    .chain(shares),
            )?;
        }
        lines.flush()?;
        drop(lines);
        writeln!(out)
    }

    fn table(&self, number: u32, mix: &Mix, page: &mut Page<'_>) -> io::Result<()> {
        let (all, processes): (Vec<_>, Vec<_>) = self.lines(mix).enumerate().partition(|(nth, _)| *nth == 0);
        // A process with none of the columns would be a row of zeros.
        let (shown, empty): (Vec<_>, Vec<_>) = processes
            .into_iter()
            .partition(|(_, (_, _, shares))| shares.iter().any(|share| 0.0 < *share));
        let samples: Vec<f64> = std::iter::once(mix.total.samples)
            .chain(mix.rows.iter().map(|row| row.total.samples))
            .collect();
        let title = format!(
            "interval {number}: {}; % of the {} of each process",
            counted(mix.total.samples),
            mix.unit.noun()
        );
        page.line(&title)?;
        let rows = all.into_iter().chain(shown).map(|(nth, (pid, name, shares))| {
            let samples = samples.get(nth).copied().unwrap_or_default();
            let shares = shares.into_iter().map(percent);
            let samples = std::iter::once(format!("{samples:.0}"));
            Line::Row(vec![pid, name], samples.chain(shares).collect())
        });
        let columns = self.columns.iter().map(|name| format!("%{name}"));
        let mut table = Table {
            names: vec!["PID".to_owned(), "NAME".to_owned()],
            numbers: std::iter::once("SAMPLES".to_owned()).chain(columns).collect(),
            lines: rows.collect(),
        };
        if !table.fits(self.look.width) {
            table.drop_numbers("0.00");
        }
        for line in table.render(self.look.width) {
            page.line(&line)?;
        }
        if !empty.is_empty() {
            let n = several(empty.len() as u64, "process image");
            page.line(&format!("({n} with none of these)"))?;
        }
        page.line("")
    }

    /// The line of all processes, and those of each: process id, name, and the share of each column.
    fn lines(&self, mix: &Mix) -> impl Iterator<Item = (String, String, Vec<f64>)> {
        // What the categories do not know is invalid to them.
        let belongs = |column: &str, name: &str| column == name || name == INVALID && column == NO_GROUP;
        let places = self.columns.iter().map(|name| {
            let columns = mix.columns.iter().enumerate();
            let here = columns.filter(|(_, column)| belongs(&column.name(), name));
            here.map(|(at, _)| at).collect::<Vec<usize>>()
        });
        let places: Vec<Vec<usize>> = places.collect();
        let shares = |cells: &[Cell], total: f64| {
            let share = |places: &Vec<usize>| {
                let cells = places.iter().filter_map(|at| cells.get(*at));
                let amount = cells.fold(0.0, |sum, cell| sum + cell.amount);
                if 0.0 < total { amount / total } else { 0.0 }
            };
            places.iter().map(share).collect::<Vec<f64>>()
        };
        let totals: Vec<Cell> = mix.columns.iter().map(|column| column.total).collect();
        let all = (
            "ALL".to_owned(),
            "ALL".to_owned(),
            shares(&totals, mix.total.amount),
        );
        let process = |row: &Row| {
            let key = |at: usize| harmless(row.key.get(at).map_or("", String::as_str));
            (key(0), key(1), shares(&row.cells, row.total.amount))
        };
        let processes: Vec<_> = mix.rows.iter().map(process).collect();
        std::iter::once(all).chain(processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Letters;
    use hbbp_analysis::mix::{Column, Unit};

    fn cell(amount: f64) -> Cell {
        Cell {
            amount,
            samples: amount,
            ..Cell::default()
        }
    }

    fn mix() -> Mix {
        let column = |name: &str, amount| Column {
            key: vec![name.to_owned()],
            total: cell(amount),
            all: amount,
        };
        let row = |pid: &str, name: &str, call: f64, other: f64| Row {
            key: vec![pid.to_owned(), name.to_owned()],
            cells: vec![cell(call), cell(other)],
            total: cell(call + other),
        };
        Mix {
            time_unit: None,
            rows_by: Vec::new(),
            columns_by: Vec::new(),
            filters: Vec::new(),
            values: Vec::new(),
            unit: Unit::Executions,
            columns: vec![column("CALL", 30.0), column(NO_GROUP, 10.0)],
            rows: vec![row("7", "a,b", 20.0, 0.0), row("8", "idle", 0.0, 10.0)],
            total: cell(40.0),
            all: cell(40.0),
        }
    }

    fn printed(watch: &Watch<'_>) -> String {
        let mut out = Vec::new();
        watch.begin(&mut out).unwrap();
        watch.write(0, Some("no PMU"), &mix(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_is_that_of_processwatch() {
        let columns = ["INVALID", "AVX", "CALL"].map(str::to_owned);
        let watch = Watch {
            layout: Layout::Csv,
            columns: &columns,
            look: Look::default(),
            wording: |_| "",
        };
        let expected = "interval,pid,name,INVALID,AVX,CALL\n0,ALL,ALL,25.000000,0.000000,75.000000\n\
                        0,7,\"a,b\",0.000000,0.000000,100.000000\n0,8,idle,100.000000,0.000000,0.000000\n\n";
        assert_eq!(printed(&watch), expected);
    }

    #[test]
    fn table_says_its_samples_and_has_no_rows_of_zeros() {
        let columns = ["AVX", "CALL"].map(str::to_owned);
        let watch = |width| Watch {
            layout: Layout::Table,
            columns: &columns,
            look: Look {
                width,
                letters: Letters::Ascii,
                ..Look::default()
            },
            wording: |_| "",
        };
        let expected = "no PMU\n\
                        interval 0: 40 samples; % of the estimated executions of each process\n\
                        PID  NAME  SAMPLES  %AVX   %CALL\n\
                        ALL  ALL        40  0.00   75.00\n\
                        7    a,b        20  0.00  100.00\n\
                        (1 process image with none of these)\n\n";
        assert_eq!(printed(&watch(80)), expected);
        // Where there is no room, columns of nothing go.
        let narrow = printed(&watch(28));
        assert!(!narrow.contains("AVX") && narrow.contains("%CALL"), "{narrow}");
        // The title is cut, by a letter of every locale.
        assert!(narrow.is_ascii() && narrow.contains("interval 0"), "{narrow}");
    }
}
