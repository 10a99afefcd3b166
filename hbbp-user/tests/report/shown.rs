//! Rows are in the order of a figure that is shown, and what is shown says something: for every view, dimension and order.

use std::sync::LazyLock;

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

/// Views by name.
const VIEWS: &str = "isa vectorization long-latency synchronization flops memory functions loops branches mitigations patched \
    module:kernel module:[kernel]";

/// What is printed of each view of each program, with its sentence.
static PRINTED: LazyLock<Vec<(View, String)>> = LazyLock::new(|| {
    let taxonomies = Taxonomy::built_in();
    let timed = nested::nested(program::clocked());
    let programs = programs();
    let named = |name: &str| View::named(name, &taxonomies).unwrap_or_else(|error| panic!("{error}"));
    let mut views = Vec::new();
    for snapshot in programs.iter().chain([&timed]) {
        for view in VIEWS.split_whitespace().map(named) {
            let text = print_view(snapshot, &view);
            views.extend(text.map(|text| (view, text)));
        }
    }
    views
});

/// A view; `None` of a module that did not run.
fn print_view(snapshot: &Snapshot, view: &View) -> Option<String> {
    let mut out = Vec::new();
    let options = options(Query::whole(), Some(view.clone()));
    hbbp_user::cmd::report::print(snapshot, &options, &mut out).ok()?;
    Some(String::from_utf8(out).unwrap())
}

/// The words of a sentence, without punctuation.
fn words(sentence: &str) -> Vec<String> {
    let words = sentence
        .split_whitespace()
        .map(|word| word.trim_matches([',', ';', ':', '.', '(', ')']));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// A caption says what neither the sentence of the view says nor another caption.
#[test]
fn captions_repeat_nothing() {
    let mut n_captions = 0;
    for (view, text) in PRINTED.iter() {
        let is_caption = |line: &&str| line.starts_with("Instruction mix") || line.starts_with("Loops,");
        let captions: Vec<&str> = text.lines().filter(is_caption).collect();
        let sentence = words(&view.sentence);
        for caption in &captions {
            let caption_words = words(caption);
            for phrase in caption_words.windows(3) {
                let is_said = sentence.windows(3).any(|said| said == phrase);
                assert!(
                    !is_said,
                    "{}: {phrase:?} in {}: {caption}",
                    view.name, view.sentence
                );
            }
            assert!(!caption.contains("filters: "), "{}: {caption}", view.name);
        }
        let facts = captions.iter().flat_map(|caption| caption.split("; ").skip(1));
        let facts: Vec<&str> = facts.collect();
        for fact in &facts {
            let n = facts.iter().filter(|other| *other == fact).count();
            assert_eq!(n, 1, "{}: {fact}: {text}", view.name);
        }
        n_captions += captions.len();
    }
    assert!(50 < n_captions, "{n_captions}");
    // What the user adds is said.
    let mut filtered = View::named("flops", &Taxonomy::built_in()).unwrap();
    let filter = hbbp_analysis::mix::Filter::parse("ring=user", &[]).unwrap();
    filtered.tables[0].query.filters.push(filter);
    let text = print_view(&program::retired(), &filtered).unwrap();
    assert!(text.contains("; filters: ring=user\n"), "{text}");
}

/// No column of figures is empty, and no two of them say the same in every row.
#[test]
fn columns_of_every_view_say_something_else() {
    let mut n_compared = 0;
    for (view, text) in PRINTED.iter() {
        let n_names = view.tables[0].query.rows.len();
        let all = view.tables.iter().chain(&view.beside);
        if !all.clone().all(|table| table.query.rows.len() == n_names) {
            continue;
        }
        for Shown { titles, rows } in tables(text, n_names) {
            let column = |nth: usize| rows.iter().map(|row| row[nth].as_str()).collect::<Vec<_>>();
            for nth in 0..titles.len() {
                assert!(
                    rows.is_empty() || column(nth).iter().any(|cell| !cell.is_empty()),
                    "{}: {} is empty: {text}",
                    view.name,
                    titles[nth]
                );
                // Few rows agree by chance.
                for other in (0..nth).filter(|_| 3 <= rows.len()) {
                    n_compared += 1;
                    assert_ne!(column(nth), column(other), "{}: {titles:?}: {text}", view.name);
                }
            }
        }
    }
    assert!(50 < n_compared, "{n_compared}");
}

/// A file is named by the last part of its path as well, where that is the name of one only; others have their own.
#[test]
fn modules_are_named_by_their_files() {
    let taxonomies = Taxonomy::built_in();
    let page = |snapshot: &Snapshot, name: &str| {
        let mut out = Vec::new();
        let view = View::named(name, &taxonomies).unwrap();
        let printed = hbbp_user::cmd::report::print(snapshot, &options(Query::whole(), Some(view)), &mut out);
        printed.map(|_| String::from_utf8(out).unwrap())
    };
    let mut snapshot = program::stacked();
    let of_path = page(&snapshot, "module:/bin/sum").unwrap();
    for name in ["module:sum", "module:SUM", "module:s?m"] {
        let text = page(&snapshot, name).unwrap();
        let rows = |text: &str| text.lines().filter(|line| line.contains("count_up")).count();
        assert_eq!(rows(&text), rows(&of_path), "{name}: {text}");
        assert!(!text.contains("spin_wait"), "{name}: {text}");
    }
    for name in ["module:su", "module:bin/sum", "module:bin"] {
        assert!(page(&snapshot, name).is_err(), "{name}");
    }
    // The kernel's text as a file of the same name.
    snapshot.modules[0].name = "/opt/sum".to_owned();
    let refused = page(&snapshot, "module:sum").unwrap_err().to_string();
    assert!(
        refused.contains("several files") && refused.ends_with("/bin/sum, /opt/sum"),
        "{refused}"
    );
    assert!(page(&snapshot, "module:*/sum").unwrap().contains("/opt/sum"));
    assert!(!page(&snapshot, "module:/bin/sum").unwrap().contains("/opt/sum"));
}

/// The page of a module is of that module, so that no column of names has it.
#[test]
fn names_that_a_filter_says_are_no_column() {
    let taxonomies = Taxonomy::built_in();
    for name in ["module:kernel", "module:[kernel]"] {
        let view = View::named(name, &taxonomies).unwrap();
        let text = print_view(&program::stacked(), &view).unwrap();
        assert!(text.contains("Instruction mix by function, in "), "{text}");
        assert!(
            text.contains("\nfunction ") && !text.contains("\nmodule "),
            "{text}"
        );
    }
    // A pattern has several.
    let view = View::named("module:*", &taxonomies).unwrap();
    let text = print_view(&program::stacked(), &view).unwrap();
    assert!(text.contains("\nmodule ") && text.contains("/bin/sum"), "{text}");
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
