//! `S start end count`: how often each stream was recorded.

use std::io::{self, Write};

use super::{Lines, StreamFilter, known_modules};
use hbbp_code::blocks::{BlockMap, TextBlocks, blocks};
use hbbp_code::locate::{AddressMap, Discard, Located, LocatedStream, locate};
use hbbp_estimate::{Line, judge};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// Writes the streams of all events.
pub fn write_streams(snapshot: &Snapshot, filter: StreamFilter, out: &mut dyn Write) -> io::Result<()> {
    let lines = match filter {
        StreamFilter::Raw => raw(snapshot),
        StreamFilter::Checked => {
            let located = locate(snapshot);
            checked(&located, &blocks(snapshot, &located))
        }
    };
    lines.write(snapshot, out, |_, (start, end), hits: &u64, out| {
        writeln!(out, "S {:x} {:x} {hits}", start.0, end.0)
    })
}

type StreamLines = Lines<(ImageAddr, ImageAddr), u64>;

fn raw(snapshot: &Snapshot) -> StreamLines {
    let mut lines = Lines::new();
    let known = known_modules(snapshot);
    let mut map = AddressMap::new(snapshot);
    for (interval, n) in snapshot.intervals.iter().zip(0..) {
        map.set_interval(n);
        for count in &interval.streams {
            let ends = [count.start, count.end].map(|at| map.module_at(count.process, at));
            match ends {
                _ if count.start.ring() != count.end.ring() => {
                    lines.discard(Discard::Crossing.id(), count.hits);
                }
                [Some((module, start)), Some((other, end))] if module == other && known.contains(&module) => {
                    add(&mut lines, module, start, end, count.hits);
                }
                [Some((module, _)), Some((other, _))]
                    if known.contains(&module) && known.contains(&other) =>
                {
                    lines.discard(Discard::CrossesText.id(), count.hits);
                }
                [Some(_), Some(_)] => lines.discard(Discard::NoText.id(), count.hits),
                _ => lines.discard(Discard::NoMapping.id(), count.hits),
            }
        }
    }
    lines
}

fn checked(located: &Located, map: &BlockMap) -> StreamLines {
    let mut lines = Lines::new();
    for stream in &located.streams {
        let Some(text) = map.text(stream.start.text) else {
            lines.discard(Discard::NoText.id(), stream.hits);
            continue;
        };
        match judge(text, stream) {
            Ok(line) => match executed(text, stream, line) {
                Some((start, end)) => add(&mut lines, text.module, start, end, stream.hits),
                None => lines.discard(INTERRUPTED_AT_ONCE, stream.hits),
            },
            Err(why) => lines.discard(why.id(), stream.hits),
        }
    }
    for ((_, why), counts) in &located.discarded.0 {
        lines.discard(why.id(), counts.total());
    }
    lines
}

/// An interrupt struck before the first instruction of the stream.
const INTERRUPTED_AT_ONCE: &str = "stream.interrupted_at_once";

/// The first and the last executed instruction.
fn executed(text: &TextBlocks, stream: &LocatedStream, line: Line) -> Option<(ImageAddr, ImageAddr)> {
    if line.end != line.source {
        return Some((stream.start.addr, stream.end));
    }
    let last = line.end.checked_sub(1).filter(|last| line.first <= *last)?;
    Some((stream.start.addr, text.addr(text.instruction(last)?)))
}

fn add(lines: &mut StreamLines, module: ModuleIdx, start: ImageAddr, end: ImageAddr, hits: u64) {
    let count = lines.entry(module, (start, end));
    *count = count.saturating_add(hits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{self, snapshot};
    use hbbp_model::addr::Va;

    fn written(filter: StreamFilter) -> String {
        let streams = [
            (0x1000, 0x1002, 3),
            (0x1001, 0x1000, 2),
            (0x1000, 0x1003, 5),
            (0x1000, 0x9000, 7),
            (0x9000, 0x9001, 1),
        ];
        let streams = streams.map(|(start, end, hits)| tests::stream(Va(start), Va(end), hits));
        let mut out = Vec::new();
        write_streams(&snapshot(&streams, &[]), filter, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn impossible_streams_are_counted_by_reason() {
        assert_eq!(
            written(StreamFilter::Checked),
            "M /bin/a ab01\nS 1000 1002 3\n# discarded stream.backward 2\n# discarded stream.no_mapping 8\n\
             # discarded stream.passes_branch 5\n"
        );
    }

    #[test]
    fn raw_streams_are_all_within_a_module() {
        assert_eq!(
            written(StreamFilter::Raw),
            "M /bin/a ab01\nS 1000 1002 3\nS 1000 1003 5\nS 1001 1000 2\n# discarded stream.no_mapping 8\n"
        );
    }

    #[test]
    fn stream_ended_by_an_interrupt_stops_before_the_return_address() {
        let streams = [
            tests::stream(Va(0x1000), Va(0x1001), 4),
            tests::stream(Va(0x1001), Va(0x1001), 6),
        ];
        let mut out = Vec::new();
        write_streams(&snapshot(&streams, &[]), StreamFilter::Checked, &mut out).unwrap();
        let expected = "M /bin/a ab01\nS 1000 1000 4\n# discarded stream.interrupted_at_once 6\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
