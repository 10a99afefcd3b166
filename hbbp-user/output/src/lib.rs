//! How a profile is shown: reports for people, exports for other tools.

pub mod export;
pub mod report;
