//! The section `counts`: what was counted in one interval, a table for each of IPs, streams, branches, call chains and
//! refused stacks.

mod rows;
mod word;

use prost::bytes::Bytes;

use super::malformed::{Capacity, Malformed};
use crate::snapshot::Interval;

/// The section `counts`, one for each interval, in the order of time. The tables are those of `rows`.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct CountsSection {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint64, tag = "2")]
    end: u64,
    /// Whether the interval before it belongs to the same drain.
    #[prost(bool, tag = "3")]
    continues: bool,
    #[prost(bytes = "bytes", tag = "4")]
    ips: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    streams: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    branches: Bytes,
    /// Since version 3.4.
    #[prost(bytes = "bytes", tag = "7")]
    chains: Bytes,
    /// Since version 3.5; empty if there are none.
    #[prost(bytes = "bytes", tag = "8")]
    refused: Bytes,
}

impl From<&Interval> for CountsSection {
    fn from(interval: &Interval) -> Self {
        Self {
            start: interval.start,
            end: interval.end,
            continues: interval.continues,
            ips: rows::of_ips(&interval.ips).into(),
            streams: rows::of_streams(&interval.streams).into(),
            branches: rows::of_branches(&interval.branches).into(),
            chains: rows::of_chains(&interval.chains).into(),
            refused: match interval.refused.as_slice() {
                [] => Bytes::new(),
                refused => rows::of_ips(refused).into(),
            },
        }
    }
}

impl CountsSection {
    /// The interval. Neighbouring rows that count the same are one row of it.
    pub(in crate::snapshot) fn read(&self, capacity: &mut Capacity) -> Result<Interval, Malformed> {
        Ok(Interval {
            start: self.start,
            end: self.end,
            continues: self.continues,
            ips: rows::to_ips(&self.ips, capacity)?,
            streams: rows::to_streams(&self.streams, capacity)?,
            branches: rows::to_branches(&self.branches, capacity)?,
            chains: rows::to_chains(&self.chains, capacity)?,
            refused: rows::to_ips(&self.refused, capacity)?,
        })
    }
}
