//! What tests of several crates share: profiles built by hand and by chance, and how a test says that it skips itself.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod missing;
pub mod nested;
pub mod program;
pub mod skip;
pub mod strategy;
