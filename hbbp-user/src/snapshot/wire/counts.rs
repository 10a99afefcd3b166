//! The section `counts`: what was counted in one interval, a table for each of IPs, streams and branches.

use super::{Malformed, differences, same_length, sums};
use crate::addr::Va;
use crate::snapshot::{BranchCount, EventIdx, Interval, IpCount, ProcessIdx, StreamCount};

/// The section `counts`, one for each interval, in the order of time.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct CountsSection {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint64, tag = "2")]
    end: u64,
    #[prost(message, optional, tag = "3")]
    ips: Option<IpTable>,
    #[prost(message, optional, tag = "4")]
    streams: Option<StreamTable>,
    #[prost(message, optional, tag = "5")]
    branches: Option<BranchTable>,
}

/// Samples of an instruction pointer.
#[derive(Clone, PartialEq, prost::Message)]
struct IpTable {
    #[prost(uint32, repeated, tag = "1")]
    event: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    process: Vec<u32>,
    #[prost(sint64, repeated, tag = "3")]
    ip: Vec<i64>,
    #[prost(bool, repeated, tag = "4")]
    exact: Vec<bool>,
    #[prost(uint64, repeated, tag = "5")]
    hits: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    weight: Vec<u64>,
}

/// Streams between neighbouring entries of a branch stack.
#[derive(Clone, PartialEq, prost::Message)]
struct StreamTable {
    #[prost(uint32, repeated, tag = "1")]
    event: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    process: Vec<u32>,
    #[prost(sint64, repeated, tag = "3")]
    start: Vec<i64>,
    /// End of the stream minus its start, modulo 2^64.
    #[prost(sint64, repeated, tag = "4")]
    end: Vec<i64>,
    #[prost(uint64, repeated, tag = "5")]
    hits: Vec<u64>,
    #[prost(double, repeated, tag = "6")]
    weight: Vec<f64>,
    #[prost(uint64, repeated, tag = "7")]
    cycles: Vec<u64>,
}

/// Taken branches.
#[derive(Clone, PartialEq, prost::Message)]
struct BranchTable {
    #[prost(uint32, repeated, tag = "1")]
    event: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    process: Vec<u32>,
    #[prost(sint64, repeated, tag = "3")]
    from: Vec<i64>,
    /// Target of the branch minus its source, modulo 2^64.
    #[prost(sint64, repeated, tag = "4")]
    to: Vec<i64>,
    #[prost(uint64, repeated, tag = "5")]
    hits: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    oldest: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    mispredicted: Vec<u64>,
}

impl From<&Interval> for CountsSection {
    fn from(interval: &Interval) -> Self {
        Self {
            start: interval.start,
            end: interval.end,
            ips: Some(IpTable::from(interval.ips.as_slice())),
            streams: Some(StreamTable::from(interval.streams.as_slice())),
            branches: Some(BranchTable::from(interval.branches.as_slice())),
        }
    }
}

impl TryFrom<CountsSection> for Interval {
    type Error = Malformed;

    fn try_from(section: CountsSection) -> Result<Self, Malformed> {
        Ok(Self {
            start: section.start,
            end: section.end,
            ips: section.ips.unwrap_or_default().try_into()?,
            streams: section.streams.unwrap_or_default().try_into()?,
            branches: section.branches.unwrap_or_default().try_into()?,
        })
    }
}

impl From<&[IpCount]> for IpTable {
    fn from(ips: &[IpCount]) -> Self {
        Self {
            event: ips.iter().map(|c| c.event.0).collect(),
            process: ips.iter().map(|c| c.process.0).collect(),
            ip: differences(ips.iter().map(|c| c.ip.0)),
            exact: ips.iter().map(|c| c.exact).collect(),
            hits: ips.iter().map(|c| c.hits).collect(),
            weight: ips.iter().map(|c| c.weight).collect(),
        }
    }
}

impl TryFrom<IpTable> for Vec<IpCount> {
    type Error = Malformed;

    fn try_from(table: IpTable) -> Result<Self, Malformed> {
        let columns = [
            table.process.len(),
            table.ip.len(),
            table.exact.len(),
            table.hits.len(),
            table.weight.len(),
        ];
        same_length("IP counts", table.event.len(), &columns)?;
        let keys = table
            .event
            .iter()
            .zip(&table.process)
            .zip(sums(&table.ip))
            .zip(&table.exact);
        let rows = keys.zip(&table.hits).zip(&table.weight);
        let counts = rows.map(|(((((event, process), ip), exact), hits), weight)| IpCount {
            event: EventIdx(*event),
            process: ProcessIdx(*process),
            ip: Va(ip),
            exact: *exact,
            hits: *hits,
            weight: *weight,
        });
        Ok(counts.collect())
    }
}

impl From<&[StreamCount]> for StreamTable {
    fn from(streams: &[StreamCount]) -> Self {
        Self {
            event: streams.iter().map(|c| c.event.0).collect(),
            process: streams.iter().map(|c| c.process.0).collect(),
            start: differences(streams.iter().map(|c| c.start.0)),
            end: streams
                .iter()
                .map(|c| c.end.0.wrapping_sub(c.start.0).cast_signed())
                .collect(),
            hits: streams.iter().map(|c| c.hits).collect(),
            weight: streams.iter().map(|c| c.weight).collect(),
            cycles: streams.iter().map(|c| c.cycles).collect(),
        }
    }
}

impl TryFrom<StreamTable> for Vec<StreamCount> {
    type Error = Malformed;

    fn try_from(table: StreamTable) -> Result<Self, Malformed> {
        let values = [table.hits.len(), table.weight.len(), table.cycles.len()];
        same_length(
            "streams",
            table.event.len(),
            &[table.process.len(), table.start.len(), table.end.len()],
        )?;
        same_length("streams", table.event.len(), &values)?;
        // A weight that is no number would silently spoil every sum that it enters.
        if !table.weight.iter().all(|w| w.is_finite()) {
            return Err(Malformed::Weight);
        }
        let keys = table
            .event
            .iter()
            .zip(&table.process)
            .zip(sums(&table.start))
            .zip(&table.end);
        let rows = keys.zip(&table.hits).zip(&table.weight).zip(&table.cycles);
        let counts = rows.map(
            |((((((event, process), start), len), hits), weight), cycles)| StreamCount {
                event: EventIdx(*event),
                process: ProcessIdx(*process),
                start: Va(start),
                end: Va(start.wrapping_add(len.cast_unsigned())),
                hits: *hits,
                weight: *weight,
                cycles: *cycles,
            },
        );
        Ok(counts.collect())
    }
}

impl From<&[BranchCount]> for BranchTable {
    fn from(branches: &[BranchCount]) -> Self {
        Self {
            event: branches.iter().map(|c| c.event.0).collect(),
            process: branches.iter().map(|c| c.process.0).collect(),
            from: differences(branches.iter().map(|c| c.from.0)),
            to: branches
                .iter()
                .map(|c| c.to.0.wrapping_sub(c.from.0).cast_signed())
                .collect(),
            hits: branches.iter().map(|c| c.hits).collect(),
            oldest: branches.iter().map(|c| c.oldest).collect(),
            mispredicted: branches.iter().map(|c| c.mispredicted).collect(),
        }
    }
}

impl TryFrom<BranchTable> for Vec<BranchCount> {
    type Error = Malformed;

    fn try_from(table: BranchTable) -> Result<Self, Malformed> {
        let values = [table.hits.len(), table.oldest.len(), table.mispredicted.len()];
        same_length(
            "branches",
            table.event.len(),
            &[table.process.len(), table.from.len(), table.to.len()],
        )?;
        same_length("branches", table.event.len(), &values)?;
        let keys = table
            .event
            .iter()
            .zip(&table.process)
            .zip(sums(&table.from))
            .zip(&table.to);
        let rows = keys.zip(&table.hits).zip(&table.oldest).zip(&table.mispredicted);
        let counts = rows.map(
            |((((((event, process), from), len), hits), oldest), mispredicted)| BranchCount {
                event: EventIdx(*event),
                process: ProcessIdx(*process),
                from: Va(from),
                to: Va(from.wrapping_add(len.cast_unsigned())),
                hits: *hits,
                oldest: *oldest,
                mispredicted: *mispredicted,
            },
        );
        Ok(counts.collect())
    }
}
