//! Segments: a folder of profiles, one for each interval of a measurement that never ends, as `hbbp-sys daemon` writes them.
//!
//! The [`name`] of a segment says which time it covers, so that a range of time is found without opening files. It also
//! says which intervals it holds, so that a merged segment and its parts are never both counted.
//! [`plan`] decides from names alone what is merged and what is removed, and [`folder`] holds them; [`read`] reads a range of
//! time.
//!
//! ```text
//! 20261122T150000.012Z+60.004s.17.hbbp        interval 17: 60.004 s from 15:00:00.012 UTC
//! 20261122T150000.012Z+3600.1s.17-76.hbbp     the hour that was merged of intervals 17 to 76
//! ```

pub(crate) mod folder;
pub mod name;
pub mod plan;
pub(crate) mod range;
pub mod read;

pub use folder::{Folder, Listing, is_folder_of_segments};
pub use name::Name;
pub use range::{Moment, TimeRange};
pub use read::read_range;
