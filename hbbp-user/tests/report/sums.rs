//! The JSON report adds up: what was due down to what is in each column, to the last sample.

use proptest::prelude::*;
use serde_json::Value;

use hbbp_analysis::mix::Dimension;
use hbbp_model::snapshot::{Period, Snapshot};
use hbbp_output::report::{Format, Look};
use hbbp_user::cmd::report::ReportOptions;

use super::{by, printed, program, strategy};

/// The number at a path of a document.
#[track_caller]
fn number(document: &Value, path: &str) -> u64 {
    document
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number at {path}"))
}

/// The sum of one field over an array of the document.
#[track_caller]
fn sum(document: &Value, array: &str, field: &str) -> u64 {
    let rows = document.pointer(array).and_then(Value::as_array).unwrap();
    rows.iter().map(|row| number(row, field)).sum()
}

/// Follows the samples through the document.
#[track_caller]
fn check(snapshot: &Snapshot, options: &ReportOptions) {
    let document: Value = serde_json::from_str(&printed(snapshot, options)).unwrap();
    let accounting = document.pointer("/accounting").unwrap();
    let get = |path| number(accounting, path);
    if !accounting.pointer("/due").unwrap().is_null() {
        assert_eq!(
            get("/due") + get("/beyond"),
            get("/idle") + get("/skipped") + get("/reached")
        );
    }
    let unexplained = accounting
        .pointer("/unexplained")
        .and_then(Value::as_i64)
        .unwrap();
    let counted = get("/counted/kernel") + get("/counted/user");
    let explained = sum(accounting, "/refused", "/count") + get("/stacks_only") + counted;
    assert_eq!(
        i64::try_from(get("/reached")).unwrap(),
        i64::try_from(explained).unwrap() + unexplained
    );
    let samples = document.pointer("/mix/unit").unwrap() != "executions"
        && document.pointer("/streams").unwrap().is_null();
    let of_user_code = accounting
        .pointer("/of_user_code")
        .and_then(Value::as_i64)
        .unwrap();
    for (ring, moved) in [("kernel", -of_user_code), ("user", of_user_code)] {
        let ring = format!("/{ring}");
        let in_mix = number(accounting, &format!("/in_mix{ring}"));
        let unresolved = sum(accounting, "/unresolved", &ring);
        assert_eq!(
            number(accounting, &format!("/counted{ring}")),
            unresolved + in_mix
        );
        if samples {
            let amount = format!("{ring}/amount");
            let more = document.pointer("/mix/more").unwrap();
            let more = if more.is_null() { 0 } else { number(more, &amount) };
            let figure = in_mix.checked_add_signed(moved).unwrap();
            assert_eq!(sum(&document, "/mix/rows", &amount) + more, figure);
            assert_eq!(number(&document, &format!("/mix/total{amount}")), figure);
        }
    }
}

#[test]
fn fixture_reports_add_up() {
    for snapshot in [
        program::clocked(),
        program::retired(),
        program::stacked(),
        program::troubled(),
    ] {
        for dimension in Dimension::ALL {
            for top in [None, Some(0), Some(1), Some(2)] {
                check(
                    &snapshot,
                    &ReportOptions {
                        top,
                        ..by(&[*dimension], Format::Json)
                    },
                );
            }
        }
    }
}

/// The mix of the program is known by hand; see [`program`]. Time belongs to the instruction before the sampled one, and to the
/// sampled one at the start of a function that nothing is known to call.
#[test]
fn mix_is_the_executed_code() {
    let report = printed(&program::clocked(), &by(&[Dimension::Mnemonic], Format::Json));
    let document: Value = serde_json::from_str(&report).unwrap();
    let mut expected = vec![
        ("ADDPS", 0, 30),
        ("ADDSS", 0, 60),
        ("JMP", 100, 0),
        ("MOV", 100, 0),
        ("PAUSE", 100, 0),
        ("TEST", 100, 0),
        ("VMOVUPS", 0, 30),
        ("XADD", 0, 30),
    ];
    let rows = document.pointer("/mix/rows").and_then(Value::as_array).unwrap();
    for row in rows {
        let key = row.pointer("/key/0").and_then(Value::as_str).unwrap();
        let found = (key, number(row, "/kernel/amount"), number(row, "/user/amount"));
        let place = expected.iter().position(|line| *line == found);
        expected.remove(place.unwrap_or_else(|| panic!("{found:?} is not expected")));
    }
    assert_eq!(expected, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a file holds, every format prints it, and no line of text is too long.
    #[test]
    fn report_of_any_snapshot_fits_the_width(snapshot in strategy::snapshot(), width in 0_usize..150, top in 0_usize..4) {
        let options = ReportOptions { look: Look { width, ..Look::default() }, top: Some(top), ..by(&[Dimension::Function, Dimension::Mnemonic], Format::Text) };
        for line in printed(&snapshot, &options).lines() {
            prop_assert!(line.chars().count() <= width, "{width}: {line}");
        }
        for format in [Format::Json, Format::Csv] {
            printed(&snapshot, &ReportOptions { format, ..options.clone() });
        }
    }

    /// With realistic counts, the samples add up.
    #[test]
    fn report_of_any_recording_adds_up(mut snapshot in strategy::snapshot(), runs in 0_u64..1_000) {
        for event in &mut snapshot.run.events {
            event.runs = runs;
            for counter in &mut event.counters {
                counter.count %= 1_000_000;
                counter.due = counter.due.map(|due| due % 1_000_000);
            }
            if let Period::Fixed(period) = &mut event.period {
                *period %= 1_000;
            }
        }
        for count in snapshot.intervals.iter_mut().flat_map(|interval| &mut interval.ips) {
            count.hits %= 1_000;
            count.weight = count.hits * 1_000;
        }
        let losses = snapshot.losses.iter();
        snapshot.losses = losses.map(|(id, n, _)| (id.to_owned(), n % 1_000)).collect();
        check(&snapshot, &by(&[Dimension::Mnemonic], Format::Json));
    }
}
