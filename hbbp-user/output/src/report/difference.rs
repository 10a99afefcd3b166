//! The difference of two profiles as text, as CSV, or as JSON of the format `hbbp-sys.diff/1`.

mod compared;
mod json;

use std::io::{self, Write};

use super::DiffFormat;
use super::look::{Look, Role};
use super::named::shown_names;
use super::number::{grouped, percent, scaled, seconds, several};
use super::page::Page;
use super::table::{Line, Table};
pub use compared::DiffReport;
use hbbp_analysis::diff::{Change, Figure, LEVEL};
use hbbp_model::printable::{csv_name, harmless};
use hbbp_model::snapshot::{Snapshot, hex};

impl DiffReport<'_> {
    /// Writes the report.
    pub fn write(&self, format: DiffFormat, look: Look, out: &mut dyn Write) -> io::Result<()> {
        match format {
            DiffFormat::Json => json::write(self, out),
            DiffFormat::Csv => self.csv(out),
            DiffFormat::Text => self.text(&mut Page { look, out }),
        }
    }

    fn rows(&self) -> &[Change] {
        let changes = &self.diff.changes;
        changes
            .get(..self.top.unwrap_or(usize::MAX).min(changes.len()))
            .unwrap_or(changes)
    }

    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        for (letter, (name, runs)) in ["A  ", "B  "].iter().zip(self.sides) {
            page.entry(letter, &described(name, &runs.iter().collect::<Vec<_>>()))?;
        }
        let headline = self.headline();
        if !headline.is_empty() {
            page.entry("", &headline)?;
        }
        if !self.notes.is_empty() {
            page.line("")?;
            page.painted(Role::Warning, "Warnings:")?;
            for note in self.notes {
                page.entry("  - ", note)?;
            }
        }
        page.line("")?;
        let by: Vec<String> = self.diff.by.iter().map(ToString::to_string).collect();
        let by = by.join(", ");
        let significant = self
            .diff
            .changes
            .iter()
            .filter(|change| change.is_significant())
            .count();
        if self.diff.changes.is_empty() {
            page.entry(
                "",
                &format!(
                    "No difference by {by}: {} compared.",
                    several(self.diff.compared as u64, "row")
                ),
            )?;
        } else {
            let what = match self.per {
                None => "shares in %, change in percentage points".to_owned(),
                Some(per) => format!("{} per {per}", self.diff.unit.noun()),
            };
            let title = format!(
                "Change by {by}, {what}; {} of {} changed more than by chance (*: adjusted p at most {LEVEL})",
                grouped(significant as u64),
                several(self.diff.compared as u64, "row"),
            );
            page.entry("", &title)?;
            page.table(&self.table(page.look), |_| None)?;
        }
        if !self.gates.is_empty() {
            page.heading("Conditions:")?;
            for gate in self.gates {
                let role = if gate.failed { Role::Warning } else { Role::Title };
                page.painted(role, &format!("  - {}", harmless(&gate.to_string())))?;
            }
        }
        Ok(())
    }

    /// `B took 9.3 s, A 10.5 s: -11.4 %; 12.1 G estimated executions, A 13.0 G: -6.9 %`.
    fn headline(&self) -> String {
        let value = |value| Figure {
            value,
            std_error: 0.0,
        };
        let time = self.sides.map(|(_, runs)| {
            let times = runs.iter().map(|run| run.run.duration);
            times.fold(0, u64::saturating_add)
        });
        let [a, b] = time;
        let mut parts = Vec::new();
        if !time.contains(&0) {
            let change = relative(time.map(|time| value(time as f64)));
            parts.push(format!(
                "B took {} s, A {} s: {change} %",
                seconds(b, 1),
                seconds(a, 1)
            ));
        }
        let [a, b] = self.totals;
        if 0.0 < a && 0.0 < b {
            let change = relative(self.totals.map(value));
            let [a, b] = self.totals.map(|total| scaled(total, 3).trim_end().to_owned());
            parts.push(format!("{b} {}, A {a}: {change} %", self.diff.unit.noun()));
        }
        parts.join("; ")
    }

    fn table(&self, look: Look) -> Table {
        let rows = self.rows();
        let keys: Vec<&[String]> = rows.iter().map(|change| change.key.as_slice()).collect();
        let by: Vec<&str> = self.diff.by.iter().map(|axis| axis.name()).collect();
        let names = shown_names(&by, &keys, look.demangle);
        let numbers = |change: &Change| {
            let mut numbers = Vec::new();
            match change.amounts {
                None => numbers.extend(change.shares.map(|share| percent(share.value))),
                Some(amounts) => {
                    numbers.extend(amounts.map(|amount| scaled(amount.value, 4)));
                    numbers.push(relative(amounts));
                }
            }
            let Figure { value, std_error } = change.change;
            match change.amounts {
                None => {
                    numbers.push(signed(value, &format!("{:.3}", 100.0 * value.abs())));
                    numbers.push(format!("±{:.3}", 100.0 * std_error));
                }
                Some(_) => {
                    numbers.push(signed(value, &scaled(value.abs(), 3)));
                    numbers.push(format!("±{}", scaled(std_error, 2)));
                }
            }
            numbers.push(p_in_words(change));
            numbers
        };
        let lines = rows
            .iter()
            .zip(names)
            .map(|(change, names)| Line::Row(names, numbers(change)));
        let left_out = self.diff.changes.len() - rows.len();
        let title = format!("({})", several(left_out as u64, "more row"));
        let blank = |n: usize| std::iter::repeat_n(String::new(), n);
        let titles: &[&str] = match self.per {
            None => &["A %", "B %", "change", "±", "p"],
            Some(_) => &["A", "B", "%", "change", "±", "p"],
        };
        let more = (0 < left_out).then(|| {
            let names = std::iter::once(title)
                .chain(blank(by.len().saturating_sub(1)))
                .collect();
            Line::Row(names, blank(titles.len()).collect())
        });
        Table {
            names: by.iter().map(|name| (*name).to_owned()).collect(),
            numbers: titles.iter().map(|title| (*title).to_owned()).collect(),
            lines: lines.chain(more).collect(),
        }
    }

    /// One line for each change, RFC 4180 with line feeds.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        const FIGURES: [&str; 12] = [
            "a_share",
            "a_share_std_error",
            "b_share",
            "b_share_std_error",
            "a_amount",
            "a_amount_std_error",
            "b_amount",
            "b_amount_std_error",
            "change",
            "change_std_error",
            "adjusted_p",
            "unit",
        ];
        let mut lines = csv::Writer::from_writer(out);
        let keys = self.diff.by.iter().map(|axis| axis.name().to_owned());
        lines.write_record(keys.chain(FIGURES.map(str::to_owned)))?;
        for change in self.rows() {
            let keys = change.key.iter().map(|name| csv_name(name));
            let figure = |figure: Option<Figure>| {
                let parts = [figure.map(|it| it.value), figure.map(|it| it.std_error)];
                parts.map(|part| part.map(|part| part.to_string()).unwrap_or_default())
            };
            let [a, b] = change.shares.map(|share| figure(Some(share)));
            let [a_amount, b_amount] = match change.amounts {
                Some(amounts) => amounts.map(|amount| figure(Some(amount))),
                None => [figure(None), figure(None)],
            };
            let change_of = figure(Some(change.change));
            let figures = [a, b, a_amount, b_amount, change_of].into_iter().flatten();
            let last = [change.adjusted_p.to_string(), self.diff.unit.id().to_owned()];
            lines.write_record(keys.chain(figures).chain(last))?;
        }
        lines.flush()
    }
}

/// A profile: its name, and host, kernel and length of its runs.
pub fn described(name: &str, runs: &[&Snapshot]) -> String {
    let run = |snapshot: &&Snapshot| {
        let run = &snapshot.run;
        let time = if run.duration == 0 {
            String::new()
        } else {
            format!(", {} s", seconds(run.duration, 1))
        };
        let build_id = hex(run.host.kernel_build_id.get(..4).unwrap_or(&[]));
        let build_id = if build_id.is_empty() {
            build_id
        } else {
            format!(" ({build_id}…)")
        };
        format!(
            "{}, kernel {}{build_id}, {}{time}",
            run.host.name, run.host.kernel_release, run.host.cpu_model
        )
    };
    let described: Vec<String> = runs.iter().map(run).collect();
    format!("{name}: {}", described.join("; "))
}

fn signed(value: f64, text: &str) -> String {
    let sign = if value < 0.0 { '-' } else { '+' };
    format!("{sign}{text}")
}

/// The change of an amount in percent of the first.
fn relative([a, b]: [Figure; 2]) -> String {
    if 0.0 < a.value {
        let change = 100.0 * (b.value / a.value - 1.0);
        signed(change, &format!("{:.1}", change.abs()))
    } else {
        "new".to_owned()
    }
}

fn p_in_words(change: &Change) -> String {
    let p = change.adjusted_p;
    let text = if p < 1e-4 {
        "<0.0001".to_owned()
    } else {
        format!("{p:.4}")
    };
    let mark = if change.is_significant() { '*' } else { ' ' };
    format!("{text}{mark}")
}
