//! The hottest code, as far as there is time and memory for it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::sources::ebs::Hits;
use hbbp_code::blocks::{BlockMap, TextBlocks};
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::Snapshot;

/// Fewest bytes that a block counts as: most code has more.
const SHORT: usize = 8;

/// The samples in the texts that have most of them, up to as many bytes of text. One that is larger has no part in it.
///
/// Memory goes by blocks, and anybody can write them short: each counts as [`SHORT`] bytes at least.
pub(super) fn hottest(snapshot: &Snapshot, map: &BlockMap, hits: &Hits, bytes: usize) -> Hits {
    let mut of_texts: BTreeMap<TextIdx, f64> = BTreeMap::new();
    for ((text, _), hits) in hits {
        *of_texts.entry(*text).or_default() += hits;
    }
    let size = |idx: TextIdx| {
        let text = snapshot.text.get(idx.0 as usize)?;
        let blocks = map.text(idx).map_or(0, TextBlocks::n_blocks);
        Some(text.bytes.len().max(SHORT * blocks)).filter(|size| *size <= bytes)
    };
    let sized = of_texts
        .into_iter()
        .filter_map(|(idx, hits)| Some((hits, size(idx)?, idx)));
    let mut texts: Vec<(f64, usize, TextIdx)> = sized.collect();
    texts.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    let mut left = bytes;
    let fits = |(_, size, idx): (f64, usize, TextIdx)| {
        left = left.checked_sub(size)?;
        Some(idx)
    };
    let chosen: BTreeSet<TextIdx> = texts.into_iter().map_while(fits).collect();
    let of_chosen = hits.iter().filter(|((text, _), _)| chosen.contains(text));
    of_chosen.map(|(at, hits)| (*at, *hits)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::Located;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{ModuleIdx, Text};

    #[test]
    fn the_hottest_text_comes_first_as_far_as_it_fits() {
        let text = |start, len| Text {
            module: ModuleIdx(0),
            start: ImageAddr(start),
            bytes: vec![0x90; len],
            since: 0,
        };
        let snapshot = Snapshot {
            text: vec![text(0, 100), text(1000, 50), text(2000, 60)],
            ..Snapshot::default()
        };
        let hits = Hits::from([
            ((TextIdx(0), 0), 1.0),
            ((TextIdx(1), 3), 5.0),
            ((TextIdx(1), 4), 4.0),
            ((TextIdx(2), 0), 7.0),
        ]);
        let map = blocks(&snapshot, &Located::default());
        let chosen = |bytes| -> Vec<f64> { hottest(&snapshot, &map, &hits, bytes).into_values().collect() };
        assert_eq!(chosen(210), [1.0, 5.0, 4.0, 7.0]);
        assert_eq!(chosen(209), [5.0, 4.0, 7.0]);
        assert_eq!(chosen(109), [5.0, 4.0]);
        assert_eq!(chosen(59), [5.0, 4.0]);
        assert!(chosen(49).is_empty());
        // A sled of untaken jumps has a block for every two bytes.
        let sled = Snapshot {
            text: vec![Text {
                bytes: [0x74, 0].repeat(20),
                ..text(0, 0)
            }],
            ..Snapshot::default()
        };
        let map = blocks(&sled, &Located::default());
        let one = Hits::from([((TextIdx(0), 0), 1.0)]);
        let n_chosen = |bytes| hottest(&sled, &map, &one, bytes).len();
        assert_eq!((n_chosen(40), n_chosen(160)), (0, 1));
    }
}
