//! What people of five roles ask first, of this machine as it runs: each answer is on the first screen of a terminal with 24 lines of 80
//! columns. The golden files of the test `report` hold the same questions of programs whose mix is known.

use std::path::Path;
use std::process::Command;

use super::load::built;
use super::{kernel, run};

const COLUMNS: usize = 80;
const LINES: usize = 24;

/// Most of its time are divisions, in a loop of `divide`; `scale` multiplies vectors and single numbers.
const SOURCE: &str = "#include <stdlib.h>\n\
    typedef float four __attribute__((vector_size(16)));\n\
    __attribute__((noipa)) unsigned long divide(unsigned long n) { unsigned long x = n; \
    for (unsigned long i = 1; i < n; i++) x += x / (i | 1); return x; }\n\
    __attribute__((noipa)) float scale(long n) { four x = { 1, 2, 3, 4 }; float y = 1; \
    for (long i = 0; i < n; i++) { x *= x; y *= 1.5f; } return x[0] + y; }\n\
    int main(void) { for (;;) if (divide(10000000) == 3 || scale(5000000) == 2) abort(); }\n";

/// A command, and what it shows of an answer.
type Question = (&'static str, &'static [&'static str]);

/// Commands by role, with what each shows of an answer.
const QUESTIONS: [(&str, [Question; 3]); 5] = [
    (
        "driver",
        [
            (
                "report FIRST --view module:kernel",
                &["function", "blocks", "module kernel"],
            ),
            (
                "report FIRST --filter module=kernel --by function",
                &["function", "chacha"],
            ),
            (
                "report FIRST --view synchronization --filter module=kernel",
                &["synchronization", "mnemonic"],
            ),
        ],
    ),
    (
        "compiler",
        [
            ("report FIRST --view isa", &["v1", "BASE"]),
            ("report FIRST --view vectorization", &["scalar", "packed"]),
            ("report FIRST --view loops", &["loop", "divide"]),
        ],
    ),
    (
        "performance",
        [
            ("report FIRST", &["divide", "hot"]),
            ("report FIRST", &["classes", "divisions"]),
            ("annotate FIRST divide --no-pager", &["div", "%"]),
        ],
    ),
    (
        "operator",
        [
            ("report FIRST --by cgroup", &["cgroup", "%"]),
            ("report FIRST", &["% complete", "accounted for"]),
            ("diff FIRST SECOND --by function --no-pager", &["B took"]),
        ],
    ),
    (
        "cloud",
        [
            ("report FIRST", &["time, not executions"]),
            ("report FIRST", &["figures are samples of cpu-clock"]),
            ("report FIRST", &["rings", "kernel"]),
        ],
    ),
];

/// What a command prints on a terminal, line by line.
fn on_terminal(folder: &Path, words: &str) -> Vec<String> {
    let command = format!(
        "stty cols {COLUMNS} rows {LINES}; exec {} {words}",
        env!("CARGO_BIN_EXE_hbbp-sys")
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder)
        .env("NO_COLOR", "1");
    let output = script.env("LC_ALL", "C.UTF-8").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words}: {text}");
    text.lines()
        .map(|line| line.trim_end_matches('\r').to_owned())
        .collect()
}

#[test]
fn first_questions_are_answered_on_the_first_screen() {
    let Some(_kernel) = kernel() else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return super::skip_outside_ci("script (bsdutils) is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    // Nothing but this is measured, so neighbours change no rank.
    let hot = built(folder.path(), "hot", SOURCE, &["-g"]);
    let work = format!(
        "timeout 3 {} & timeout 3 dd if=/dev/urandom of=/dev/null bs=4k; wait",
        hot.display()
    );
    for name in ["FIRST", "SECOND"] {
        let path = folder.path().join(name);
        let to = ["-o", path.to_str().unwrap(), "--", "sh", "-c", &work];
        let recorded = run(&[&["record", "--event", "cpu-clock"], &to[..]].concat());
        assert!(recorded.status.success(), "{recorded:?}");
    }
    for (role, questions) in QUESTIONS {
        for (words, answers) in questions {
            let lines = on_terminal(folder.path(), words);
            let (said, printed): (Vec<&String>, Vec<&String>) =
                lines.iter().partition(|line| line.starts_with("hbbp-sys: "));
            for line in printed {
                assert!(line.chars().count() <= COLUMNS, "{role}, {words}: {line}");
            }
            // The terminal itself wraps what is said on standard error.
            let n_said: usize = said
                .iter()
                .map(|line| line.chars().count().div_ceil(COLUMNS))
                .sum();
            let n_left = LINES.saturating_sub(n_said - said.len());
            let screen = lines[..lines.len().min(n_left)].join("\n");
            // Sentences are wrapped.
            let words_shown = screen.split_whitespace().collect::<Vec<_>>().join(" ");
            for answer in answers {
                assert!(
                    words_shown.contains(answer),
                    "{role}, {words}: no {answer} in\n{screen}"
                );
            }
        }
    }
}
