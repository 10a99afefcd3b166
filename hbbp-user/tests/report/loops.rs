//! The view of loops: figures of loops that are known, golden files, and what it refuses.

use hbbp_analysis::mix::{Dimension, Filter, Query, Taxonomy, Value as Figure, View};
use hbbp_model::addr::Va;
use hbbp_model::snapshot::{ChainCount, IpCount, Snapshot};
use hbbp_output::report::Format;
use hbbp_user::cmd::report::{ReportOptions, print};
use serde_json::Value;

use super::golden::check_text;
use super::{by, nested, printed, program, schema};

/// Loops that are known, in a run with the facts of another profile.
fn profile() -> Snapshot {
    nested::nested(program::clocked())
}

/// The same, whose samples of cycles have call chains: those of `called` were called from `main`, whose call ends at 0x25.
fn called() -> Snapshot {
    let mut snapshot = profile();
    let start = snapshot.processes[1].mappings[0].start.0;
    let chain = |ip: &IpCount| ChainCount {
        event: ip.event,
        process: ip.process,
        ip: ip.ip,
        frames: [ip.ip].into(),
        top: Va(if ip.ip.0 < start + 0x20 { start + 0x25 } else { 0 }),
        hits: ip.hits,
        weight: ip.weight,
    };
    for interval in &mut snapshot.intervals {
        interval.chains = interval.ips.iter().map(chain).collect();
    }
    snapshot
}

fn options(format: Format) -> ReportOptions {
    ReportOptions {
        view: Some(View::named("loops", &Taxonomy::built_in()).unwrap()),
        format,
        ..ReportOptions::default()
    }
}

fn document(snapshot: &Snapshot) -> Value {
    let document = serde_json::from_str(&printed(snapshot, &options(Format::Json))).unwrap();
    let schema = include_str!("../../output/src/report/mix.schema.json");
    assert_eq!(schema::faults_of(schema, &document), [""; 0]);
    document
}

/// Header, tail, depth, parent, and the values of iterations, invocations and trips.
fn figures(it: &Value) -> (u64, u64, u64, Option<u64>, [Option<f64>; 3]) {
    let number = |name: &str| it[name].as_u64().unwrap();
    let rounds = ["iterations", "invocations", "trips"];
    (
        number("header") - 0x1000,
        number("tail") - 0x1000,
        number("depth"),
        it["parent"].as_u64(),
        rounds.map(|name| {
            it[name]["value"]
                .as_f64()
                .map(|value| (value * 1e6).round() / 1e6)
        }),
    )
}

#[test]
fn loops_have_the_executed_rounds() {
    let document = document(&profile());
    let loops = document["loops"][0]["loops"].as_array().unwrap();
    let found: Vec<_> = loops.iter().map(figures).collect();
    let rounds = |iterations, invocations, trips| [Some(iterations), Some(invocations), Some(trips)];
    // The loop of main holds a call, and was never seen to be entered.
    let expected = [
        (0x1, 0x9, 0, None, rounds(50.0, 10.0, 5.0)),
        (0x3, 0x5, 1, Some(0), rounds(200.0, 50.0, 4.0)),
        (0x20, 0x25, 0, None, [Some(10.0), None, None]),
    ];
    assert_eq!(found, expected);
    // 50 additions and 50 rounds of two more instructions around 200 of two; 990 of 1000 cycles.
    let outer = &loops[0];
    assert_eq!(outer["amount"]["value"].as_f64().unwrap().round(), 550.0);
    assert_eq!(outer["time"]["value"], 990.0);
    let cpi = outer["cpi"]["value"].as_f64().unwrap();
    assert!((cpi - 990.0 / 550.0).abs() < 1e-6, "{cpi}");
}

/// With call chains, loops and functions have time and instructions with what they call, and without.
#[test]
fn what_is_called_has_instructions_and_cpi() {
    let document = document(&called());
    let found = &document["loops"][0];
    let of = |it: &Value| {
        let figures = ["time", "inclusive_time", "amount", "inclusive_amount"];
        figures.map(|name| it[name]["value"].as_f64().unwrap().round())
    };
    // 570 instructions of `called`, 20 of `main`, which calls it in its loop.
    let functions: Vec<_> = found["functions"].as_array().unwrap().iter().collect();
    let by_name: Vec<_> = functions
        .iter()
        .map(|it| (it["function"].as_str().unwrap(), of(it)))
        .collect();
    let main = [10.0, 1000.0, 20.0, 20.0 + 570.0];
    assert_eq!(
        by_name,
        [("main", main), ("called", [990.0, 990.0, 570.0, 570.0])]
    );
    let cpi = |it: &Value| it["inclusive_cpi"]["value"].as_f64().unwrap();
    assert!((cpi(functions[0]) - 1000.0 / 590.0).abs() < 1e-6);
    let loops = found["loops"].as_array().unwrap();
    assert_eq!(of(&loops[0])[1..], main[1..]);
    let [site] = &found["calls"]["sites"].as_array().unwrap()[..] else {
        panic!()
    };
    assert_eq!(
        [&site["time"], &site["amount"]].map(|it| it["value"].as_f64().unwrap().round()),
        [990.0, 570.0]
    );
}

#[test]
fn loops_in_text_and_for_spreadsheets() {
    let called = called();
    check_text("called-loops.txt", &printed(&called, &options(Format::Text)));
    check_text("called-loops.csv", &printed(&called, &options(Format::Csv)));
    check_text("nested-loops.txt", &printed(&profile(), &options(Format::Text)));
    check_text("nested-loops.csv", &printed(&profile(), &options(Format::Csv)));
    check_text(
        "clocked-loops.txt",
        &printed(&program::clocked(), &options(Format::Text)),
    );
}

/// The rows by loop are what each loop executed outside of its inner ones, and code outside of loops has a row.
#[test]
fn rows_by_loop_are_those_of_the_view() {
    for profile in [profile(), program::clocked(), program::stacked()] {
        let view = document(&profile);
        let loops = view["loops"][0]["loops"].as_array().unwrap();
        let amount = |it: &Value| it["amount"]["value"].as_f64().unwrap();
        let inner = |n: usize| -> f64 {
            let parts = loops.iter().filter(|it| it["parent"].as_u64() == Some(n as u64));
            parts.map(amount).sum()
        };
        let mut expected: Vec<(String, f64)> = Vec::new();
        for (n, it) in loops.iter().enumerate() {
            let [header, tail] = ["header", "tail"].map(|end| it[end].as_u64().unwrap());
            let name = format!("{} {header:x}..{tail:x}", it["function"].as_str().unwrap());
            expected.push((name, amount(it) - inner(n)));
        }
        let outside = loops.iter().filter(|it| it["parent"].is_null()).map(amount);
        let outside = view["loops"][0]["total"].as_f64().unwrap() - outside.sum::<f64>();
        expected.push(("(none)".to_owned(), outside));
        let rows = printed(&profile, &by(&[Dimension::Loop], Format::Json));
        let rows: Value = serde_json::from_str(&rows).unwrap();
        for row in rows["mix"]["rows"].as_array().unwrap() {
            let name = row["key"][0].as_str().unwrap();
            let found = row["total"]["amount"].as_f64().unwrap();
            let at = expected.iter().position(|(known, _)| known == name);
            let (_, amount) = expected.remove(at.unwrap_or_else(|| panic!("{name} is not a loop")));
            // Samples are whole.
            assert!((found - amount).abs() <= 1.0, "{name}: {found} of {amount}");
        }
        for (name, amount) in expected {
            assert!(amount.abs() < 1.0, "{name} with {amount} has no row");
        }
    }
}

/// Without branch stacks, loops are those of the code, and nothing says how often they were executed.
#[test]
fn clock_gives_only_the_time_of_loops() {
    let document = document(&program::clocked());
    let found = &document["loops"][0];
    assert_eq!(found["unit"], "time_weighted_samples");
    let only = &found["loops"].as_array().unwrap()[..];
    assert_eq!(only.len(), 1, "{only:?}");
    assert_eq!(only[0]["function"], "spin_wait");
    assert!(only[0]["iterations"].is_null() && only[0]["cpi"].is_null());
}

#[test]
fn cells_have_time_and_cycles_of_an_instruction() {
    let query = Query {
        values: vec![
            Figure::Executions,
            Figure::Time,
            Figure::TimeShare,
            Figure::Cpi,
            Figure::Ipc,
        ],
        ..Query::by([Dimension::Function])
    };
    let options = ReportOptions {
        query,
        format: Format::Json,
        ..ReportOptions::default()
    };
    let document: Value = serde_json::from_str(&printed(&profile(), &options)).unwrap();
    let schema = include_str!("../../output/src/report/mix.schema.json");
    assert_eq!(schema::faults_of(schema, &document), [""; 0]);
    let mix = &document["mix"];
    assert_eq!(mix["time_unit"], "cycles");
    let time: Vec<f64> = mix["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["total"]["time"].as_f64().unwrap())
        .collect();
    assert_eq!(time, [990.0, 10.0]);
    assert_eq!(mix["total"]["total"]["time"], 1000.0);
    let called = &mix["rows"][0]["total"];
    let (cpi, ipc) = (called["cpi"].as_f64().unwrap(), called["ipc"].as_f64().unwrap());
    assert!((cpi * called["amount"].as_f64().unwrap() - 990.0).abs() < 1e-6);
    assert!((cpi * ipc - 1.0).abs() < 1e-9);
}

#[test]
fn what_loops_cannot_show_is_refused() {
    let refused = |options: &ReportOptions| {
        let error = print(&profile(), options, &mut Vec::new()).unwrap_err();
        error.to_string()
    };
    assert!(refused(&options(Format::Html)).contains("text, json or csv"));
    let mut filtered = options(Format::Text);
    let filter = Filter::parse("module=*", &Taxonomy::built_in()).unwrap();
    filtered.view.as_mut().unwrap().tables[0]
        .query
        .filters
        .push(filter);
    assert!(refused(&filtered).contains("--filter"));
    let over_time = ReportOptions {
        over_time: true,
        ..options(Format::Text)
    };
    assert!(!refused(&over_time).is_empty());
}
