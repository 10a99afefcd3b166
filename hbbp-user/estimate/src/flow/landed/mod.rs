//! Where EBS samples land, by the times of instructions: what a stream leaves in each block that it executes.
//!
//! A sample is taken some cycles after its trigger, so that a block has the samples of what retired that long before it. That follows
//! from the recorded flow and from what instructions take ([`passing`]), and what they take and how long a skid is from how samples lie
//! within blocks ([`fit`]). So a block's samples say how often it ran, where without times they say so of regions alone
//! ([`super::skid`]). On the emulated machine that leaves a tenth to four tenths of the skid to chance, as a standard deviation
//! (kernel-tests/results/landed.txt).

mod fit;
mod passing;

use super::super::sources::SeenBlocks;
use super::super::sources::ebs::Hits;
use super::super::sources::stream::Stream;
use super::graph::FlowGraph;
use crate::timing::Model;
use fit::Hot;
use hbbp_code::blocks::BlockMap;
use passing::{BIN, Passing, longest};

/// For each block, the streams that execute it and the samples that each leaves in it, in samples of as many instructions.
pub(crate) type Landed = Vec<Vec<(usize, f64)>>;

/// Most instructions that all streams execute: a second, and 100 MB where each is a block.
const EXECUTED: usize = 1 << 22;

/// What these streams leave where, by the samples of each instruction; `None` if these tell nothing of times, or streams are too long to
/// go through.
pub(crate) fn landed(
    map: &BlockMap,
    streams: &[Stream],
    graph: &FlowGraph,
    seen: &SeenBlocks,
    hits: &Hits,
) -> Option<Landed> {
    let lengths = streams
        .iter()
        .map(|stream| stream.end.saturating_sub(stream.first) as usize);
    if EXECUTED < lengths.fold(0, usize::saturating_add) {
        return None;
    }
    let model = Hot::new(map, streams, graph, hits).model()?;
    Some(left(map, streams, graph, seen, &model))
}

/// What they leave where by a model.
fn left(map: &BlockMap, streams: &[Stream], graph: &FlowGraph, seen: &SeenBlocks, model: &Model) -> Landed {
    let mut passing = Passing::new(map, graph, streams);
    let (_, high) = model.skid;
    let [short, long] = BIN;
    let bin = if high <= longest(short) { short } else { long };
    let before = passing.before(model, bin);
    let mut landed: Landed = vec![Vec::new(); seen.ids.len()];
    let mut amounts = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let (Some(executed), Some(text)) = (seen.executed.get(number), map.text(stream.text)) else {
            continue;
        };
        passing.left(number, model, &before, &mut amounts);
        for block in executed.blocks() {
            let range = seen.ids.get(block).map_or(0..0, |id| text.block(id.block));
            let index = |at: u32| at.clamp(stream.first, stream.end).saturating_sub(stream.first) as usize;
            let of_block = amounts
                .get(index(range.start)..index(range.end))
                .unwrap_or_default();
            if let Some(landed) = landed.get_mut(block) {
                landed.push((number, of_block.iter().sum()));
            }
        }
    }
    landed
}

#[cfg(test)]
mod tests {
    use super::super::graph::Edge;
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, TextIdx};
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::kinds::kind::{DIVIDE, LOAD};
    use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot, Text};

    /// Streams of one block each, as code and the cycles that its instructions take.
    const STREAMS: [(&[u8], &[u64]); 3] = [
        // add eax, edx; add eax, edx; add eax, edx; mov eax, [rdi]; jmp, which is taken
        (
            &[0x01, 0xd0, 0x01, 0xd0, 0x01, 0xd0, 0x8b, 0x07, 0xeb, 0xf6],
            &[1, 1, 1, 4, 2],
        ),
        // add eax, edx; div rcx; add eax, edx; jmp
        (
            &[0x01, 0xd0, 0x48, 0xf7, 0xf1, 0x01, 0xd0, 0xeb, 0xed],
            &[1, 25, 1, 2],
        ),
        // mov eax, [rdi]; mov eax, [rdi]; mov eax, [rdi]; add eax, edx; jmp
        (
            &[0x8b, 0x07, 0x8b, 0x07, 0x8b, 0x07, 0x01, 0xd0, 0xeb, 0xe3],
            &[4, 4, 4, 1, 2],
        ),
    ];

    /// Their first instructions.
    const FIRST: [u32; 3] = [0, 5, 9];

    /// What ran, and where its samples landed.
    struct Run {
        map: BlockMap,
        streams: Vec<Stream>,
        graph: FlowGraph,
        hits: Hits,
    }

    /// Executions of each stream, of each after each, and samples.
    type Counts = ([f64; 3], [[f64; 3]; 3], Hits);

    /// From the first stream on to the second in three rounds of ten, else round; from the second to the third and back. Each 101st
    /// instruction triggers a sample, which is taken `least` to `longest` cycles later.
    fn counts(least: u64, longest: u64) -> Counts {
        const N: u64 = 4_000_000;
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let (mut streams, mut leads, mut hits) = ([0.0; 3], [[0.0; 3]; 3], Hits::new());
        let mut waiting: Vec<u64> = Vec::new();
        let (mut now, mut n, mut here) = (0, 0_u64, 0);
        while n < N {
            streams[here] += 1.0;
            for (at, cycles) in (FIRST[here]..).zip(STREAMS[here].1) {
                now += cycles;
                waiting.retain(|due| {
                    let is_due = *due < now;
                    if is_due {
                        *hits.entry((TextIdx(0), at)).or_default() += 1.0;
                    }
                    !is_due
                });
                n += 1;
                if n.is_multiple_of(101) {
                    waiting.push(now + least + random() % (longest + 1 - least));
                }
            }
            let next = match here {
                0 => usize::from(random() % 10 < 3),
                1 => 2,
                _ => 0,
            };
            leads[here][next] += 1.0;
            here = next;
        }
        (streams, leads, hits)
    }

    fn run(least: u64, longest: u64) -> Run {
        let (counts, leads, hits) = counts(least, longest);
        let snapshot = Snapshot {
            text: vec![Text {
                module: ModuleIdx(0),
                start: ImageAddr(0x1000),
                bytes: STREAMS.iter().flat_map(|(code, _)| *code).copied().collect(),
                since: 0,
            }],
            ..Snapshot::default()
        };
        let stream = |(first, (_, cycles)): (&u32, &(&[u8], &[u64]))| Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first: *first,
            end: first + cycles.len() as u32,
            source: first + cycles.len() as u32 - 1,
            hits: 1,
            weight: 1.0,
        };
        let streams: Vec<Stream> = FIRST.iter().zip(&STREAMS).map(stream).collect();
        let edge = |from, to, amount| Edge { from, to, amount };
        let of_streams = counts.iter().enumerate().map(|(n, amount)| edge(n, n, *amount));
        let branches = leads.iter().enumerate().flat_map(|(from, leads)| {
            let leads = leads.iter().enumerate().filter(|(_, amount)| 0.0 < **amount);
            leads.map(move |(to, amount)| edge(from, to, *amount))
        });
        let node = |at: u32| (TextIdx(0), at, ProcessIdx(0));
        let starts = FIRST.map(node).to_vec();
        let sources = streams.iter().map(|stream| node(stream.source)).collect();
        Run {
            map: blocks(&snapshot, &Located::default()),
            graph: FlowGraph::of(of_streams.collect(), branches.collect(), starts, sources),
            streams,
            hits,
        }
    }

    /// How far off the samples of streams are, in shares of all, where they are expected as triggered, and where they land by a model.
    fn off(run: &Run, model: &Model) -> [f64; 2] {
        let seen = SeenBlocks::of(&run.map, &[], &run.streams);
        let landed = left(&run.map, &run.streams, &run.graph, &seen, model);
        let of_stream = |stream: &Stream| -> f64 {
            let hits = (stream.first..stream.end).filter_map(|at| run.hits.get(&(TextIdx(0), at)));
            hits.sum()
        };
        let sampled: Vec<f64> = run.streams.iter().map(of_stream).collect();
        let triggered = STREAMS.map(|(_, cycles)| cycles.len() as f64);
        let of_block = |of_block: &Vec<(usize, f64)>| of_block.iter().map(|(_, amount)| amount).sum();
        let landed: Vec<f64> = landed.iter().map(of_block).collect();
        [&triggered[..], &landed].map(|amounts| {
            let expected = amounts.iter().zip(&run.graph.inflow);
            let expected: Vec<f64> = expected.map(|(amount, inflow)| amount * inflow).collect();
            let [all, of_all]: [f64; 2] = [expected.iter().sum(), sampled.iter().sum()];
            let both = expected.iter().zip(&sampled);
            both.map(|(expected, sampled)| (expected / all - sampled / of_all).abs())
                .sum()
        })
    }

    #[test]
    fn streams_have_the_samples_of_what_retired_before() {
        for (least, longest) in [(3, 9), (20, 60)] {
            let run = run(least, longest);
            let mut model = Model::with_skid(least as f64, longest as f64 + 1.0);
            (model.times[LOAD], model.times[DIVIDE]) = (4.0, 25.0);
            let [triggered, landed] = off(&run, &model);
            assert!(landed < 0.02, "{landed} of {least} to {longest}");
            assert!(
                4.0 * landed < triggered,
                "{triggered} {landed} of {least} to {longest}"
            );
        }
    }

    #[test]
    fn times_are_fitted_to_where_samples_lie() {
        let run = run(20, 60);
        let model = Hot::new(&run.map, &run.streams, &run.graph, &run.hits)
            .model()
            .unwrap();
        // A skid of one round more or less looks alike in so short a loop.
        assert!((3.0..5.5).contains(&model.times[LOAD]), "{model:?}");
        assert!((18.0..33.0).contains(&model.times[DIVIDE]), "{model:?}");
        let [triggered, landed] = off(&run, &model);
        assert!(landed < triggered / 2.0, "{triggered} {landed} {model:?}");
    }

    #[test]
    fn without_samples_there_are_no_times() {
        let run = run(1, 8);
        assert!(
            Hot::new(&run.map, &run.streams, &run.graph, &Hits::new())
                .model()
                .is_none()
        );
    }
}
