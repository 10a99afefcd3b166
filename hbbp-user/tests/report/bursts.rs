//! Profiles with bursts: user code has relative executions, the kernel has time, and nothing adds the two.

use hbbp_analysis::mix::{Outcome, Query, Requirement, Taxonomy};
use hbbp_model::snapshot::Snapshot;
use hbbp_output::report::Format;
use hbbp_user::cmd::report::{Quality, ReportOptions, WrongUse, print};
use serde_json::Value;

use super::{printed, program};

fn json(snapshot: &Snapshot, options: ReportOptions) -> Value {
    let options = ReportOptions {
        format: Format::Json,
        ..options
    };
    serde_json::from_str(&printed(snapshot, &options)).unwrap()
}

/// The amount of the row of a key in a table.
fn amount(table: &Value, key: &str) -> f64 {
    let rows = table["rows"].as_array().unwrap().iter();
    let mut row = rows.filter(|row| row["key"][0] == key);
    row.next()
        .map_or(0.0, |row| row["total"]["amount"].as_f64().unwrap())
}

#[test]
fn each_ring_has_a_table_with_its_unit() {
    let report = json(&program::followed(), ReportOptions::default());
    let (user, kernel) = (&report["mix"], &report["tables"][0]);
    assert_eq!(user["unit"], "relative_executions");
    assert_eq!(kernel["unit"], "time_weighted_samples");
    assert_eq!(kernel["filters"][0], "ring=kernel");
    // `count_up` was executed twice as often, and `vector_copy` has two of these.
    let ratio = amount(user, "ADDSS") / amount(user, "VMOVUPS");
    assert!(
        (ratio - 1.0).abs() < 1e-9,
        "{ratio}: two of them for each other one"
    );
    assert_eq!((amount(user, "PAUSE"), amount(kernel, "ADDSS")), (0.0, 0.0));
    assert!(0.0 < amount(kernel, "PAUSE"));
    let accounting = &report["accounting"];
    assert_eq!(accounting["unexplained"], 0, "{accounting}");
    assert_eq!(accounting["stacks_only"], 20);
}

/// The same samples without bursts, or without their use, are time of both rings.
#[test]
fn a_clock_alone_has_one_table() {
    let report = json(&program::clocked(), ReportOptions::default());
    assert_eq!(report["tables"].as_array().map(Vec::len), Some(0));
    let rule = ReportOptions {
        rule: "time".to_owned(),
        ..ReportOptions::default()
    };
    let by_time = json(&program::followed(), rule.clone());
    assert_eq!(by_time["mix"]["unit"], "time_weighted_samples");
    assert_eq!(by_time["mix"], json(&program::clocked(), rule)["mix"]);
}

fn required(text: &str, rule: &str) -> anyhow::Result<Quality> {
    let options = ReportOptions {
        query: Query::whole(),
        requirements: vec![Requirement::parse(text, &Taxonomy::built_in()).unwrap()],
        rule: rule.to_owned(),
        ..ReportOptions::default()
    };
    print(&program::followed(), &options, &mut std::io::sink())
}

#[test]
fn a_requirement_on_both_rings_is_refused() {
    for both in [
        "mnemonic=PAUSE<1%",
        "ring=*&&mnemonic=ADDSS>1%",
        "ring!=user&&mnemonic=PAUSE>1%",
        "module=/bin/sum>1%",
    ] {
        let error = required(both, "balanced").unwrap_err();
        assert!(error.downcast_ref::<WrongUse>().is_some(), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains("both rings") && said.contains("ring=user"),
            "{said}"
        );
        assert!(required(both, "time").is_ok(), "time has a sum");
    }
    for user in ["ring=user&&mnemonic=ADDSS>1%", "mnemonic=ADDSS&&ring!=kernel>1%"] {
        let quality = required(user, "balanced").unwrap();
        assert_eq!(quality.verdicts[0].outcome, Outcome::Passed, "{user}");
    }
}

/// A model of a core says how often code was executed, so that no number of bursts leaves an error of nothing.
#[test]
fn errors_have_a_term_for_the_model() {
    let mut many = program::followed();
    let interval = &mut many.intervals[0];
    for stream in &mut interval.streams {
        stream.hits *= 1_000_000;
        stream.weight *= 1e6;
    }
    for branch in &mut interval.branches {
        branch.hits *= 1_000_000;
        branch.oldest *= 1_000_000;
    }
    let error = |snapshot: &Snapshot| {
        let report = json(snapshot, ReportOptions::default());
        let rows = report["mix"]["rows"].as_array().unwrap().iter();
        let row = { rows }.find(|row| row["key"][0] == "VMOVUPS").unwrap();
        let total = &row["total"];
        total["std_error"].as_f64().unwrap() / total["amount"].as_f64().unwrap()
    };
    let (few, many) = (error(&program::followed()), error(&many));
    // Two of seven executed instructions in all.
    let share = 2.0 * 1_700.0 / (4.0 * 3_400.0 + 3.0 * 1_700.0);
    let of_model = 0.19 * (1.0 - share);
    assert!((many - of_model).abs() < 0.01, "{many} is not {of_model}");
    assert!(many < few, "{few}: twenty bursts have chance on top");
}
