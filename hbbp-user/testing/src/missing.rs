//! How a test says that what it needs is not installed.

/// Says why this test cannot run here; a failure in continuous integration, where everything must be installed.
pub fn missing(reason: &str) {
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        panic!("in continuous integration nothing may be skipped: {reason}");
    }
    crate::skip::skip(reason);
}
