//! The records of alternative instructions (`.altinstructions`), whose layout differs between kernels.
//!
//! Layouts: `struct alt_instr` in arch/x86/include/asm/alternative.h of Linux 6.1 and 6.12, and an older one that was not
//! tried on its kernels. No version is asked for: a layout is the right one when every record of the table makes sense.

use hbbp_elf::layout::Section;
use hbbp_model::addr::ImageAddr;

/// Where the field at `at` of a table points to: it holds the distance from itself.
pub(super) fn target(table: ImageAddr, bytes: &[u8], at: usize) -> Option<ImageAddr> {
    let field: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    let from = table.checked_add(u64::try_from(at).ok()?)?;
    Some(ImageAddr(
        from.0.wrapping_add_signed(i32::from_le_bytes(field).into()),
    ))
}

/// `struct alt_instr` of one kernel: two distances, to the site and to its replacement; feature and flags; both
/// lengths.
#[derive(Clone, Copy, Debug)]
pub(super) struct AltLayout {
    /// Length of a record in bytes.
    pub(super) stride: usize,
    /// Where the length of the site is; that of the replacement follows it.
    pub(super) len_at: usize,
    /// Where its flags are, if it has any.
    pub(super) flags_at: Option<usize>,
}

impl AltLayout {
    /// `ALT_FLAG_DIRECT_CALL`: how paravirt calls are patched in 6.12.
    pub(super) const DIRECT_CALL: u8 = 1 << 1;

    /// As in 6.12; as in 6.1; and of older kernels, which state the padding too.
    const KNOWN: [Self; 3] = [
        Self {
            stride: 14,
            len_at: 12,
            flags_at: Some(10),
        },
        Self {
            stride: 12,
            len_at: 10,
            flags_at: None,
        },
        Self {
            stride: 13,
            len_at: 10,
            flags_at: None,
        },
    ];

    /// The layout in which every record makes sense: its replacement fits the site and lies among the replacements.
    pub(super) fn of(table: ImageAddr, bytes: &[u8], replacements: &Section) -> Option<Self> {
        let makes_sense = |layout: &Self| {
            let fits = |at: usize| {
                let [len, new_len] = *bytes.get(at + layout.len_at..)?.first_chunk()?;
                let new = target(table, bytes, at + 4)?.since(replacements.start)?;
                Some(new_len <= len && new.checked_add(new_len.into())? <= replacements.len)
            };
            let is_whole = bytes.len().is_multiple_of(layout.stride);
            is_whole
                && (0..bytes.len())
                    .step_by(layout.stride)
                    .all(|at| fits(at) == Some(true))
        };
        Self::KNOWN.into_iter().find(makes_sense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::FileOff;

    const TABLE: ImageAddr = ImageAddr(0x1000);
    const REPLACEMENTS: Section = Section {
        kind: 1,
        offset: FileOff(0),
        start: ImageAddr(0x2000),
        len: 0x100,
        link: 0,
        name: 0,
        executable: true,
    };

    /// Two records: 5 bytes at 0x3000 for 3 at 0x2000, and 2 at 0x3010 for 2 at 0x2010.
    fn records(layout: &AltLayout) -> Vec<u8> {
        let mut bytes = vec![0; 2 * layout.stride];
        for (at, place, new, lens) in [
            (0, 0x3000, 0x2000, [5, 3]),
            (layout.stride, 0x3010, 0x2010, [2, 2]),
        ] {
            for (field, to) in [(at, place), (at + 4, new)] {
                let from = 0x1000 + i32::try_from(field).expect("small");
                bytes[field..field + 4].copy_from_slice(&(to - from).to_le_bytes());
            }
            bytes[at + layout.len_at..][..2].copy_from_slice(&lens);
        }
        bytes
    }

    #[test]
    fn the_layout_of_alternatives_is_the_one_that_makes_sense() {
        for layout in AltLayout::KNOWN {
            let bytes = records(&layout);
            let found = AltLayout::of(TABLE, &bytes, &REPLACEMENTS).expect("it is known");
            assert_eq!((found.stride, found.len_at), (layout.stride, layout.len_at));
            assert_eq!(target(TABLE, &bytes, layout.stride), Some(ImageAddr(0x3010)));
            let mut broken = bytes.clone();
            broken[layout.len_at + 1] = 6;
            assert!(
                AltLayout::of(TABLE, &broken, &REPLACEMENTS).is_none(),
                "longer than its site"
            );
            assert!(AltLayout::of(TABLE, &bytes[1..], &REPLACEMENTS).is_none());
        }
    }

    #[test]
    fn distances_do_not_leave_the_table_or_the_address_space() {
        assert_eq!(target(ImageAddr(u64::MAX), &[0; 8], 4), None);
        assert_eq!(target(TABLE, &[0; 8], 5), None);
    }
}
