//! What people of five roles ask first is answered on the first screen of a terminal, 24 lines of 80 columns: three questions for
//! each role, with the command that answers them, held in a golden file for each role.

use std::fmt::Write as _;

use clap::Parser as _;

use hbbp_model::snapshot::file;
use hbbp_user::cli::Cli;
use hbbp_user::cmd::pager::Paging;
use hbbp_user::cmd::report::Extent;
use hbbp_user::cmd::{Job, run};

use super::golden::check_text;
use super::{nested, program};

/// A question, the words of the command, and what answers it.
type Question = (&'static str, &'static str, &'static [&'static str]);

const DRIVER: [Question; 3] = [
    (
        "Which functions of my module take the time?",
        "report stack.hbbp --view module:kernel",
        &["spin_wait", "64.89"],
    ),
    (
        "Which of their blocks?",
        "report stack.hbbp --view module:kernel",
        &["[kernel]+"],
    ),
    (
        "Which of its instructions wait for others, and how much is it?",
        "report stack.hbbp --view synchronization --filter module=kernel",
        &["PAUSE", "16.22"],
    ),
];

const COMPILER: [Question; 3] = [
    (
        "Does each program use the level that it was built for?",
        "report stack.hbbp --view isa",
        &["/bin/sum", "v3", "4.65"],
    ),
    (
        "Was the hot code vectorized?",
        "report stack.hbbp --view vectorization",
        &["packed", "scalar"],
    ),
    (
        "How often does the hottest loop go round?",
        "report nested.hbbp --view loops",
        &["trips"],
    ),
];

const PERFORMANCE: [Question; 3] = [
    (
        "Which functions of which programs are hot?",
        "report stack.hbbp",
        &["count_up           sum       sum      28.14"],
    ),
    (
        "Is it divisions, locks or waits?",
        "report stack.hbbp",
        &["classes    locked 7.03 %, fences and pauses 16.22 %"],
    ),
    (
        "Where in the function?",
        "annotate stack.hbbp spin_wait",
        &["25.0 69.8 M", "pause"],
    ),
];

const OPERATOR: [Question; 3] = [
    (
        "Which service runs?",
        "report threads.hbbp --by cgroup",
        &["docker-3f4e8a91b2c7.scope", "20.00"],
    ),
    (
        "Can I trust the figures?",
        "report trouble.hbbp",
        &["92.59 % complete", "Warnings (2 of"],
    ),
    (
        "Did the release change anything?",
        "diff retired.hbbp after.hbbp --by function",
        &["B took", "No difference by function: 3 rows compared."],
    ),
];

const CLOUD: [Question; 3] = [
    (
        "Are these executions, or is it time?",
        "report clock.hbbp",
        &["time, not executions"],
    ),
    (
        "How do I get executions?",
        "report clock.hbbp",
        &["`hbbp-sys check` explains"],
    ),
    (
        "How much of it is the kernel, and what ran there?",
        "report clock.hbbp",
        &["kernel 72.73 %", "spin_wait          [kernel]"],
    ),
];

/// What a command prints on a terminal of 80 columns, of whose lines the first 24 are on the screen.
fn first_screen(folder: &std::path::Path, words: &str) -> String {
    const COLUMNS: usize = 80;
    const LINES: usize = 24;

    let words = words.split_whitespace().map(|word| {
        if word.ends_with(".hbbp") {
            folder.join(word).display().to_string()
        } else {
            word.to_owned()
        }
    });
    let cli = Cli::try_parse_from(["hbbp-sys".to_owned()].into_iter().chain(words)).unwrap();
    let mut job = cli.into_job().unwrap();
    match &mut job {
        Job::Report(_, options, _) => {
            options.look.width = COLUMNS;
            if let Extent::Details(paging) = &mut options.extent {
                *paging = Paging::Never;
            }
        }
        Job::Annotate(options) => (options.look.width, options.paging) = (COLUMNS, Paging::Never),
        Job::Diff(options) => (options.look.width, options.paging) = (COLUMNS, Paging::Never),
        other => panic!("{other:?}"),
    }
    let mut out = Vec::new();
    run(&job, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    // The folder of the test has another name each time.
    let text = text.replace(&format!("{}/", folder.display()), "");
    text.lines().take(LINES).fold(String::new(), |mut screen, line| {
        assert!(line.chars().count() <= COLUMNS, "{line}");
        let _ = writeln!(screen, "{line}");
        screen
    })
}

#[track_caller]
fn check(role: &str, questions: &[Question]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, snapshot) in [
        ("clock", program::clocked()),
        ("stack", program::stacked()),
        ("retired", program::retired()),
        ("trouble", program::troubled()),
        ("threads", program::threaded()),
        ("nested", nested::nested(program::stacked())),
        // The same program again: nothing changed.
        ("after", program::retired()),
    ] {
        let path = folder.path().join(format!("{name}.hbbp"));
        std::fs::write(path, file::encode(&snapshot).unwrap()).unwrap();
    }
    let mut golden = String::new();
    for (question, words, answers) in questions {
        let screen = first_screen(folder.path(), words);
        let _ = write!(golden, "{question}\n$ hbbp-sys {words}\n{screen}\n");
        for answer in *answers {
            assert!(screen.contains(answer), "{question} {answer}\n{screen}");
        }
    }
    check_text(&format!("role-{role}.txt"), &golden);
}

#[test]
fn questions_of_a_driver_engineer_are_answered_at_once() {
    check("driver", &DRIVER);
}

#[test]
fn questions_of_a_compiler_engineer_are_answered_at_once() {
    check("compiler", &COMPILER);
}

#[test]
fn questions_of_a_performance_engineer_are_answered_at_once() {
    check("performance", &PERFORMANCE);
}

#[test]
fn questions_of_an_operator_are_answered_at_once() {
    check("operator", &OPERATOR);
}

#[test]
fn questions_of_a_cloud_user_are_answered_at_once() {
    check("cloud", &CLOUD);
}
