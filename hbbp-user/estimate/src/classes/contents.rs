//! What one execution of a block, or of a stream, adds to each class.

use std::collections::HashMap;

use crate::BlockCount;
use crate::sources::stream::Stream;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::InstructionClass as Class;

/// What the forms of the text and the branches of the streams say of the classes.
pub(super) struct Contents<'a> {
    map: &'a BlockMap,
    /// Executions after which each conditional branch was taken, by the text and the index of its instruction.
    taken: HashMap<(TextIdx, u32), f64>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(map: &'a BlockMap, streams: &[Stream]) -> Self {
        let mut taken = HashMap::new();
        // A stream that an interrupt ended was not ended by the instruction before it.
        for stream in streams.iter().filter(|stream| stream.source + 1 == stream.end) {
            *taken.entry((stream.text, stream.source)).or_insert(0.0) += stream.weight;
        }
        Self { map, taken }
    }

    /// The blocks of a ring that have some of a class, by their numbers, with how much. `None` if that takes streams, and
    /// there are none.
    pub(super) fn terms(&self, class: Class, ring: Ring, blocks: &[BlockCount]) -> Option<Vec<(usize, f64)>> {
        let by_outcome = matches!(class, Class::Taken | Class::NotTaken);
        if by_outcome && self.taken.is_empty() {
            return None;
        }
        let by_form: Vec<f64> = self
            .map
            .forms
            .iter()
            .map(|form| form.counts_as(class).into())
            .collect();
        let of_ring = blocks.iter().enumerate().filter(|(_, block)| block.ring == ring);
        let terms = of_ring.filter_map(|(number, block)| {
            let instructions = self.map.instructions(block.block).iter();
            let of_forms = instructions.map(|it| by_form.get(usize::from(it.form.0)).copied().unwrap_or(0.0));
            let mut times: f64 = of_forms.sum();
            if by_outcome && 0.0 < times {
                times *= match class {
                    Class::Taken => self.taken_share(block),
                    _ => 1.0 - self.taken_share(block),
                };
            }
            (0.0 < times).then_some((number, times))
        });
        Some(terms.collect())
    }

    /// The share of the executions of a block after which the branch that ends it was taken. Of a block that is in no stream
    /// nothing is known, and one half is nearest to both.
    fn taken_share(&self, block: &BlockCount) -> f64 {
        let executed = block.lbr.map_or(0.0, |lbr| lbr.count);
        let text = self.map.text(block.block.text);
        let last = text.and_then(|text| text.block(block.block.block).end.checked_sub(1));
        match last {
            Some(last) if 0.0 < executed => {
                let taken = self.taken.get(&(block.block.text, last)).copied();
                (taken.unwrap_or(0.0) / executed).clamp(0.0, 1.0)
            }
            _ => 0.5,
        }
    }
}

/// What one execution of each stream adds to these classes and rings: for each of them the streams by their numbers, with how much.
/// The branch that ends a stream was taken, and all others in it were not.
pub(super) fn of_streams(
    map: &BlockMap,
    streams: &[Stream],
    ring_of: impl Fn(TextIdx) -> Ring,
    classes: &[(Class, Ring)],
) -> Vec<Vec<(usize, f64)>> {
    let by_form: Vec<Vec<f64>> = map
        .forms
        .iter()
        .map(|form| {
            classes
                .iter()
                .map(|(class, _)| form.counts_as(*class).into())
                .collect()
        })
        .collect();
    let mut rows = vec![Vec::new(); classes.len()];
    let mut sums = vec![0.0; classes.len()];
    for (number, stream) in streams.iter().enumerate() {
        let Some(text) = map.text(stream.text) else {
            continue;
        };
        let ring = ring_of(stream.text);
        sums.fill(0.0);
        let instructions = text.instructions(stream.first..stream.end).iter();
        for (instruction, at) in instructions.zip(stream.first..) {
            let Some(times) = by_form.get(usize::from(instruction.form.0)) else {
                continue;
            };
            let taken = at == stream.source;
            for ((sum, times), (class, _)) in sums.iter_mut().zip(times).zip(classes) {
                *sum += match class {
                    Class::Taken if !taken => 0.0,
                    Class::NotTaken if taken => 0.0,
                    _ => *times,
                };
            }
        }
        let of_rings = sums.iter().zip(&mut rows).zip(classes);
        for ((sum, row), _) in of_rings.filter(|((sum, _), of)| 0.0 < **sum && of.1 == ring) {
            row.push((number, *sum));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, LocatedIp, Location};
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{EventIdx, Module, ModuleIdx, ModuleKind, ProcessIdx, Snapshot, Text};

    /// `mov (%rax),%ecx; jne; ret`, all of which runs.
    fn map() -> BlockMap {
        let start = ImageAddr(0x1000);
        let module = Module {
            name: "a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: Vec::new(),
        };
        let text = Text {
            module: ModuleIdx(0),
            start,
            bytes: vec![0x8b, 0x08, 0x75, 0x00, 0xc3],
            since: 0,
        };
        let ip = LocatedIp {
            location: Location {
                text: TextIdx(0),
                addr: start,
            },
            event: EventIdx(0),
            process: ProcessIdx(0),
            hits: 1,
            weight: 1,
        };
        let snapshot = Snapshot {
            modules: vec![module],
            text: vec![text],
            ..Snapshot::default()
        };
        let located = Located {
            ips: vec![ip],
            ..Located::default()
        };
        blocks(&snapshot, &located)
    }

    #[test]
    fn the_branch_that_ends_a_stream_was_taken() {
        let stream = |end, source| Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first: 0,
            end,
            source,
            hits: 1,
            weight: 1.0,
        };
        // One ends with the branch, one runs past it to the return, and one was interrupted at the branch.
        let streams = [stream(2, 1), stream(3, 2), stream(1, 1)];
        let of = |class, ring| {
            let rows = of_streams(&map(), &streams, |_| Ring::User, &[(class, ring)]);
            rows[0].clone()
        };
        assert_eq!(
            of(Class::Instructions, Ring::User),
            [(0, 2.0), (1, 3.0), (2, 1.0)]
        );
        assert_eq!(of(Class::Loads, Ring::User), [(0, 1.0), (1, 2.0), (2, 1.0)]);
        assert_eq!(of(Class::Taken, Ring::User), [(0, 1.0)]);
        assert_eq!(of(Class::NotTaken, Ring::User), [(1, 1.0)]);
        assert_eq!(of(Class::Returns, Ring::User), [(1, 1.0)]);
        assert_eq!(of(Class::Loads, Ring::Kernel), []);
    }
}
