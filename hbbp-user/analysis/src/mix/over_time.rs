//! The mix over time: the part of each sum in each period of the run.
//!
//! A profile has its counts by interval, from one drain to the next. The executions of a block are spread over the
//! intervals as the samples, or the streams, of the method that counts it. So all periods add up to the mix. Blocks
//! that this method has not seen (their count comes from the flow) are spread as all others together. Figures that are samples have
//! their periods by instruction.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use super::analysis::Estimated;
use super::axis::Axis;
use super::keys::{Keys, SumOf};
use super::query::Query;
use hbbp_code::blocks::BlockId;
use hbbp_code::locate::{AddressMap, TextIdx};
use hbbp_estimate::{BlockCounts, Method, Part, Unit, Waited, time_slices};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{EventIdx, Interval, Period, SourceLocations};

/// When the blocks of a run were executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverTime {
    /// The periods, in ns from the start of the first interval.
    pub periods: Vec<Range<u64>>,
    /// For each block of [`hbbp_estimate::BlockCounts::blocks`], its share in each period in which it was executed.
    of_blocks: Vec<Vec<Share>>,
    /// The same of each of [`hbbp_estimate::BlockCounts::parts`], where figures are samples.
    of_parts: Vec<Vec<Share>>,
    /// The same of all blocks together.
    of_all: Vec<Share>,
}

/// A period, and its share of all, from 0 to 1.
type Share = (usize, f64);

/// A mix by period.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOverTime {
    /// The axes of the rows.
    pub rows_by: Vec<Axis>,
    /// What the amounts are.
    pub unit: Unit,
    /// The periods, in ns from the start of the first interval.
    pub periods: Vec<Range<u64>>,
    /// Key and amounts by period of each row, the largest first.
    pub rows: Vec<(Vec<String>, Vec<f64>)>,
    /// Amounts of everything, also what filters exclude.
    pub all: Vec<f64>,
}

impl OverTime {
    /// Spreads the counts of a run.
    pub fn new(run: &Estimated<'_>) -> Self {
        let intervals = &run.snapshot.intervals;
        let slices = time_slices(intervals);
        let periods = periods(intervals, &slices);
        if let Some(waited) = &run.counts.waited {
            return Self::of_samples(periods, &run.counts, waited);
        }
        let of_interval = slices.into_iter().enumerate();
        let of_interval = of_interval.flat_map(|(period, intervals)| intervals.map(move |_| period));
        let mut hits = Hits {
            run,
            by_method: HashMap::new(),
        };
        let mut addresses = AddressMap::new(run.snapshot);
        let assignment = &run.counts.assignment;
        // Periods are adapted for all events at once, or for those of rings.
        let is_adapted = |event: EventIdx| {
            let event = run.snapshot.run.events.get(event.0 as usize);
            event.is_some_and(|event| event.ring.is_some() || matches!(event.period, Period::Between(..)))
        };
        for ((interval, period), n) in run.snapshot.intervals.iter().zip(of_interval).zip(0_u32..) {
            addresses.set_interval(n);
            for ip in interval
                .ips
                .iter()
                .filter(|ip| assignment.ebs.contains(&ip.event))
            {
                if let Ok(at) = addresses.location(ip.process, ip.ip) {
                    let amount = if is_adapted(ip.event) { ip.weight } else { ip.hits };
                    hits.add(Method::Ebs, period, at.text, at.addr..=at.addr, amount as f64);
                }
            }
            let streams = interval.streams.iter();
            for stream in streams.filter(|stream| assignment.lbr.contains(&stream.event)) {
                if let Ok((start, end)) = addresses.span(stream) {
                    let hits_of = stream.hits as f64;
                    let amount = if is_adapted(stream.event) {
                        stream.weight
                    } else {
                        hits_of
                    };
                    hits.add(Method::Lbr, period, start.text, start.addr..=end, amount);
                }
            }
        }
        hits.spread(periods)
    }

    /// That of figures that are samples, whose instructions have periods of their own.
    fn of_samples(periods: Vec<Range<u64>>, counts: &BlockCounts, waited: &Waited) -> Self {
        let mut of_parts = vec![Vec::new(); counts.parts.len()];
        for (period, slice) in waited.slices.iter().enumerate() {
            for (part, samples) in slice {
                let all = counts.parts.get(*part).map_or(0.0, |part| part.count);
                if let Some(shares) = of_parts.get_mut(*part).filter(|_| 0.0 < all) {
                    shares.push((period, samples / all));
                }
            }
        }
        Self {
            periods,
            of_parts,
            ..Self::default()
        }
    }

    /// The share in each period that has one of a part, by its index; together 1.
    pub fn shares(&self, index: usize, part: &Part) -> &[(usize, f64)] {
        let of_block = || self.of_blocks.get(part.block);
        match self.of_parts.get(index).or_else(of_block).map(Vec::as_slice) {
            None | Some([]) => &self.of_all,
            Some(shares) => shares,
        }
    }

    /// The rows of a query by period; its columns are summed.
    pub fn mix(&self, run: &Estimated<'_>, query: &Query, locations: &SourceLocations) -> MixOverTime {
        let query = Query {
            columns: Vec::new(),
            ..query.clone()
        };
        let mut keys = Keys::new(run.snapshot, &run.map, &query, locations);
        let nothing = vec![0.0; self.periods.len()];
        let mut sums: Vec<Vec<f64>> = Vec::new();
        for (index, part) in run.counts.parts.iter().enumerate() {
            let Some(block) = run.counts.blocks.get(part.block) else {
                continue;
            };
            for addend in keys.addends(block, part) {
                if sums.len() <= addend.sum {
                    sums.resize(addend.sum + 1, nothing.clone());
                }
                for (period, share) in self.shares(index, part) {
                    if let Some(sum) = sums.get_mut(addend.sum).and_then(|sums| sums.get_mut(*period)) {
                        *sum += part.count * addend.instructions * share;
                    }
                }
            }
        }
        let mut all = nothing;
        // Rows are numbered in the order of their sums.
        let mut of_rows = Vec::new();
        for (of, amounts) in keys.sums().zip(sums) {
            match of {
                SumOf::All => all = amounts,
                SumOf::Row(_) => of_rows.push(amounts),
                _ => {}
            }
        }
        let (rows, _) = keys.into_rows_and_columns();
        let mut rows: Vec<(Vec<String>, Vec<f64>)> = rows.zip(of_rows).collect();
        let total = |amounts: &[f64]| amounts.iter().sum::<f64>();
        rows.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then_with(|| a.0.cmp(&b.0)));
        MixOverTime {
            rows_by: query.rows,
            unit: run.counts.assignment.unit,
            periods: self.periods.clone(),
            rows,
            all,
        }
    }
}

/// When the slices of a run were, in ns from the start of its first interval.
fn periods(intervals: &[Interval], slices: &[Range<usize>]) -> Vec<Range<u64>> {
    let start = intervals.first().map_or(0, |interval| interval.start);
    let period = |slice: &Range<usize>| {
        let own = intervals.get(slice.clone()).unwrap_or_default();
        let begin = own.first().map_or(start, |first| first.start);
        let end = own.iter().map(|interval| interval.end).max().unwrap_or(begin);
        begin.saturating_sub(start)..end.saturating_sub(start)
    };
    slices.iter().map(period).collect()
}

/// Samples and streams of blocks by period.
struct Hits<'a> {
    run: &'a Estimated<'a>,
    /// By block, method and period.
    by_method: HashMap<(usize, Method, usize), f64>,
}

impl Hits<'_> {
    /// Adds to all blocks from one instruction to another.
    fn add(
        &mut self,
        method: Method,
        period: usize,
        text: TextIdx,
        addrs: RangeInclusive<ImageAddr>,
        hits: f64,
    ) {
        let Some(decoded) = self.run.map.text(text) else {
            return;
        };
        let block = |addr: &ImageAddr| decoded.find(*addr).ok().map(|at| decoded.block_of(at));
        let (Some(first), Some(last)) = (block(addrs.start()), block(addrs.end())) else {
            return;
        };
        let blocks = &self.run.counts.blocks;
        for block in first..=last {
            let id = BlockId { text, block };
            if let Ok(number) = blocks.binary_search_by_key(&id, |count| count.block) {
                *self.by_method.entry((number, method, period)).or_default() += hits;
            }
        }
    }

    fn spread(self, periods: Vec<Range<u64>>) -> OverTime {
        let blocks = &self.run.counts.blocks;
        let mut of_blocks: Vec<Vec<Share>> = vec![Vec::new(); blocks.len()];
        let mut of_all = vec![0.0; periods.len()];
        let mut hits: Vec<_> = self.by_method.into_iter().collect();
        // The order of a hash table is by chance, and that of a sum is not to be.
        hits.sort_unstable_by_key(|(key, _)| *key);
        for ((number, method, period), hits) in hits {
            if blocks.get(number).is_some_and(|block| block.method == method) {
                if let Some(parts) = of_blocks.get_mut(number) {
                    parts.push((period, hits));
                }
                if let Some(all) = of_all.get_mut(period) {
                    *all += hits;
                }
            }
        }
        let mut of_all: Vec<Share> = of_all
            .into_iter()
            .enumerate()
            .filter(|(_, hits)| 0.0 < *hits)
            .collect();
        for parts in of_blocks.iter_mut().chain([&mut of_all]) {
            let all: f64 = parts.iter().map(|(_, hits)| hits).sum();
            parts.iter_mut().for_each(|(_, hits)| *hits /= all);
        }
        OverTime {
            periods,
            of_blocks,
            of_parts: Vec::new(),
            of_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_and_end_with_their_drains() {
        let interval = |n: u64, continues| Interval {
            start: 100 + 10 * n,
            end: 110 + 10 * n,
            continues,
            ..Interval::default()
        };
        let few = [interval(0, false), interval(1, true), interval(2, false)];
        assert_eq!(periods(&few, &time_slices(&few)), [0..20, 20..30]);
    }
}
