//! Which streams can have been executed, judged by the instructions between their ends.
//!
//! A stream begins at the target of one recorded branch and ends at the source of the next (paper section III.B),
//! so nothing between may have been a taken branch.
//! Hardware and kernel lose entries at times, and their neighbours then form a stream that never ran
//! (kernel-facts 3b: the kernel's software filter, duplicated entries of the Skylake family).
//! A stream is accepted if it is a straight line of instructions from its start to an instruction that begins at its
//! end, without an instruction inside that always goes elsewhere.
//!
//! Where the instruction at the end is no branch, an interrupt or exception ended the stream: the recorded source is
//! the address that it returns to, and that instruction did not run (SDM vol. 3, kernel-facts 3b).
//! The stream then covers what stands before, which can be nothing; it is accepted and counted as interrupted.

use super::Roles;
use crate::addr::Ring;
use crate::blocks::{BlockMap, Flow, TextBlocks};
use crate::locate::{Discard, Located, LocatedStream, Tally, TextIdx, Unresolved};
use crate::snapshot::{ProcessIdx, Snapshot};

/// Instructions that ran one after another, so often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Their text.
    pub text: TextIdx,
    /// The process image that ran.
    pub process: ProcessIdx,
    /// Index of the first instruction.
    pub first: u32,
    /// Index behind the last instruction; `first` where an interrupt struck at once.
    pub end: u32,
    /// Index of the instruction that was recorded as the source of the next branch: the last one, or the one behind it
    /// where an interrupt ended the stream.
    pub source: u32,
    /// Occurrences.
    pub hits: u64,
    /// Sum of period / (N-1) over the stacks of N entries that held it.
    pub weight: f64,
}

/// What became of the streams of all events.
pub(super) struct Judged {
    /// Accepted streams of the events that serve as LBR, sorted by (text, process).
    pub(super) streams: Vec<Stream>,
    /// Accepted streams, by event; together with `discarded` all that were located.
    pub(super) accepted: Tally<()>,
    /// Those of the accepted streams that an interrupt or exception ended.
    pub(super) interrupted: Tally<()>,
    /// Streams that cannot have been executed.
    pub(super) discarded: Tally<Discard>,
}

/// Judges every stream.
pub(super) fn judged(snapshot: &Snapshot, located: &Located, map: &BlockMap, roles: &Roles) -> Judged {
    let mut judged = Judged {
        streams: Vec::new(),
        accepted: Tally::default(),
        interrupted: Tally::default(),
        discarded: Tally::default(),
    };
    for stream in &located.streams {
        let ring = super::ring(snapshot, map, stream.start.text);
        let verdict = map
            .text(stream.start.text)
            .ok_or(Discard::NoText)
            .and_then(|text| line(text, stream));
        match verdict {
            Ok(line) => judged.accept(stream, line, ring, roles),
            Err(why) => judged.discarded.add(stream.event, why, ring, stream.hits),
        }
    }
    judged.streams.sort_by_key(|s| (s.text, s.process));
    judged
}

impl Judged {
    fn accept(&mut self, stream: &LocatedStream, line: Line, ring: Ring, roles: &Roles) {
        self.accepted.add(stream.event, (), ring, stream.hits);
        if line.end == line.source {
            self.interrupted.add(stream.event, (), ring, stream.hits);
        }
        if roles.lbr.contains(&stream.event) {
            let &LocatedStream {
                start,
                process,
                hits,
                weight,
                ..
            } = stream;
            let Line { first, end, source } = line;
            self.streams.push(Stream {
                text: start.text,
                process,
                first,
                end,
                source,
                hits,
                weight,
            });
        }
    }
}

/// A straight line of instructions.
#[derive(Clone, Copy)]
struct Line {
    first: u32,
    end: u32,
    source: u32,
}

fn line(text: &TextBlocks, stream: &LocatedStream) -> Result<Line, Discard> {
    let first = text.find(stream.start.addr).map_err(refused)?;
    let last = text.find(stream.end).map_err(refused)?;
    if last < first {
        return Err(Discard::Backwards);
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
