//! What sort of recording a file is, by how it begins.

use super::{brstack, header, preaggregated};

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

/// The number of bytes that identify the format of a file.
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
    fn formats_are_recognized_by_their_start() {
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
