//! Filters: conditions on the value of an axis, `AXIS=PATTERN` or `AXIS!=PATTERN`.

use std::sync::Arc;

use super::axis::{Axis, UnknownAxis};
use super::dimension::Dimension;
use super::pattern::{Pattern, PatternError};
use super::taxonomy::Taxonomy;
use hbbp_model::names::file_name;

/// A condition that instructions pass or not.
#[derive(Clone, Debug)]
pub struct Filter {
    /// What it looks at.
    pub axis: Axis,
    sense: Sense,
    pattern: Pattern,
}

/// Which values pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sense {
    Matching,
    Others,
}

/// Why a text is not a filter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FilterError {
    /// It has no `=`.
    #[error("`{0}` is not a filter; expected DIMENSION=PATTERN or DIMENSION!=PATTERN, e.g. extension=AVX*")]
    Form(String),
    /// Its axis does not exist.
    #[error(transparent)]
    Axis(#[from] UnknownAxis),
    /// Its pattern is not a glob.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// No instruction can have such a value.
    #[error("no {axis} matches `{pattern}`; {} are {}", plural(axis), known.join(", "))]
    NoValue {
        /// Name of the axis.
        axis: String,
        /// The pattern.
        pattern: String,
        /// Values that exist.
        known: Vec<String>,
    },
}

/// `values of lock`: names of axes have no plural of their own.
fn plural(axis: &str) -> String {
    format!("values of {axis}")
}

impl Filter {
    /// Parses `AXIS=PATTERN` or `AXIS!=PATTERN`. A pattern that no instruction can match is an error, where the values of
    /// the axis are known beforehand.
    pub fn parse(text: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, FilterError> {
        let (name, pattern) = text
            .split_once('=')
            .ok_or_else(|| FilterError::Form(text.to_owned()))?;
        let (name, sense) = match name.strip_suffix('!') {
            Some(name) => (name, Sense::Others),
            None => (name, Sense::Matching),
        };
        let filter = Self {
            axis: Axis::named(name.trim(), taxonomies)?,
            sense,
            pattern: Pattern::new(pattern.trim())?,
        };
        filter.check()?;
        Ok(filter)
    }

    /// Parses filters that are joined by `&&`: an instruction passes all of them.
    pub(crate) fn parse_all(text: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Vec<Self>, FilterError> {
        let filters = text.split("&&");
        filters.map(|filter| Self::parse(filter, taxonomies)).collect()
    }

    /// Refuses a pattern that no instruction can match.
    fn check(&self) -> Result<(), FilterError> {
        /// Values that a message shows; there are a hundred extensions.
        const SHOWN: usize = 40;

        let Some(mut known) = self.axis.known_values() else {
            return Ok(());
        };
        if known.iter().any(|value| self.pattern.matches(value)) {
            return Ok(());
        }
        if SHOWN < known.len() {
            known.truncate(SHOWN);
            known.push("..".to_owned());
        }
        Err(FilterError::NoValue {
            axis: self.axis.name().to_owned(),
            pattern: self.pattern.text().to_owned(),
            known,
        })
    }

    /// Whether instructions with this value of the axis pass, and no others.
    pub fn passes_alone(&self, value: &str) -> bool {
        let known = self.axis.known_values().unwrap_or_default();
        let passing = known
            .into_iter()
            .filter(|known| self.passes(std::slice::from_ref(known)));
        passing.eq([value])
    }

    /// Whether an instruction with these values of the axis passes; of a taxonomy, one for each group that it is in. A module
    /// passes by its file name as well, unless the pattern has a slash (as in gitignore(5)).
    pub(super) fn passes(&self, values: &[String]) -> bool {
        let is_file_name = self.axis == Dimension::Module.into() && !self.pattern.text().contains('/');
        let matches = values.iter().any(|value| {
            self.pattern.matches(value) || is_file_name && self.pattern.matches(file_name(value))
        });
        matches == (self.sense == Sense::Matching)
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.sense {
            Sense::Matching => "=",
            Sense::Others => "!=",
        };
        write!(f, "{}{sign}{}", self.axis, self.pattern.text())
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text, &Taxonomy::built_in())
    }

    fn passes(filter: &str, values: &[&str]) -> bool {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        parse(filter).unwrap().passes(&values)
    }

    #[test]
    fn filters_are_globs_without_case() {
        assert!(passes("extension=avx*", &["AVX512F"]));
        assert!(!passes("extension!=avx*", &["AVX512F"]));
        assert!(passes("extension={AVX,FMA}", &["FMA"]));
        assert!(passes("module=[kernel]", &["[kernel]"]));
        assert!(passes("module=kernel", &["[kernel]"]));
        assert!(!passes("module!=kernel", &["[kernel]"]));
        assert!(!passes("module=kern", &["[kernel]"]));
        assert!(passes("module=*/libc.so*", &["/usr/lib/libc.so.6"]));
        assert!(passes("module=libc.so.6", &["/usr/lib/libc.so.6"]));
        assert!(passes("module=lib?.so.6", &["/usr/lib/libc.so.6"]));
        assert!(!passes("module!=libc.so.6", &["/usr/lib/libc.so.6"]));
        assert!(!passes("module=libc", &["/usr/lib/libc.so.6"]));
        assert!(!passes("module=lib/libc.so.6", &["/usr/lib/libc.so.6"]));
        assert!(!passes("function=read", &["fs/read"]));
        assert!(passes("long-latency=division", &["square root", "division"]));
        assert!(!passes("long-latency!=division", &["square root", "division"]));
    }

    #[test]
    fn wrong_filters_say_what_is_right() {
        for (filter, part) in [
            ("AVX", "expected DIMENSION=PATTERN"),
            ("colour=red", "unknown dimension `colour`"),
            ("module=[a", "invalid pattern `[a`"),
            ("lock=lokced", "values of lock are none, locked"),
            ("mnemonic=MOOV", "no mnemonic matches `MOOV`"),
            ("long-latency=fast", "values of long-latency are"),
        ] {
            let error = parse(filter).unwrap_err().to_string();
            assert!(error.contains(part), "{filter}: {error}");
        }
    }
}
