//! What one check found, and what to do about it.

use serde::Serialize;

/// Status of a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Available.
    Ok,
    /// Available with a limit that the text states.
    Limited,
    /// Not available.
    Missing,
}

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// Stable name.
    pub id: &'static str,
    /// Its status.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// How to fix it; empty if nothing needs fixing.
    pub advice: String,
}

/// A finding of what is available.
pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Ok,
        found: found.into(),
        advice: String::new(),
    }
}

/// A finding of what is not available.
pub(super) fn missing(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Missing,
        found: found.into(),
        advice: advice.into(),
    }
}

/// A finding of what is available with a limit.
pub(super) fn limited(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        id,
        status: Status::Limited,
        found: found.into(),
        advice: advice.into(),
    }
}
