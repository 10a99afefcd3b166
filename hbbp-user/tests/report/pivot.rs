//! Every pivot of a profile has one grand total, filters partition, and tables add up in both directions.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value as Json;

use hbbp_analysis::mix::{Axis, Cell, Dimension, Estimated, Filter, Mix, Query, Sort, Taxonomy, Value};
use hbbp_estimate::rule::PAPER;
use hbbp_model::snapshot::{Snapshot, SourceLocations};
use hbbp_output::report::Format;
use hbbp_user::cmd::report::ReportOptions;

use super::{printed, program, strategy};

/// All axes: dimensions, and the taxonomies of the paper.
fn axes() -> Vec<Axis> {
    let taxonomies = Taxonomy::built_in().into_iter().map(Axis::Taxonomy);
    Dimension::ALL
        .iter()
        .copied()
        .map(Axis::from)
        .chain(taxonomies)
        .collect()
}

/// Columns of each kind: by ring, by form, by overlapping groups, by process image.
fn columns() -> impl Iterator<Item = Axis> {
    let names = ["ring", "packing", "synchronization", "process"];
    names
        .into_iter()
        .map(|name| Axis::named(name, &Taxonomy::built_in()).unwrap())
}

fn query(rows: &[Axis], columns: &[Axis], filters: &[&str]) -> Query {
    let taxonomies = Taxonomy::built_in();
    let filters = filters
        .iter()
        .map(|text| Filter::parse(text, &taxonomies).unwrap());
    Query {
        rows: rows.to_vec(),
        columns: columns.to_vec(),
        filters: filters.collect(),
        values: Value::ALL.to_vec(),
        sort: Sort::Total,
    }
}

fn mixes(snapshot: &Snapshot, queries: &[Query]) -> Vec<Mix> {
    let estimated = Estimated::new(snapshot, &PAPER.parse().unwrap());
    let locations = SourceLocations::new();
    queries
        .iter()
        .map(|query| estimated.mix(query, &locations))
        .collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

/// The sums of rows and columns are those of the cells, and distinct blocks are not more than the sums of their parts.
fn adds_up(mix: &Mix) -> Result<(), TestCaseError> {
    let sum = |cells: &mut dyn Iterator<Item = f64>| cells.fold(0.0, |sum, cell| sum + cell);
    let figures: [fn(&Cell) -> f64; 3] = [|cell| cell.amount, |cell| cell.samples, |cell| cell.flops];
    for figure in figures {
        for row in &mix.rows {
            prop_assert!(close(sum(&mut row.cells.iter().map(figure)), figure(&row.total)));
        }
        for (n, column) in mix.columns.iter().enumerate() {
            let cells = sum(&mut mix.rows.iter().map(|row| figure(&row.cells[n])));
            prop_assert!(close(cells, figure(&column.total)));
        }
        let rows = sum(&mut mix.rows.iter().map(|row| figure(&row.total)));
        prop_assert!(close(rows, figure(&mix.total)), "{rows} {}", figure(&mix.total));
    }
    let blocks: u64 = mix.rows.iter().map(|row| row.total.blocks).sum();
    let bytes: u64 = mix.rows.iter().map(|row| row.total.bytes).sum();
    prop_assert!(mix.total.blocks <= blocks && mix.total.bytes <= bytes);
    Ok(())
}

#[test]
fn every_pivot_of_a_fixture_has_its_total() {
    for snapshot in [
        program::clocked(),
        program::retired(),
        program::stacked(),
        program::troubled(),
        program::threaded(),
    ] {
        let axes = axes();
        let queries: Vec<Query> = axes
            .iter()
            .flat_map(|rows| {
                columns()
                    .map(move |column| query(std::slice::from_ref(rows), std::slice::from_ref(&column), &[]))
            })
            .collect();
        let mixes = mixes(&snapshot, &queries);
        for mix in &mixes {
            assert!(close(mix.total.amount, mixes[0].total.amount));
            assert_eq!(
                (mix.total.blocks, mix.total.bytes),
                (mixes[0].total.blocks, mixes[0].total.bytes)
            );
            assert!(close(
                mix.total.std_error.unwrap(),
                mixes[0].total.std_error.unwrap()
            ));
            adds_up(mix).unwrap();
        }
    }
}

/// Threads of a process sum to the process, and have its cgroup.
#[test]
fn threads_sum_to_their_process() {
    let axis = |name: &str| Axis::named(name, &[]).unwrap();
    let by = |names: &[&str]| query(&names.iter().map(|name| axis(name)).collect::<Vec<_>>(), &[], &[]);
    let queries = [by(&["process", "cgroup"]), by(&["process", "cgroup", "thread"])];
    let [processes, threads] = mixes(&program::threaded(), &queries).try_into().unwrap();
    assert!(processes.rows.len() < threads.rows.len());
    for process in &processes.rows {
        let of_process = threads.rows.iter().filter(|row| row.key[..2] == process.key[..]);
        let sum: f64 = of_process.map(|row| row.total.amount).sum();
        assert!(close(sum, process.total.amount), "{:?}", process.key);
    }
}

/// Samples are whole in every pivot, and of equal number.
#[test]
fn whole_samples_have_one_total() {
    for rows in axes() {
        for columns in columns() {
            let options = ReportOptions {
                query: query(std::slice::from_ref(&rows), std::slice::from_ref(&columns), &[]),
                format: Format::Json,
                ..ReportOptions::default()
            };
            let report: Json = serde_json::from_str(&printed(&program::clocked(), &options)).unwrap();
            let total = &report["mix"]["total"]["total"]["amount"];
            assert_eq!(total.as_u64(), Some(550), "{rows} {columns}");
        }
    }
}

/// Shares of filtered samples are those of the estimates, so they never exceed 100 %.
#[test]
fn filtered_shares_are_parts_of_their_column() {
    let rows = [Axis::named("extension", &[]).unwrap()];
    let columns = [Axis::named("packing", &[]).unwrap()];
    let options = ReportOptions {
        query: query(&rows, &columns, &["extension=SSE"]),
        format: Format::Json,
        ..ReportOptions::default()
    };
    let report: Json = serde_json::from_str(&printed(&program::clocked(), &options)).unwrap();
    let total = &report["mix"]["total"];
    let names = report["mix"]["columns"].as_array().unwrap().iter();
    for (name, cell) in names.zip(total["cells"].as_array().unwrap()) {
        let share = cell["share"].as_f64().unwrap();
        // Among the packed instructions, ADDPS and VMOVUPS have 30 samples each; ADDSS, with 60, is the only scalar one.
        let expected = if name[0] == "packed" { 0.5 } else { 1.0 };
        assert!(close(share, expected), "{name}: {share}");
    }
    assert!(close(total["total"]["share"].as_f64().unwrap(), 90.0 / 550.0));
}

#[test]
fn overlapping_groups_have_rows_of_their_own() {
    let taxonomy = "name = 'x'\n[[group]]\nname = 'adds'\nmatch = [{ mnemonic = ['ADD*', 'XADD'] }]\n\
                    [[group]]\nname = 'locks'\nmatch = [{ lock = 'locked*' }]\n";
    let taxonomy = Arc::new(Taxonomy::parse(taxonomy).unwrap());
    let by_group = Query {
        rows: vec![Axis::Taxonomy(taxonomy.clone())],
        ..Query::whole()
    };
    let filtered = |group: &str| Query {
        filters: vec![Filter::parse(&format!("x={group}"), std::slice::from_ref(&taxonomy)).unwrap()],
        ..Query::whole()
    };
    let mixes = mixes(
        &program::retired(),
        &[by_group, filtered("adds"), filtered("locks")],
    );
    let rows: Vec<(&str, f64)> = mixes[0]
        .rows
        .iter()
        .map(|row| (row.key[0].as_str(), row.total.amount))
        .collect();
    let period = 1_000_003.0;
    let expected = [("(none)", 460.0), ("adds", 60.0), ("adds + locks", 30.0)];
    for ((name, amount), (expected, hits)) in rows.iter().zip(expected) {
        assert!(*name == expected && close(*amount, hits * period), "{rows:?}");
    }
    // A filter selects every member of the group, including those of several groups.
    assert!(close(mixes[1].total.amount, 90.0 * period));
    assert!(close(mixes[2].total.amount, 30.0 * period));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a file holds.
    #[test]
    fn every_pivot_has_the_same_total(
        snapshot in strategy::snapshot(),
        rows in prop::sample::subsequence(axes(), 0..4),
        columns in prop::sample::subsequence(axes(), 0..3),
    ) {
        let mixes = mixes(&snapshot, &[Query::whole(), query(&rows, &columns, &[])]);
        prop_assert!(close(mixes[0].total.amount, mixes[1].total.amount));
        prop_assert_eq!(mixes[0].total.blocks, mixes[1].total.blocks);
        prop_assert_eq!(mixes[0].total.bytes, mixes[1].total.bytes);
        adds_up(&mixes[1])?;
    }

    #[test]
    fn filters_partition(
        snapshot in strategy::snapshot(),
        axis in prop::sample::select(axes()),
        pattern in prop::sample::select(vec!["*", "?*", "*a*", "[kernel]*", "{*1*,*o*}"]),
        more in prop::sample::select(vec!["mnemonic=*", "ring=kernel", "memory!=none"]),
    ) {
        let Ok(_) = Filter::parse(&format!("{axis}={pattern}"), &Taxonomy::built_in()) else {
            return Ok(());
        };
        let (with, without) = (format!("{axis}={pattern}"), format!("{axis}!={pattern}"));
        let queries = [&[more][..], &[more, &with], &[more, &without]].map(|filters| query(&[], &[], filters));
        let [all, with, without] = mixes(&snapshot, &queries).try_into().unwrap();
        prop_assert!(close(all.total.amount, with.total.amount + without.total.amount));
        prop_assert!(close(all.total.samples, with.total.samples + without.total.samples));
        prop_assert_eq!(all.total.bytes, with.total.bytes + without.total.bytes);
        prop_assert!(close(all.all.amount, with.all.amount));
    }
}
