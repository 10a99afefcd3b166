//! Which module may use which in crates of several modules, which crates touch nothing but their arguments, and which print.
//! The borders between crates are cargo's.

use super::finding::{Finding, Source};
use super::rust::{Mention, mentions};

/// Crates of several modules, each module in the order of the flow: it may use only those before it.
const LINES: [(&str, &[&str]); 5] = [
    (
        "hbbp-user/model/src/",
        &[
            "advice",
            "addr",
            "record",
            "kinds",
            "leb128",
            "streams",
            "slices",
            "snapshot",
            "printable",
            "names",
            "profile",
            "segments",
        ],
    ),
    ("hbbp-user/code/src/", &["locate", "blocks"]),
    (
        "hbbp-user/analysis/src/",
        &[
            "touched", "time", "mix", "eval", "callers", "loops", "vectors", "annotate", "diff",
        ],
    ),
    ("hbbp-user/output/src/", &["report", "export"]),
    ("hbbp-user/src/", &["advice", "cmd", "cli", "main"]),
];

/// What depends on nothing but its arguments; and the modules of these crates that may touch the disk.
const PURE: [&str; 8] = [
    "hbbp-user/model/src/",
    "hbbp-user/import/src/",
    "hbbp-user/code/src/",
    "hbbp-user/emulate/src/",
    "hbbp-user/estimate/src/",
    "hbbp-user/analysis/src/",
    "hbbp-user/output/src/",
    "hbbp-user/table/src/",
];
const IMPURE: [&str; 2] = ["hbbp-user/model/src/profile", "hbbp-user/model/src/segments"];

/// What is not mentioned where all is pure.
const WORLD: [&str; 6] = ["std::fs", "std::process", "std::env", "libc", "aya", "procfs"];

/// What may print; the command line only asks how wide the terminal is.
const PRINTERS: [&str; 3] = [
    "hbbp-user/src/",
    "hbbp-user/output/src/report",
    "hbbp-user/testing/",
];
const PRINTS: [&str; 6] = [
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "io::stdout",
    "io::stderr",
];

/// Where the product is.
const PRODUCT: &str = "hbbp-user/";

/// What this file mentions against the order.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let is_product = source.path.starts_with(PRODUCT) && source.path.contains("/src/");
    if !is_product || !source.path.ends_with(".rs") {
        return Vec::new();
    }
    let room = Room::of(&source.path);
    if let Some(Room { module, line, .. }) = &room
        && !line.contains(module)
    {
        let why = format!("module `{module}` is missing in the order of {}", file!());
        return vec![source.finding(1, why)];
    }
    let mut findings = Vec::new();
    for Mention { line, path } in mentions(&source.text) {
        let against = room.as_ref().and_then(|room| room.against(&path));
        let why = against.or_else(|| forbidden(&source.path, &path));
        findings.extend(why.map(|why| source.finding(line, why)));
    }
    findings
}

/// The position of a file in a crate of several modules.
struct Room<'a> {
    module: &'a str,
    /// How deep below the root of its crate it lies.
    depth: usize,
    line: &'static [&'static str],
}

impl<'a> Room<'a> {
    /// `None` in crates of one module, and of the root of a library, which uses nothing.
    fn of(path: &'a str) -> Option<Self> {
        let (root, line) = LINES.iter().find(|(root, _)| path.starts_with(root))?;
        let file = path.strip_prefix(root)?.strip_suffix(".rs")?;
        let file = file.strip_suffix("/mod").unwrap_or(file);
        let module = file.split('/').next().unwrap_or(file);
        (module != "lib").then(|| Self {
            module,
            depth: file.split('/').count(),
            line,
        })
    }

    /// Why a path may not be used here, where it leads to a module further down the line.
    fn against(&self, path: &str) -> Option<String> {
        let mut inner = path.strip_prefix("crate::");
        if inner.is_none() {
            let mut rest = path;
            for _ in 0..self.depth {
                rest = rest.strip_prefix("super::")?;
            }
            inner = Some(rest);
        }
        let used = inner?.split("::").next()?;
        let place = |name: &str| self.line.iter().position(|it| *it == name);
        let is_below = place(self.module)? < place(used)?;
        is_below.then(|| format!("`{}` must not use `{used}`", self.module))
    }
}

/// Why this file may not name this path, regardless of what the path leads to.
fn forbidden(file: &str, path: &str) -> Option<String> {
    let lies_in = |places: &[&str]| places.iter().any(|place| file.starts_with(place));
    let leads_to = |name: &&&str| path == **name || path.starts_with(&format!("{name}::"));
    if lies_in(&PURE)
        && !lies_in(&IMPURE)
        && let Some(name) = WORLD.iter().find(leads_to)
    {
        return Some(format!("what is pure must not mention `{name}`"));
    }
    let path = path.strip_prefix("std::").unwrap_or(path);
    let print = PRINTS.iter().find(|name| path == **name);
    let print = print.filter(|_| !lies_in(&PRINTERS));
    print.map(|name| format!("only reports and commands print: `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        check_rule(super::check, path, text, expected);
    }

    #[test]
    fn imports_go_in_one_direction() {
        check(
            "hbbp-user/analysis/src/mix/mod.rs",
            "use crate::{time::Time, mix::{self, Mix}};\nuse hbbp_estimate::Rule;",
            &[],
        );
        check(
            "hbbp-user/code/src/blocks/split.rs",
            "use super::decode::flow;\nuse super::super::locate::Site;",
            &[],
        );
        check(
            "hbbp-user/analysis/src/mix/split.rs",
            "use crate::time::Time;\nuse crate::eval::Eval;\n\nfn f() -> super::super::diff::Table {}",
            &["2: `mix` must not use `eval`", "4: `mix` must not use `diff`"],
        );
        check(
            "hbbp-user/model/src/addr.rs",
            "use super::snapshot::Image;",
            &["1: `addr` must not use `snapshot`"],
        );
        check(
            "hbbp-user/src/main.rs",
            "use crate::{cli, cmd};\nfn main() { println!(\"\") }",
            &[],
        );
        check("hbbp-user/collect/src/perf.rs", "use crate::anything;", &[]);
    }

    #[test]
    fn the_pure_side_touches_nothing_and_prints_nothing() {
        check(
            "hbbp-user/analysis/src/mix/mod.rs",
            "use std::{collections::BTreeMap, fs::File};\nlet x = libc::getpid();\nprintln!();",
            &[
                "1: what is pure must not mention `std::fs`",
                "2: what is pure must not mention `libc`",
                "3: only reports and commands print: `println!`",
            ],
        );
        check(
            "hbbp-user/collect/src/perf.rs",
            "use std::fs; use aya::Ebpf;\nstd::io::stderr().lock();",
            &["2: only reports and commands print: `io::stderr`"],
        );
        check("hbbp-user/model/src/profile/output.rs", "use std::fs;", &[]);
        check(
            "hbbp-user/output/src/report/table.rs",
            "println!(\"std::fs\"); child.stdout(x);",
            &[],
        );
    }

    #[test]
    fn new_module_needs_a_position() {
        check(
            "hbbp-user/model/src/misc.rs",
            "",
            &["1: module `misc` is missing in the order of xtask/src/tidy/imports.rs"],
        );
        check("hbbp-user/model/src/lib.rs", "pub mod misc;", &[]);
        check("hbbp-ebpf/src/misc.rs", "use crate::x;", &[]);
    }
}
