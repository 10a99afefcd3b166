//! The hottest functions with their modules and processes, and the hottest mnemonics to their right.

use std::collections::BTreeMap;

use super::line::{Line, beside};
use super::overview::{Overview, part, value};
use crate::report::look::Role;
use crate::report::number::{columns, grouped, percent, shortened};
use crate::report::page::entry_lines;
use crate::report::table::{self, Table};
use hbbp_analysis::mix::Mix;
use hbbp_model::names::{Demangle, file_name, functions};
use hbbp_model::printable::harmless;

/// Blanks between the two tables.
const GAP: usize = 3;

/// Columns that functions need next to mnemonics; on a narrower page these have a line of their own.
const NARROWEST: usize = 44;

/// Columns of a module and of a process: the names of functions say more.
const WIDEST_MODULE: usize = 14;
const WIDEST_PROCESS: usize = 12;

/// Functions above that line.
const FEWEST: usize = 2;

/// Mnemonics on that line.
const IN_A_LINE: usize = 5;

/// A function, and its processes.
#[derive(Default)]
struct Function<'a> {
    amount: f64,
    by_command: BTreeMap<&'a str, f64>,
}

/// A title and up to `rows` rows, after an empty line and before another one.
pub(super) fn lines(overview: &Overview, demangle: Demangle, rows: usize, width: usize) -> Vec<Line> {
    let mnemonics = mnemonics(&overview.forms);
    let empty = (None, String::new());
    if mnemonics.is_empty() {
        return vec![
            empty.clone(),
            (None, "no code that ran is known".to_owned()),
            empty,
        ];
    }
    // The title takes a row, and so does the line of mnemonics.
    let is_wide = |right: usize| NARROWEST + GAP + right <= width;
    let right = mnemonic_table(&mnemonics, rows.saturating_sub(1)).render(width);
    let right_width = right.iter().map(|line| columns(line)).max().unwrap_or(0);
    let mut lines = vec![empty.clone()];
    if is_wide(right_width) {
        let left_width = width - GAP - right_width;
        let left = function_table(&overview.code, demangle, rows.saturating_sub(1)).render(left_width);
        let left_width = left.iter().map(|line| columns(line)).max().unwrap_or(0);
        for at in 0..left.len().max(right.len()) {
            let text = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
            let line = beside(&text(&left), left_width + GAP, &text(&right));
            lines.push(((at == 0).then_some(Role::Title), line));
        }
    } else {
        let left = function_table(&overview.code, demangle, rows.saturating_sub(3).max(FEWEST)).render(width);
        let titled = left.into_iter().enumerate();
        lines.extend(titled.map(|(at, line)| ((at == 0).then_some(Role::Title), line)));
        let shown = mnemonics.iter().take(IN_A_LINE);
        let shown = shown.map(|(name, share)| format!("{name} {} %", percent(*share)));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let wrapped = entry_lines("mnemonics  ", &shown, width);
        lines.extend(wrapped.into_iter().take(2).map(|line| (None, line)));
    }
    lines.push(empty);
    lines
}

/// The mnemonics with their shares, the hottest first.
fn mnemonics(forms: &Mix) -> Vec<(&str, f64)> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for row in forms.rows.iter().filter(|row| 0.0 < row.total.amount) {
        *shares.entry(value(&row.key, 0)).or_default() += part(row.total.amount, forms.total.amount);
    }
    let mut shares: Vec<(&str, f64)> = shares.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

fn mnemonic_table(mnemonics: &[(&str, f64)], rows: usize) -> Table {
    let row = |(name, share): &(&str, f64)| table::Line::Row(vec![(*name).to_owned()], vec![percent(*share)]);
    Table {
        names: vec!["mnemonic".to_owned()],
        numbers: vec!["%".to_owned()],
        lines: mnemonics.iter().take(rows).map(row).collect(),
    }
}

fn function_table(code: &Mix, demangle: Demangle, rows: usize) -> Table {
    let mut all: BTreeMap<[&str; 2], Function<'_>> = BTreeMap::new();
    for row in code.rows.iter().filter(|row| 0.0 < row.total.amount) {
        let function = all.entry([value(&row.key, 1), value(&row.key, 2)]).or_default();
        function.amount += row.total.amount;
        *function.by_command.entry(value(&row.key, 3)).or_default() += row.total.amount;
    }
    let n_functions = all.len();
    let mut hottest: Vec<([&str; 2], Function<'_>)> = all.into_iter().collect();
    hottest.sort_by(|a, b| b.1.amount.total_cmp(&a.1.amount).then_with(|| a.0.cmp(&b.0)));
    hottest.truncate(rows);
    let names: Vec<&str> = hottest.iter().map(|([_, function], _)| *function).collect();
    let names = functions(&names, demangle);
    let shown = hottest.iter().zip(names);
    let shown = shown.map(|(([module, _], function), name)| {
        let module_name = harmless(file_name(module));
        let names = vec![
            name,
            shortened(&module_name, WIDEST_MODULE),
            ran_by(module, &function.by_command),
        ];
        let share = percent(part(function.amount, code.total.amount));
        table::Line::Row(names, vec![share])
    });
    let lines: Vec<table::Line> = shown.collect();
    let title = format!("function ({} of {})", lines.len(), grouped(n_functions as u64));
    let mut table = Table {
        names: vec![title, "module".to_owned(), "process".to_owned()],
        numbers: vec!["%".to_owned()],
        lines,
    };
    table.drop_empty_names();
    table
}

/// The process with the largest part of a function, and the number of others; nothing if the module says it.
fn ran_by(module: &str, by_command: &BTreeMap<&str, f64>) -> String {
    let most = by_command.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let most = most.map_or("", |(command, _)| *command);
    let others = match by_command.len() {
        0 | 1 => String::new(),
        n => format!(" +{}", n - 1),
    };
    if most == module && others.is_empty() {
        return String::new();
    }
    shortened(&harmless(most), WIDEST_PROCESS) + &others
}
