//! Which streams can have been executed, judged by the instructions between their ends.
//!
//! A stream begins at the target of one recorded branch and ends at the source of the next (paper section III.B). So
//! nothing between may have been a taken branch.
//! Hardware and kernel lose entries at times, and their neighbours then form a stream that never ran
//! (the kernel's software filter, `intel_pmu_lbr_filter` in arch/x86/events/intel/lbr.c, Linux v6.12; duplicated entries of
//! the Skylake family, bolt/lib/Profile/DataAggregator.cpp, LLVM 19).
//! A stream is accepted if it is a straight line of instructions from its start to an instruction that begins at its end.
//! No instruction inside may be one that always goes elsewhere.
//!
//! Where the instruction at the end is not a branch, an interrupt or exception ended the stream: the recorded source is
//! the address that it returns to, and that instruction did not run (Intel SDM vol. 3B, section "LBR
//! Stack").
//! The stream then covers what stands before, which can be nothing; it is accepted and counted as interrupted.

use std::collections::BTreeMap;

use super::counted::ring;
use super::kernel_shares::KernelShares;
use super::stream::Stream;
use crate::stages::{Stage, Stages};
use crate::sums::over;
use crate::{EventAssignment, Unit};
use hbbp_code::blocks::{BlockMap, Flow, TextBlocks};
use hbbp_code::locate::{Discard, Located, LocatedStream, StreamGroup, Tally, Unresolved};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{EventIdx, ProcessIdx, Snapshot};

/// What became of the streams of all events.
#[derive(Default)]
pub(crate) struct Judged {
    /// Accepted streams with their events, sorted by (text, process); their weights are in units of the events, without what they
    /// bear. Those of the kernel are counted once for the system.
    streams: Vec<(EventIdx, Stream)>,
    /// Which process images ran those of the kernel; none where all are the kernel's own.
    kernel: KernelShares,
    /// What the weights of a group are multiplied by where it bears that of discarded ones.
    factors: BTreeMap<StreamGroup, f64>,
    /// Accepted streams, by event; together with `discarded` all that were located.
    pub(crate) accepted: Tally<()>,
    /// Those of the accepted streams that an interrupt or exception ended.
    pub(crate) interrupted: Tally<()>,
    /// Streams that cannot have been executed.
    pub(crate) discarded: Tally<Discard>,
    /// Discarded streams whose weight the accepted ones of the same event, process image and ring bear.
    pub(crate) made_up: u64,
}

/// The weights of the streams of a group.
#[derive(Default)]
struct Weights {
    accepted: f64,
    /// Those that cannot have been executed, and their weight.
    impossible: (u64, f64),
}

/// Judges every stream. Something else ran where one cannot have been executed, so the others bear its weight.
///
/// There can be millions, so that they are taken out of `located`, and their memory becomes that of the judged ones.
pub(crate) fn judged(snapshot: &Snapshot, located: &mut Located, map: &BlockMap) -> Judged {
    let mut judged = Judged::default();
    let mut weights: BTreeMap<StreamGroup, Weights> = BTreeMap::new();
    for (&(event, process, ring), (hits, weight)) in &located.impossible {
        let group = weights.entry((event, group_of(process, ring), ring)).or_default();
        group.impossible.0 = group.impossible.0.saturating_add(*hits);
        group.impossible.1 += weight;
    }
    let ring_of = |text| ring(snapshot, map, text);
    let by_process = KernelShares::are_in(located, ring_of);
    let streams = std::mem::take(&mut located.streams);
    let accepted = streams.into_iter().filter_map(|stream| {
        let ring = ring_of(stream.start.text);
        let group = (stream.event, group_of(stream.process, ring), ring);
        let text = map.text(stream.start.text).ok_or(Discard::NoText);
        match text.and_then(|text| judge(text, &stream)) {
            Ok(line) => {
                weights.entry(group).or_default().accepted += stream.weight;
                judged.accepted.add(stream.event, (), ring, stream.hits);
                if line.end == line.source {
                    judged.interrupted.add(stream.event, (), ring, stream.hits);
                }
                let mut one = line.of(&stream);
                if ring == Ring::Kernel {
                    if by_process {
                        judged.kernel.add(stream.event, &one);
                    }
                    one.process = ProcessIdx::KERNEL;
                }
                Some((stream.event, one))
            }
            Err(why) => {
                judged.discarded.add(stream.event, why, ring, stream.hits);
                if why.is_impossible() {
                    let (hits, weight) = &mut weights.entry(group).or_default().impossible;
                    *hits = hits.saturating_add(stream.hits);
                    *weight += stream.weight;
                }
                None
            }
        }
    });
    let mut accepted: Vec<(EventIdx, Stream)> = accepted.collect();
    // Located streams are sorted by their ends, the event and the process.
    accepted.dedup_by(|(next_event, next), (event, kept)| {
        let same = |event: EventIdx, s: &Stream| (event, s.text, s.process, s.first, s.source);
        let is_same = same(*next_event, next) == same(*event, kept);
        if is_same {
            kept.hits = kept.hits.saturating_add(next.hits);
            kept.weight += next.weight;
        }
        is_same
    });
    let bearing = || weights.iter().filter(|(_, group)| 0.0 < group.accepted);
    judged.made_up = bearing().fold(0, |sum, (_, group)| sum.saturating_add(group.impossible.0));
    judged.factors = bearing()
        .map(|(group, weights)| (*group, weights.factor()))
        .filter(|(_, factor)| *factor != 1.0)
        .collect();
    accepted.sort_by_key(|(_, s)| (s.text, s.process));
    judged.streams = accepted;
    judged
}

/// Whose streams take over the weight of impossible ones: all of the kernel, or those of the process image.
const fn group_of(process: ProcessIdx, ring: Ring) -> ProcessIdx {
    match ring {
        Ring::Kernel => ProcessIdx::KERNEL,
        Ring::User => process,
    }
}

impl Weights {
    /// What the weight of an accepted stream is multiplied by, where there is one.
    fn factor(&self) -> f64 {
        1.0 + self.impossible.1 / self.accepted
    }
}

impl Judged {
    /// Takes the occurrences of kernel streams by process image, of the events that serve as LBR.
    pub(super) fn take_kernel(&mut self, assignment: &EventAssignment) -> KernelShares {
        std::mem::take(&mut self.kernel).serving(assignment)
    }

    /// Takes the streams of the events that serve as LBR, sorted by (text, process). Also takes what each counts in the flow, and
    /// the units of these events that they represent, such as taken branches. Where executions are relative and `stages` leave their
    /// weights out, streams are as recorded.
    pub(crate) fn take_streams(
        &mut self,
        snapshot: &Snapshot,
        map: &BlockMap,
        assignment: &EventAssignment,
        stages: Stages,
    ) -> (Vec<Stream>, Amounts, f64) {
        let mut serving = std::mem::take(&mut self.streams);
        serving.retain(|(event, _)| assignment.uses_stacks_of(*event));
        let amounts = Amounts::new(serving.iter().map(|(_, stream)| (stream.hits, stream.weight)));
        for (event, stream) in &mut serving {
            let ring = ring(snapshot, map, stream.text);
            let factor = self.factors.get(&(*event, stream.process, ring));
            stream.weight *= factor.copied().unwrap_or(1.0);
        }
        let units: f64 = serving.iter().map(|(_, stream)| stream.weight).sum();
        let hits: f64 = serving.iter().map(|(_, stream)| stream.hits as f64).sum();
        let weight = |stream: &Stream| match assignment.unit {
            Unit::RelativeExecutions if !stages.run(Stage::Weights) => stream.hits as f64,
            // What a period of another event is in executions is unknown.
            Unit::RelativeExecutions if 0.0 < units => stream.weight * (hits / units),
            _ => stream.weight,
        };
        let weighted = |(_, stream): (EventIdx, Stream)| Stream {
            weight: weight(&stream),
            ..stream
        };
        let mut streams: Vec<Stream> = serving.into_iter().map(weighted).collect();
        // They are in the place of what was larger, and stay for as long as the estimate.
        streams.shrink_to_fit();
        (streams, amounts, units)
    }
}

/// What occurrences count in the flow: what they weigh, over what they weigh on average. Where all stacks have one period, that is
/// their number, or nearly so. What chance does to a count is known from it and from how many occurrences it is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Amounts {
    /// Of streams, in their order.
    pub(crate) of_streams: Vec<f64>,
    /// Of a unit of weight.
    pub(crate) of_unit: f64,
}

impl Amounts {
    /// Of these streams, which weigh what their profile says.
    pub(crate) fn new(streams: impl Iterator<Item = (u64, f64)> + Clone) -> Self {
        let weight: f64 = streams.clone().map(|(_, weight)| weight.max(0.0)).sum();
        let hits: f64 = streams.clone().map(|(hits, _)| hits as f64).sum();
        let mut amounts = Self {
            of_streams: Vec::new(),
            of_unit: over(hits, weight),
        };
        amounts.of_streams = streams.map(|(_, weight)| amounts.of(weight)).collect();
        amounts
    }

    /// What occurrences of this weight count. Those of a profile that was made up may weigh any finite number, and sums of them more:
    /// nothing is counted of what is below zero or has no end, as the flow is drawn from and sorted by what it holds.
    pub(crate) fn of(&self, weight: f64) -> f64 {
        let amount = weight * self.of_unit;
        if amount.is_finite() { amount.max(0.0) } else { 0.0 }
    }
}

/// A straight line of instructions; the fields are those of a [`Stream`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Line {
    /// Index of the first instruction.
    pub first: u32,
    /// Index after the last instruction.
    pub end: u32,
    /// Index of the instruction that was recorded as the source of the next branch.
    pub source: u32,
}

impl Line {
    const fn of(self, stream: &LocatedStream) -> Stream {
        Stream {
            text: stream.start.text,
            process: stream.process,
            first: self.first,
            end: self.end,
            source: self.source,
            hits: stream.hits,
            weight: stream.weight,
        }
    }
}

/// The instructions of a stream in its text, if it can have been executed.
pub fn judge(text: &TextBlocks, stream: &LocatedStream) -> Result<Line, Discard> {
    let first = text.find(stream.start.addr).map_err(refused)?;
    let last = text.find(stream.end).map_err(refused)?;
    if last < first {
        return Err(Discard::Backward);
    }
    let stop = text.next_stop(first);
    if stop < last {
        let flow = text.instruction(stop).map(|i| i.flow);
        return Err(if flow == Some(Flow::Invalid) {
            Discard::Undecodable
        } else {
            Discard::PassesBranch
        });
    }
    let interrupted = !text.instruction(last).is_some_and(|i| i.flow.is_branch());
    let end = if interrupted { last } else { last.saturating_add(1) };
    Ok(Line {
        first,
        end,
        source: last,
    })
}

const fn refused(why: Unresolved) -> Discard {
    match why {
        Unresolved::Undecodable => Discard::Undecodable,
        _ => Discard::NotOnInstruction,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::Location;
    use hbbp_code::locate::TextIdx;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{EventIdx, Module, ModuleIdx, ModuleKind, Text};

    /// What becomes of a stream between two offsets of this code.
    fn judge(code: &[u8], start: u64, end: u64) -> Result<Line, Discard> {
        let name = String::new();
        let module = Module {
            name,
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: Vec::new(),
        };
        let text = Text {
            module: ModuleIdx(0),
            start: ImageAddr(0),
            bytes: code.to_vec(),
            since: 0,
        };
        let snapshot = Snapshot {
            modules: vec![module],
            text: vec![text],
            ..Snapshot::default()
        };
        let map = blocks(&snapshot, &Located::default());
        let place = Location {
            text: TextIdx(0),
            addr: ImageAddr(start),
        };
        let (event, process) = (EventIdx(0), ProcessIdx(0));
        let end = ImageAddr(end);
        super::judge(
            map.text(TextIdx(0)).unwrap(),
            &LocatedStream {
                start: place,
                end,
                event,
                process,
                hits: 1,
                weight: 1.0,
            },
        )
    }

    #[test]
    fn streams_of_one_period_count_one_each() {
        let amounts = Amounts::new([(3, 300.0), (1, 100.0)].into_iter());
        assert_eq!(
            (amounts.of_streams.as_slice(), amounts.of(50.0)),
            (&[3.0, 1.0][..], 0.5)
        );
    }

    #[test]
    fn weights_that_were_made_up_count_nothing() {
        let amounts = Amounts::new([(3, -300.0), (1, 100.0)].into_iter());
        assert_eq!(amounts.of_streams, [0.0, 4.0]);
        let amounts = Amounts::new([(3, f64::MAX), (1, f64::MAX)].into_iter());
        assert_eq!(amounts.of_streams, [0.0, 0.0]);
        assert_eq!(amounts.of(f64::INFINITY), 0.0);
    }

    #[test]
    fn a_straight_line_to_a_branch_is_a_stream() {
        // 0: nop; 1: je +0; 3: syscall; 5: call next; 10: jmp; 12: nop; 13: ud2; 15: ret; 16: (bad); 17: ret
        let code = [
            0x90, 0x74, 0x00, 0x0f, 0x05, 0xe8, 0, 0, 0, 0, 0xeb, 0x10, 0x90, 0x0f, 0x0b, 0xc3, 0x06, 0xc3,
        ];
        let covers = |start, end| judge(&code, start, end).map(|line| (line.first, line.end, line.source));
        assert_eq!(covers(0, 1), Ok((0, 2, 1)));
        assert_eq!(
            covers(0, 10),
            Ok((0, 5, 4)),
            "past a branch not taken, a system call and a call of the next"
        );
        assert_eq!(covers(1, 1), Ok((1, 2, 1)), "one branch");
        assert_eq!(
            covers(0, 5),
            Ok((0, 4, 3)),
            "a call of the next that was recorded"
        );
        assert_eq!(covers(12, 12), Ok((5, 5, 5)), "an interrupt at once");
        assert_eq!(
            covers(12, 13),
            Ok((5, 6, 6)),
            "an exception at UD2, which did not run"
        );
        assert_eq!(covers(0, 15), Err(Discard::PassesBranch));
        assert_eq!(covers(12, 15), Err(Discard::PassesBranch), "UD2 is not passed");
        assert_eq!(covers(15, 15), Ok((7, 8, 7)));
        assert_eq!(covers(2, 3), Err(Discard::NotOnInstruction));
        assert_eq!(covers(17, 16), Err(Discard::Undecodable));
        assert_eq!(covers(10, 1), Err(Discard::Backward));
    }
}
