//! C++ and Rust symbols as in the source, within bounds: symbols of others may be made to expand without end.

use std::fmt;

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// How much of a name is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Detail {
    /// C++ without parameters, Rust without the hash.
    Short,
    /// Everything.
    Full,
}

/// Symbols that are longer are not demangled. Symbol tables are read up to 1 KiB a name.
const LONGEST_SYMBOL: usize = 4096;

/// Names that would be longer are not demangled: substitutions may double a name with every few bytes of the symbol.
const LONGEST_NAME: usize = 4096;

/// Levels of nesting of a C++ name. The deepest of a browser has 40.
const DEEPEST: u32 = 96;

/// The name in the source; `None` if the symbol is neither C++ nor Rust, or beyond a bound.
pub(super) fn demangled(symbol: &str, detail: Detail) -> Option<String> {
    if LONGEST_SYMBOL < symbol.len() {
        return None;
    }
    rust(symbol, detail).or_else(|| cpp(symbol, detail))
}

fn rust(symbol: &str, detail: Detail) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut out = Bounded(String::new());
    let written = match detail {
        Detail::Short => fmt::write(&mut out, format_args!("{name:#}")),
        Detail::Full => fmt::write(&mut out, format_args!("{name}")),
    };
    written.ok().map(|()| out.0)
}

fn cpp(symbol: &str, detail: Detail) -> Option<String> {
    // Clang and gcc append such parts to clones: `.cold`, `.part.0`, `.llvm.123`.
    let end = symbol.find('.').unwrap_or(symbol.len());
    let (mangled, clone) = symbol.split_at(end);
    if !mangled.starts_with("_Z") {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(DEEPEST);
    let parsed = BorrowedSymbol::new_with_options(mangled.as_bytes(), &options).ok()?;
    let options = DemangleOptions::new().recursion_limit(DEEPEST);
    let options = match detail {
        Detail::Short => options.no_params().no_return_type(),
        Detail::Full => options,
    };
    let mut out = Bounded(String::new());
    parsed.structured_demangle(&mut out, &options).ok()?;
    Some(out.0 + clone)
}

/// Text that refuses to grow beyond [`LONGEST_NAME`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if LONGEST_NAME < self.0.len() + more.len() {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_languages_and_clones() {
        let cases = [
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_ZN5space3fooEibc.part.0", "space::foo.part.0"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN4core3fmt5write17h01b8c2d3e4f5a6b7E", "core::fmt::write"),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangled(symbol, Detail::Short).as_deref(), Some(name));
        }
        for plain in ["main", "_Zebra crossing", "_start", ""] {
            assert_eq!(demangled(plain, Detail::Short), None);
        }
    }

    #[test]
    fn names_that_expand_without_end_stay_mangled() {
        // Each argument is a template of twice the one before.
        let mut symbol = String::from("_Z1fI1AIiiE");
        for n in 0..200 {
            let digits = format!("{}", n % 10);
            symbol += &format!("S{digits}_");
            symbol += &format!("1BIS{digits}_S{digits}_E");
        }
        symbol += "EvT_";
        let shown = demangled(&symbol, Detail::Full);
        assert!(shown.is_none_or(|name| name.len() <= LONGEST_NAME));
        let deep = format!("_Z1f{}i", "P".repeat(4000));
        assert_eq!(demangled(&deep, Detail::Full), None);
        assert_eq!(demangled(&"_Z1f".repeat(9000), Detail::Full), None);
    }

    proptest! {
        #[test]
        fn any_symbol_ends_within_the_bound(symbol in "_(Z|R)[A-Za-z0-9_.$]{0,300}", full in any::<bool>()) {
            let detail = if full { Detail::Full } else { Detail::Short };
            if let Some(name) = demangled(&symbol, detail) {
                prop_assert!(name.len() <= LONGEST_NAME + symbol.len());
            }
        }
    }
}
