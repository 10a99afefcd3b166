//! The first screen: golden files of each kind of measurement, its size, and what replaces it.

use std::process::{Command, Stdio};

use proptest::prelude::*;

use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Loss, Losses, Snapshot};
use hbbp_output::report::Look;
use hbbp_user::cmd::report::{Extent, ReportOptions, print_runs};

use super::golden::check_text;
use super::wrong::{folder, run};
use super::{printed, program, strategy};

/// The screen on a terminal of this width.
fn screen(snapshot: &Snapshot, width: usize) -> String {
    let options = ReportOptions {
        extent: Extent::Screen,
        look: Look {
            width,
            ..Look::default()
        },
        ..ReportOptions::default()
    };
    printed(snapshot, &options)
}

/// Fails where the text does not fit a terminal of 24 lines.
#[track_caller]
fn assert_fits(text: &str, width: usize) {
    assert!(text.lines().count() <= 24, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{width}: {line}\n{text}");
    }
}

#[test]
fn screens_of_all_kinds_of_measurements() {
    for (name, snapshot) in [
        ("clocked", program::clocked()),
        ("retired", program::retired()),
        ("stacked", program::stacked()),
        ("troubled", program::troubled()),
        ("threaded", program::threaded()),
    ] {
        let text = screen(&snapshot, 80);
        assert_fits(&text, 80);
        check_text(&format!("{name}-screen.txt"), &text);
    }
    check_text("troubled-screen-50.txt", &screen(&program::troubled(), 50));
    check_text("clocked-screen-200.txt", &screen(&program::clocked(), 200));
}

#[test]
fn screen_without_samples_says_so() {
    let text = screen(&Snapshot::default(), 80);
    assert!(text.contains("no code that ran is known"), "{text}");
}

/// The cause goes before what follows from it: the executed file was not found, and its name is asked for.
#[test]
fn screen_of_code_that_was_not_found_says_what_is_missing() {
    for (n, said) in [
        (1, "as the file that ran was not found"),
        (2, "as 2 files that ran were not found"),
    ] {
        let mut snapshot = program::stacked();
        snapshot.text.clear();
        snapshot.run.without_executions.clear();
        snapshot.losses = Losses::default();
        snapshot.losses.add(Loss::FileMissing, n);
        let text = screen(&snapshot, 100);
        assert!(text.contains(said) && text.contains("--binary FILE"), "{text}");
        assert!(!text.contains("nothing to report"), "{text}");
    }
}

/// Samples of an idle CPU are no samples of code; the screen and its warning count the latter alike.
#[test]
fn samples_of_idle_cpus_are_not_of_code() {
    let mut snapshot = program::clocked();
    let kernel = snapshot
        .text
        .iter_mut()
        .find(|text| text.bytes.starts_with(&[0x8b, 0x07]));
    // hlt; nop
    kernel.unwrap().bytes[4..6].copy_from_slice(&[0xf4, 0x90]);
    let pause = snapshot.intervals[0].ips.iter_mut();
    for ip in pause.filter(|it| it.ip.ring() == Ring::Kernel && it.ip.0 & 0xff == 4) {
        ip.ip.0 += 1;
    }
    let text = screen(&snapshot, 80);
    assert_fits(&text, 80);
    assert!(text.contains("550 samples (450 of code, 100 idle)"), "{text}");
    assert!(text.contains("only 450 samples of code"), "{text}");
}

/// Time that was not measured has the weight of its share, so that it is not only among the details.
#[test]
fn time_that_was_not_measured_is_on_the_screen() {
    let mut snapshot = program::retired();
    let note = "the 3.0 s before this interval are lost: the disk was slow".to_owned();
    snapshot.run.note_unmeasured(note, 3 * snapshot.run.duration);
    let text = screen(&snapshot, 80);
    assert_fits(&text, 80);
    assert!(
        text.contains("   75 %  the 3.0 s before this interval are lost"),
        "{text}"
    );
    // A note that bends nothing stays there.
    snapshot.run.notes.push("periods vary".to_owned());
    assert!(!screen(&snapshot, 80).contains("periods vary"));
}

/// Of several runs, what they have in common is said once.
#[test]
fn runs_of_a_profile_do_not_repeat_their_header() {
    let mut second = program::clocked();
    second.run.started += 60_000_000_000;
    let mut third = second.clone();
    third.run.host.name = "other".to_owned();
    let mut out = Vec::new();
    let runs = [program::clocked(), second, third];
    print_runs(&runs, &ReportOptions::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for (part, times) in [
        ("  CPU  ", 1),
        ("  kernel text  ", 1),
        ("figures are samples of cpu-clock", 1),
        ("  measured  ", 3),
        ("  host  ", 3),
        ("Run 3 of 3\n", 1),
    ] {
        assert_eq!(text.matches(part).count(), times, "{part}: {text}");
    }
}

/// A requested table is printed alone; the most important warning goes to standard error.
#[test]
fn tables_are_printed_alone() {
    let folder = folder();
    for options in [
        &["--by", "function"][..],
        &["--view", "isa"],
        &["--rows", "mnemonic"],
        &["--top", "3"],
    ] {
        let output = run(folder.path(), &[&["report", "clock.hbbp"], options].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{options:?}: {said}");
        assert!(
            !text.contains("Warnings") && !text.contains("Sample accounting"),
            "{text}"
        );
        assert!(text.contains("Instruction mix"), "{text}");
        assert!(said.contains("hbbp-sys: warning: "), "{said}");
    }
    let whole = run(
        folder.path(),
        &["report", "clock.hbbp", "--by", "function", "--details"],
    );
    let text = String::from_utf8(whole.stdout).unwrap();
    assert!(
        text.contains("Warnings:") && text.contains("Sample accounting"),
        "{text}"
    );
}

/// Why there are no executions is the first line of the text, so standard error does not repeat it.
#[test]
fn the_first_line_is_said_once() {
    let folder = folder();
    for options in [&["--by", "function"][..], &["--view", "isa"], &["--details"], &[]] {
        let output = run(folder.path(), &[&["report", "clock.hbbp"], options].concat());
        let both = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let both = both.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            both.matches("show where time went").count(),
            1,
            "{options:?}: {both}"
        );
    }
}

/// In a locale without other letters, text is ASCII, as wide as before; what scripts read stays.
#[test]
fn text_is_in_the_letters_of_the_locale() {
    let folder = folder();
    for words in [
        &["report", "clock.hbbp"][..],
        &["report", "clock.hbbp", "--details"],
        &["report", "retired.hbbp", "--by", "module,function"],
        &["annotate", "retired.hbbp", "spin_wait"],
        &["diff", "retired.hbbp", "retired.hbbp"],
    ] {
        let printed = |locale: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
            command
                .args(words)
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .env("LC_ALL", locale);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let (ascii, unicode) = (printed("C"), printed("C.UTF-8"));
        assert!(ascii.is_ascii() && !ascii.is_empty(), "{ascii}");
        assert_eq!(ascii.lines().count(), unicode.lines().count());
        for (ascii, unicode) in ascii.lines().zip(unicode.lines()) {
            assert_eq!(ascii.chars().count(), unicode.chars().count(), "{ascii}");
        }
    }
}

/// `diff` takes the rows of a view.
#[test]
fn views_are_compared() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["diff", "clock.hbbp", "clock.hbbp", "--view", "isa", "--no-pager"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("No difference by level, extension: "), "{text}");
}

/// However narrow the screen is and whatever is to be said, there are functions and mnemonics on it.
#[test]
fn narrow_screens_have_code() {
    for snapshot in [program::clocked(), program::troubled(), program::stacked()] {
        for width in [40, 50, 60, 80] {
            let text = screen(&snapshot, width);
            assert_fits(&text, width);
            assert!(
                text.contains("spin_wait") && text.contains("JMP"),
                "{width}: {text}"
            );
        }
    }
}

/// A requirement that failed is said once.
#[test]
fn failed_requirements_are_said_once() {
    let folder = folder();
    for options in [&[][..], &["--details"], &["--by", "mnemonic"]] {
        let require = ["report", "retired.hbbp", "--require", "mnemonic=VMOVUPS>10%"];
        let output = run(folder.path(), &[&require[..], options].concat());
        let both = [output.stdout, output.stderr].concat();
        let both = String::from_utf8(both).unwrap();
        assert_eq!(output.status.code(), Some(3), "{both}");
        assert_eq!(both.matches("VMOVUPS>10%").count(), 1, "{both}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn screen_fits_any_terminal(snapshot in strategy::snapshot(), width in 30_usize..200) {
        assert_fits(&screen(&snapshot, width), width);
    }
}
