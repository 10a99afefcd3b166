//! The page of `report --format html` in a browser: it draws itself, and its sums are those of the JSON report.

use std::fs;
use std::path::Path;
use std::process::Command;

use hbbp_user::mix::Dimension;
use hbbp_user::report::Format;
use hbbp_user::snapshot::Snapshot;
use serde_json::Value;

use super::skip::skip;
use super::{by, printed, program};

/// The views, as an address names them, and a word that stands in each.
const VIEWS: [(&str, &str); 8] = [
    ("icicle", "Colour by"),
    ("pivot", "id=\"pivot-total\""),
    ("modules", "id=\"pivot-total\""),
    ("vectorization", "id=\"pivot-total\""),
    ("latency", "id=\"pivot-total\""),
    ("synchronization", "id=\"pivot-total\""),
    ("memory", "id=\"pivot-total\""),
    ("branches", "id=\"pivot-total\""),
];

/// The document that a browser made of the page at an address within it; `None` where there is no browser.
fn drawn(page: &Path, fragment: &str) -> Option<String> {
    let mut browser = Command::new("chromium");
    // The sandbox does not run as root; the page is our own.
    browser.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    // Time of the page's own clock, however busy the machine is.
    browser.args(["--virtual-time-budget=20000", "--dump-dom"]);
    browser.arg(format!(
        "--user-data-dir={}",
        page.with_extension("user").display()
    ));
    browser.arg(format!("file://{}#{fragment}", page.display()));
    let output = browser.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn page(snapshot: &Snapshot, directory: &Path) -> std::path::PathBuf {
    let path = directory.join("page.html");
    let page = printed(snapshot, &by(&[Dimension::Mnemonic], Format::Html));
    fs::write(&path, page).unwrap();
    path
}

/// The sum that the pivot shows, in full.
fn shown_sum(document: &str) -> f64 {
    let (_, after) = document.split_once("data-sum=\"").unwrap();
    after.split_once('"').unwrap().0.parse().unwrap()
}

#[test]
fn every_view_draws_and_the_pivot_has_the_sum_of_the_json_report() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = program::stacked();
    let page = page(&snapshot, directory.path());
    for (view, word) in VIEWS {
        let Some(document) = drawn(&page, view) else {
            return skip("chromium cannot be run");
        };
        assert!(
            document.contains("data-ready=\"true\""),
            "{view}: the script failed"
        );
        assert!(document.contains(word), "{view}: {document}");
        if view == "pivot" {
            let json = printed(&snapshot, &by(&[Dimension::Mnemonic], Format::Json));
            let json: Value = serde_json::from_str(&json).unwrap();
            let expected = json["mix"]["total"]["total"]["amount"].as_f64().unwrap();
            let shown = shown_sum(&document);
            assert!((shown - expected).abs() <= 1e-9 * expected, "{shown} {expected}");
        }
    }
}

#[test]
fn function_in_the_address_shows_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = program::stacked();
    let page = page(&snapshot, directory.path());
    let symbols = snapshot.modules.iter().flat_map(|module| &module.symbols);
    let mut seen = 0;
    for symbol in symbols {
        let Some(document) = drawn(&page, &format!("function={}", symbol.name)) else {
            return skip("chromium cannot be run");
        };
        seen += usize::from(document.contains("class=\"code\""));
    }
    assert!(0 < seen, "no function has code");
}

#[test]
fn hostile_names_run_nothing_in_a_browser() {
    let mut snapshot = program::stacked();
    const NAME: &str =
        "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>";
    for module in &mut snapshot.modules {
        module.name = format!("{}{NAME}", module.name);
        for symbol in &mut module.symbols {
            symbol.name = format!("{}{NAME}", symbol.name);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let page = page(&snapshot, directory.path());
    let Some(document) = drawn(&page, "modules") else {
        return skip("chromium cannot be run");
    };
    assert!(
        document.contains("<title>hbbp-sys: instruction mix</title>"),
        "{document}"
    );
    // It is there as text, and there is no such element.
    assert!(document.contains("&lt;img src=x") && !document.contains("<img"));
}
