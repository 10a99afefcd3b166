//! Which kinds of instructions were executed: rings, levels of the ISA, vectors, and what takes long.

use std::collections::BTreeMap;

use super::overview::{Overview, part, value};
use crate::report::number::percent;
use crate::report::page::entry_lines;
use hbbp_analysis::mix::Mix;

/// Groups that people ask for by name, and what the screen calls them.
const ASKED: [(&str, &str); 3] = [
    ("division", "divisions"),
    ("locked", "locked"),
    ("fence and pause", "fences and pauses"),
];

/// Further groups from this share on.
const WORTH_A_WORD: f64 = 0.001;

/// Groups on the screen.
const MOST_GROUPS: usize = 4;

/// The lines, each with its label; `guests` says what virtual machines took.
pub(super) fn lines(overview: &Overview, guests: &str, width: usize) -> Vec<String> {
    let facts = [
        ("rings", rings(&overview.code)),
        (
            "kernel",
            overview
                .kernel_time
                .as_ref()
                .map_or_else(String::new, kernel_time),
        ),
        ("guests", guests.to_owned()),
        ("ISA level", levels(&overview.forms)),
        ("vectors", vectors(&overview.forms)),
        ("classes", classes(&overview.slow)),
    ];
    let lines = facts.iter().filter(|(_, fact)| !fact.is_empty());
    lines
        .flat_map(|(label, fact)| entry_lines(&format!("{label:<9}  "), fact, width))
        .collect()
}

/// The shares of the values of one axis.
fn shares(mix: &Mix, nth: usize) -> BTreeMap<&str, f64> {
    let mut shares = BTreeMap::new();
    for row in &mix.rows {
        *shares.entry(value(&row.key, nth)).or_default() += part(row.total.amount, mix.total.amount);
    }
    shares
}

/// `kernel 14.70 %, user 85.30 %`.
fn listed<'a>(shares: impl IntoIterator<Item = (&'a str, f64)>) -> String {
    let shown = shares
        .into_iter()
        .filter(|(_, share)| 0.0 < *share)
        .map(|(name, share)| format!("{name} {} %", percent(share)));
    shown.collect::<Vec<_>>().join(", ")
}

fn rings(code: &Mix) -> String {
    listed(shares(code, 0))
}

/// Functions of the kernel on their line.
const KERNEL_FUNCTIONS: usize = 3;

/// The kernel's share of the time, and where it was: it has no executions.
fn kernel_time(by_function: &Mix) -> String {
    let share = |amount: f64| part(amount, by_function.all.amount);
    let hottest = by_function.rows.iter().take(KERNEL_FUNCTIONS);
    let hottest = hottest.map(|row| (value(&row.key, 0), share(row.total.amount)));
    let hottest = listed(hottest);
    let all = percent(share(by_function.total.amount));
    match hottest.is_empty() {
        true => format!("{all} % of the time"),
        false => format!("{all} % of the time, not executions: {hottest}"),
    }
}

fn levels(forms: &Mix) -> String {
    // The names of the levels are in their order, but for the last one.
    let mut levels: Vec<(&str, f64)> = shares(forms, 1).into_iter().collect();
    levels.sort_by_key(|(level, _)| (!level.starts_with('v'), *level));
    listed(levels)
}

/// The share of packed instructions, and the width of the widest.
fn vectors(forms: &Mix) -> String {
    let mut by_width: BTreeMap<u32, f64> = BTreeMap::new();
    let packed = forms.rows.iter().filter(|row| value(&row.key, 2) == "packed");
    for row in packed.filter(|row| 0.0 < row.total.amount) {
        let width = value(&row.key, 3).parse().unwrap_or(0);
        *by_width.entry(width).or_default() += part(row.total.amount, forms.total.amount);
    }
    let all: f64 = by_width.values().sum();
    match by_width.last_key_value() {
        None if forms.rows.is_empty() => String::new(),
        None => "none".to_owned(),
        Some((width, share)) => {
            let all = percent(all);
            format!(
                "packed {all} %; the widest have {width} bits: {} %",
                percent(*share)
            )
        }
    }
}

fn classes(slow: &Mix) -> String {
    let shares = shares(slow, 0);
    let of = |group: &str| shares.get(group).copied().unwrap_or(0.0);
    let asked = ASKED.iter().map(|(group, name)| (*name, of(group)));
    let is_asked = |group: &str| ASKED.iter().any(|(asked, _)| *asked == group);
    let mut others: Vec<(&str, f64)> = shares
        .iter()
        .filter(|(group, share)| !is_asked(group) && !group.starts_with('(') && WORTH_A_WORD <= **share)
        .map(|(group, share)| (*group, *share))
        .collect();
    others.sort_by(|a, b| b.1.total_cmp(&a.1));
    let found = listed(
        asked
            .chain(others)
            .filter(|(_, share)| 0.0 < *share)
            .take(MOST_GROUPS),
    );
    if found.is_empty() && !slow.rows.is_empty() {
        return "no divisions, locked instructions or fences".to_owned();
    }
    found
}
