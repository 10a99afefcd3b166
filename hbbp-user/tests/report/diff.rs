//! Differences of profiles whose mixes are known, and reports of merged profiles.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use hbbp_analysis::diff::{Condition, Gate, Per};
use hbbp_analysis::mix::{Dimension, Query, Taxonomy};
use hbbp_model::snapshot::{EventUnit, Snapshot, file};
use hbbp_output::report::{DiffFormat, Format, Look};
use hbbp_user::cmd::diff::{DiffOptions, compare};
use hbbp_user::cmd::import::ImportOptions;
use hbbp_user::cmd::pager::Paging;
use hbbp_user::cmd::report::{ReportOptions, print_runs};

use super::golden::check_text;
use super::schema::faults_of;
use super::{program, strategy};

/// What is compared, in addition to the profiles.
struct Asked<'a> {
    by: &'a [Dimension],
    per: Option<&'a str>,
    fail_if: &'a [&'a str],
    format: DiffFormat,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            by: &[Dimension::Mnemonic],
            per: None,
            fail_if: &[],
            format: DiffFormat::Json,
        }
    }
}

/// What `hbbp-sys diff` prints, and its conditions.
fn compared(a: &Snapshot, b: &Snapshot, asked: &Asked<'_>) -> anyhow::Result<(String, Vec<Gate>)> {
    let folder = tempfile::tempdir().unwrap();
    // Names on the command line are part of the report, so they must not depend on the folder.
    let write = |name: &str, snapshot: &Snapshot| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
        path
    };
    let input = |file| ImportOptions {
        file,
        ..ImportOptions::default()
    };
    let taxonomies = Taxonomy::built_in();
    let options = DiffOptions {
        inputs: [input(write("a", a)), input(write("b", b))],
        query: Query {
            columns: Vec::new(),
            ..Query::by(asked.by.iter().copied())
        },
        per: asked.per.map(|per| per.parse::<Per>().unwrap()),
        conditions: asked
            .fail_if
            .iter()
            .map(|text| Condition::parse(text, &taxonomies).unwrap())
            .collect(),
        rule: "balanced".to_owned(),
        top: None,
        format: asked.format,
        look: Look::default(),
        paging: Paging::Never,
    };
    let mut out = Vec::new();
    let gates = compare(&options, &mut out)?;
    let text = String::from_utf8(out).unwrap();
    Ok((text.replace(&format!("{}/", folder.path().display()), ""), gates))
}

fn document(a: &Snapshot, b: &Snapshot, asked: &Asked<'_>) -> Value {
    serde_json::from_str(&compared(a, b, asked).unwrap().0).unwrap()
}

/// The stacked program, with more of the vector code.
fn vectorized() -> Snapshot {
    let mut snapshot = program::stacked();
    for ip in snapshot.intervals[0].ips.iter_mut().filter(|ip| ip.hits == 10) {
        ip.hits *= 9;
        ip.weight *= 9;
    }
    snapshot
}

#[test]
fn difference_of_shares_and_of_amounts() {
    let (a, b) = (program::retired(), {
        let mut b = vectorized();
        b.run.events.truncate(1);
        b.intervals[0].streams.clear();
        b.intervals[0].branches.clear();
        b
    });
    let text = |asked: &Asked<'_>| compared(&a, &b, asked).unwrap().0;
    let shares = Asked {
        format: DiffFormat::Text,
        fail_if: &["extension=AVX*:share>+1%", "lock=locked:share>+1%"],
        ..Asked::default()
    };
    check_text("diff-shares.txt", &text(&shares));
    let (_, gates) = compared(&a, &b, &shares).unwrap();
    assert_eq!(
        gates.iter().map(|gate| gate.failed).collect::<Vec<_>>(),
        [true, false]
    );
    let amounts = Asked {
        by: &[Dimension::Module, Dimension::Function],
        per: Some("second"),
        format: DiffFormat::Text,
        ..Asked::default()
    };
    check_text("diff-per-second.txt", &text(&amounts));
    check_text(
        "diff.csv",
        &text(&Asked {
            format: DiffFormat::Csv,
            ..Asked::default()
        }),
    );
    for per in [None, Some("instructions"), Some("second"), Some("count:count_up")] {
        let asked = Asked {
            per,
            fail_if: &["extension=AVX*:share>+1%"],
            ..Asked::default()
        };
        let schema = include_str!("../../output/src/report/diff.schema.json");
        assert_eq!(faults_of(schema, &document(&a, &b, &asked)), Vec::<String>::new());
    }
}

/// What moves between a function and its clones from build to build has not changed.
#[test]
fn clones_of_a_function_are_compared_as_it() {
    let renamed = |name: &str| {
        let mut snapshot = program::retired();
        let symbols = snapshot.modules.iter_mut().flat_map(|module| &mut module.symbols);
        for symbol in symbols.filter(|symbol| symbol.name == "count_up") {
            symbol.name = name.to_owned();
        }
        snapshot
    };
    let asked = Asked {
        by: &[Dimension::Function],
        ..Asked::default()
    };
    let compared = document(&renamed("count_up"), &renamed("count_up.constprop.0"), &asked);
    assert_eq!(changes(&compared), Vec::new());
    let other = document(&renamed("count_up"), &renamed("count_down"), &asked);
    assert_eq!(changes(&other).len(), 2);
}

#[test]
fn profiles_that_cannot_be_compared_are_refused() {
    let error = |a: &Snapshot, b: &Snapshot, asked: &Asked<'_>| compared(a, b, asked).unwrap_err();
    let units = error(&program::clocked(), &program::retired(), &Asked::default());
    assert!(
        units
            .to_string()
            .contains("profiles of different units cannot be compared"),
        "{units}"
    );
    let calls = Asked {
        per: Some("count:nowhere"),
        ..Asked::default()
    };
    let calls = format!("{:#}", error(&program::retired(), &program::retired(), &calls));
    assert!(
        calls.contains("profile A has no unit of work: no function that ran is named `nowhere`"),
        "{calls}"
    );
    let mut other = program::retired();
    other.run.host.cpu_model = "AMD EPYC".to_owned();
    let notes = document(&program::retired(), &other, &Asked::default());
    let notes = notes["notes"].as_array().unwrap();
    assert!(
        notes.len() == 1
            && notes[0]
                .as_str()
                .unwrap()
                .starts_with("processors differ: A Intel"),
        "{notes:?}"
    );
}

/// The keys of a difference, with the change of each.
fn changes(document: &Value) -> Vec<(String, f64, f64)> {
    let changes = document["changes"].as_array().unwrap().iter();
    let number = |value: &Value| value.as_f64().unwrap();
    let mut changes: Vec<(String, f64, f64)> = changes
        .map(|change| {
            (
                change["key"].to_string(),
                number(&change["change"]["value"]),
                number(&change["adjusted_p"]),
            )
        })
        .collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    changes
}

/// A snapshot that counts retired instructions, if anything.
fn counted() -> impl Strategy<Value = Snapshot> {
    strategy::snapshot().prop_map(|mut snapshot| {
        for event in &mut snapshot.run.events {
            event.unit = EventUnit::Instructions;
        }
        snapshot
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn difference_of_a_profile_with_itself_is_empty(snapshot in counted()) {
        let by = [Dimension::Module, Dimension::Function, Dimension::Mnemonic];
        let document = document(&snapshot, &snapshot, &Asked { by: &by, ..Asked::default() });
        prop_assert_eq!(changes(&document), Vec::new());
        prop_assert_eq!(document["more"].as_u64(), Some(0));
    }

    #[test]
    fn difference_is_antisymmetric(a in counted(), b in counted()) {
        let asked = Asked::default();
        let (Ok((there, _)), Ok((back, _))) = (compared(&a, &b, &asked), compared(&b, &a, &asked)) else {
            return Ok(());
        };
        let there = changes(&serde_json::from_str(&there).unwrap());
        let back = changes(&serde_json::from_str(&back).unwrap());
        let turned: Vec<_> = back.into_iter().map(|(key, change, p)| (key, -change, p)).collect();
        prop_assert_eq!(there, turned);
    }
}

/// The mix of a merged profile is the sum of the mixes of its runs.
#[test]
fn report_of_a_merged_profile_adds_up() {
    let options = ReportOptions {
        format: Format::Json,
        ..ReportOptions::default()
    };
    let report = |runs: &[Snapshot]| -> Value {
        let mut out = Vec::new();
        print_runs(runs, &options, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let mut other = vectorized();
    other.run.host.name = "other".to_owned();
    let runs = [program::stacked(), other];
    let amount = |document: &Value, mnemonic: &str| {
        let rows = document["mix"]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"][0] == mnemonic).unwrap();
        row["total"]["amount"].as_f64().unwrap()
    };
    let (both, apart) = (
        report(&runs),
        runs.each_ref().map(|run| report(std::slice::from_ref(run))),
    );
    for mnemonic in ["MOV", "VMOVUPS", "XADD"] {
        let sum: f64 = apart.iter().map(|document| amount(document, mnemonic)).sum();
        assert!((amount(&both, mnemonic) - sum).abs() < 1e-6 * sum, "{mnemonic}");
    }
    assert_eq!(both["run"]["host"], "myriad");
    assert_eq!(both["others"][0]["run"]["host"], "other");
    assert_eq!(both["others"][0]["accounting"], apart[1]["accounting"]);
    assert_eq!(apart[0]["others"].as_array().map(Vec::len), Some(0));
    let schema = include_str!("../../output/src/report/mix.schema.json");
    assert_eq!(faults_of(schema, &both), Vec::<String>::new());
}
