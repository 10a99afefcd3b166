//! Which module of hbbp-user may use which: the order of the flow, as data, and the checks that keep it.

use super::rust::{Mention, mentions};
use super::{Finding, Source};

/// The modules in the order of the flow: each may use only what stands before it.
const LINE: [&str; 26] = [
    "addr",
    "record",
    "kinds",
    "streams",
    "slices",
    "snapshot",
    "locate",
    "blocks",
    "estimate",
    "time",
    "mix",
    "eval",
    "callers",
    "loops",
    "printable",
    "names",
    "vectors",
    "annotate",
    "diff",
    "report",
    "export",
    "profile",
    "segments",
    "cmd",
    "cli",
    "main",
];

/// The modules that touch the kernel and the disk. They stand beside the line, and not even know each other.
const WORLD: [&str; 3] = ["collect", "import", "resolve"];

/// What those may use of the line, and the only ones there that may use them.
const SEEN_BY_WORLD: [&str; 6] = ["addr", "record", "kinds", "streams", "slices", "snapshot"];
const USERS_OF_WORLD: [&str; 2] = ["cmd", "cli"];

/// The modules that may touch the kernel, the disk and the process; the answer of all others depends on nothing but their
/// arguments, and what they may not mention for that.
const MAY_BE_IMPURE: [&str; 7] = ["collect", "resolve", "profile", "segments", "cmd", "cli", "main"];
const IMPURE: [&str; 6] = ["std::fs", "std::process", "std::env", "libc", "aya", "procfs"];

/// The modules that may print; `cli` only asks how wide the terminal is.
const PRINTERS: [&str; 4] = ["report", "cmd", "cli", "main"];
const PRINTS: [&str; 6] = [
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "io::stdout",
    "io::stderr",
];

const ROOT: &str = "hbbp-user/src/";

/// What this file mentions against the order.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let Some(file) = source
        .path
        .strip_prefix(ROOT)
        .and_then(|path| path.strip_suffix(".rs"))
    else {
        return Vec::new();
    };
    let file = file.strip_suffix("/mod").unwrap_or(file);
    let module = file.split('/').next().unwrap_or(file);
    let depth = file.split('/').count();
    // The root of the library lists the modules and uses none.
    if module == "lib" {
        return Vec::new();
    }
    if !LINE.contains(&module) && !WORLD.contains(&module) {
        return vec![source.finding(
            1,
            format!("module `{module}` is missing in the order of {}", file!()),
        )];
    }
    let mut findings = Vec::new();
    for Mention { line, path } in mentions(&source.text) {
        let why = match used_module(&path, depth) {
            Some(used) if !may_use(module, used) => Some(format!("`{module}` must not use `{used}`")),
            _ => forbidden(module, &path),
        };
        findings.extend(why.map(|why| source.finding(line, why)));
    }
    findings
}

/// The module of hbbp-user that this path leads to, from a file at this depth.
fn used_module(path: &str, depth: usize) -> Option<&str> {
    let mut inner = path
        .strip_prefix("crate::")
        .or_else(|| path.strip_prefix("hbbp_user::"));
    if inner.is_none() {
        let mut rest = path;
        for _ in 0..depth {
            rest = rest.strip_prefix("super::")?;
        }
        inner = Some(rest);
    }
    let module = inner?.split("::").next()?;
    (LINE.contains(&module) || WORLD.contains(&module)).then_some(module)
}

fn may_use(module: &str, used: &str) -> bool {
    let place = |name: &str| LINE.iter().position(|it| *it == name);
    match (place(module), place(used)) {
        _ if module == used => true,
        (Some(module), Some(used)) => used < module,
        (Some(_), None) => USERS_OF_WORLD.contains(&module),
        (None, Some(_)) => SEEN_BY_WORLD.contains(&used),
        (None, None) => false,
    }
}

/// Why this path may not be mentioned in this module, whatever it leads to.
fn forbidden(module: &str, path: &str) -> Option<String> {
    let leads_to = |name: &&&str| path == **name || path.starts_with(&format!("{name}::"));
    let impure = IMPURE
        .iter()
        .find(leads_to)
        .filter(|_| !MAY_BE_IMPURE.contains(&module));
    if let Some(name) = impure {
        return Some(format!("`{module}` is pure and must not mention `{name}`"));
    }
    let path = path.strip_prefix("std::").unwrap_or(path);
    let print = PRINTS
        .iter()
        .find(|name| path == **name)
        .filter(|_| !PRINTERS.contains(&module));
    print.map(|name| format!("`{module}` must not print: `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        check_rule(super::check, path, text, expected);
    }

    #[test]
    fn the_line_goes_one_way() {
        check(
            "hbbp-user/src/mix/mod.rs",
            "use crate::{addr::Va, estimate::{self, Execs}};",
            &[],
        );
        check(
            "hbbp-user/src/blocks/split.rs",
            "use super::decode::flow;\nuse super::super::addr::Va;",
            &[],
        );
        check(
            "hbbp-user/src/blocks/split.rs",
            "use crate::addr::Va;\nuse crate::mix::Mix;\n\nfn f() -> super::super::report::Table {}",
            &[
                "2: `blocks` must not use `mix`",
                "4: `blocks` must not use `report`",
            ],
        );
        check(
            "hbbp-user/src/addr.rs",
            "use super::snapshot::Image;",
            &["1: `addr` must not use `snapshot`"],
        );
        check(
            "hbbp-user/src/main.rs",
            "use hbbp_user::{cli, cmd};\nfn main() { println!(\"\") }",
            &[],
        );
    }

    #[test]
    fn the_world_stands_aside() {
        check(
            "hbbp-user/src/cmd/record.rs",
            "use crate::{collect, resolve};",
            &[],
        );
        check(
            "hbbp-user/src/collect/perf.rs",
            "use crate::snapshot::Run; use std::fs; use aya::Ebpf; let print = 1;",
            &[],
        );
        check(
            "hbbp-user/src/collect/perf.rs",
            "use crate::resolve;",
            &["1: `collect` must not use `resolve`"],
        );
        check(
            "hbbp-user/src/resolve/elf.rs",
            "use crate::locate;",
            &["1: `resolve` must not use `locate`"],
        );
        check(
            "hbbp-user/src/report/mod.rs",
            "use crate::collect;",
            &["1: `report` must not use `collect`"],
        );
    }

    #[test]
    fn the_pure_side_touches_nothing_and_prints_nothing() {
        check(
            "hbbp-user/src/mix/mod.rs",
            "use std::{collections::BTreeMap, fs::File};\nlet x = libc::getpid();\nprintln!();",
            &[
                "1: `mix` is pure and must not mention `std::fs`",
                "2: `mix` is pure and must not mention `libc`",
                "3: `mix` must not print: `println!`",
            ],
        );
        check(
            "hbbp-user/src/collect/perf.rs",
            "std::io::stderr().lock();",
            &["1: `collect` must not print: `io::stderr`"],
        );
        check(
            "hbbp-user/src/report/table.rs",
            "println!(\"std::fs\"); child.stdout(x);",
            &[],
        );
    }

    #[test]
    fn a_new_module_needs_a_place() {
        check(
            "hbbp-user/src/misc.rs",
            "",
            &["1: module `misc` is missing in the order of xtask/src/tidy/imports.rs"],
        );
        check("hbbp-user/src/lib.rs", "pub mod misc;", &[]);
        check("hbbp-ebpf/src/misc.rs", "use crate::x;", &[]);
    }
}
