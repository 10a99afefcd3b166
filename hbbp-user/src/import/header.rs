//! What stands around the records of a perf.data file: its header, its events, and what it says of the machine.
//!
//! In file mode these are sections with places and sizes, all of which are checked against the file; in pipe mode
//! they are records of their own between the others.
//! Format: `tools/perf/Documentation/perf.data-file-format.txt` in the kernel tree.

use std::io::{Read, Seek, SeekFrom};

use super::attr::{Attr, Pmus, parse_attr};
use super::bytes::Bytes;
use super::error::{Damaged, ImportError};

/// The first bytes of a perf.data file of version 2.
const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
const MAGIC_VERSION_1: &[u8; 8] = b"PERFFILE";
/// `sizeof(struct perf_file_header)` and, as perf says so to tell them apart, of `perf_pipe_file_header`.
const PIPE_HEADER: u64 = 16;
/// No table of the header is read beyond this: the largest hold the build ids of some ten thousand files.
const MAX_SECTION: u64 = 16 << 20;

/// `enum header_feature`: what perf says of the machine and of the recording.
mod feature {
    pub(super) const BUILD_ID: u64 = 2;
    pub(super) const HOSTNAME: u64 = 3;
    pub(super) const OSRELEASE: u64 = 4;
    pub(super) const ARCH: u64 = 6;
    pub(super) const NRCPUS: u64 = 7;
    pub(super) const CPUDESC: u64 = 8;
    pub(super) const CPUID: u64 = 9;
    pub(super) const EVENT_DESC: u64 = 12;
    pub(super) const PMU_MAPPINGS: u64 = 16;
    pub(super) const DIR_FORMAT: u64 = 24;
}

/// An event of the recording.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedEvent {
    /// What it is.
    pub attr: Attr,
    /// Ids of its counters, by which samples name it.
    pub ids: Vec<u64>,
    /// Its name, as perf or its user wrote it; empty where it is not recorded.
    pub name: String,
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
    /// `uname -m` of the machine; empty where it is not recorded.
    pub arch: String,
    /// Name of the processor.
    pub cpu: String,
    /// Number of CPUs online.
    pub n_cpus: u32,
    /// Build ids of the files that samples hit.
    pub build_ids: Vec<FileBuildId>,
    /// What helps to understand raw events.
    pub pmus: Pmus,
}

/// Where the records stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RecordsAt {
    /// First byte.
    pub(super) offset: u64,
    /// Length in bytes; `None` for all that follows.
    pub(super) len: Option<u64>,
    /// Whether the header was not completed, or promises more than there is.
    pub(super) unfinished: bool,
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
    header.events = read_events(file, attr_size, attrs, len)?;
    // perf writes the size at the end: without it the recorder was killed, and nothing stands behind the records.
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
    let table = data.0 + data.1;
    let n_features = features
        .iter()
        .map(|word| u64::from(word.count_ones()))
        .sum::<u64>();
    let table = read_at(file, table, n_features * 16, len)?;
    let mut table = Bytes(&table);
    let set = features.iter().zip(0_u64..).flat_map(|(word, n)| {
        (0..64)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| n * 64 + bit)
    });
    for bit in set {
        let (offset, size) = (table.u64().map_err(damaged)?, table.u64().map_err(damaged)?);
        // Other sections may be large, and nothing is lost without them.
        if header.wants(bit) {
            header.take_feature(bit, &read_at(file, offset, size, len)?)?;
        }
    }
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

/// Each entry is an attribute, then place and size of the list of its ids.
fn read_events(
    file: &mut (impl Read + Seek),
    entry_size: u64,
    (offset, size): (u64, u64),
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

fn parse_ids(bytes: &[u8]) -> Vec<u64> {
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
        self.take_feature(feature, body.0)?;
        self.check()
    }

    fn wants(&self, feature: u64) -> bool {
        matches!(feature, feature::BUILD_ID..=feature::OSRELEASE | feature::ARCH..=feature::CPUID)
            || matches!(
                feature,
                feature::EVENT_DESC | feature::PMU_MAPPINGS | feature::DIR_FORMAT
            )
    }

    fn take_feature(&mut self, feature: u64, section: &[u8]) -> Result<(), ImportError> {
        // Names are a comfort: where one is damaged it stays empty.
        match feature {
            feature::HOSTNAME => self.host = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::OSRELEASE => self.os_release = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::ARCH => self.arch = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::CPUDESC => self.cpu = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::CPUID => {
                let vendor = parse_string(&mut Bytes(section)).unwrap_or_default();
                self.pmus.amd = vendor.starts_with("AuthenticAMD") || vendor.starts_with("HygonGenuine");
            }
            feature::NRCPUS => self.n_cpus = section.get(4..8).map_or(0, |n| Bytes(n).u32().unwrap_or(0)),
            feature::BUILD_ID => self.build_ids = parse_build_ids(section),
            feature::PMU_MAPPINGS => self.pmus.names = parse_pmus(section).unwrap_or_default(),
            feature::EVENT_DESC => self.name_events(section).unwrap_or_default(),
            feature::DIR_FORMAT => return Err(ImportError::Folder),
            _ => {}
        }
        Ok(())
    }

    /// `u32 n, u32 attr_size`, then for each event: attribute, `u32 n_ids`, name, ids.
    fn name_events(&mut self, section: &[u8]) -> Result<(), Damaged> {
        let mut section = Bytes(section);
        let (n, attr_size) = (
            section.u32()?,
            usize::try_from(section.u32()?).map_err(|_| Damaged)?,
        );
        for nth in (0..n).map(|nth| usize::try_from(nth).unwrap_or(usize::MAX)) {
            let _attr = section.take(attr_size)?;
            let n_ids = usize::try_from(section.u32()?).map_err(|_| Damaged)?;
            let name = parse_string(&mut section)?;
            let ids = parse_ids(section.take(n_ids.checked_mul(8).ok_or(Damaged)?)?);
            let by_id = |event: &RecordedEvent| ids.first().is_some_and(|id| event.ids.contains(id));
            let idx = self.events.iter().position(by_id).unwrap_or(nth);
            if let Some(event) = self.events.get_mut(idx) {
                event.name = name;
            }
        }
        Ok(())
    }

    /// Whether it was recorded on a machine whose code and branch stacks are understood here.
    fn check(&self) -> Result<(), ImportError> {
        let known = matches!(
            self.arch.as_str(),
            "" | "x86_64" | "amd64" | "i386" | "i486" | "i586" | "i686"
        );
        if known {
            Ok(())
        } else {
            Err(ImportError::Foreign(self.arch.clone()))
        }
    }
}

/// `u32 len`, then text with zeros up to that length.
fn parse_string(bytes: &mut Bytes<'_>) -> Result<String, Damaged> {
    let len = usize::try_from(bytes.u32()?).map_err(|_| Damaged)?;
    Ok(Bytes(bytes.take(len)?).text())
}

/// `u32 n`, then for each PMU: number and name.
fn parse_pmus(section: &[u8]) -> Result<Vec<(u32, String)>, Damaged> {
    let mut section = Bytes(section);
    let n = section.u32()?;
    (0..n)
        .map(|_| Ok((section.u32()?, parse_string(&mut section)?)))
        .collect()
}

/// A list of `struct perf_record_header_build_id`: header, pid, build id, its size, path.
fn parse_build_ids(section: &[u8]) -> Vec<FileBuildId> {
    let mut section = Bytes(section);
    let mut next = || -> Result<FileBuildId, Damaged> {
        let (_kind, misc, size) = (section.u32()?, section.u16()?, section.u16()?);
        let record = section.take(usize::from(size).checked_sub(8).ok_or(Damaged)?)?;
        parse_build_id_record(misc, record)
    };
    std::iter::from_fn(|| next().ok()).collect()
}

/// Interprets the body of PERF_RECORD_HEADER_BUILD_ID.
pub(super) fn parse_build_id_record(misc: u16, body: &[u8]) -> Result<FileBuildId, Damaged> {
    /// `PERF_RECORD_MISC_BUILD_ID_SIZE`: older versions wrote all 20 bytes without their number.
    const HAS_SIZE: u16 = 1 << 15;
    let mut body = Bytes(body);
    let _pid = body.u32()?;
    let id = body.take(24)?;
    let stated = if misc & HAS_SIZE == 0 {
        20
    } else {
        id.get(20).copied().unwrap_or(0)
    };
    let build_id = id.get(..usize::from(stated.min(20))).unwrap_or(&[]).to_vec();
    Ok(FileBuildId {
        path: body.text(),
        build_id,
    })
}
