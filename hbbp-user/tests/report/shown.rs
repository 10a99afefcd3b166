//! Rows are in the order of a figure that is shown, and what is shown says something: for every view, dimension and order.

use proptest::prelude::*;

use hbbp_analysis::mix::{Axis, Dimension, Query, Sort, Taxonomy, Value, View};
use hbbp_model::snapshot::Snapshot;
use hbbp_output::report::Look;
use hbbp_user::cmd::report::{Extent, ReportOptions};

use super::{nested, printed, program, strategy};

/// Wide enough for all columns.
const WIDE: usize = 2_000;

/// A printed table: titles, and the texts below them.
struct Shown {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Where the texts of each column end. Titles are separated by two blanks.
fn ends(titles: &[char]) -> Vec<usize> {
    let is_blank = |at: usize| titles.get(at).is_none_or(|c| *c == ' ');
    (1..=titles.len())
        .filter(|at| !is_blank(at - 1) && is_blank(*at) && is_blank(at + 1))
        .collect()
}

/// The columns of numbers of all tables in a text, whose names have the widths of `n_names` titles.
fn tables(text: &str, n_names: usize) -> Vec<Shown> {
    let lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let is_rule = |line: &[char]| !line.is_empty() && line.iter().all(|c| *c == '-');
    let mut tables = Vec::new();
    for caption in (0..lines.len()).filter(|at| text.lines().nth(*at).unwrap().starts_with("Instruction mix"))
    {
        let Some(rule) = (caption..lines.len()).find(|at| is_rule(&lines[*at])) else {
            continue;
        };
        let titles = &lines[caption + 1];
        let ends = ends(titles);
        let cell = |line: &[char], from: usize, to: usize| -> String {
            let cell: String = line.iter().take(to).skip(from).collect();
            // Names are longer than their title.
            cell.trim().rsplit("  ").next().unwrap_or_default().to_owned()
        };
        let numbers = |line: &[char]| -> Vec<String> {
            let all = ends.windows(2).map(|ends| cell(line, ends[0], ends[1]));
            all.skip(n_names - 1).collect()
        };
        let rows = lines[caption + 2..rule].iter().map(|line| numbers(line));
        let is_more = text.lines().nth(rule - 1).unwrap().contains(" more row");
        tables.push(Shown {
            titles: numbers(titles),
            rows: rows.take(rule - caption - 2 - usize::from(is_more)).collect(),
        });
    }
    tables
}

/// A shown number: less than one counts as a half, an empty cell as less than all.
fn number(text: &str) -> f64 {
    if text.is_empty() {
        return -1.0;
    }
    if text == "<1" {
        return 0.5;
    }
    let text = text.split(" ±").next().unwrap().replace(',', "");
    let (digits, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let power = ["", "k", "M", "G", "T", "P", "E"]
        .iter()
        .position(|known| *known == prefix);
    digits.parse::<f64>().unwrap_or_else(|_| panic!("`{text}`")) * 1000_f64.powi(power.unwrap() as i32)
}

/// Checks each table of a text: the `sorted` column, counted from the last one, never rises.
#[track_caller]
fn check(text: &str, n_names: usize, sorted: impl Fn(&[String]) -> usize) {
    let tables = tables(text, n_names);
    assert!(!tables.is_empty() || text.contains("nothing that ran"), "{text}");
    for Shown { titles, rows } in &tables {
        let by = sorted(titles);
        let falling = rows.iter().map(|row| number(&row[by]));
        assert!(
            falling.is_sorted_by(|a, b| b <= a),
            "column {by} of {titles:?}: {text}"
        );
        for row in rows {
            for pair in titles.iter().zip(row).collect::<Vec<_>>().windows(2) {
                let [(_, amount), (title, share)] = pair else {
                    panic!()
                };
                let is_share = title.as_str() == "%";
                assert!(
                    !is_share || amount.as_str() != "0" || number(share) == 0.0,
                    "0 with a share: {text}"
                );
            }
        }
    }
}

/// The amount of the total: before its error and its share.
fn total(titles: &[String]) -> usize {
    let is_part = |title: &String| title.ends_with('±') || title.ends_with('%') || title.as_str() == "flops";
    titles
        .iter()
        .rposition(|title| !is_part(title) && !title.contains("time") && !title.contains("CPI"))
        .unwrap()
}

fn options(query: Query, view: Option<View>) -> ReportOptions {
    ReportOptions {
        query,
        view,
        extent: Extent::Tables,
        look: Look {
            width: WIDE,
            ..Look::default()
        },
        ..ReportOptions::default()
    }
}

fn programs() -> [Snapshot; 6] {
    [
        program::clocked(),
        program::retired(),
        program::stacked(),
        program::classed(),
        program::troubled(),
        program::threaded(),
    ]
}

#[test]
fn rows_of_every_view_are_in_the_order_of_their_totals() {
    let taxonomies = Taxonomy::built_in();
    let names = "isa vectorization long-latency synchronization flops memory functions branches mitigations patched module:kernel";
    for snapshot in programs() {
        for name in names.split(' ') {
            let view = View::named(name, &taxonomies).unwrap_or_else(|error| panic!("{error}"));
            let mut tables = view.tables.iter().chain(&view.beside);
            let n_names = view.tables[0].query.rows.len();
            if !tables.all(|table| table.query.rows.len() == n_names) {
                continue;
            }
            let text = printed(&snapshot, &options(Query::whole(), Some(view)));
            check(&text, n_names, total);
        }
    }
}

#[test]
fn rows_by_every_dimension_are_in_the_order_of_their_totals() {
    let taxonomies = Taxonomy::built_in().into_iter().map(Axis::Taxonomy);
    let dimensions = Dimension::ALL.iter().copied().map(Axis::from);
    let axes: Vec<Axis> = dimensions.chain(taxonomies).collect();
    for snapshot in programs() {
        for axis in &axes {
            let text = printed(&snapshot, &options(Query::by([axis.clone()]), None));
            check(&text, 1, total);
        }
    }
}

/// The figure that rows are sorted by is the last one of the total.
#[test]
fn rows_are_in_the_order_of_the_figure_asked_for() {
    let timed = nested::nested(program::clocked());
    for snapshot in programs().iter().chain([&timed]) {
        let is_timed = *snapshot == timed;
        for value in Value::ALL.iter().filter(|value| is_timed || !value.is_of_time()) {
            let mut query = Query::by([Dimension::Module, Dimension::Function, Dimension::Mnemonic]);
            query.sort = Sort::Value(*value);
            query.values = vec![*value];
            let text = printed(snapshot, &options(query, None));
            let by = |titles: &[String]| match value {
                Value::Executions => total(titles),
                _ => titles.len() - 1,
            };
            check(&text, 3, by);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Mnemonics have plain names; amounts, shares and columns are of any size.
    #[test]
    fn rows_of_any_snapshot_are_in_the_order_that_is_shown(snapshot in strategy::snapshot()) {
        let text = printed(&snapshot, &options(Query::by([Dimension::Mnemonic]), None));
        if text.contains("mnemonic") && text.contains("\n-") {
            check(&text, 1, total);
        }
        for ring in ["kernel", "user"] {
            let mut query = Query::by([Dimension::Mnemonic]);
            query.sort = Sort::Column(ring.to_owned());
            let text = printed(&snapshot, &options(query, None));
            let of_ring = |titles: &[String]| titles.iter().position(|title| title == ring);
            check(&text, 1, |titles| of_ring(titles).unwrap_or_else(|| total(titles)));
        }
    }
}
