//! The sideband: two rings for each CPU in which the kernel writes what happens to processes and mappings, and to its
//! text.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::perf::{Perf, SIDEBAND_BYTES, TEXT_RING_BYTES};
use super::ring::Ring;
use hbbp_model::record::{MISC_MMAP_BUILD_ID, Names, Record, Timed, parse_record};

const HEADER: usize = 8;
/// With `sample_id_all` and a sample type of TIME alone, each record ends with its time.
const TRAILER: usize = 8;
/// Bytes of a record where programs are started: forks and exits have 40, mappings some 130.
const MEAN_RECORD: usize = 80;

/// The sideband rings of all CPUs.
#[derive(Debug)]
pub struct Sideband {
    rings: Vec<Ring>,
    text: Vec<Ring>,
    missing: Vec<&'static str>,
    names: Names,
    /// Whether a CPU came online, whose first records were not written.
    has_gap: bool,
    /// Whether records of processes and mappings are not written for a while.
    is_resting: bool,
}

/// What one reading of all rings gave.
#[derive(Debug, Default)]
pub struct Reading {
    /// The records in the order of time.
    pub records: Vec<Timed>,
    /// Records that could not be understood.
    pub unread: u64,
}

impl Reading {
    /// Interprets the bytes of a ring, all of which are records.
    pub fn of(bytes: &[u8]) -> Self {
        let mut reading = Self::default();
        let copy = |position: u64, out: &mut [u8]| {
            let from = usize::try_from(position).ok().and_then(|from| bytes.get(from..));
            if let Some(from) = from.and_then(|from| from.get(..out.len())) {
                out.copy_from_slice(from);
            }
        };
        let (mut record, mut names) = (Vec::new(), Names::default());
        reading.take_records(&(0..bytes.len() as u64), &mut record, &mut names, &copy);
        reading
    }

    /// Takes the records between two positions of a ring, whose bytes are copied by `copy` into `record`, one at a time.
    fn take_records(
        &mut self,
        positions: &Range<u64>,
        record: &mut Vec<u8>,
        names: &mut Names,
        copy: &dyn Fn(u64, &mut [u8]),
    ) {
        let n_bytes = usize::try_from(positions.end.saturating_sub(positions.start)).unwrap_or(0);
        self.records.reserve(n_bytes / MEAN_RECORD);
        let mut at = positions.start;
        while at < positions.end {
            let mut header = [0; HEADER];
            copy(at, &mut header);
            let [k0, k1, k2, k3, m0, m1, s0, s1] = header;
            let size = usize::from(u16::from_le_bytes([s0, s1]));
            if size < HEADER || positions.end - at < size as u64 {
                // The kernel never writes this; without a size the next record cannot be found.
                self.unread += 1;
                return;
            }
            record.resize(size - HEADER, 0);
            copy(at + HEADER as u64, record);
            let kind = u32::from_le_bytes([k0, k1, k2, k3]);
            match timed(kind, u16::from_le_bytes([m0, m1]), record, names) {
                Ok(Some(timed)) => self.records.push(timed),
                Ok(None) => {}
                Err(_) => self.unread += 1,
            }
            at += size as u64;
        }
    }
}

impl Sideband {
    /// Opens and starts the rings of the given CPUs.
    pub fn open(cpus: &[u32]) -> io::Result<Self> {
        let mut sideband = Self {
            rings: Vec::with_capacity(cpus.len()),
            text: Vec::with_capacity(cpus.len()),
            missing: Vec::new(),
            names: Names::default(),
            has_gap: false,
            is_resting: false,
        };
        cpus.iter().try_for_each(|cpu| sideband.add(*cpu))?;
        for ring in sideband.rings.iter().chain(&sideband.text) {
            ring.perf.enable()?;
        }
        Ok(sideband)
    }

    /// Opens the rings of a CPU.
    fn add(&mut self, cpu: u32) -> io::Result<()> {
        let (perf, missing) = Perf::open_text(cpu)?;
        self.text.push(Ring::new(perf, TEXT_RING_BYTES)?);
        self.missing = missing;
        if !self.is_resting {
            self.rings
                .push(Ring::new(Perf::open_sideband(cpu)?, SIDEBAND_BYTES)?);
        }
        Ok(())
    }

    /// Opens and starts rings of a CPU that came online. Rings that it had before are read once more and then closed.
    pub(crate) fn renew(&mut self, cpu: u32) -> io::Result<()> {
        let before = self.rings.iter_mut().chain(&mut self.text);
        let of_cpu = before.filter(|ring| ring.perf.cpu() == Some(cpu));
        of_cpu.for_each(|ring| ring.has_ended = true);
        self.add(cpu)?;
        self.has_gap = true;
        let newest = self.rings.last().filter(|_| !self.is_resting);
        let mut newest = newest.into_iter().chain(self.text.last());
        newest.try_for_each(|ring| ring.perf.enable())
    }

    /// Pauses process and mapping records; kernel-text records continue. The rings are read once more
    /// and then closed: as long as there is an event that asks for them, the kernel looks for the path of each mapping, whether that event counts or not (kernel/events/core.c, `nr_mmap_events`).
    pub(crate) fn rest(&mut self) {
        self.is_resting = true;
        self.rings.iter_mut().for_each(|ring| ring.has_ended = true);
    }

    /// Has it write them again, on the CPUs that are online; returns the descriptors of the new rings.
    pub(crate) fn resume(&mut self) -> io::Result<impl Iterator<Item = BorrowedFd<'_>>> {
        self.is_resting = false;
        let first = self.rings.len();
        let cpus = self.text.iter().filter(|ring| !ring.has_ended);
        for cpu in cpus.filter_map(|ring| ring.perf.cpu()).collect::<Vec<_>>() {
            match Perf::open_sideband(cpu) {
                Ok(perf) => {
                    let ring = Ring::new(perf, SIDEBAND_BYTES)?;
                    ring.perf.enable()?;
                    self.rings.push(ring);
                }
                // Its CPU went offline; rings are opened when it comes back.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.rings.iter().skip(first).map(|ring| ring.perf.as_fd()))
    }

    /// The descriptors of the rings that were opened last.
    pub(crate) fn newest(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let newest = self.rings.last().filter(|_| !self.is_resting);
        newest
            .into_iter()
            .chain(self.text.last())
            .map(|ring| ring.perf.as_fd())
    }

    /// What becomes readable when there is a record of kernel text, or when a ring of the others is half full.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.text.iter().chain(&self.rings);
        rings.map(|ring| ring.perf.as_fd())
    }

    /// The kinds of record that this kernel does not write.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Reads all that the rings hold now.
    pub(crate) fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        let names = &mut self.names;
        for ring in &mut self.text {
            ring.read(|at, record, copy| reading.take_records(at, record, names, copy));
        }
        for timed in &mut reading.records {
            if let Record::Lost(n) = timed.record {
                timed.record = Record::LostText(n);
            }
        }
        for ring in &mut self.rings {
            ring.read(|at, record, copy| reading.take_records(at, record, names, copy));
        }
        for rings in [&mut self.rings, &mut self.text] {
            rings.retain(|ring| !ring.has_ended);
        }
        if std::mem::take(&mut self.has_gap) {
            // The number is unknown.
            reading.records.push(Timed {
                time: 0,
                record: Record::Lost(0),
            });
        }
        reading.records.sort_by_key(|r| r.time);
        reading
    }
}

fn timed(
    kind: u32,
    misc: u16,
    body: &[u8],
    names: &mut Names,
) -> Result<Option<Timed>, hbbp_model::record::Malformed> {
    let split = body
        .len()
        .checked_sub(TRAILER)
        .and_then(|at| body.split_at_checked(at));
    let (body, trailer) = split.ok_or(hbbp_model::record::Malformed)?;
    let time = u64::from_le_bytes(trailer.try_into().map_err(|_| hbbp_model::record::Malformed)?);
    // Where others ask for build ids, the kernel sets their mark here as well, and writes none (kernel/events/core.c,
    // `perf_event_mmap_output`).
    let misc = misc & !MISC_MMAP_BUILD_ID;
    let record: Option<Record> = parse_record(kind, misc, body, names)?;
    Ok(record.map(|record| Timed { time, record }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_record_is_its_time() {
        let mut body = Vec::new();
        for field in [5u32, 4, 5, 4] {
            body.extend(field.to_le_bytes());
        }
        body.extend(99u64.to_le_bytes());
        body.extend(1234u64.to_le_bytes());
        let names = &mut Names::default();
        let timed = timed(7, 0, &body, names).unwrap().unwrap();
        assert_eq!(
            timed,
            Timed {
                time: 1234,
                record: Record::Fork {
                    pid: 5,
                    tid: 5,
                    parent_pid: 4
                }
            }
        );
        assert!(super::timed(7, 0, &body[..7], names).is_err());
        let size = u16::try_from(HEADER + body.len()).expect("short");
        let header = [&7u32.to_le_bytes()[..], &[0; 2], &size.to_le_bytes()].concat();
        let ring = [header, body].concat().repeat(3);
        let all = Reading::of(&ring);
        assert_eq!((all.records, all.unread), (vec![timed; 3], 0));
        let cut_off = Reading::of(&ring[..ring.len() - 1]);
        assert_eq!((cut_off.records.len(), cut_off.unread), (2, 1));
    }
}
