//! The section `counts`: what was counted in one interval, a table for each of IPs, streams and branches.

mod columns;
mod rows;
mod word;

use super::Malformed;
use crate::snapshot::Interval;
use columns::{BranchTable, IpTable, StreamTable};

/// The section `counts`, one for each interval, in the order of time.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct CountsSection {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint64, tag = "2")]
    end: u64,
    #[prost(message, optional, tag = "3")]
    ip_table: Option<IpTable>,
    #[prost(message, optional, tag = "4")]
    stream_table: Option<StreamTable>,
    #[prost(message, optional, tag = "5")]
    branch_table: Option<BranchTable>,
    /// As `rows` describes them.
    #[prost(bytes = "vec", tag = "6")]
    ips: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    streams: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    branches: Vec<u8>,
    /// Whether the interval before is of the same drain.
    #[prost(bool, tag = "9")]
    continues: bool,
}

impl From<&Interval> for CountsSection {
    fn from(interval: &Interval) -> Self {
        Self {
            start: interval.start,
            end: interval.end,
            ips: rows::of_ips(&interval.ips),
            streams: rows::of_streams(&interval.streams),
            branches: rows::of_branches(&interval.branches),
            continues: interval.continues,
            ..Self::default()
        }
    }
}

impl TryFrom<CountsSection> for Interval {
    type Error = Malformed;

    fn try_from(section: CountsSection) -> Result<Self, Malformed> {
        let mut interval = Self {
            start: section.start,
            end: section.end,
            continues: section.continues,
            ips: section.ip_table.unwrap_or_default().try_into()?,
            streams: section.stream_table.unwrap_or_default().try_into()?,
            branches: section.branch_table.unwrap_or_default().try_into()?,
        };
        interval.ips.extend(rows::to_ips(&section.ips)?);
        interval.streams.extend(rows::to_streams(&section.streams)?);
        interval.branches.extend(rows::to_branches(&section.branches)?);
        Ok(interval)
    }
}
