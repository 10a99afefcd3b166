//! The tables of counts as files of major version 1 hold them: a packed array for each field. They are only read.

use std::num::NonZeroU64;

use super::super::{Malformed, same_length, sums};
use crate::addr::Va;
use crate::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// Samples of an instruction pointer.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IpTable {
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
pub(super) struct StreamTable {
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
pub(super) struct BranchTable {
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
                source: None,
                hits: *hits,
                weight: *weight,
                cycles: NonZeroU64::new(*cycles),
            },
        );
        Ok(counts.collect())
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
                // A zero was written for what is not known, too.
                mispredicted: Some(*mispredicted).filter(|n| *n != 0),
            },
        );
        Ok(counts.collect())
    }
}
