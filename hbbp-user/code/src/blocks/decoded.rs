//! Decoded text that is kept from one snapshot of a run to the next.
//!
//! Most text of one second was executed in the second before too, and decoding is two thirds of what an estimate takes.
//! Text that comes again is compared byte by byte, so that changed text is decoded anew.

use std::collections::HashMap;
use std::sync::Arc;

use super::build::split_texts;
use super::form::Forms;
use super::map::BlockMap;
use super::sweep::{Sweep, sweep};
use crate::locate::Located;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Snapshot, Text};

/// Snapshots that text stays decoded for without being hit: ten seconds of `hbbp-sys top`. An instruction takes three times its
/// bytes.
const KEPT: u64 = 10;

/// Decoded text of the last snapshots.
#[derive(Debug, Default)]
pub struct DecodedText {
    forms: Forms,
    ranges: HashMap<Range, Kept>,
    /// Number of the snapshot.
    now: u64,
}

/// What bytes are decoded as depends on where they are and how wide the code is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Range {
    bits: u32,
    start: ImageAddr,
    len: usize,
    /// Other images have other bytes at the same address.
    crc: u32,
}

#[derive(Debug)]
struct Kept {
    bytes: Box<[u8]>,
    sweep: Arc<Sweep>,
    /// The last snapshot that had it.
    used: u64,
}

impl DecodedText {
    /// The same as [`blocks`](super::blocks), of the next snapshot.
    pub fn blocks(&mut self, snapshot: &Snapshot, located: &Located) -> BlockMap {
        let texts = split_texts(snapshot, located, |text, bits, known| {
            self.decode(text, bits, known)
        });
        let now = self.now;
        self.ranges.retain(|_, kept| now < kept.used + KEPT);
        self.now += 1;
        BlockMap {
            texts,
            forms: self.forms.all().into(),
        }
    }

    fn decode(&mut self, text: &Text, bits: u32, known: &[u32]) -> Arc<Sweep> {
        let range = Range {
            bits,
            start: text.start,
            len: text.bytes.len(),
            crc: crc32fast::hash(&text.bytes),
        };
        if let Some(kept) = self.ranges.get_mut(&range)
            && *kept.bytes == *text.bytes
            && kept.sweep.fits(known)
        {
            kept.used = self.now;
            return Arc::clone(&kept.sweep);
        }
        let sweep = Arc::new(sweep(&text.bytes, bits, text.start, known, &mut self.forms));
        let kept = Kept {
            bytes: text.bytes.as_slice().into(),
            sweep: Arc::clone(&sweep),
            used: self.now,
        };
        self.ranges.insert(range, kept);
        sweep
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, Form, blocks};
    use super::*;
    use crate::locate::{LocatedIp, Location, TextIdx};
    use hbbp_model::snapshot::{EventIdx, Module, ModuleIdx, ModuleKind, ProcessIdx};
    use proptest::prelude::*;

    const START: u64 = 0x1000;

    /// One text, and samples at these offsets.
    fn seen(bytes: &[u8], offsets: &[u8]) -> (Snapshot, Located) {
        let module = Module {
            name: "a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: Vec::new(),
        };
        let text = Text {
            module: ModuleIdx(0),
            start: ImageAddr(START),
            bytes: bytes.to_vec(),
            since: 0,
        };
        let ip = |offset: &u8| LocatedIp {
            location: Location {
                text: TextIdx(0),
                addr: ImageAddr(START + u64::from(*offset)),
            },
            event: EventIdx(0),
            process: ProcessIdx(0),
            hits: 1,
            weight: 1,
        };
        let located = Located {
            ips: offsets.iter().map(ip).collect(),
            ..Located::default()
        };
        let snapshot = Snapshot {
            modules: vec![module],
            text: vec![text],
            ..Snapshot::default()
        };
        (snapshot, located)
    }

    /// Everything that a map says, whatever the numbers of the forms.
    fn said(map: &BlockMap) -> Vec<(u32, u8, Flow, Option<u32>, u32)> {
        let of = |form: &Form| form.bits;
        let mut said = Vec::new();
        for text in &map.texts {
            for (instruction, n) in text.all_instructions().iter().zip(0..) {
                let form = map.forms.get(usize::from(instruction.form.0)).map(of);
                let form = form.filter(|_| instruction.flow != Flow::Invalid);
                said.push((
                    instruction.offset,
                    instruction.len,
                    instruction.flow,
                    form,
                    text.block_of(n),
                ));
            }
        }
        said
    }

    #[test]
    fn same_text_is_decoded_once() {
        let mut decoded = DecodedText::default();
        let (snapshot, located) = seen(&[0x90, 0x90, 0xc3], &[1]);
        let first = decoded.blocks(&snapshot, &located);
        let again = decoded.blocks(&snapshot, &Located::default());
        assert!(Arc::ptr_eq(&first.texts[0].sweep, &again.texts[0].sweep));
        for _ in 0..=KEPT {
            decoded.blocks(&Snapshot::default(), &Located::default());
        }
        assert!(decoded.ranges.is_empty());
    }

    #[test]
    fn changed_text_and_corrections_are_decoded_anew() {
        let mut decoded = DecodedText::default();
        // A stray 0xe8 swallows what follows, unless a sample is there.
        let stray = [0xe8, 0x90, 0xc3, 0, 0, 0];
        for (bytes, offsets) in [
            (&stray[..], &[][..]),
            (&stray, &[1]),
            (&stray, &[]),
            (&[0x90, 0x90, 0xc3, 0, 0, 0], &[]),
        ] {
            let (snapshot, located) = seen(bytes, offsets);
            let map = decoded.blocks(&snapshot, &located);
            assert_eq!(said(&map), said(&blocks(&snapshot, &located)), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn cached_text_equals_text_decoded_anew(
            bytes in prop::collection::vec(prop::sample::select(vec![0x90, 0xe8, 0xf0, 0x0f, 0xb1, 0x37, 0x74, 0x00, 0xc3, 0x48]), 1..40),
            samples in prop::collection::vec(prop::collection::vec(0u8..40, 0..4), 1..5),
        ) {
            let mut decoded = DecodedText::default();
            for offsets in samples {
                let (snapshot, located) = seen(&bytes, &offsets);
                let map = decoded.blocks(&snapshot, &located);
                prop_assert_eq!(said(&map), said(&blocks(&snapshot, &located)));
            }
        }
    }
}
