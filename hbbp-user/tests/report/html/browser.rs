//! The page in a browser: every view draws, keys and clicks lead to code, and sums are those of the JSON report. Nothing
//! overflows a phone, an accessibility checker finds nothing, and hostile names stay text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hbbp_analysis::mix::Dimension;
use hbbp_model::snapshot::{Snapshot, file};
use hbbp_output::report::Format;
use hbbp_user::cmd::import::ImportOptions;
use hbbp_user::cmd::report::ReportOptions;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::png::colours;
use super::{halved, hostile, json};
use crate::annotate::patched;
use crate::missing::missing;
use crate::{by, printed, program};

/// Uses a page as a reader does.
const DRIVE: &str = include_str!("drive.js");

const DESK: [u32; 2] = [1280, 900];
/// No window is narrower; the page gets the width of a phone within it.
const NARROW: [u32; 2] = [500, 844];
const PHONE: &str = "document.body.style.width = '390px';";

/// A page with all its views, of a run against one whose names are as hostile.
fn page(snapshot: &Snapshot, folder: &Path) -> String {
    let other = folder.join("other.hbbp");
    fs::write(&other, file::encode(&super::hostile()).unwrap()).unwrap();
    let compare = ImportOptions {
        file: other,
        ..ImportOptions::default()
    };
    let options = ReportOptions {
        over_time: true,
        compare: Some(compare),
        ..by(&[Dimension::Mnemonic], Format::Html)
    };
    printed(snapshot, &options)
}

/// The page with another script after its own, which its policy then allows.
fn with_script(page: &str, script: &str) -> String {
    let hash = BASE64.encode(Sha256::digest(script));
    let page = page.replacen("script-src ", &format!("script-src 'sha256-{hash}' "), 1);
    page.replacen("</body>", &format!("<script>{script}</script></body>"), 1)
}

/// The browser, to show a page in a window of this size; `None`, with the reason printed, where there is none.
fn browser(page: &str, folder: &Path, [width, height]: [u32; 2]) -> Option<Command> {
    let path = folder.join("page.html");
    fs::write(&path, page).unwrap();
    let mut browser = Command::new("chromium");
    if browser.arg("--version").output().is_err() {
        missing("chromium is not installed; `cargo xtask setup` installs it");
        return None;
    }
    let mut browser = Command::new("chromium");
    // The sandbox does not run as root; the page is our own.
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    // Time of the page's own clock, however busy the machine is.
    browser.args([
        "--virtual-time-budget=60000",
        &format!("--window-size={width},{height}"),
    ]);
    browser.arg(format!("--user-data-dir={}", folder.join("user").display()));
    browser.current_dir(folder);
    browser.arg(format!("file://{}", path.display()));
    Some(browser)
}

/// The document that a browser made of a page.
fn drawn(page: &str, window: [u32; 2]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let output = browser(page, folder.path(), window)?
        .arg("--dump-dom")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// What a reader found, with the document that was left.
fn driven(page: &str, more: &str, window: [u32; 2]) -> Option<(Value, String)> {
    let document = drawn(&with_script(page, &format!("{more}\n{DRIVE}")), window)?;
    let (_, found) = document.split_once("<pre id=\"found\">").expect(&document);
    let found = BASE64.decode(found.split_once('<').unwrap().0).unwrap();
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(found["errors"], serde_json::json!([]), "{found}");
    Some((found, document))
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn every_view_draws_and_pivots_have_the_sum_of_the_json_report() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = halved(program::stacked());
    // Long names must not make a page wider than a phone.
    for (snapshot, window, script) in [(&snapshot, DESK, ""), (&hostile(), NARROW, PHONE)] {
        let Some((found, _)) = driven(&page(snapshot, folder.path()), script, window) else {
            return;
        };
        let views = found["views"].as_array().unwrap();
        assert_eq!(views.len(), 15, "{found}");
        for view in views {
            assert!(view["width"].as_u64() <= view["window"].as_u64(), "{view}");
            assert!(40 < view["text"].as_str().unwrap().len(), "{view}");
        }
        let pivot = views.iter().find(|view| view["name"] == "Pivot").unwrap();
        let shown: f64 = pivot["total"].as_str().unwrap().parse().unwrap();
        let expected = json(snapshot, false);
        let expected = expected["mix"]["total"]["total"]["amount"].as_f64().unwrap();
        assert!((shown - expected).abs() <= 1e-9 * expected, "{shown} {expected}");
    }
}

/// Users ask first which code was executed, and long names and many warnings do not push it down.
#[test]
#[ignore = "needs a program that only --all installs"]
fn hottest_functions_are_on_the_first_screen_of_desk_and_phone() {
    let folder = tempfile::tempdir().unwrap();
    let mut snapshot = hostile();
    for n in 0..20 {
        let warning =
            format!("warning {n} of many, each of them with a sentence of some length that wraps on a phone");
        snapshot.run.notes.push(warning);
    }
    for (window, script) in [(DESK, ""), (NARROW, PHONE)] {
        let Some((found, _)) = driven(&page(&snapshot, folder.path()), script, window) else {
            return;
        };
        assert_eq!(found["hottest"]["rows"], 3, "{found}");
        let bottom = found["hottest"]["bottom"].as_f64().unwrap();
        // The screen of a phone is 844 high, and a window has a bar of its own.
        assert!(0.0 < bottom && bottom < 700.0, "{bottom}");
        assert_eq!(found["warnings"], 1, "they fold");
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn keys_and_clicks_lead_to_the_code_of_a_function() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(&halved(program::stacked()), folder.path());
    let Some((found, _)) = driven(&page, "", DESK) else {
        return;
    };
    assert!(
        found["address"].as_str().unwrap().starts_with("#function="),
        "{found}"
    );
    assert!(3 <= found["rows"].as_u64().unwrap(), "{found}");
    // Escape leads back to the module.
    assert_eq!(found["back"], 3, "{found}");
    let views = found["views"].as_array().unwrap();
    let code = views.last().unwrap()["text"].as_str().unwrap();
    assert!(code.contains("+0x0") && code.contains("EBS"), "{code}");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn versions_of_patched_code_are_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let Some((found, _)) = driven(&page(&patched(), folder.path()), "", DESK) else {
        return;
    };
    let views = found["views"].as_array().unwrap();
    let text = |name: &str| {
        let view = views.iter().find(|view| view["name"] == name);
        view.unwrap()["text"].as_str().unwrap().to_owned()
    };
    assert!(text("Patched code").contains("spin_wait"), "{found}");
    let code = text("code");
    assert!(
        code.contains("Text at the start") && code.contains("Text since 1.000 s"),
        "{code}"
    );
    assert_eq!(code.matches('≠').count(), 1 + 1, "{code}");
    // The loop of the first version goes back to its first instruction.
    assert!(code.contains('┌') && code.contains("+0x0"), "{code}");
}

/// axe-core, as `cargo xtask setup` installs it for these tests.
fn axe() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let libraries = fs::read_dir(target.join("readers/lib")).into_iter().flatten();
    let mut scripts = libraries.flatten().map(|python| {
        let packages = python.path().join("site-packages");
        packages.join("axe_playwright_python/axe.min.js")
    });
    let found = scripts.find(|script| script.is_file());
    if found.is_none() {
        missing("axe-core is not installed; `cargo xtask setup` installs it");
    }
    found
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn accessibility_checker_finds_nothing_serious_in_either_theme() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(&halved(program::stacked()), folder.path());
    let Some(axe) = axe() else {
        return;
    };
    let axe = fs::read_to_string(axe).unwrap();
    let Some((found, _)) = driven(&page, &axe, DESK) else {
        return;
    };
    let findings = found["findings"].as_array().unwrap();
    let serious: Vec<&Value> = findings
        .iter()
        .filter(|finding| finding["impact"] == "serious" || finding["impact"] == "critical")
        .collect();
    assert!(serious.is_empty(), "{serious:#?}");
    // It would find something.
    let broken = page.replacen("<main id=\"main\"", "<img role=\"img\"><main id=\"main\"", 1);
    let (found, _) = driven(&broken, &axe, DESK).unwrap();
    assert!(found["findings"].to_string().contains("critical"), "{found}");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn screenshots_show_something_in_either_theme() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(&halved(program::stacked()), folder.path());
    for (theme, is_background) in [
        ("light", (|sum| 600 < sum) as fn(u32) -> bool),
        ("dark", |sum| sum < 165),
    ] {
        for window in [DESK, NARROW] {
            let script = format!("document.documentElement.dataset.theme='{theme}'");
            let Some(mut browser) = browser(&with_script(&page, &script), folder.path(), window) else {
                return;
            };
            let output = browser.arg("--screenshot=shot.png").output().unwrap();
            let png = fs::read(folder.path().join("shot.png")).unwrap_or_else(|_| panic!("{output:?}"));
            let colours = colours(&png);
            let all: usize = colours.values().sum();
            let (background, most) = colours.iter().max_by_key(|(_, n)| **n).unwrap();
            assert!(
                is_background(background.iter().copied().map(u32::from).sum()),
                "{theme}: {background:?}"
            );
            let drawn = all - most;
            assert!(
                30 < colours.len() && all < 20 * drawn,
                "{theme}: {drawn} of {all}"
            );
        }
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn hostile_names_run_nothing_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(&hostile(), folder.path());
    let Some((found, document)) = driven(&page, "", DESK) else {
        return;
    };
    assert!(document.contains("<title>hbbp-sys: instruction mix</title>"));
    // The page has them as text in each of these views, and has no such element.
    assert!(!document.contains("<img"));
    for name in ["Icicle", "Changes", "Modules", "code"] {
        let views = found["views"].as_array().unwrap().iter();
        let mut text = views
            .filter(|view| view["name"] == name)
            .map(|view| &view["text"]);
        assert!(
            text.any(|text| text.as_str().unwrap().contains("<img src=x")),
            "{name}: {found}"
        );
    }
}
