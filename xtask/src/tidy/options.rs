//! The libraries know no command line: no text of theirs names an option or a command of the program.
//!
//! What the user may do is a `hbbp_model::advice::Advice`, which the program puts into words. A test of the program holds
//! these words against its options.

use super::finding::{Finding, Source};
use super::rust::literals;

/// The libraries below the program.
const LIBRARIES: [&str; 10] = [
    "hbbp-user/model/src/",
    "hbbp-user/collect/src/",
    "hbbp-user/elf/src/",
    "hbbp-user/resolve/src/",
    "hbbp-user/import/src/",
    "hbbp-user/code/src/",
    "hbbp-user/estimate/src/",
    "hbbp-user/analysis/src/",
    "hbbp-user/output/src/",
    "hbbp-user/table/src/",
];

/// Options of other programs, as the libraries name them.
const OTHERS: [&str; 6] = [
    "perf record --threads",
    "record without --threads",
    "perf script --show-mmap-events",
    "--call-graph lbr",
    "--tool=callgrind --dump-instr=yes",
    "docker run --pid=host",
];

/// The program where it is quoted with a command.
const COMMAND: &str = "`hbbp-sys ";

/// The literals of a library that name an option or a command, its tests excepted.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_of_library = LIBRARIES.iter().any(|library| source.path.starts_with(library));
    if !is_of_library || !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(literals(&source.text).lines()) {
        let own = OTHERS
            .iter()
            .fold(text.to_owned(), |text, other| text.replace(other, ""));
        let option = option(&own).or_else(|| own.contains(COMMAND).then_some("hbbp-sys"));
        findings.extend(option.map(|name| {
            let message = format!("names `{name}`, and libraries know no command line: use an `Advice`");
            source.finding(line, message)
        }));
    }
    findings
}

/// The first option that a line names.
fn option(text: &str) -> Option<&str> {
    let is_part = |it: char| it.is_alphanumeric() || it == '-';
    text.split(|it: char| !is_part(it)).find(|word| {
        let name = word.strip_prefix("--");
        name.is_some_and(|name| name.starts_with(|it: char| it.is_ascii_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use super::check;

    #[test]
    fn options_and_commands_in_literals_of_libraries_are_found() {
        let refused = |name| format!("names `{name}`, and libraries know no command line: use an `Advice`");
        check_rule(
            check,
            "hbbp-user/collect/src/a.rs",
            "bail!(\"too short (--period)\");\nlet x = \"raise \\\n    --map-entries\";\n\"see `hbbp-sys check`\";\n",
            &[
                &format!("1: {}", refused("--period")),
                &format!("3: {}", refused("--map-entries")),
                &format!("4: {}", refused("hbbp-sys")),
            ],
        );
    }

    /// Comments tests other programs and the program may name options.
    #[test]
    fn comments_tests_and_programs_may_name_options() {
        let others =
            "//! Set by --period.\n\"perf record --threads\"; \"a -- b, an hbbp-sys profile\"; '-'; x--;\n";
        check_rule(check, "hbbp-user/import/src/a.rs", others, &[]);
        let tests = "#[cfg(test)]\nmod tests {\n    const X: &str = \"--period\";\n}\n";
        check_rule(check, "hbbp-user/model/src/a.rs", tests, &[]);
        check_rule(check, "hbbp-user/src/advice.rs", "\"raise --period\";\n", &[]);
    }
}
