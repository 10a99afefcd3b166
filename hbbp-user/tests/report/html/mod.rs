//! `report --format html`: the table in the page adds up to the other formats, its code is that of the disassembler, and no
//! name becomes markup.

mod browser;
mod png;
mod size;
mod table;

use hbbp_analysis::annotate::disassembled;
use hbbp_analysis::mix::Dimension;
use hbbp_model::addr::ImageAddr;
use hbbp_model::names::Demangle;
use hbbp_model::snapshot::{Interval, Snapshot};
use hbbp_output::report::Format;
use hbbp_user::cmd::report::ReportOptions;
use serde_json::Value;

use super::schema::faults_of;
use super::{by, printed, program};
pub(crate) use table::Table;

/// A page with all its views but that of changes.
fn page(snapshot: &Snapshot) -> String {
    let options = ReportOptions {
        over_time: 1 < snapshot.intervals.len(),
        ..by(&[Dimension::Mnemonic], Format::Html)
    };
    printed(snapshot, &options)
}

/// The same run in two halves: kernel code in both, user code only in the first.
pub(crate) fn halved(mut snapshot: Snapshot) -> Snapshot {
    let first = snapshot.intervals[0].clone();
    let ips = first.ips.iter().filter(|ip| ip.process.0 == 0).copied();
    let streams = first
        .streams
        .iter()
        .filter(|stream| stream.process.0 == 0)
        .copied();
    snapshot.intervals.push(Interval {
        start: first.end,
        end: first.end + 1_000_000_000,
        ips: ips.collect(),
        streams: streams.collect(),
        ..Interval::default()
    });
    snapshot
}

/// The JSON report by mnemonic.
fn json(snapshot: &Snapshot, over_time: bool) -> Value {
    let options = ReportOptions {
        over_time,
        top: None,
        ..by(&[Dimension::Mnemonic], Format::Json)
    };
    serde_json::from_str(&printed(snapshot, &options)).unwrap()
}

#[test]
fn page_has_the_sums_of_the_json_report() {
    for snapshot in [program::clocked(), program::retired(), program::stacked()] {
        let table = Table::of(&page(&snapshot));
        let json = json(&snapshot, false);
        for (ring, sum) in ["kernel", "user"].iter().zip(table.totals()) {
            let expected = json["mix"]["total"][ring]["amount"].as_f64().unwrap();
            // Samples are whole numbers in JSON, and fractions of blocks here.
            assert!(
                (sum - expected).abs() <= 1e-9 * expected + 0.5,
                "{ring}: {sum} {expected}"
            );
        }
    }
}

/// It is above the title, and the other warnings fold.
#[test]
fn page_begins_with_why_there_are_no_executions() {
    let mut snapshot = program::clocked();
    snapshot.run.without_executions = "this VM has no PMU (ask for one)".to_owned();
    let html = page(&snapshot);
    let head = &Table::of(&html).document["head"];
    let why = head["withoutExecutions"].as_str().unwrap();
    assert!(
        why.starts_with("this VM has no PMU (ask for one): samples of cpu-clock show where time went"),
        "{why}"
    );
    let warnings = head["warnings"].as_array().unwrap();
    assert!(warnings.iter().all(|warning| warning != why), "{warnings:?}");
    let (header, _) = html.split_once("<h1>").unwrap();
    assert!(header.contains("id=\"without-executions\""), "{header}");
    let retired = Table::of(&page(&program::retired()));
    assert!(retired.document["head"]["withoutExecutions"].is_null());
}

/// Templates, numbers and names of functions together are what the disassembler writes.
#[test]
fn page_has_the_disassembly_of_each_block() {
    for snapshot in [program::stacked(), size::own_code()] {
        // Names that coincide when they are demangled are longer in a table than in code.
        let mut options = by(&[Dimension::Mnemonic], Format::Html);
        options.look.demangle = Demangle::Off;
        let table = Table::of(&printed(&snapshot, &options));
        let mut compared = 0;
        // The disassembler takes a while for each block of a module with thousands of functions.
        let blocks = table.blocks();
        for block in blocks.iter().step_by(blocks.len().div_ceil(200)) {
            let module = snapshot
                .modules
                .iter()
                .find(|module| module.name == block.module)
                .unwrap();
            let text = snapshot.text.iter().find(|text| {
                let end = text.start.0 + text.bytes.len() as u64;
                snapshot.modules[text.module.0 as usize].name == block.module
                    && (text.start.0..end).contains(&block.start)
            });
            let text = text.unwrap();
            let from = (block.start - text.start.0) as usize;
            let bytes = &text.bytes[from..from + block.len];
            let expected = disassembled(module, ImageAddr(block.start), bytes, Demangle::Off);
            let expected: Vec<&str> = expected.iter().map(|line| line.text.as_str()).collect();
            assert_eq!(block.instructions, expected);
            compared += expected.len();
        }
        assert!(8 < compared, "{compared}");
    }
}

#[test]
fn page_has_the_mitigations_of_the_report() {
    let mut snapshot = program::clocked();
    snapshot.modules[0].symbols[0].name = "__x86_return_thunk".to_owned();
    let report = by(&[Dimension::Mitigation], Format::Json);
    let report: Value = serde_json::from_str(&printed(&snapshot, &report)).unwrap();
    let table = Table::of(&page(&snapshot));
    let sums = table.sums("mitigation");
    let rows = report["mix"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), sums.len()), (2, 2), "{sums:?}");
    for row in rows {
        let sum = sums[row["key"][0].as_str().unwrap()];
        let expected = row["total"]["amount"].as_f64().unwrap();
        assert!((sum - expected).abs() <= 0.5, "{row} {sum}");
    }
}

#[test]
fn rows_over_time_add_up_to_the_mix() {
    for snapshot in [program::clocked(), program::retired(), program::stacked()] {
        let snapshot = halved(snapshot);
        let json = json(&snapshot, true);
        let schema = include_str!("../../../output/src/report/mix.schema.json");
        assert_eq!(faults_of(schema, &json), [""; 0]);
        let over_time = &json["over_time"];
        assert_eq!(over_time["periods"].as_array().unwrap().len(), 2);
        let amounts = |row: &Value| -> Vec<f64> {
            let amounts = row["amounts"].as_array().unwrap().iter();
            amounts.map(|amount| amount.as_f64().unwrap()).collect()
        };
        for row in over_time["rows"].as_array().unwrap() {
            let rows = json["mix"]["rows"].as_array().unwrap();
            let same = rows.iter().find(|other| other["key"] == row["key"]).unwrap();
            let expected = same["total"]["amount"].as_f64().unwrap();
            let of_row = amounts(row);
            assert!(
                (of_row.iter().sum::<f64>() - expected).abs() <= 0.5 + 1e-9 * expected,
                "{row} {same}"
            );
            // Only the kernel pauses, in both halves; only user code adds.
            match row["key"][0].as_str() {
                Some("PAUSE") => assert!((of_row[0] - of_row[1]).abs() <= 1e-6 * of_row[0], "{row}"),
                Some("ADDPS") => assert_eq!(of_row[1], 0.0),
                _ => {}
            }
        }
        let table = Table::of(&page(&snapshot));
        let of_page: f64 = table.amounts("time.amount").iter().sum();
        let [kernel, user] = table.totals();
        assert!(
            (of_page - kernel - user).abs() <= 1e-5 * of_page,
            "{of_page} {kernel} {user}"
        );
    }
}

#[test]
fn page_allows_only_its_own_script_and_loads_nothing() {
    let page = page(&program::stacked());
    assert!(page.contains("default-src 'none'"));
    assert_eq!(page.matches("<script>").count(), 1);
    for word in [
        "http://",
        "https://",
        "src=",
        "unsafe-inline",
        "innerHTML",
        "{script",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    // Style and script together, without data.
    assert!(page.len() < 250_000, "{}", page.len());
}

/// In text that a browser may not take for markup.
const HOSTILE: &str =
    "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>\u{1b}[31m";

/// A run whose names are hostile.
fn hostile() -> Snapshot {
    let mut snapshot = halved(program::stacked());
    snapshot.run.host.name = HOSTILE.to_owned();
    snapshot.run.notes.push(HOSTILE.to_owned());
    for module in &mut snapshot.modules {
        module.name = format!("{}{HOSTILE}", module.name);
        for symbol in &mut module.symbols {
            symbol.name = format!("{}{HOSTILE}", symbol.name);
        }
    }
    snapshot
}

#[test]
fn hostile_names_stay_in_the_table() {
    let (plain, hostile) = (page(&halved(program::stacked())), page(&hostile()));
    let without_data = |page: &str| {
        let (before, after) = page.split_once("id=\"data\">").unwrap();
        format!("{before}{}", after.split_once('<').unwrap().1)
    };
    assert_eq!(without_data(&plain), without_data(&hostile));
    let document = Table::of(&hostile).document.to_string();
    assert!(document.contains("owned") && !document.contains('\u{1b}'));
}
