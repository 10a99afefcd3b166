//! A perf.data file in two passes: first what happened to processes, then the samples.
//!
//! perf writes what each CPU saw in turn, so records are in the order of time only roughly. A sample can be given to
//! the right program only when all records about its process are known; two passes need no memory for that, and the
//! file stays in the page cache between them.

use std::io::{Read, Seek, SeekFrom};

use super::error::ImportError;
use super::event_of_record::Events;
use super::features::parse_build_id_record;
use super::header::{Header, RecordsAt, read_header};
use super::reader::{RawRecord, Records, user_record};
use super::sample::Sample;
use hbbp_model::record::{Names, Record, Timed, parse_record};

const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_FORK_EXEC`: perf made this record from /proc, and the child has run a program of its own since.
const MISC_FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_EXACT_IP`.
const MISC_EXACT_IP: u16 = 1 << 14;
/// `PERF_RECORD_MISC_CPUMODE_MASK`, and the modes of a virtual machine: its kernel and its user code.
const MISC_CPUMODE: u16 = 7;
const GUEST_MODES: [u16; 2] = [4, 5];
/// Largest size of the kept records about processes, in bytes; a browser's hour needs a hundredth of it.
const MAX_SIDEBAND: usize = 96 << 20;
/// Records between two reports of progress.
const PROGRESS_STEP: u64 = 4096;

/// A perf.data file, or the directory that `perf record --threads` writes.
pub struct PerfData<F> {
    file: F,
    /// The files `data.0` and on, which hold records alone.
    parts: Vec<F>,
    at: RecordsAt,
    /// What it says of itself; complete after the first pass.
    pub header: Header,
}

/// What the first pass finds.
#[derive(Debug, Default)]
pub struct Sideband {
    /// What happened to processes and kernel text, in the order of time.
    pub records: Vec<Timed>,
    /// Samples by event, without those of virtual machines.
    pub n_samples: Vec<u64>,
    /// Samples of virtual machines by event. Their addresses are those of a guest, so they are kept separate.
    pub n_guest_samples: Vec<u64>,
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

impl Sideband {
    /// Counts a sample of this event and time.
    fn count(&mut self, event: usize, time: u64, record: &RawRecord<'_>) {
        let counts = if is_of_guest(record) {
            &mut self.n_guest_samples
        } else {
            &mut self.n_samples
        };
        counts.get_mut(event).into_iter().for_each(|n| *n += 1);
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }
}

impl<F: Read + Seek> PerfData<F> {
    /// Opens a file of `len` bytes; `parts` are the files next to it that threads of the recorder wrote.
    pub fn open(mut file: F, len: u64, parts: Vec<F>) -> Result<Self, ImportError> {
        let (header, at) = read_header(&mut file, len)?;
        if header.is_in_parts && parts.is_empty() {
            return Err(ImportError::Part);
        }
        Ok(Self {
            file,
            parts,
            at,
            header,
        })
    }

    /// The first pass. `progress` is called with the number of bytes read.
    pub fn read_sideband(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Sideband, ImportError> {
        self.read_header_records()?;
        let Self {
            file,
            parts,
            at,
            header,
        } = self;
        let events = Events::new(header)?;
        let mut found = Sideband {
            n_samples: vec![0; header.events.len()],
            n_guest_samples: vec![0; header.events.len()],
            ..Sideband::default()
        };
        let mut kept = 0;
        let (mut build_ids, mut names) = (Vec::new(), Names::default());
        found.cut_off = each_record(file, parts, *at, &mut |record| {
            match record.kind {
                SAMPLE => match events.sample(&record) {
                    Some((event, sample)) => found.count(event, sample.time, &record),
                    None => found.unread_samples += 1,
                },
                THROTTLE => found.throttled += 1,
                // perf lists what guests mapped as well as what the host did.
                _ if is_of_guest(&record) => {}
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
        })?;
        header.build_ids.extend(build_ids);
        // perf names a process before it lists its mappings, all at time 0; a process is known by its mappings.
        found.records.sort_by_key(|timed| {
            (
                timed.time,
                timed.time != 0 || !matches!(timed.record, Record::Mmap(_)),
            )
        });
        Ok(found)
    }

    /// The second pass: hands over each sample of the host with the index of its event and whether its address is exact.
    pub fn read_samples(
        &mut self,
        progress: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(usize, Sample<'_>, bool),
    ) -> Result<(), ImportError> {
        let Self {
            file,
            parts,
            at,
            header,
        } = self;
        let events = Events::new(header)?;
        each_record(file, parts, *at, &mut |record| {
            if record.kind == SAMPLE
                && !is_of_guest(&record)
                && let Some((event, sample)) = events.sample(&record)
            {
                take(event, sample, record.misc & MISC_EXACT_IP != 0);
            }
            if record.ordinal % PROGRESS_STEP == 0 {
                progress(record.offset);
            }
        })?;
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

/// Hands over the records of all files. Returns whether one of them ends early.
fn each_record<F: Read + Seek>(
    file: &mut F,
    parts: &mut [F],
    at: RecordsAt,
    take: &mut dyn FnMut(RawRecord<'_>),
) -> Result<bool, ImportError> {
    let mut cut_off = at.unfinished;
    let mut n_read = 0;
    let parts = parts.iter_mut().map(|part| (part, RecordsAt::WHOLE_FILE));
    for (file, at) in std::iter::once((file, at)).chain(parts) {
        let mut records = start(file, at)?.numbered_from(n_read);
        while let Some(record) = records.next()? {
            n_read = record.ordinal.saturating_add(1);
            take(record);
        }
        cut_off |= records.cut_off();
    }
    Ok(cut_off)
}

fn start<F: Read + Seek>(file: &mut F, at: RecordsAt) -> Result<Records<&mut F>, ImportError> {
    file.seek(SeekFrom::Start(at.offset))?;
    Ok(Records::new(file, at.offset, at.len))
}

/// Whether a virtual machine executed it.
fn is_of_guest(record: &RawRecord<'_>) -> bool {
    GUEST_MODES.contains(&(record.misc & MISC_CPUMODE))
}
