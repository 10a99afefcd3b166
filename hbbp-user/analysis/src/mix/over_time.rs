//! The mix over time: the part of each sum in each period of the run.
//!
//! A profile has its counts by interval, from one drain to the next. The executions of a block are spread over the
//! intervals as the samples, or the streams, of the method that counts it. So all periods add up to the mix. Blocks
//! that this method has not seen (their count comes from the flow) are spread as all others together.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use super::analysis::Estimated;
use super::axis::Axis;
use super::keys::{Keys, SumOf};
use super::query::Query;
use hbbp_code::blocks::BlockId;
use hbbp_code::locate::{AddressMap, TextIdx};
use hbbp_estimate::{Method, Unit};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{EventIdx, Interval, Period, SourceLocations};

/// Most periods; of more drains, neighbouring ones are one period. They fit next to names on a terminal.
const MOST_PERIODS: usize = 60;

/// When the blocks of a run were executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverTime {
    /// The periods, in ns from the start of the first interval.
    pub periods: Vec<Range<u64>>,
    /// For each block of [`hbbp_estimate::BlockCounts::blocks`], its share in each period in which it was executed.
    of_blocks: Vec<Vec<Part>>,
    /// The same of all blocks together.
    of_all: Vec<Part>,
}

/// A period, and its part of all, from 0 to 1.
type Part = (usize, f64);

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
        let (periods, of_interval) = periods(&run.snapshot.intervals);
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

    /// The part of a block's executions in each period that has one; together 1.
    pub fn parts(&self, block: usize) -> &[(usize, f64)] {
        match self.of_blocks.get(block).map(Vec::as_slice) {
            None | Some([]) => &self.of_all,
            Some(parts) => parts,
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
        for part in &run.counts.parts {
            let Some(block) = run.counts.blocks.get(part.block) else {
                continue;
            };
            for addend in keys.addends(block, part.process) {
                if sums.len() <= addend.sum {
                    sums.resize(addend.sum + 1, nothing.clone());
                }
                for (period, share) in self.parts(part.block) {
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

/// The periods, and the one of each interval. Parts of one drain are one period.
fn periods(intervals: &[Interval]) -> (Vec<Range<u64>>, Vec<usize>) {
    let start = intervals.first().map_or(0, |interval| interval.start);
    let drains = intervals.iter().filter(|interval| !interval.continues).count();
    let drains_each = drains.div_ceil(MOST_PERIODS).max(1);
    let mut periods: Vec<Range<u64>> = Vec::new();
    let mut of_interval = Vec::with_capacity(intervals.len());
    let mut drain = 0_usize;
    for interval in intervals {
        let since = |time: u64| time.saturating_sub(start);
        let begins = periods.is_empty() || !interval.continues;
        if begins && drain.is_multiple_of(drains_each) {
            periods.push(since(interval.start)..since(interval.end));
        } else if let Some(last) = periods.last_mut() {
            last.end = last.end.max(since(interval.end));
        }
        drain += usize::from(begins);
        of_interval.push(periods.len().saturating_sub(1));
    }
    (periods, of_interval)
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
        let mut of_blocks: Vec<Vec<Part>> = vec![Vec::new(); blocks.len()];
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
        let mut of_all: Vec<Part> = of_all
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
            of_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_drains_share_a_period_and_parts_of_a_drain_too() {
        let interval = |n: u64, continues| Interval {
            start: 100 + 10 * n,
            end: 110 + 10 * n,
            continues,
            ..Interval::default()
        };
        let few = [interval(0, false), interval(1, true), interval(2, false)];
        assert_eq!(periods(&few), (vec![0..20, 20..30], vec![0, 0, 1]));
        let many: Vec<Interval> = (0..150).map(|n| interval(n, false)).collect();
        let (many, of_interval) = periods(&many);
        assert_eq!((many.len(), many.last()), (50, Some(&(1470..1500))));
        assert_eq!(of_interval.get(..4), Some(&[0, 0, 0, 1][..]));
    }
}
