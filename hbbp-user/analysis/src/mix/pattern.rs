//! Patterns for values: globs without regard to case, `*`, `?`, `[a-z]`, `{AVX,FMA}`. A value that equals the pattern matches
//! too, so that `module=[kernel]` means what it says; and so does one that equals it between brackets, as in `module=kernel`.

use globset::{GlobBuilder, GlobMatcher};

/// A pattern for values.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    /// `None` for a text without special characters, which is faster to compare.
    glob: Option<GlobMatcher>,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid pattern `{pattern}`: {why}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

impl Pattern {
    /// Compiles a glob.
    pub(crate) fn new(text: &str) -> Result<Self, PatternError> {
        let glob = GlobBuilder::new(text).case_insensitive(true).build();
        let glob = glob.map_err(|error| PatternError {
            pattern: text.to_owned(),
            why: error.kind().to_string(),
        })?;
        let is_plain = !text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        Ok(Self {
            text: text.to_owned(),
            glob: (!is_plain).then(|| glob.compile_matcher()),
        })
    }

    /// Whether a value matches.
    pub(crate) fn matches(&self, value: &str) -> bool {
        let inside = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        let is_text = |value: &str| self.text.eq_ignore_ascii_case(value);
        is_text(value)
            || inside.is_some_and(is_text)
            || self.glob.as_ref().is_some_and(|glob| glob.is_match(value))
    }

    /// As it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}
