//! Reads recordings of other tools into the counts of a snapshot: perf.data, and texts made from it.
//!
//! What comes out are addresses as they were recorded, whose they are, and what happened to processes; which files
//! they belong to is found out by `hbbp-resolve`.
//! The bytes are those of a stranger: nothing is allocated that a size only claims, and nothing panics.

mod attr;
pub mod brstack;
mod bytes;
mod chosen;
pub mod count;
mod entry_text;
mod error;
mod event_of_record;
mod eventing;
pub mod events;
mod features;
mod format;
mod header;
mod lines;
pub mod perf_data;
pub mod preaggregated;
mod reader;
mod record_size;
mod recording;
mod sample;
mod script_head;
mod script_record;
mod slots;
mod stream_cost;
mod tables;
mod text_modules;
mod unpacked;

pub use entry_text::EntryText;
pub use error::ImportError;
pub use format::{Format, START, format_of};
pub use header::{FileBuildId, Header, RecordedEvent};
pub use recording::{Counted, Recording, RecordingFiles};
pub use sample::{Sample, entries};
pub use script_record::parse_build_id;
pub use stream_cost::RanText;
pub use text_modules::{TextFile, TextModule, TextModules};
