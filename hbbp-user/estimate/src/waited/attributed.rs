//! The samples of a run, each at the instruction that it belongs to and in its time slice.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::origins::Origins;
use super::samples::Waited;
use super::slices::time_slices;
use super::waits::Waits;
use crate::basis::Basis;
use crate::sources::Counted;
use crate::sources::ebs::{Sampled, block, by_instruction};
use crate::sources::ring;
use crate::sums::over;
use crate::{BlockCount, Part};
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::{AddressMap, Located, LocatedIp};
use hbbp_model::snapshot::{EventUnit, ProcessIdx};

/// An instruction of a process image.
type Key = (BlockId, u32, ProcessIdx);

/// Samples by the instruction that they belong to, and by slice.
pub(crate) struct Attributed {
    samples: BTreeMap<Key, BTreeMap<usize, f64>>,
    landed: Vec<LocatedIp>,
    n_slices: usize,
    held_back: f64,
    origins: Origins,
}

impl Attributed {
    /// The samples of the events that serve, where figures are samples.
    pub(crate) fn new(basis: Basis<'_>, located: &Located, sampled: &Sampled) -> Option<Self> {
        let Basis {
            snapshot,
            map,
            assignment,
            ..
        } = basis;
        if !assignment.unit.is_samples() {
            return None;
        }
        let serving = located.ips.iter().filter(|ip| assignment.uses_ips_of(ip.event));
        let hits = by_instruction(map, located, assignment, 1.0);
        let origins = Origins::shown(snapshot, map, &hits, &serving.collect::<Vec<_>>());
        let slices = time_slices(&snapshot.intervals);
        let mut attributed = Self {
            samples: BTreeMap::new(),
            landed: Vec::new(),
            n_slices: slices.len(),
            held_back: 0.0,
            origins: Origins::default(),
        };
        let waits = Waits::by_code(snapshot, map, Cow::Borrowed(&origins));
        let mut addresses = AddressMap::new(snapshot);
        let of_interval = slices
            .iter()
            .enumerate()
            .flat_map(|(slice, intervals)| intervals.clone().map(move |_| slice));
        for ((interval, slice), n) in snapshot.intervals.iter().zip(of_interval).zip(0_u32..) {
            addresses.set_interval(n);
            let serving = interval.ips.iter();
            for count in serving.filter(|count| assignment.uses_ips_of(count.event)) {
                let Ok(location) = addresses.location(count.process, count.ip) else {
                    continue;
                };
                let ip = LocatedIp {
                    location,
                    event: count.event,
                    process: count.process,
                    hits: count.hits,
                    weight: count.weight,
                };
                attributed.add(&waits, &ip, slice, sampled.amount(&ip));
            }
        }
        Some(Self {
            origins,
            ..attributed
        })
    }

    fn add(&mut self, waits: &Waits<'_>, ip: &LocatedIp, slice: usize, amount: f64) -> Option<()> {
        let (snapshot, map, text) = (waits.snapshot, waits.map, ip.location.text);
        let event = snapshot.run.events.get(ip.event.0 as usize);
        let unit = event.map_or(EventUnit::Other, |event| event.unit);
        block(map, ip, ring(snapshot, map, text), unit).ok()?;
        let at = map.text(text)?.find(ip.location.addr).ok()?;
        self.landed.push(*ip);
        for ((text, instruction), share) in waits.of(ip.event, ip.process, (text, at)) {
            if unit == EventUnit::Nanoseconds && waits.is_held_back(ip.process, (text, instruction)) {
                self.held_back += share * amount;
            }
            let block = map.text(text)?.block_of(instruction);
            let key = (BlockId { text, block }, instruction, ip.process);
            let of_slices = self.samples.entry(key).or_default();
            *of_slices.entry(slice).or_default() += share * amount;
        }
        Some(())
    }

    /// The samples of each block and process image, sorted by both.
    pub(crate) fn by_block(&self) -> Vec<Counted> {
        let mut blocks: BTreeMap<(BlockId, ProcessIdx), f64> = BTreeMap::new();
        for ((block, _, process), of_slices) in &self.samples {
            *blocks.entry((*block, *process)).or_default() += of_slices.values().sum::<f64>();
        }
        let counted = |((block, process), samples)| Counted {
            block,
            process,
            hits: samples,
            weight: samples,
        };
        blocks.into_iter().map(counted).collect()
    }

    /// Divides the parts of these blocks into those of single instructions. Returns what errors follow from.
    pub(crate) fn divide(self, map: &BlockMap, blocks: &[BlockCount], parts: &mut Vec<Part>) -> Waited {
        parts.clear();
        let mut slices = vec![Vec::new(); self.n_slices];
        let mut totals = vec![0.0; self.n_slices];
        for ((id, instruction, process), of_slices) in self.samples {
            let found = blocks.binary_search_by_key(&id, |count| count.block).ok();
            let start = map.text(id.text).map(|text| text.block(id.block).start);
            let Some((block, start)) = found.zip(start) else {
                continue;
            };
            for (slice, samples) in &of_slices {
                if let Some((parts_of, total)) = slices.get_mut(*slice).zip(totals.get_mut(*slice)) {
                    parts_of.push((parts.len(), *samples));
                    *total += samples;
                }
            }
            let samples = of_slices.values().sum();
            parts.push(Part {
                block,
                process,
                instruction: Some(instruction.saturating_sub(start)),
                hits: samples,
                count: samples,
            });
        }
        let all: f64 = totals.iter().sum();
        Waited {
            landed: self.landed,
            slices,
            held_back: over(self.held_back, all),
            totals,
            unsearched: self.origins.unsearched,
            origins: self.origins,
        }
    }
}
