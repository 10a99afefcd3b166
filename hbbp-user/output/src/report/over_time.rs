//! The mix over time: as sparklines in text, and in full as CSV and JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::named::shown_names;
use super::number::{percent, seconds, several};
use super::page::Page;
use super::table::{Line, Table};
use hbbp_analysis::mix::MixOverTime;
use hbbp_model::printable::csv_name;

/// The rows of a mix over time within a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// The mix.
    pub(super) mix: &'a MixOverTime,
    /// Most rows; `None` for all.
    pub(super) top: Option<usize>,
}

/// As JSON: part of `hbbp-sys.mix/2`.
#[derive(Serialize)]
pub(super) struct OverTimeJson<'a> {
    by: Vec<&'a str>,
    unit: &'static str,
    /// Start and end of each period in ns from the start of the run.
    periods: Vec<[u64; 2]>,
    rows: Vec<RowJson<'a>>,
    /// Amounts of everything by period.
    all: &'a [f64],
}

#[derive(Serialize)]
struct RowJson<'a> {
    key: &'a [String],
    /// By period.
    amounts: &'a [f64],
}

impl<'a> Rows<'a> {
    fn rows(self) -> &'a [(Vec<String>, Vec<f64>)] {
        let rows = &self.mix.rows;
        rows.get(..self.top.unwrap_or(usize::MAX).min(rows.len()))
            .unwrap_or(rows)
    }

    fn by(self) -> Vec<&'a str> {
        self.mix.rows_by.iter().map(|axis| axis.name()).collect()
    }

    /// The shares of a row in each period, or in `each` periods together; 0 if nothing was executed.
    fn shares(self, amounts: &[f64], each: usize) -> Vec<f64> {
        let sum = |amounts: &[f64]| amounts.iter().sum::<f64>();
        let share = |(amounts, all): (&[f64], &[f64])| match sum(all) {
            0.0 => 0.0,
            all => sum(amounts) / all,
        };
        amounts
            .chunks(each)
            .zip(self.mix.all.chunks(each))
            .map(share)
            .collect()
    }

    /// Writes a table with a sparkline for each row.
    pub(super) fn text(self, page: &mut Page<'_>) -> io::Result<()> {
        let n = self.mix.periods.len() as u64;
        let length = self
            .mix
            .periods
            .first()
            .map_or(0, |period| period.end.saturating_sub(period.start));
        page.line("")?;
        let title = format!(
            "Over time: {} of about {} s each; lowest and highest share in %, each line from 0 to its highest",
            several(n, "period"),
            seconds(length, 1)
        );
        page.entry("", &title)?;
        let keys: Vec<&[String]> = self.rows().iter().map(|(key, _)| key.as_slice()).collect();
        let names = shown_names(&self.by(), &keys, page.look.demangle);
        // Names and numbers have three fifths of a line.
        let columns = (page.look.width * 2 / 5).max(1);
        let each = self.mix.periods.len().div_ceil(columns).max(1);
        let numbers = |amounts: &[f64]| {
            let shares = self.shares(amounts, each);
            let lowest = shares.iter().copied().fold(1.0, f64::min);
            let highest = shares.iter().copied().fold(0.0, f64::max);
            vec![percent(lowest), percent(highest), sparkline(&shares, highest)]
        };
        let rows = self.rows().iter().zip(names);
        let table = Table {
            names: self.by().into_iter().map(str::to_owned).collect(),
            numbers: ["lowest", "highest", "over time"].map(str::to_owned).to_vec(),
            lines: rows
                .map(|((_, amounts), names)| Line::Row(names, numbers(amounts)))
                .collect(),
        };
        page.table(&table, |_| None)
    }

    /// Writes one line for each row and period, RFC 4180 with line feeds: start and end in seconds from the start of the run.
    pub(super) fn csv(self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = csv::Writer::from_writer(out);
        let titles = ["start", "end", "amount", "share", "unit"].map(str::to_owned);
        lines.write_record(self.by().into_iter().map(str::to_owned).chain(titles))?;
        for (key, amounts) in self.rows() {
            let periods = self.mix.periods.iter().zip(amounts).zip(self.shares(amounts, 1));
            for ((period, amount), share) in periods {
                let figures = [
                    seconds(period.start, 3),
                    seconds(period.end, 3),
                    amount.to_string(),
                    share.to_string(),
                    self.mix.unit.id().to_owned(),
                ];
                lines.write_record(key.iter().map(|name| csv_name(name)).chain(figures))?;
            }
        }
        lines.flush()
    }

    /// As JSON.
    pub(super) fn json(self) -> OverTimeJson<'a> {
        let periods = self.mix.periods.iter();
        let rows = self.rows().iter();
        OverTimeJson {
            by: self.by(),
            unit: self.mix.unit.id(),
            periods: periods.map(|period| [period.start, period.end]).collect(),
            rows: rows.map(|(key, amounts)| RowJson { key, amounts }).collect(),
            all: &self.mix.all,
        }
    }
}

/// One column for each value from 0 to `highest`, in eighths of a line; blank for nothing.
fn sparkline(values: &[f64], highest: f64) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = |value: &f64| {
        // What is there is seen.
        let reached = (1..)
            .zip(LEVELS)
            .take_while(|(level, _)| *level == 1 || f64::from(*level) * highest <= 8.0 * value);
        reached
            .last()
            .filter(|_| 0.0 < *value)
            .map_or(' ', |(_, level)| level)
    };
    values.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_have_eighths_of_a_line() {
        assert_eq!(sparkline(&[0.0, 0.01, 0.5, 1.0], 1.0), " ▁▄█");
        assert_eq!(sparkline(&[], 0.0), "");
    }
}
