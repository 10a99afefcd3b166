//! `report --format html`: the table in the page adds up to the other formats, and no name becomes markup.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hbbp_user::mix::Dimension;
use hbbp_user::report::Format;
use hbbp_user::snapshot::Snapshot;
use serde_json::Value;

use super::{by, printed, program};

/// The table in a page.
fn table(page: &str) -> Value {
    let (_, after) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = after.split_once('<').unwrap();
    let packed = BASE64.decode(data).unwrap();
    let mut plain = String::new();
    ZlibDecoder::new(packed.as_slice())
        .read_to_string(&mut plain)
        .unwrap();
    serde_json::from_str(&plain).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

/// Instructions of both rings.
fn totals(table: &Value) -> [f64; 2] {
    let blocks = &table["blocks"];
    let (first, count) = (numbers(&blocks["first"]), numbers(&blocks["count"]));
    let mut sums = [0.0; 2];
    for (n, ring) in numbers(&blocks["ring"]).iter().enumerate() {
        sums[usize::from(*ring > 0.0)] += count[n] * (first[n + 1] - first[n]);
    }
    sums
}

fn page(snapshot: &Snapshot) -> String {
    printed(snapshot, &by(&[Dimension::Mnemonic], Format::Html))
}

#[test]
fn page_has_the_sums_of_the_json_report() {
    for snapshot in [program::clocked(), program::retired(), program::stacked()] {
        let page = table(&page(&snapshot));
        let json = printed(&snapshot, &by(&[Dimension::Mnemonic], Format::Json));
        let json: Value = serde_json::from_str(&json).unwrap();
        for (ring, sum) in ["kernel", "user"].iter().zip(totals(&page)) {
            let expected = json["mix"]["total"][ring]["amount"].as_f64().unwrap();
            // Samples are whole numbers in JSON, and fractions of blocks here.
            assert!(
                (sum - expected).abs() <= 1e-9 * expected + 0.5,
                "{ring}: {sum} {expected}"
            );
        }
        let forms = page["forms"].as_array().unwrap().len() as f64;
        assert!(
            numbers(&page["instructions"]["form"])
                .iter()
                .all(|form| *form < forms)
        );
        assert!(page["strings"].as_array().unwrap().iter().all(Value::is_string));
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

#[test]
fn hostile_names_stay_text() {
    const NAME: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{1b}[31m";

    let plain = page(&program::stacked());
    let mut snapshot = program::stacked();
    snapshot.run.host = NAME.to_owned();
    snapshot.run.notes.push(NAME.to_owned());
    for module in &mut snapshot.modules {
        module.name = format!("{}{NAME}", module.name);
        for symbol in &mut module.symbols {
            symbol.name = format!("{}{NAME}", symbol.name);
        }
    }
    let hostile = page(&snapshot);
    let without_data = |page: &str| {
        let (before, after) = page.split_once("id=\"data\">").unwrap();
        format!("{before}{}", after.split_once('<').unwrap().1)
    };
    assert_eq!(without_data(&plain), without_data(&hostile));
    let table = table(&hostile).to_string();
    assert!(table.contains("alert(1)") && !table.contains('\u{1b}'));
}
