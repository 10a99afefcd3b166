//! Which blocks a count of a slice represents, and what one hit of it is worth there.

use std::collections::{BTreeSet, HashMap};

use crate::mix::Estimated;
use hbbp_code::blocks::BlockId;
use hbbp_code::locate::AddressMap;
use hbbp_estimate::{Method, Unit, Waits};
use hbbp_model::addr::{Ring, Va};
use hbbp_model::slices::{Code, Rings, Slices};
use hbbp_model::snapshot::{EventIdx, EventUnit, Period, ProcessIdx};

/// The blocks of all code in the slices.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By number of the code, where its parts end in `parts`.
    ends: Vec<u32>,
    /// Indexes in `worth`.
    parts: Vec<u32>,
    /// By the part of a process image in the count of a block: index of the block in `blocks`, and instructions for each hit.
    worth: Vec<(u32, f64)>,
    /// In their order.
    blocks: Vec<BlockId>,
    shared: f64,
    outside: f64,
    unshared: f64,
}

/// Hits of a part of the estimate, in slices and in none.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    inside: u64,
    outside: u64,
}

/// The parts of the estimate that vectors are made of.
struct Parts {
    /// Number by block and process.
    numbers: HashMap<(BlockId, ProcessIdx), u32>,
    methods: Vec<Method>,
    /// Block and instructions of each.
    amounts: Vec<(BlockId, f64)>,
}

impl Places {
    pub(super) fn new(estimated: &Estimated<'_>, slices: &Slices, rings: Rings) -> Self {
        let parts = Parts::new(estimated, rings);
        let mut places = Self::default();
        places.find_all(estimated, slices, &parts);
        let mut hits = vec![Hits::default(); parts.amounts.len()];
        slices.each(|_, _, rows| {
            for (code, n) in rows {
                places.add(&mut hits, *code, |of_part| &mut of_part.inside, *n);
            }
        });
        for (code, n) in slices.outside() {
            places.add(&mut hits, code, |of_part| &mut of_part.outside, n);
        }
        let seen = parts
            .amounts
            .iter()
            .zip(&hits)
            .filter(|(_, hits)| 0 < hits.inside);
        let blocks: BTreeSet<BlockId> = seen.map(|((block, _), _)| *block).collect();
        places.blocks = blocks.into_iter().collect();
        for ((block, amount), hits) in parts.amounts.iter().zip(hits) {
            let idx = places
                .blocks
                .binary_search(block)
                .ok()
                .and_then(|idx| u32::try_from(idx).ok());
            places.worth.push(match idx {
                Some(idx) if 0 < hits.inside => {
                    let (inside, outside) = (hits.inside as f64, hits.outside as f64);
                    let each = amount / (inside + outside);
                    places.shared += each * inside;
                    places.outside += each * outside;
                    (idx, each)
                }
                _ if 0 < hits.outside => {
                    places.outside += amount;
                    (0, 0.0)
                }
                _ => {
                    places.unshared += amount;
                    (0, 0.0)
                }
            });
        }
        places
    }

    /// Adds the hits of a piece of code to those of its parts.
    fn add(&self, hits: &mut [Hits], code: u32, which: impl Fn(&mut Hits) -> &mut u64, n: u64) {
        for part in self.of(code) {
            if let Some(sum) = hits.get_mut(*part as usize).map(&which) {
                *sum = sum.saturating_add(n);
            }
        }
    }

    /// Finds the parts of all code, one after the other.
    fn find_all(&mut self, estimated: &Estimated<'_>, slices: &Slices, parts: &Parts) {
        let processes = estimated
            .snapshot
            .processes
            .iter()
            .zip(0..)
            .map(|(process, idx)| {
                let tid = process.thread.as_ref().map_or(0, |thread| thread.tid);
                ((process.tgid, process.exec_id, tid), ProcessIdx(idx))
            });
        let processes: HashMap<_, _> = processes.collect();
        let mut addresses = AddressMap::new(estimated.snapshot);
        let last = estimated.snapshot.intervals.len().saturating_sub(1);
        addresses.set_interval(u32::try_from(last).unwrap_or(u32::MAX));
        let waits = estimated
            .counts
            .waited
            .as_ref()
            .map(|_| Waits::new(estimated.snapshot, &estimated.map, &estimated.counts));
        for code in slices.code() {
            let process = process_of(&processes, code.tgid, code.exec_id, code.tid);
            self.find(estimated, parts, code, process, &mut addresses, waits.as_ref());
            self.ends
                .push(u32::try_from(self.parts.len()).unwrap_or(u32::MAX));
        }
    }

    /// Finds the parts of one piece of code.
    fn find(
        &mut self,
        estimated: &Estimated<'_>,
        parts: &Parts,
        code: &Code,
        process: ProcessIdx,
        addresses: &mut AddressMap<'_>,
        waits: Option<&Waits<'_>>,
    ) -> Option<()> {
        let assignment = &estimated.counts.assignment;
        let event = EventIdx(code.event);
        let method = if assignment.ebs.contains(&event) && !has_stack(estimated, event) {
            Method::Ebs
        } else if assignment.lbr.contains(&event) {
            Method::Lbr
        } else {
            return None;
        };
        let mut at = |address| addresses.location(process, Va(address)).ok();
        let first = at(code.address)?;
        let last = at(code.address.wrapping_add(code.length.into()))?;
        if first.text != last.text || last.addr < first.addr {
            return None;
        }
        let text = estimated.map.text(first.text)?;
        let (from, to) = (text.find(first.addr).ok()?, text.find(last.addr).ok()?);
        let (text, blocks) = match waits {
            // Of several blocks that share a sample, the one with most of it gets all.
            Some(waits) => {
                let found = waits.of(event, process, (first.text, from)).into_iter();
                let ((text, at), _) = found.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
                let block = estimated.map.text(text)?.block_of(at);
                (text, block..=block)
            }
            None => (first.text, text.block_of(from)..=text.block_of(to)),
        };
        for block in blocks {
            let id = BlockId { text, block };
            self.parts.extend(
                parts
                    .of(id, process)
                    .filter(|part| parts.method(*part) == Some(method)),
            );
        }
        Some(())
    }

    /// The parts of a piece of code.
    fn of(&self, code: u32) -> &[u32] {
        let end = |code: u32| self.ends.get(code as usize).map_or(0, |end| *end as usize);
        let start = code.checked_sub(1).map_or(0, end);
        self.parts.get(start..end(code)).unwrap_or_default()
    }

    /// The blocks, in their order.
    pub(super) fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// The instructions that these hits represent, by index of the block.
    pub(super) fn values(&self, code: u32, hits: u64) -> impl Iterator<Item = (u32, f64)> {
        let worth = self
            .of(code)
            .iter()
            .filter_map(|part| self.worth.get(*part as usize));
        worth
            .filter(|(_, each)| 0.0 < *each)
            .map(move |(block, each)| (*block, each * hits as f64))
    }

    /// Instructions of the estimate that are in vectors, those whose hits are in no slice, and those without hits.
    pub(super) const fn sums(&self) -> [f64; 3] {
        [self.shared, self.outside, self.unshared]
    }
}

impl Parts {
    fn new(estimated: &Estimated<'_>, rings: Rings) -> Self {
        let unit = one_unit(estimated);
        let mut parts = Self {
            numbers: HashMap::new(),
            methods: Vec::new(),
            amounts: Vec::new(),
        };
        for part in &estimated.counts.parts {
            let Some(count) = estimated.counts.blocks.get(part.block) else {
                continue;
            };
            let wanted = match count.ring {
                Ring::Kernel => rings.kernel,
                Ring::User => rings.user,
            };
            if wanted {
                let next = u32::try_from(parts.amounts.len()).unwrap_or(u32::MAX);
                let number = *parts.numbers.entry((count.block, part.process)).or_insert(next);
                if number == next {
                    parts.methods.push(count.method);
                    parts.amounts.push((count.block, 0.0));
                }
                if let Some((_, amount)) = parts.amounts.get_mut(number as usize) {
                    *amount += part.count * part.instructions(count) * unit;
                }
            }
        }
        parts
    }

    /// The part of a process image in a block, or of all that are counted together.
    fn of(&self, block: BlockId, process: ProcessIdx) -> impl Iterator<Item = u32> {
        let of = |process| self.numbers.get(&(block, process)).copied();
        of(process).or_else(|| of(ProcessIdx::OTHERS)).into_iter()
    }

    fn method(&self, part: u32) -> Option<Method> {
        self.methods.get(part as usize).copied()
    }
}

fn has_stack(estimated: &Estimated<'_>, event: EventIdx) -> bool {
    let event = estimated.snapshot.run.events.get(event.0 as usize);
    event.is_some_and(|event| event.unit == EventUnit::TakenBranches)
}

/// Units of the event in one unit of the estimate: the period where that counts samples.
fn one_unit(estimated: &Estimated<'_>) -> f64 {
    let assignment = &estimated.counts.assignment;
    let event = assignment
        .ebs
        .first()
        .and_then(|event| estimated.snapshot.run.events.get(event.0 as usize));
    match (assignment.unit, event.map(|event| event.period)) {
        (Unit::TimeWeightedSamples | Unit::EventWeightedSamples, Some(Period::Fixed(period))) => {
            period as f64
        }
        _ => 1.0,
    }
}

/// The entry of a process image, or of one of its threads, that a count names.
fn process_of(
    processes: &HashMap<(u32, u32, u32), ProcessIdx>,
    tgid: u32,
    exec_id: u32,
    tid: u32,
) -> ProcessIdx {
    use hbbp_model::snapshot::Thread;

    let known = |tid| processes.get(&(tgid, exec_id, tid)).copied();
    known(tid)
        .or_else(|| known(Thread::OTHERS))
        .or_else(|| known(0))
        .unwrap_or(ProcessIdx::KERNEL)
}
