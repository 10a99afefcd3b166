//! Recordings that others made, read into the counts of a snapshot: perf.data, and the texts made from it.
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
mod eventing;
pub mod events;
mod features;
mod header;
mod lines;
pub mod perf_data;
pub mod preaggregated;
mod reader;
mod recording;
mod sample;
mod script_record;
mod slots;
mod stream_cost;
mod tables;
mod text_modules;
mod unpacked;

pub use attr::{Attr, Pmus};
pub use entry_text::EntryText;
pub use error::ImportError;
pub use header::{FileBuildId, Header, RecordedEvent};
pub use recording::{Counted, FindOwner, Recording};
pub use sample::{Sample, entries};
pub use script_record::parse_build_id;
pub use stream_cost::RanText;
pub use text_modules::{FIRST as TEXT_BASE, ROOM as MODULE_LEN, TextModules};

/// What sort of recording a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// perf.data, in file or pipe mode.
    PerfData,
    /// The text of `perf script`.
    Script,
    /// BOLT's pre-aggregated text.
    Preaggregated,
}

/// How much of a file tells its format.
pub const START: usize = 64 << 10;

/// The format of a file that begins like this; `None` for what is not a recording.
pub fn format_of(start: &[u8]) -> Option<Format> {
    if header::is_perf_data(start) {
        return Some(Format::PerfData);
    }
    // Bytes of a compressed file can look like branches here and there, but no text holds a zero byte.
    if start.contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(start);
    if preaggregated::is_preaggregated(&text) {
        return Some(Format::Preaggregated);
    }
    brstack::is_script(&text).then_some(Format::Script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_start() {
        assert_eq!(format_of(b"PERFILE2\x10\0\0\0"), Some(Format::PerfData));
        assert_eq!(format_of(b"PERFFILE"), Some(Format::PerfData));
        assert_eq!(format_of(b"B 1 2 3 0\n"), Some(Format::Preaggregated));
        assert_eq!(
            format_of(b"# comment\n 401000  0x1/0x2/P/-/-/0\n"),
            Some(Format::Script)
        );
        assert_eq!(format_of(b"HBBP"), None);
        assert_eq!(format_of(b"HBBPSNAP\0\n 401000  0x1/0x2/P/-/-/0\n"), None);
        assert_eq!(format_of(&[0xff; 100]), None);
    }
}
