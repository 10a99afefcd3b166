//! A perf.data file in two passes: first what happened to processes, then the samples.
//!
//! perf writes what each CPU saw in turn, so records are in the order of time only roughly. A sample can be given to
//! the right program only when all records about its process are known; two passes need no memory for that, and the
//! file stays in the page cache between them.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use super::attr::sample_type;
use super::error::ImportError;
use super::features::parse_build_id_record;
use super::header::{Header, RecordsAt, read_header};
use super::reader::{RawRecord, Records, user_record};
use super::sample::{Sample, id_in_sample, parse_sample, time_of_record};
use hbbp_model::record::{Names, Record, Timed, parse_record};

const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_FORK_EXEC`: perf made this record from /proc, and the child has run a program of its own since.
const MISC_FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_EXACT_IP`.
const MISC_EXACT_IP: u16 = 1 << 14;
/// Largest size of the kept records about processes, in bytes; a browser's hour needs a hundredth of it.
const MAX_SIDEBAND: usize = 96 << 20;
/// Records between two reports of progress.
const PROGRESS_STEP: u64 = 4096;

/// A perf.data file.
pub struct PerfData<F> {
    file: F,
    at: RecordsAt,
    /// What it says of itself; complete after the first pass.
    pub header: Header,
}

/// What the first pass finds.
#[derive(Debug, Default)]
pub struct Sideband {
    /// What happened to processes and kernel text, in the order of time.
    pub records: Vec<Timed>,
    /// Samples by event.
    pub n_samples: Vec<u64>,
    /// Records that the recorder lost, most of them samples.
    pub lost: u64,
    /// How often the kernel stopped an event because its samples came too fast.
    pub throttled: u64,
    /// Records about processes that are damaged, or too many.
    pub unread: u64,
    /// Samples that are damaged, or of no known event.
    pub unread_samples: u64,
    /// Time of the first and the last sample.
    pub span: Option<(u64, u64)>,
    /// Whether the file ends early, as it does when its recorder was killed.
    pub cut_off: bool,
}

/// Which event a sample belongs to, and what its time is.
struct Events<'a> {
    header: &'a Header,
    by_id: HashMap<u64, usize>,
    /// Where a sample has its id; `None` for a recording of one event.
    id_at: Option<usize>,
    /// Whether all records have times; else their order in the file represents it.
    timed: bool,
}

impl<F: Read + Seek> PerfData<F> {
    /// Opens a file of `len` bytes.
    pub fn open(mut file: F, len: u64) -> Result<Self, ImportError> {
        let (header, at) = read_header(&mut file, len)?;
        Ok(Self { file, at, header })
    }

    /// The first pass. `progress` is called with the number of bytes read.
    pub fn read_sideband(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Sideband, ImportError> {
        self.read_header_records()?;
        let events = Events::new(&self.header)?;
        let mut found = Sideband {
            n_samples: vec![0; self.header.events.len()],
            ..Sideband::default()
        };
        let mut kept = 0;
        let (mut build_ids, mut names) = (Vec::new(), Names::default());
        let mut records = start(&mut self.file, self.at)?;
        while let Some(record) = records.next()? {
            match record.kind {
                SAMPLE => match events.sample(&record) {
                    Some((event, sample)) => {
                        found.n_samples.get_mut(event).into_iter().for_each(|n| *n += 1);
                        let (first, last) = found.span.unwrap_or((sample.time, sample.time));
                        found.span = Some((first.min(sample.time), last.max(sample.time)));
                    }
                    None => found.unread_samples += 1,
                },
                THROTTLE => found.throttled += 1,
                user_record::HEADER_BUILD_ID => {
                    build_ids.extend(parse_build_id_record(record.misc, record.body));
                }
                kind => {
                    let time = events.time_of(&record);
                    let made_up = kind == FORK && (record.misc & MISC_FORK_EXEC != 0 || time == 0);
                    match parse_record(kind, record.misc, record.body, &mut names) {
                        Ok(Some(Record::Lost(n))) => found.lost = found.lost.saturating_add(n),
                        Ok(Some(_)) if made_up => {}
                        Ok(Some(_)) if MAX_SIDEBAND < kept => found.unread += 1,
                        Ok(Some(said)) => {
                            kept += size_of::<Timed>() + record.body.len();
                            found.records.push(Timed { time, record: said });
                        }
                        Ok(None) => {}
                        Err(_) => found.unread += 1,
                    }
                }
            }
            if record.ordinal % PROGRESS_STEP == 0 {
                progress(record.offset);
            }
        }
        found.cut_off = records.cut_off() || self.at.unfinished;
        self.header.build_ids.extend(build_ids);
        // perf names a process before it lists its mappings, all at time 0; a process is known by its mappings.
        found.records.sort_by_key(|timed| {
            (
                timed.time,
                timed.time != 0 || !matches!(timed.record, Record::Mmap(_)),
            )
        });
        Ok(found)
    }

    /// The second pass: hands over each sample with the index of its event and whether its address is exact.
    pub fn read_samples(
        &mut self,
        progress: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(usize, Sample<'_>, bool),
    ) -> Result<(), ImportError> {
        let events = Events::new(&self.header)?;
        let mut records = start(&mut self.file, self.at)?;
        while let Some(record) = records.next()? {
            if record.kind == SAMPLE
                && let Some((event, sample)) = events.sample(&record)
            {
                take(event, sample, record.misc & MISC_EXACT_IP != 0);
            }
            if record.ordinal % PROGRESS_STEP == 0 {
                progress(record.offset);
            }
        }
        Ok(())
    }

    /// In pipe mode events and features are records like others. Names come after the first samples in some versions,
    /// so all are read.
    fn read_header_records(&mut self) -> Result<(), ImportError> {
        if self.at.len.is_some() || !self.header.events.is_empty() {
            return Ok(());
        }
        let mut records = start(&mut self.file, self.at)?;
        while let Some(record) = records.next()? {
            let damaged = |_| ImportError::Record {
                offset: record.offset,
                what: "invalid event description",
            };
            match record.kind {
                user_record::HEADER_ATTR => self.header.take_attr_record(record.body).map_err(damaged)?,
                user_record::EVENT_UPDATE => self.header.take_update_record(record.body).map_err(damaged)?,
                user_record::HEADER_FEATURE => self.header.take_feature_record(record.body)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn start<F: Read + Seek>(file: &mut F, at: RecordsAt) -> Result<Records<&mut F>, ImportError> {
    file.seek(SeekFrom::Start(at.offset))?;
    Ok(Records::new(file, at.offset, at.len))
}

impl<'a> Events<'a> {
    fn new(header: &'a Header) -> Result<Self, ImportError> {
        let attrs = || header.events.iter().map(|event| &event.attr);
        let Some(first) = attrs().next() else {
            return Err(ImportError::Empty);
        };
        let id_at = id_in_sample(first);
        let alone = header.events.len() == 1;
        if !alone && (id_at.is_none() || attrs().any(|attr| id_in_sample(attr) != id_at)) {
            return Err(ImportError::Ambiguous);
        }
        let same_ends =
            |fields: u64| attrs().all(|attr| attr.sample_type & fields == first.sample_type & fields);
        let end = sample_type::TIME
            | sample_type::ID
            | sample_type::STREAM_ID
            | sample_type::CPU
            | sample_type::IDENTIFIER;
        let timed = attrs().all(|attr| attr.sample_id_all && attr.has(sample_type::TIME)) && same_ends(end);
        let ids = header
            .events
            .iter()
            .enumerate()
            .flat_map(|(n, event)| event.ids.iter().map(move |id| (*id, n)));
        Ok(Self {
            header,
            by_id: ids.collect(),
            id_at: id_at.filter(|_| !alone),
            timed,
        })
    }

    fn sample<'r>(&self, record: &RawRecord<'r>) -> Option<(usize, Sample<'r>)> {
        let idx = match self.id_at {
            None => 0,
            Some(at) => {
                let id = record.body.get(at..)?.first_chunk()?;
                *self.by_id.get(&u64::from_le_bytes(*id))?
            }
        };
        let attr = &self.header.events.get(idx)?.attr;
        let mut sample = parse_sample(attr, record.body).ok()?;
        if !self.timed {
            sample.time = ordinal_time(record);
        }
        Some((idx, sample))
    }

    fn time_of(&self, record: &RawRecord<'_>) -> u64 {
        let first = self.header.events.first().filter(|_| self.timed);
        match first {
            Some(event) => time_of_record(&event.attr, record.body).unwrap_or(0),
            None => ordinal_time(record),
        }
    }
}

/// Without times the order of the file has to do. Time 0 means before the recording.
fn ordinal_time(record: &RawRecord<'_>) -> u64 {
    record.ordinal.saturating_add(1)
}
