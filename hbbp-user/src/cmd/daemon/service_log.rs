//! What the daemon says while it runs.

use std::io::Write as _;

/// Says what happened, on standard error, for the log of the service manager.
pub(super) fn tell(what: &str) {
    // The receiver may be gone.
    let _ = writeln!(std::io::stderr(), "hbbp-sys: {what}");
}
