//! The metadata of a perf.data file: its header, its events, and its facts of the machine.
//!
//! In file mode these are sections with offsets and sizes, all of which are checked against the file; in pipe mode they
//! are records of their own between the others. Format: `tools/perf/Documentation/perf.data-file-format.txt` in the
//! kernel tree.

use std::io::{Read, Seek, SeekFrom};

use super::attr::{Attr, Pmus, parse_attr, sample_type};
use super::bytes::Bytes;
use super::error::{Damaged, ImportError};

/// The first bytes of a perf.data file of version 2.
const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
const MAGIC_VERSION_1: &[u8; 8] = b"PERFFILE";
/// `sizeof(struct perf_file_header)` and, by which perf distinguishes them, of `perf_pipe_file_header`.
const PIPE_HEADER: u64 = 16;
/// No table of the header is read beyond this: the largest hold the build ids of some ten thousand files.
const MAX_SECTION: u64 = 16 << 20;

/// An event of the recording.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedEvent {
    /// What it is.
    pub attr: Attr,
    /// Ids of its counters, by which samples name it.
    pub ids: Vec<u64>,
    /// Its name, as perf or its user wrote it; empty if it is not recorded.
    pub name: String,
}

impl RecordedEvent {
    /// Whether its samples have branch stacks, empty ones included.
    pub fn has_branch_stacks(&self) -> bool {
        self.attr.has(sample_type::BRANCH_STACK)
    }
}

/// A file that was mapped, by the build id that perf read when the recording ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileBuildId {
    /// Path as in the mappings; `[kernel.kallsyms]` for the kernel.
    pub path: String,
    /// The build id.
    pub build_id: Vec<u8>,
}

/// What a recording says of itself.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub os_release: String,
    /// `uname -m` of the machine; empty if it is not recorded.
    pub arch: String,
    /// Name of the processor.
    pub cpu: String,
    /// Number of CPUs online.
    pub n_cpus: u32,
    /// Build ids of the files that samples hit.
    pub build_ids: Vec<FileBuildId>,
    /// What helps to understand raw events.
    pub pmus: Pmus,
    /// Whether other files hold most of the records, as `perf record --threads` writes them.
    pub(super) is_in_parts: bool,
}

/// Where the records are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RecordsAt {
    /// First byte.
    pub(super) offset: u64,
    /// Length in bytes; `None` for all that follows.
    pub(super) len: Option<u64>,
    /// Whether the header was not completed, or promises more than there is.
    pub(super) unfinished: bool,
}

impl RecordsAt {
    /// A file without a header.
    pub(super) const WHOLE_FILE: Self = Self {
        offset: 0,
        len: None,
        unfinished: false,
    };
}

/// Whether a file that begins like this is perf.data.
pub(super) fn is_perf_data(start: &[u8]) -> bool {
    [MAGIC, MAGIC_SWAPPED, MAGIC_VERSION_1]
        .iter()
        .any(|magic| start.starts_with(*magic))
}

/// Reads the header of a perf.data file of `len` bytes. In pipe mode what it says is still to come in records.
pub(super) fn read_header(
    file: &mut (impl Read + Seek),
    len: u64,
) -> Result<(Header, RecordsAt), ImportError> {
    let mut header = Header::default();
    let start = read_at(file, 0, len.min(104), len)?;
    let damaged = |_: Damaged| ImportError::Header("header");
    let mut fields = Bytes(&start);
    let magic = fields.take(8).map_err(damaged)?;
    if magic == MAGIC_SWAPPED {
        return Err(ImportError::BigEndian);
    }
    if magic == MAGIC_VERSION_1 {
        return Err(ImportError::Version1);
    }
    let size = fields.u64().map_err(damaged)?;
    if size == PIPE_HEADER {
        return Ok((
            header,
            RecordsAt {
                offset: PIPE_HEADER,
                len: None,
                unfinished: false,
            },
        ));
    }
    let mut fields = || fields.u64().map_err(damaged);
    let attr_size = fields()?;
    let (attrs, data, _event_types) = (
        (fields()?, fields()?),
        (fields()?, fields()?),
        (fields()?, fields()?),
    );
    let features = [fields()?, fields()?, fields()?, fields()?];
    header.events = read_events(file, attr_size, attrs.0, attrs.1, len)?;
    // perf writes the size at the end: without it the recorder was killed, and nothing follows the records.
    if data.1 == 0 || len < data.0.saturating_add(data.1) {
        return Ok((
            header,
            RecordsAt {
                offset: data.0,
                len: None,
                unfinished: true,
            },
        ));
    }
    read_features(file, data.0 + data.1, features, len, &mut header)?;
    header.check()?;
    Ok((
        header,
        RecordsAt {
            offset: data.0,
            len: Some(data.1),
            unfinished: false,
        },
    ))
}

/// Reads the sections of the features that serve, by the table at `table`: two words for each bit of the mask.
fn read_features(
    file: &mut (impl Read + Seek),
    table: u64,
    mask: [u64; 4],
    len: u64,
    header: &mut Header,
) -> Result<(), ImportError> {
    let damaged = |_: Damaged| ImportError::Header("header");
    let n_features: u64 = mask.iter().map(|word| u64::from(word.count_ones())).sum();
    let table = read_at(file, table, n_features * 16, len)?;
    let mut table = Bytes(&table);
    let set = mask.iter().zip(0_u64..).flat_map(|(word, n)| {
        (0..64)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| n * 64 + bit)
    });
    for bit in set {
        let (offset, size) = (table.u64().map_err(damaged)?, table.u64().map_err(damaged)?);
        // Other sections may be large, and nothing is lost without them.
        if header.wants(bit) {
            header.take_feature(bit, &read_at(file, offset, size, len)?);
        }
    }
    Ok(())
}

fn read_at(file: &mut (impl Read + Seek), offset: u64, size: u64, len: u64) -> Result<Vec<u8>, ImportError> {
    let inside = offset.checked_add(size).is_some_and(|end| end <= len);
    if !inside || MAX_SECTION < size {
        return Err(ImportError::Header("header"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Each entry is an attribute, then offset and size of the list of its ids.
fn read_events(
    file: &mut (impl Read + Seek),
    entry_size: u64,
    offset: u64,
    size: u64,
    len: u64,
) -> Result<Vec<RecordedEvent>, ImportError> {
    let damaged = |_: Damaged| ImportError::Header("table of events");
    let table = read_at(file, offset, size, len)?;
    let entry_size = usize::try_from(entry_size)
        .ok()
        .filter(|size| 16 < *size)
        .ok_or(Damaged)
        .map_err(damaged)?;
    let mut events = Vec::new();
    for entry in table.chunks_exact(entry_size) {
        let (attr, ids) = entry.split_at(entry_size - 16);
        let mut ids = Bytes(ids);
        let (offset, size) = (ids.u64().map_err(damaged)?, ids.u64().map_err(damaged)?);
        let ids = parse_ids(&read_at(file, offset, size, len)?);
        events.push(RecordedEvent {
            attr: parse_attr(attr).map_err(damaged)?,
            ids,
            name: String::new(),
        });
    }
    Ok(events)
}

/// Interprets a list of ids.
pub(super) fn parse_ids(bytes: &[u8]) -> Vec<u64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|id| u64::from_le_bytes(*id))
        .collect()
}

impl Header {
    /// Takes the body of PERF_RECORD_HEADER_ATTR: an attribute of the size that it states, then ids.
    pub(super) fn take_attr_record(&mut self, body: &[u8]) -> Result<(), Damaged> {
        let stated = body.get(4..8).map_or(Err(Damaged), |field| Bytes(field).u32())?;
        let mut rest = Bytes(body);
        let attr = rest.take(usize::try_from(stated).map_err(|_| Damaged)?)?;
        self.events.push(RecordedEvent {
            attr: parse_attr(attr)?,
            ids: parse_ids(rest.0),
            name: String::new(),
        });
        Ok(())
    }

    /// Takes the body of PERF_RECORD_EVENT_UPDATE: `u64 kind, u64 id`, and the name for kind 2.
    pub(super) fn take_update_record(&mut self, body: &[u8]) -> Result<(), Damaged> {
        const NAME: u64 = 2;
        let mut body = Bytes(body);
        let (kind, id) = (body.u64()?, body.u64()?);
        let event = self.events.iter_mut().find(|event| event.ids.contains(&id));
        if let Some(event) = event.filter(|_| kind == NAME) {
            event.name = body.text();
        }
        Ok(())
    }

    /// Takes the body of PERF_RECORD_HEADER_FEATURE: its number, then what the section of a file would hold.
    pub(super) fn take_feature_record(&mut self, body: &[u8]) -> Result<(), ImportError> {
        let mut body = Bytes(body);
        let feature = body.u64().map_err(|_| ImportError::Header("header"))?;
        self.take_feature(feature, body.0);
        self.check()
    }

    /// Whether the kernel of the machine had 32 bits.
    pub(super) fn is_32_bit(&self) -> bool {
        matches!(self.arch.as_str(), "i386" | "i486" | "i586" | "i686")
    }

    /// Whether it was recorded on a machine whose code and branch stacks are understood here.
    fn check(&self) -> Result<(), ImportError> {
        if self.is_32_bit() || matches!(self.arch.as_str(), "" | "x86_64" | "amd64") {
            Ok(())
        } else {
            Err(ImportError::Foreign(self.arch.clone()))
        }
    }
}
