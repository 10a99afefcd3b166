//! The report as text for a terminal: header, warnings, table, accounting; no line is longer than asked.

use std::io;

use super::accounting::Accounting;
use super::body::{Amount, Body, Figure, Figures};
use super::look::Role;
use super::named::shown_names;
use super::number::{grouped, percent, scaled, several};
use super::page::Page;
use super::table::{Line, Table};
use super::{Report, header};
use crate::locate::PerRing;

/// Writes the report.
pub(super) fn write(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let run = &report.snapshot.run;
    page.entry("hbbp-sys ", &run.tool_version)?;
    for (label, sentence) in header::facts(run, report.methods, &report.accounting, &report.residuals) {
        page.entry(&format!("  {label:<12}  "), &sentence)?;
    }
    if !report.warnings.is_empty() {
        page.line("")?;
        page.painted(Role::Warning, "Warnings:")?;
        for warning in &report.warnings {
            page.entry("  - ", &warning.to_string())?;
        }
    }
    mix(&report.body, page)?;
    page.heading("Sample accounting:")?;
    sums(&samples(&report.accounting), page)?;
    let streams = streams(report);
    if !streams.is_empty() {
        page.heading("Stream accounting:")?;
        sums(&streams, page)?;
    }
    Ok(())
}

/// The table of the mix, with as many columns of numbers as the page is wide enough for.
fn mix(body: &Body, page: &mut Page<'_>) -> io::Result<()> {
    let by: Vec<&str> = body.by.iter().map(|dimension| dimension.name()).collect();
    let title = format!(
        "Instruction mix by {}, in {}; % of each column",
        by.join(", "),
        body.unit.noun()
    );
    page.line("")?;
    page.entry("", &title)?;
    let keys: Vec<&[String]> = body.rows.iter().map(|row| row.key.as_slice()).collect();
    let names = shown_names(&by, &keys, page.look.demangle);
    let mut tables = DETAILS
        .iter()
        .filter(|detail| body.has_errors() || !detail.total.contains(&Part::Error));
    let fitting = tables
        .clone()
        .map(|detail| table(body, &names, detail))
        .find(|table| table.fits(page.look.width));
    let narrowest = || {
        tables
            .next_back()
            .map(|detail| table(body, &names, detail))
            .unwrap_or_default()
    };
    let table = fitting.unwrap_or_else(narrowest);
    let greatest = body
        .rows
        .iter()
        .map(|row| row.figures.total.share)
        .fold(0.0, f64::max);
    page.table(&table, |row| {
        Some(body.rows.get(row)?.figures.total.share / greatest)
    })
}

/// A column of numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Amount,
    Error,
    Share,
}

/// Which columns of numbers are shown.
struct Detail {
    /// Those of each ring.
    ring: &'static [Part],
    /// Those of both rings together.
    total: &'static [Part],
}

/// From all columns to the fewest.
const DETAILS: [Detail; 5] = [
    Detail {
        ring: &[Part::Amount, Part::Error, Part::Share],
        total: &[Part::Amount, Part::Error, Part::Share],
    },
    Detail {
        ring: &[Part::Amount, Part::Share],
        total: &[Part::Amount, Part::Error, Part::Share],
    },
    Detail {
        ring: &[Part::Amount, Part::Share],
        total: &[Part::Amount, Part::Share],
    },
    Detail {
        ring: &[Part::Amount],
        total: &[Part::Amount, Part::Share],
    },
    Detail {
        ring: &[Part::Amount],
        total: &[Part::Amount],
    },
];

/// The mix with some of its columns.
fn table(body: &Body, names: &[Vec<String>], detail: &Detail) -> Table {
    let groups = [
        ("kernel", detail.ring),
        ("user", detail.ring),
        ("total", detail.total),
    ];
    let title = |name: &str, part: &Part| match part {
        Part::Amount => name.to_owned(),
        Part::Error => "±".to_owned(),
        Part::Share => "%".to_owned(),
    };
    let numbers = |figures: &Figures| {
        let columns = [
            (figures.kernel, detail.ring),
            (figures.user, detail.ring),
            (figures.total, detail.total),
        ];
        columns
            .iter()
            .flat_map(|(figure, parts)| parts.iter().map(|part| number(figure, *part)))
            .collect()
    };
    let n_names = body.by.len();
    let across = |name: String| {
        std::iter::once(name)
            .chain(std::iter::repeat(String::new()))
            .take(n_names)
            .collect()
    };
    let rows = body.rows.iter().zip(names);
    let rows = rows.map(|(row, names)| Line::Row(names.clone(), numbers(&row.figures)));
    let more = body.more.as_ref().map(|more| {
        let title = format!("({})", several(more.n_rows, "more row"));
        Line::Row(across(title), numbers(&more.figures))
    });
    let total = [
        Line::Rule,
        Line::Row(across("total".to_owned()), numbers(&body.total)),
    ];
    Table {
        names: body
            .by
            .iter()
            .map(|dimension| dimension.name().to_owned())
            .collect(),
        numbers: groups
            .iter()
            .flat_map(|(name, parts)| parts.iter().map(|part| title(name, part)))
            .collect(),
        lines: rows.chain(more).chain(total).collect(),
    }
}

/// One part of a figure as text.
fn number(figure: &Figure, part: Part) -> String {
    match (part, figure.amount, figure.std_error) {
        (Part::Share, ..) => percent(figure.share),
        (Part::Amount, Amount::Samples(n), _) => grouped(n),
        (Part::Amount, Amount::Estimate(n), _) => scaled(n, 4),
        (Part::Error, _, None) => String::new(),
        (Part::Error, Amount::Samples(_), Some(error)) => format!("±{error:.0}"),
        (Part::Error, Amount::Estimate(_), Some(error)) => format!("±{}", scaled(error, 2)),
    }
}

/// One line of a sum: what happens to the sum, a count, and what it is.
struct Step(Sign, i128, String);

/// What a line does to the sum of those above it.
#[derive(Clone, Copy)]
enum Sign {
    Begin,
    Plus,
    Minus,
    Equals,
}

/// The sample accounting, as a sum that the reader can check.
fn samples(all: &Accounting) -> Vec<Step> {
    let mut steps = Vec::new();
    match all.due {
        Some(due) => {
            steps.push(step(
                Sign::Begin,
                due,
                "expected: counter values divided by the period",
            ));
            if 0 < all.idle {
                steps.push(step(
                    Sign::Minus,
                    all.idle,
                    "not taken: CPUs were idle for as many periods, and the clock timer stops there",
                ));
            }
            steps.push(step(
                Sign::Minus,
                all.skipped,
                if all.of_tasks {
                    "missing: threads that ended before their period did, or an unknown cause"
                } else {
                    "missing, cause unknown: late timers, steal time, or programs that the kernel skipped"
                },
            ));
            if 0 < all.beyond {
                steps.push(step(
                    Sign::Plus,
                    all.beyond,
                    "taken while the counters were being read",
                ));
            }
            steps.push(step(Sign::Equals, all.reached, "received"));
        }
        None => steps.push(step(
            Sign::Begin,
            all.reached,
            "received; expected number unknown",
        )),
    }
    steps.extend(
        all.refused
            .iter()
            .map(|(loss, n)| step(Sign::Minus, *n, loss.sentence())),
    );
    if 0 < all.stacks {
        steps.push(step(
            Sign::Minus,
            all.stacks,
            "samples used only for their branch stacks",
        ));
    }
    if all.unexplained != 0 {
        steps.push(Step(
            Sign::Minus,
            all.unexplained,
            "samples unaccounted for (a bug in hbbp-sys)".to_owned(),
        ));
    }
    steps.push(step(
        Sign::Equals,
        all.counted.total(),
        &format!("counted: {}", by_ring(all.counted)),
    ));
    let unresolved = all.unresolved.iter().map(|(reason, n)| {
        step(
            Sign::Minus,
            n.total(),
            &format!("{} ({})", reason.sentence(), by_ring(*n)),
        )
    });
    steps.extend(unresolved);
    steps.push(step(
        Sign::Equals,
        all.in_mix.total(),
        &format!("in the mix: {}", by_ring(all.in_mix)),
    ));
    steps
}

/// The stream accounting; empty without streams.
fn streams(report: &Report<'_>) -> Vec<Step> {
    let streams = &report.streams;
    if streams.counted == 0 {
        return Vec::new();
    }
    let mut steps = vec![step(Sign::Begin, streams.counted, "counted")];
    let discarded = streams.discarded.iter().map(|(reason, n)| {
        step(
            Sign::Minus,
            n.total(),
            &format!("{} ({})", reason.sentence(), by_ring(*n)),
        )
    });
    steps.extend(discarded);
    let mut ended = format!(
        "in the estimate, {} of them ended by an interrupt or exception",
        grouped(streams.interrupted)
    );
    if 0 < streams.made_up {
        ended += &format!(
            "; they carry the weight of {} discarded streams that cannot have been executed",
            grouped(streams.made_up)
        );
    }
    steps.push(step(Sign::Equals, streams.accepted, &ended));
    steps
}

/// Writes a sum, the numbers one below the other.
fn sums(steps: &[Step], page: &mut Page<'_>) -> io::Result<()> {
    let number = |n: i128| match u64::try_from(n) {
        Ok(n) => grouped(n),
        Err(_) => n.to_string(),
    };
    let widest = steps
        .iter()
        .map(|Step(_, n, _)| number(*n).len())
        .max()
        .unwrap_or(0);
    for Step(sign, n, what) in steps {
        let sign = match sign {
            Sign::Begin => ' ',
            Sign::Plus => '+',
            Sign::Minus => '-',
            Sign::Equals => '=',
        };
        page.entry(&format!("  {sign} {:>widest$}  ", number(*n)), what)?;
    }
    Ok(())
}

fn step(sign: Sign, n: u64, what: &str) -> Step {
    Step(sign, n.into(), what.to_owned())
}

fn by_ring(n: PerRing) -> String {
    format!("kernel {}, user {}", grouped(n.kernel), grouped(n.user))
}
