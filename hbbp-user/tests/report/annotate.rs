//! Annotated code of the small program: figures, loops, text versions, and what is said where no function is found.

use serde_json::Value;

use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Interval, Snapshot, Text, file};
use hbbp_output::report::{Colours, Format, Look, Shown, TextOrJson};
use hbbp_user::advice::error_in_words;
use hbbp_user::cmd::annotate::{AnnotateOptions, What, annotate};
use hbbp_user::cmd::import::ImportOptions;
use hbbp_user::cmd::pager::Paging;

use super::golden::check_text;
use super::program;
use super::schema::faults_of;

/// What `hbbp-sys annotate` prints of a snapshot, or why it fails.
fn annotated(snapshot: &Snapshot, what: What, format: TextOrJson) -> anyhow::Result<String> {
    annotated_in(snapshot, what, format, Look::default())
}

fn annotated_in(snapshot: &Snapshot, what: What, format: TextOrJson, look: Look) -> anyhow::Result<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile");
    std::fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
    let options = AnnotateOptions {
        input: ImportOptions {
            file: path,
            ..ImportOptions::default()
        },
        what,
        rule: "balanced".to_owned(),
        format,
        look,
        shown: Shown::default(),
        paging: Paging::Never,
        files: Vec::new(),
    };
    let mut out = Vec::new();
    annotate(&options, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn asked(name: &str) -> What {
    let Ok(query) = name.parse();
    What::Asked(query)
}

/// The small program, whose `spin_wait` ends in an INT3 in the second half of the run.
pub(crate) fn patched() -> Snapshot {
    let mut snapshot = program::stacked();
    let first = snapshot.text[0].clone();
    let mut bytes = first.bytes.clone();
    bytes[4..6].copy_from_slice(&[0x66, 0x90]);
    snapshot.text.insert(
        1,
        Text {
            bytes,
            since: 1,
            ..first
        },
    );
    let interval = Interval {
        start: 1_000_000_005,
        end: 1_500_000_005,
        ..snapshot.intervals[0].clone()
    };
    snapshot.intervals.push(interval);
    snapshot
}

#[test]
fn text_of_a_function_with_a_loop() {
    let text = annotated(&program::stacked(), asked("spin_wait"), TextOrJson::Text).unwrap();
    check_text("annotate-spin_wait.txt", &text);
}

#[test]
fn text_of_the_hottest_functions() {
    let text = annotated(&program::retired(), What::Hottest(2), TextOrJson::Text).unwrap();
    check_text("annotate-hottest.txt", &text);
    assert!(text.contains("spin_wait") && text.contains("count_up") && !text.contains("vector_copy"));
}

#[test]
fn each_text_version_has_its_counts() {
    let text = annotated(&patched(), asked("spin_wait"), TextOrJson::Text).unwrap();
    check_text("annotate-patched.txt", &text);
    let json = annotated(&patched(), asked("spin_wait"), TextOrJson::Json).unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let schema = include_str!("../../output/src/report/annotate.schema.json");
    assert_eq!(faults_of(schema, &document), Vec::<String>::new());
    let versions = document["functions"][0]["versions"].as_array().unwrap();
    let amounts: Vec<f64> = versions
        .iter()
        .map(|version| version["amount"].as_f64().unwrap())
        .collect();
    assert_eq!(amounts.len(), 2);
    assert!(amounts.iter().all(|amount| 0.0 < *amount));
    let sum: f64 = amounts.iter().sum();
    assert!((document["functions"][0]["amount"].as_f64().unwrap() - sum).abs() < 1e-6 * sum);
}

#[test]
fn branches_have_the_predictions_of_stacks() {
    let mut snapshot = program::stacked();
    let untold = annotated(&snapshot, asked("spin_wait"), TextOrJson::Text).unwrap();
    assert!(!untold.contains("mispred"), "{untold}");
    let [of_loop, other] = &mut snapshot.intervals[0].branches[..] else {
        panic!("two branches")
    };
    of_loop.mispredicted = Some(280);
    other.mispredicted = None;
    let text = annotated(&snapshot, asked("spin_wait"), TextOrJson::Text).unwrap();
    check_text("annotate-mispredicted.txt", &text);
    let json = annotated(&snapshot, asked("spin_wait"), TextOrJson::Json).unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let schema = include_str!("../../output/src/report/annotate.schema.json");
    assert_eq!(faults_of(schema, &document), Vec::<String>::new());
    let instructions = &document["functions"][0]["versions"][0]["instructions"];
    let predictions = instructions.as_array().unwrap().iter();
    let predictions: Vec<&Value> = predictions.filter_map(|it| it.get("predictions")).collect();
    assert_eq!(predictions, [&serde_json::json!({"known": 2800, "wrong": 280})]);
}

/// On a terminal what is hot is red, and arrows are faint (SGR 31 and 2).
#[test]
fn heat_has_colours() {
    let look = Look {
        colours: Colours::Shown,
        ..Look::default()
    };
    let snapshot = program::stacked();
    let on_terminal = annotated_in(&snapshot, asked("spin_wait"), TextOrJson::Text, look).unwrap();
    assert!(
        on_terminal.contains("\u{1b}[31m25.0") && on_terminal.contains("\u{1b}[2m"),
        "{on_terminal:?}"
    );
    let in_file = annotated(&snapshot, asked("spin_wait"), TextOrJson::Text).unwrap();
    assert!(!in_file.contains('\u{1b}'), "{in_file:?}");
}

/// Code without names is one row of a report, hotter than what is shown here: that is said, with its share.
#[test]
fn hottest_code_without_names_is_said_to_be_left_out() {
    let mut snapshot = program::clocked();
    snapshot.modules[1].symbols.clear();
    for ip in snapshot.intervals[0]
        .ips
        .iter_mut()
        .filter(|it| it.ip.ring() == Ring::Kernel)
    {
        ip.hits = 35;
        ip.weight = 35_000_000;
    }
    let hottest = |snapshot: &Snapshot, n| annotated(snapshot, What::Hottest(n), TextOrJson::Text).unwrap();
    // 140 samples of the kernel, 120 and 30 of the two pieces.
    let one = hottest(&snapshot, 1);
    assert!(
        one.contains("note: 51.72 % of all is in 2 more pieces of code of sum without names")
            && one.contains("`[sum]`"),
        "{one}"
    );
    for (snapshot, n) in [(&snapshot, 2), (&snapshot, 9), (&program::clocked(), 1)] {
        let text = hottest(snapshot, n);
        assert!(!text.contains("without names"), "{n}: {text}");
    }
}

/// On a clock, code between samples may have run.
#[test]
fn code_between_samples_is_not_said_not_to_have_run() {
    for (mut snapshot, said, not_said) in [
        (program::clocked(), "instructions without samples", "not executed"),
        (program::retired(), "instructions not executed", "without samples"),
    ] {
        let text = &mut snapshot.text[1];
        text.bytes = [&[0x90; 4][..], &[0xeb, 0x20], &[0x90; 0x30], &[0xc3]].concat();
        snapshot.text.remove(2);
        snapshot.modules[1].symbols.truncate(1);
        snapshot.modules[1].symbols[0].len = 0x37;
        snapshot.intervals[0]
            .ips
            .retain(|it| it.ip.ring() == Ring::Kernel || it.ip.0 & 0xff < 2);
        let text = annotated(&snapshot, asked("count_up"), TextOrJson::Text).unwrap();
        assert!(text.contains(said) && !text.contains(not_said), "{text}");
    }
}

/// A loop body of eleven NOPs and a return, all of whose samples are at its eleventh instruction.
fn waiting() -> Snapshot {
    let mut snapshot = program::clocked();
    snapshot.text[1].bytes = [&[0x90; 11][..], &[0xc3]].concat();
    let ips = &mut snapshot.intervals[0].ips;
    let is_of_function = |ip: u64| ip & 0xff < 12;
    for it in ips
        .iter_mut()
        .filter(|it| it.ip.ring() == Ring::User && is_of_function(it.ip.0))
    {
        it.ip.0 = (it.ip.0 & !0xff) + 10;
    }
    ips.dedup_by_key(|it| it.ip);
    snapshot
}

/// The first instruction of a block has the figures of the block, also where all of its time is at others. No column of figures is
/// empty.
#[test]
fn columns_of_figures_hold_a_figure() {
    for snapshot in [
        waiting(),
        program::clocked(),
        program::retired(),
        program::stacked(),
    ] {
        let text = annotated(&snapshot, asked("count_up"), TextOrJson::Text).unwrap();
        let mut lines = text
            .lines()
            .skip_while(|line| !line.ends_with("samples") || line.contains("of all"));
        let titles: Vec<char> = lines.next().unwrap().chars().collect();
        let rows: Vec<Vec<char>> = lines.map(|line| line.chars().collect()).collect();
        let is_end = |at: &usize| titles[*at] != ' ' && titles.get(at + 1).is_none_or(|c| *c == ' ');
        for end in (0..titles.len()).filter(is_end) {
            let mut cells = rows.iter().filter_map(|row| row.get(end));
            assert!(cells.any(|cell| !cell.is_whitespace()), "column {end}: {text}");
        }
    }
    let text = annotated(&waiting(), asked("count_up"), TextOrJson::Text).unwrap();
    assert!(text.contains("count") && text.contains("+0x0 "), "{text}");
}

#[test]
fn instructions_of_a_function_add_up_to_its_share_of_the_report() {
    for snapshot in [program::clocked(), program::retired(), program::stacked()] {
        let json = annotated(&snapshot, asked("count_up"), TextOrJson::Json).unwrap();
        let document: Value = serde_json::from_str(&json).unwrap();
        let function = &document["functions"][0];
        let by = super::by(&[hbbp_analysis::mix::Dimension::Function], Format::Json);
        let report: Value = serde_json::from_str(&super::printed(&snapshot, &by)).unwrap();
        let rows = report["mix"]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"][0] == "count_up").unwrap();
        let (share, expected) = (
            function["share"].as_f64().unwrap(),
            row["total"]["share"].as_f64().unwrap(),
        );
        assert!((share - expected).abs() < 1e-9, "{share} {expected}");
        let lines = function["versions"][0]["instructions"].as_array().unwrap();
        let sum: f64 = lines.iter().map(|line| line["count"].as_f64().unwrap()).sum();
        assert!((sum - function["amount"].as_f64().unwrap()).abs() < 1e-6 * sum);
    }
}

#[test]
fn unknown_functions_are_explained() {
    let error = |name| {
        let refused = annotated(&program::retired(), asked(name), TextOrJson::Text).unwrap_err();
        error_in_words(&refused)
    };
    assert_eq!(
        error("spin_wiat"),
        "no function that ran is named `spin_wiat`; did you mean `spin_wait`?"
    );
    assert_eq!(error("0x77"), "no code that ran is at `0x77`");
    assert!(error("sum.c:7").contains("debug information"));
    let empty = annotated(
        &Snapshot {
            intervals: Vec::new(),
            ..program::retired()
        },
        What::Hottest(1),
        TextOrJson::Text,
    );
    assert!(
        empty
            .unwrap_err()
            .to_string()
            .contains("no instruction that was executed")
    );
}
