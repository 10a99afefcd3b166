//! Which event a record of perf.data belongs to, and what its time is.
//!
//! Events of one recording may have different fields: a tracepoint has a CPU and raw data, a clock has neither.
//! Each record is therefore read by the fields of its own event. A sample names the event by an id near its start, other
//! records by one near their end (`struct sample_id` in `include/uapi/linux/perf_event.h`).

use std::collections::HashMap;

use super::attr::{Attr, sample_type};
use super::error::ImportError;
use super::header::{Header, RecordedEvent};
use super::reader::RawRecord;
use super::sample::{Sample, id_in_sample, id_in_trailer, parse_sample, time_of_record};

/// The events of a recording, by the ids in its records.
pub(super) struct Events<'a> {
    header: &'a Header,
    by_id: HashMap<u64, usize>,
    /// Where samples have their ids, in bytes from the start; empty for a recording of one event.
    ids_of_samples: Vec<usize>,
    /// Where other records have their ids, in bytes from the end; empty if the fields of all events end alike.
    ids_of_trailers: Vec<usize>,
    /// Whether all records have times; else their order in the file represents it.
    timed: bool,
}

impl<'a> Events<'a> {
    pub(super) fn new(header: &'a Header) -> Result<Self, ImportError> {
        let attrs = || header.events.iter().map(|event| &event.attr);
        let Some(first) = attrs().next() else {
            return Err(ImportError::Empty);
        };
        let is_alone = header.events.len() == 1;
        if !is_alone && attrs().any(|attr| id_in_sample(attr).is_none()) {
            return Err(ImportError::Ambiguous);
        }
        let ends_alike = attrs().all(|attr| fields_of_trailer(attr) == fields_of_trailer(first));
        let ids = header
            .events
            .iter()
            .enumerate()
            .flat_map(|(n, event)| event.ids.iter().map(move |id| (*id, n)));
        Ok(Self {
            header,
            by_id: ids.collect(),
            ids_of_samples: if is_alone {
                Vec::new()
            } else {
                distinct(attrs().filter_map(id_in_sample))
            },
            ids_of_trailers: if ends_alike {
                Vec::new()
            } else {
                distinct(attrs().filter_map(id_in_trailer))
            },
            timed: attrs().all(|attr| attr.sample_id_all && attr.has(sample_type::TIME)),
        })
    }

    /// The index of the event of a sample, and the sample; `None` if it is damaged or of no known event.
    pub(super) fn sample<'r>(&self, record: &RawRecord<'r>) -> Option<(usize, Sample<'r>)> {
        let idx = if self.ids_of_samples.is_empty() {
            0
        } else {
            self.event_of_sample(record.body)?
        };
        let attr = &self.header.events.get(idx)?.attr;
        let mut sample = parse_sample(attr, record.body).ok()?;
        if !self.timed {
            sample.time = ordinal_time(record);
        }
        Some((idx, sample))
    }

    fn event_of_sample(&self, body: &[u8]) -> Option<usize> {
        let at = |place: &usize| {
            let id = body.get(*place..)?.first_chunk()?;
            self.event(*id, |attr| id_in_sample(attr) == Some(*place))
        };
        self.ids_of_samples.iter().find_map(at)
    }

    /// The time of a record other than a sample; 0 if it has none, which means before the recording.
    pub(super) fn time_of(&self, record: &RawRecord<'_>) -> u64 {
        if !self.timed {
            return ordinal_time(record);
        }
        let event = self.event_of_trailer(record.body);
        event
            .and_then(|event| time_of_record(&event.attr, record.body))
            .unwrap_or(0)
    }

    /// The event by whose fields a record other than a sample ends. perf's own records have no id, and time 0.
    fn event_of_trailer(&self, body: &[u8]) -> Option<&RecordedEvent> {
        if self.ids_of_trailers.is_empty() {
            return self.header.events.first();
        }
        let at = |place: &usize| {
            let id = body.get(body.len().checked_sub(*place)?..)?.first_chunk()?;
            self.event(*id, |attr| id_in_trailer(attr) == Some(*place))
        };
        let idx = self.ids_of_trailers.iter().find_map(at)?;
        self.header.events.get(idx)
    }

    /// The event of an id, if its records have their ids where this one was found.
    fn event(&self, id: [u8; 8], has_id_there: impl Fn(&Attr) -> bool) -> Option<usize> {
        let idx = *self.by_id.get(&u64::from_le_bytes(id))?;
        let event = self.header.events.get(idx)?;
        has_id_there(&event.attr).then_some(idx)
    }
}

/// The fields that show where a record other than a sample has its time.
fn fields_of_trailer(attr: &Attr) -> u64 {
    let fields = sample_type::TIME
        | sample_type::ID
        | sample_type::STREAM_ID
        | sample_type::CPU
        | sample_type::IDENTIFIER;
    attr.sample_type & fields
}

fn distinct(places: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut places: Vec<usize> = places.collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Without times the order of the file has to do. Time 0 means before the recording.
fn ordinal_time(record: &RawRecord<'_>) -> u64 {
    record.ordinal.saturating_add(1)
}
