//! Decodes text into instructions without gaps.
//!
//! A linear sweep from the start of the text, which resyncs at addresses that are known to start an instruction: those
//! of symbols, and those that the CPU reported.
//! Invalid bytes become fillers, so that the instructions cover their text without gaps.
//! The decoder is asked for the first instruction of each [`Layout`], and for those that have none.

use std::sync::OnceLock;

use hbbp_decode::Decoder;
use iced_x86::Instruction as Decoded;

use super::flow::{Flow, target};
use super::form::{FormIdx, Forms, Instruction, LONGEST, Shape};
use super::layout::{LOOKED_AT, Layout};
use super::near::Near;
use super::split::firsts;
use hbbp_model::addr::ImageAddr;

/// Bytes after which a sweep from a wrong start is in sync with the true instructions.
/// x86 code resynchronises within a few instructions, since most encodings are two to five bytes long.
const IN_STEP: u32 = 256;

/// A decoded text range.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The instructions, sorted by address, without gaps.
    pub(super) instructions: Vec<Instruction>,
    /// Addresses inside an instruction that begin it without some of its prefixes, with the instruction's index.
    pub(super) aliases: Vec<(u32, u32)>,
    /// Targets of direct branches in this text, as offsets.
    pub(super) inside: Vec<u32>,
    /// Targets of direct branches elsewhere, sorted.
    pub(super) outside: Vec<ImageAddr>,
    /// Indices of the instructions that begin a block for a reason in this text; sorted. Other text may add more.
    pub(super) firsts: Box<[u32]>,
    /// Whether it met invalid bytes, or a known offset inside an instruction: other known offsets may change it.
    is_ambiguous: bool,
    /// Where to search `instructions`. Computed lazily.
    near: OnceLock<Near>,
}

/// Decodes `bytes`, at address `start` of their module, as code of `bits` bits.
///
/// `known` are the offsets that are known to start an instruction, sorted.
/// If two of them conflict, the first wins and the second lies inside its instruction.
pub(super) fn sweep(bytes: &[u8], bits: u32, start: ImageAddr, known: &[u32], forms: &mut Forms) -> Sweep {
    let mut sweep = Sweep {
        instructions: Vec::with_capacity(bytes.len() / 4),
        ..Sweep::default()
    };
    let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let Ok(decoder) = Decoder::try_with_ip(bits, bytes, start.0) else {
        sweep.fill(0, end);
        return sweep;
    };
    let cursor = Cursor {
        decoder,
        start,
        decoded: Decoded::new(),
    };
    let mut sweeper = Sweeper {
        bytes,
        bits,
        end,
        cursor,
        forms,
        sweep,
    };
    sweeper.run(known);
    let mut sweep = sweeper.sweep;
    sweep.instructions.shrink_to_fit();
    sweep.outside.sort_unstable();
    sweep.outside.dedup();
    sweep.firsts = firsts(&sweep.instructions, sweep.inside.iter().copied());
    sweep
}

/// A sweep in progress.
struct Sweeper<'a, 'b> {
    bytes: &'a [u8],
    bits: u32,
    /// Offset of the end of the bytes.
    end: u32,
    cursor: Cursor<'a>,
    forms: &'b mut Forms,
    sweep: Sweep,
}

impl Sweeper<'_, '_> {
    fn run(&mut self, mut known: &[u32]) {
        let mut offset = self.cursor.first_boundary(known);
        self.sweep.is_ambiguous = 0 < offset;
        self.sweep.fill(0, offset);
        // The next known offset, or the end.
        let mut boundary = 0;
        while offset < self.end {
            let is_known = boundary == offset && known.first() == Some(&offset);
            if boundary <= offset {
                known = after(known, offset);
                boundary = known.first().copied().unwrap_or(self.end);
            }
            let layout = layout(self.bytes, self.bits, offset);
            let next = layout.and_then(|layout| self.known_form(layout, offset, boundary));
            offset = next.unwrap_or_else(|| self.decode(offset, layout, is_known, known));
        }
    }

    /// Adds the instruction at an offset if one of its layout was decoded before, and returns the offset of its end, which is not
    /// after `boundary`.
    #[inline(always)]
    fn known_form(&mut self, layout: Layout, offset: u32, boundary: u32) -> Option<u32> {
        let form = self.forms.of_layout(layout)?;
        let next = offset + u32::from(layout.len);
        if boundary < next {
            return None;
        }
        self.sweep.instructions.push(Instruction {
            offset,
            form: form.0,
            len: layout.len,
            flow: form.1,
        });
        if 0 < layout.relative {
            let by = relative(self.bytes, layout, next)?;
            let target = self
                .cursor
                .start
                .0
                .wrapping_add(next.into())
                .wrapping_add_signed(by);
            self.add_target(ImageAddr(target), next);
        }
        Some(next)
    }

    /// Decodes the instruction at an offset, adds it, or a filler for invalid bytes, and returns the offset of its end. Offsets in
    /// `known` are greater than `offset`.
    fn decode(&mut self, offset: u32, layout: Option<Layout>, is_known: bool, known: &[u32]) -> u32 {
        let Some(len) = self.cursor.decode(offset) else {
            self.sweep.is_ambiguous = true;
            self.sweep.fill(offset, offset + 1);
            return offset + 1;
        };
        let next = offset + u32::from(len);
        let wrong = if known.first().is_some_and(|boundary| *boundary < next) {
            self.sweep.is_ambiguous = true;
            self.sweep.alias(known, next, &mut self.cursor)
        } else {
            None
        };
        if let Some(boundary) = wrong.filter(|_| !is_known) {
            self.sweep.fill(offset, boundary);
            return boundary;
        }
        let whole = self.bytes.get(offset as usize..next as usize);
        let Some((form, flow)) = self.forms.intern(self.cursor.shape(self.bits), || whole) else {
            self.sweep.fill(offset, next);
            return next;
        };
        if let Some(layout) = layout.filter(|layout| layout.len == len) {
            self.forms.learn(layout, form, flow);
        }
        self.sweep.instructions.push(Instruction {
            offset,
            form,
            len,
            flow,
        });
        if let Some(target) = target(&self.cursor.decoded) {
            self.add_target(target, next);
        }
        next
    }

    /// Adds the target of the last instruction, which ends at `next`.
    fn add_target(&mut self, target: ImageAddr, next: u32) {
        let inside = target.since(self.cursor.start);
        let inside = inside.and_then(|offset| u32::try_from(offset).ok());
        if inside == Some(next)
            && let Some(last) = self.sweep.instructions.last_mut()
            && last.flow == Flow::Call
        {
            last.flow = Flow::CallNext;
        }
        match inside.filter(|offset| *offset < self.end) {
            Some(offset) => self.sweep.inside.push(offset),
            None => self.sweep.outside.push(target),
        }
    }
}

/// The layout of the instruction at an offset, if one can be known from its first bytes.
fn layout(bytes: &[u8], bits: u32, offset: u32) -> Option<Layout> {
    if bits != 64 {
        return None;
    }
    let first = bytes.get(offset as usize..)?.first_chunk::<LOOKED_AT>()?;
    Layout::of(u64::from_le_bytes(*first))
}

/// How far a direct branch leads that ends at offset `next`.
fn relative(bytes: &[u8], layout: Layout, next: u32) -> Option<i64> {
    let whole = bytes.get(..next as usize)?;
    match layout.relative {
        0 => None,
        1 => whole.last().map(|byte| i64::from(byte.cast_signed())),
        _ => whole
            .last_chunk()
            .map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
    }
}

/// The part of a sorted list above `offset`, which grows by little from call to call.
fn after(known: &[u32], offset: u32) -> &[u32] {
    let passed = known.iter().take_while(|k| **k <= offset).count();
    known.get(passed..).unwrap_or(&[])
}

impl Sweep {
    /// How many instructions begin up to an offset.
    pub(super) fn up_to(&self, offset: u32) -> usize {
        let offsets = || self.instructions.iter().map(|instruction| instruction.offset);
        let near = self.near.get_or_init(|| Near::new(offsets()));
        near.up_to(&self.instructions, offset, |instruction| instruction.offset)
    }

    /// Whether a sweep of the same bytes with these `known` offsets has the same result.
    pub(super) fn fits(&self, known: &[u32]) -> bool {
        let is_start = |offset: &u32| {
            self.instructions
                .binary_search_by_key(offset, |i| i.offset)
                .is_ok()
        };
        !self.is_ambiguous && known.iter().all(is_start)
    }

    /// Covers the bytes from `from` to `to` with fillers.
    fn fill(&mut self, from: u32, to: u32) {
        let mut offset = from;
        while offset < to {
            let len = u8::try_from(to - offset).unwrap_or(u8::MAX);
            self.instructions.push(Instruction {
                offset,
                form: FormIdx(0),
                len,
                flow: Flow::Invalid,
            });
            offset += u32::from(len);
        }
    }

    /// Records those `known` boundaries inside the current instruction, which ends at `next`, that skip only its prefixes: code
    /// that jumps past a LOCK prefix on a uniprocessor machine. Returns the first boundary that does not.
    fn alias(&mut self, known: &[u32], next: u32, cursor: &mut Cursor<'_>) -> Option<u32> {
        let idx = u32::try_from(self.instructions.len()).ok()?;
        let whole = cursor.decoded;
        let mut wrong = None;
        for &k in known.iter().take_while(|k| **k < next) {
            let ends_alike = cursor.decode(k).is_some_and(|len| k + u32::from(len) == next);
            if ends_alike && cursor.decoded.code() == whole.code() {
                self.aliases.push((k, idx));
            } else {
                wrong = wrong.or(Some(k));
            }
        }
        // The cursor has the current instruction again.
        let start = u32::try_from(whole.len())
            .ok()
            .and_then(|len| next.checked_sub(len))?;
        cursor.decode(start)?;
        wrong
    }
}

/// A decoder of one text range, with the last decoded instruction.
struct Cursor<'a> {
    decoder: Decoder<'a>,
    start: ImageAddr,
    decoded: Decoded,
}

impl Cursor<'_> {
    /// What the last decoded instruction is, in code of `bits` bits.
    fn shape(&self, bits: u32) -> Shape<'_> {
        Shape {
            instruction: &self.decoded,
            modern: self.decoder.modern(),
            bits,
        }
    }

    /// Decodes the instruction at `offset`; its length, or `None` if there is none.
    fn decode(&mut self, offset: u32) -> Option<u8> {
        let position = usize::try_from(offset).ok()?;
        // Usually the decoder is already at this offset.
        if self.decoder.position() != position {
            let ip = self.start.0.wrapping_add(u64::from(offset));
            self.decoder.go_to(position, ip).ok()?;
        }
        self.decoder.decode_out(&mut self.decoded);
        if self.decoded.is_invalid() {
            None
        } else {
            u8::try_from(self.decoded.len()).ok()
        }
    }

    /// The first offset from which a sweep reaches the first known boundary. Text can start inside an instruction.
    fn first_boundary(&mut self, known: &[u32]) -> u32 {
        let Some(&goal) = known.first().filter(|goal| **goal < IN_STEP) else {
            return 0;
        };
        (0..LONGEST)
            .map_while(|o| u32::try_from(o).ok())
            .find(|o| self.meets(*o, goal))
            .unwrap_or(0)
    }

    fn meets(&mut self, from: u32, goal: u32) -> bool {
        let mut offset = from;
        while offset < goal {
            match self.decode(offset) {
                Some(len) => offset += u32::from(len),
                None => return false,
            }
        }
        offset == goal
    }
}

#[cfg(test)]
mod tests;
