//! Names for people: what a report shows for the names that symbol tables and mappings hold.
//!
//! Rows are keyed by names as found, and JSON and CSV print these. Text shows C++ and Rust functions demangled. Where a
//! function has no name, text shows the file name of the executable instead of its path. Distinct names stay distinct:
//! if short forms coincide, longer ones are shown.

mod cgroup;
mod coinciding;
mod demangle;
mod path;
mod workload;

pub use cgroup::cgroups;
pub use path::{file_name, fitted};
pub use workload::Workload;

use crate::printable::harmless;
use coinciding::replace_coinciding;
use demangle::{Detail, demangled};

/// Whether functions are shown demangled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Demangle {
    /// C++ and Rust names as in the source.
    #[default]
    On,
    /// As in the symbol table (`--no-demangle`).
    Off,
}

/// How a function is shown where its name is alone.
pub fn function(name: &str, demangle: Demangle) -> String {
    shown(name, demangle, Detail::Short)
}

/// How functions are shown in one table, in the order of `names`. Different names are shown differently: where the
/// short forms of two coincide, both are shown with their parameters or hash, and where these coincide too, with their
/// mangled names.
pub fn functions(names: &[&str], demangle: Demangle) -> Vec<String> {
    let mut all: Vec<String> = names
        .iter()
        .map(|name| shown(name, demangle, Detail::Short))
        .collect();
    let longer: [fn(&str, &str) -> String; 2] = [
        |name, _| shown(name, Demangle::On, Detail::Full),
        |name, shown| format!("{shown} [{}]", harmless(name)),
    ];
    for longer in longer.into_iter().filter(|_| demangle == Demangle::On) {
        replace_coinciding(names, &mut all, longer);
    }
    all
}

/// One function: demangled, or without the folders of its file where it has no name (`/usr/bin/gzip+0x4290`).
fn shown(name: &str, demangle: Demangle, detail: Detail) -> String {
    let found = match demangle {
        Demangle::On => demangled(name, detail),
        Demangle::Off => None,
    };
    let unnamed = || match detail {
        Detail::Short => without_folders(name),
        Detail::Full => name.to_owned(),
    };
    harmless(&found.unwrap_or_else(unnamed))
}

/// `/usr/bin/gzip+0x4290` as `gzip+0x4290`, `[/usr/bin/gzip]` as `[gzip]`; other names as they are.
fn without_folders(name: &str) -> String {
    match name.strip_prefix('[') {
        Some(inside) if inside.starts_with('/') => format!("[{}", file_name(inside)),
        None if name.starts_with('/') && name.contains("+0x") => file_name(name).to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_shown_as_in_the_source() {
        let names = [
            "_ZN4core3fmt5write17h01b8c2d3e4f5a6b7E",
            "_ZN5space3fooEibc",
            "ksys_read",
            "/usr/bin/gzip+0x4290",
            "[/usr/bin/gzip]",
            "[kernel]",
        ];
        let shown = [
            "core::fmt::write",
            "space::foo",
            "ksys_read",
            "gzip+0x4290",
            "[gzip]",
            "[kernel]",
        ];
        assert_eq!(functions(&names, Demangle::On), shown);
        assert_eq!(function(names[0], Demangle::Off), names[0]);
    }

    #[test]
    fn different_functions_are_shown_differently() {
        let names = [
            "_ZN5space3fooEi",
            "_ZN5space3fooEd",
            "_ZN5space3barEv",
            "_ZN5space3barEv",
            "_ZN3lib1f17h01b8c2d3e4f5a6b7E",
            "_ZN3lib1f17h0000c2d3e4f5a6b7E",
            "/a/gzip+0x10",
            "/b/gzip+0x10",
        ];
        let shown = [
            "space::foo(int)",
            "space::foo(double)",
            "space::bar",
            "space::bar",
            "lib::f::h01b8c2d3e4f5a6b7",
            "lib::f::h0000c2d3e4f5a6b7",
            "/a/gzip+0x10",
            "/b/gzip+0x10",
        ];
        assert_eq!(functions(&names, Demangle::On), shown);
        // A constructor has two symbols for one name in the source.
        let both = ["_ZN1AC1Ev", "_ZN1AC2Ev"];
        let shown = functions(&both, Demangle::On);
        assert_ne!(shown[0], shown[1]);
        assert!(shown[0].starts_with("A::A()"), "{shown:?}");
    }

    #[test]
    fn names_of_others_hold_no_escape_sequences() {
        assert_eq!(function("a\x1b[2Jb", Demangle::On), "a\u{fffd}[2Jb");
    }
}
