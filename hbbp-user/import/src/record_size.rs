//! How long a record is, by its header.

use super::bytes::Bytes;
use super::error::ImportError;

/// Records are at most 64 KiB long, as their size has 16 bits.
pub(super) const LONGEST: usize = 1 << 16;

/// `struct perf_event_header`.
pub(super) const HEADER: usize = 8;

/// Size of the record whose header begins these bytes; `None` if the header is not all there.
pub(super) fn stated_size(bytes: &[u8], offset: u64) -> Result<Option<usize>, ImportError> {
    let Some(size) = bytes.get(6..HEADER) else {
        return Ok(None);
    };
    let size = usize::from(Bytes(size).u16().unwrap_or(0));
    if size < HEADER {
        return Err(ImportError::Record {
            offset,
            what: "size is smaller than the header",
        });
    }
    Ok(Some(size))
}
