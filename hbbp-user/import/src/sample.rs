//! The body of a sample: its address, its weight, and its branch stack.
//!
//! Field order: `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h`. The crate linux-perf-event-reader passes
//! over branch stacks, and takes counter values of groups for single ones.

use hbbp_ebpf::branch::BranchEntry;

use super::attr::{Attr, BRANCH_HW_INDEX, sample_type};
use super::bytes::Bytes;
use super::error::Damaged;
use hbbp_model::addr::Va;

/// A sample of an event.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Thread group id; 0 if the recording does not say it.
    pub tgid: u32,
    /// Thread id; 0 if the recording does not say it.
    pub tid: u32,
    /// Time in ns of the recording's clock, or 0.
    pub time: u64,
    /// The instruction pointer, if it was recorded.
    pub ip: Option<Va>,
    /// Units of the event since the sample before.
    pub period: Option<u64>,
    /// The branch stack, 24 bytes for each entry, newest first; empty if there is none.
    pub stack: &'a [u8],
    /// How many equal samples it represents: one, except in texts that were aggregated.
    pub times: u64,
}

impl Sample<'_> {
    /// Replaces the contents of `to` by the executed entries of the stack, newest first up to the first empty one.
    /// Returns the number of the others.
    pub(super) fn executed(&self, to: &mut Vec<BranchEntry>) -> u64 {
        to.clear();
        to.extend(entries(self.stack).take_while(|entry| !entry.is_empty()));
        let n_recorded = to.len();
        to.retain(|entry| !entry.is_wrong_path());
        (n_recorded - to.len()) as u64
    }
}

/// The entries of a branch stack, newest first.
pub fn entries(stack: &[u8]) -> impl ExactSizeIterator<Item = BranchEntry> + '_ {
    let number = |bytes: &[u8; 24], at: usize| {
        bytes
            .get(at..)
            .and_then(|field| field.first_chunk())
            .map_or(0, |field| u64::from_le_bytes(*field))
    };
    stack.as_chunks::<24>().0.iter().map(move |entry| BranchEntry {
        from: number(entry, 0),
        to: number(entry, 8),
        flags: number(entry, 16),
    })
}

/// Interprets the body of a sample, up to its branch stack.
pub(super) fn parse_sample<'a>(attr: &Attr, body: &'a [u8]) -> Result<Sample<'a>, Damaged> {
    let mut body = Bytes(body);
    let mut field = |mask| {
        if attr.has(mask) {
            body.u64().map(Some)
        } else {
            Ok(None)
        }
    };
    let _identifier = field(sample_type::IDENTIFIER)?;
    let ip = field(sample_type::IP)?.map(Va);
    let pid_and_tid = field(sample_type::TID)?;
    let time = field(sample_type::TIME)?;
    for skipped in [
        sample_type::ADDR,
        sample_type::ID,
        sample_type::STREAM_ID,
        sample_type::CPU,
    ] {
        field(skipped)?;
    }
    let period = field(sample_type::PERIOD)?;
    let mut sample = Sample {
        tgid: pid_and_tid.map_or(0, |both| u32::try_from(both & 0xffff_ffff).unwrap_or(0)),
        tid: pid_and_tid.map_or(0, |both| u32::try_from(both >> 32).unwrap_or(0)),
        time: time.unwrap_or(0),
        ip,
        period,
        stack: &[],
        times: 1,
    };
    if !attr.has(sample_type::BRANCH_STACK) {
        return Ok(sample);
    }
    if attr.has(sample_type::READ) {
        pass_counter_values(&mut body, attr.read_format)?;
    }
    if attr.has(sample_type::CALLCHAIN) {
        body.counted(8)?;
    }
    if attr.has(sample_type::RAW) {
        let size = body.u32()?;
        body.take(usize::try_from(size).map_err(|_| Damaged)?)?;
    }
    let n = usize::try_from(body.u64()?).map_err(|_| Damaged)?;
    if attr.branch_sample_type & BRANCH_HW_INDEX != 0 {
        body.u64()?;
    }
    sample.stack = body.take(n.checked_mul(24).ok_or(Damaged)?)?;
    Ok(sample)
}

/// `struct read_format`: one counter, or a group of them.
fn pass_counter_values(body: &mut Bytes<'_>, format: u64) -> Result<(), Damaged> {
    const TIME_ENABLED: u64 = 1;
    const TIME_RUNNING: u64 = 2;
    const ID: u64 = 4;
    const GROUP: u64 = 8;
    const LOST: u64 = 16;
    let n_of = |mask: u64| (format & mask).count_ones() as usize;
    let n_each = 1 + n_of(ID | LOST);
    let n_members = if format & GROUP == 0 {
        1
    } else {
        usize::try_from(body.u64()?).map_err(|_| Damaged)?
    };
    let n_values = n_members
        .checked_mul(n_each)
        .and_then(|n| n.checked_add(n_of(TIME_ENABLED | TIME_RUNNING)));
    body.take(n_values.and_then(|n| n.checked_mul(8)).ok_or(Damaged)?)?;
    Ok(())
}

/// Offset of the event's id in a sample, in bytes. `None` if it has none.
pub(super) fn id_in_sample(attr: &Attr) -> Option<usize> {
    if attr.has(sample_type::IDENTIFIER) {
        return Some(0);
    }
    let before = sample_type::IP | sample_type::TID | sample_type::TIME | sample_type::ADDR;
    attr.has(sample_type::ID)
        .then_some(8 * (attr.sample_type & before).count_ones() as usize)
}

/// Offset of the event's id in the trailer of a record other than a sample, in bytes from the end. `None` if it has none.
pub(super) fn id_in_trailer(attr: &Attr) -> Option<usize> {
    if attr.has(sample_type::IDENTIFIER) {
        return Some(8);
    }
    let from_id = sample_type::ID | sample_type::STREAM_ID | sample_type::CPU;
    attr.has(sample_type::ID)
        .then_some(8 * (attr.sample_type & from_id).count_ones() as usize)
}

/// The time at the end of a record other than a sample (`struct sample_id`); `None` if it has none.
pub(super) fn time_of_record(attr: &Attr, body: &[u8]) -> Option<u64> {
    if !attr.sample_id_all || !attr.has(sample_type::TIME) {
        return None;
    }
    let from_time = sample_type::TIME
        | sample_type::ID
        | sample_type::STREAM_ID
        | sample_type::CPU
        | sample_type::IDENTIFIER;
    let from_end = 8 * (attr.sample_type & from_time).count_ones() as usize;
    let field = body.get(body.len().checked_sub(from_end)?..)?;
    Bytes(field).u64().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::run::Period;

    fn attr(sample_type: u64, read_format: u64) -> Attr {
        Attr {
            kind: 4,
            config: 0,
            period: Period::Fixed(1),
            precise: 0,
            sample_type,
            read_format,
            branch_sample_type: 8,
            is_monotonic: false,
            sample_id_all: true,
        }
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    #[test]
    fn every_field_before_the_stack_is_passed() {
        let all = sample_type::IP
            | sample_type::TID
            | sample_type::TIME
            | sample_type::ADDR
            | sample_type::READ
            | sample_type::CALLCHAIN
            | sample_type::ID
            | sample_type::CPU
            | sample_type::PERIOD
            | sample_type::STREAM_ID
            | sample_type::RAW
            | sample_type::BRANCH_STACK
            | sample_type::IDENTIFIER;
        let head = [90, 0x40_1000, 8 << 32 | 7, 1234, 1, 90, 2, 3, 50];
        // A group of two with times and ids, a call chain of one, and 12 bytes of raw data.
        let mut body = numbers(&head);
        body.extend(numbers(&[2, 11, 12, 100, 1, 200, 2, 1, 0x40_1000]));
        body.extend(12_u32.to_le_bytes());
        body.extend([0; 12]);
        body.extend(numbers(&[2, 30, 40, 1, 10, 20, 0x50, 9, 9]));
        let attr = attr(all, 1 | 2 | 4 | 8);
        let sample = parse_sample(&attr, &body).unwrap();
        assert_eq!(
            (sample.tgid, sample.time, sample.ip),
            (7, 1234, Some(Va(0x40_1000)))
        );
        assert_eq!(sample.period, Some(50));
        let newest = BranchEntry {
            from: 30,
            to: 40,
            flags: 1,
        };
        let oldest = BranchEntry {
            from: 10,
            to: 20,
            flags: 0x50,
        };
        assert_eq!(entries(sample.stack).collect::<Vec<_>>(), [newest, oldest]);
        assert_eq!(
            (id_in_sample(&attr), time_of_record(&attr, &body)),
            (Some(0), Some(10))
        );
        for len in 0..body.len() - 16 {
            assert_eq!(parse_sample(&attr, &body[..len]).err(), Some(Damaged), "{len}");
        }
    }

    #[test]
    fn hostile_counts_are_refused() {
        let attr = attr(sample_type::BRANCH_STACK, 0);
        for n in [1, u64::MAX, u64::MAX / 24 + 1] {
            assert_eq!(parse_sample(&attr, &numbers(&[n, 0])).err(), Some(Damaged));
        }
    }

    #[test]
    fn ids_follow_the_fields_before_them() {
        let of = |fields| id_in_sample(&attr(fields, 0));
        assert_eq!(
            of(sample_type::IP | sample_type::TIME | sample_type::ID),
            Some(16)
        );
        assert_eq!(of(sample_type::IP), None);
    }
}
