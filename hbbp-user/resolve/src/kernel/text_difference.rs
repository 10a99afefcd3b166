//! How live kernel text differs from linked text: bytes and sites by cause, to the last byte.
//!
//! An image that runs elsewhere than it was linked for has other addresses in its instructions. A 32-bit word of
//! live text that is the linked word plus the offset of the image is a relocation and no difference. Distances to per-CPU
//! data before Linux 6.15 have minus that offset (arch/x86/boot/compressed/misc.c, `handle_relocations`).
//! On Debian's 6.12 these are the 84,059 words of .text in the kernel's own list of relocations, and one other.

use std::ops::Range;

use hbbp_model::addr::ImageAddr;

use super::patch_sites::{Cause, Linked, Site};

/// Most runs of bytes without a cause that are listed.
const MAX_UNKNOWN: usize = 1000;

/// What was patched for one cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tally {
    /// The cause.
    pub cause: Cause,
    /// Sites that the tables name; of `Unknown`, 0.
    pub sites: u64,
    /// Those of them with bytes of this cause; of `Unknown`, the runs of bytes.
    pub patched: u64,
    /// Bytes that differ for this cause and no later one.
    pub bytes: u64,
}

/// Bytes that differ, and that no site covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownRun {
    /// First byte, where it was linked.
    pub start: ImageAddr,
    /// As linked.
    pub linked: Vec<u8>,
    /// As it is now.
    pub live: Vec<u8>,
}

/// The difference of two texts. Compared = same + relocated + the bytes of all tallies.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TextDifference {
    /// Bytes that were compared.
    pub compared: u64,
    /// Bytes of words that were only relocated and differ by that.
    pub relocated: u64,
    /// One for each cause, in their order.
    pub tallies: Vec<Tally>,
    /// The first 1000 runs without a cause.
    pub unknown: Vec<UnknownRun>,
}

impl TextDifference {
    /// Bytes that differ, relocations excepted.
    pub fn bytes(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.bytes).sum()
    }

    /// Bytes that differ for this cause.
    pub fn bytes_of(&self, cause: Cause) -> u64 {
        self.tallies
            .iter()
            .filter(|t| t.cause == cause)
            .map(|t| t.bytes)
            .sum()
    }
}

/// Compares the live bytes of a text with the linked ones, address by address; `slide` is how far the image was moved,
/// `sites` are sorted.
pub fn compare(linked: Linked<'_>, live: &[u8], slide: u64, sites: &[Site]) -> TextDifference {
    let n = linked.bytes.len().min(live.len());
    let (before, live) = (&linked.bytes[..n], &live[..n]);
    let mut differs: Vec<bool> = before.iter().zip(live).map(|(a, b)| a != b).collect();
    let relocated = forgive_relocations(before, live, slide, &mut differs);
    // Later causes paint over earlier ones.
    let mut owner = vec![Cause::Unknown; n];
    let mut tallies: Vec<Tally> = Cause::ALL
        .iter()
        .map(|cause| Tally {
            cause: *cause,
            sites: 0,
            patched: 0,
            bytes: 0,
        })
        .collect();
    let in_range = || {
        sites
            .iter()
            .filter_map(|site| Some((site.cause, range_of(site, linked.start, n)?)))
    };
    for (cause, range) in in_range() {
        owner[range].fill(cause);
    }
    for (cause, range) in in_range() {
        let own = |at: usize| differs[at] && owner[at] == cause;
        let tally = &mut tallies[cause as usize];
        tally.sites += 1;
        tally.patched += u64::from(range.into_iter().any(own));
    }
    let runs = tally_runs(&differs, &owner, live, &mut tallies);
    let run = |range: Range<usize>| UnknownRun {
        start: ImageAddr(linked.start.0.saturating_add(wide(range.start))),
        linked: before[range.clone()].to_vec(),
        live: live[range].to_vec(),
    };
    TextDifference {
        compared: wide(n),
        relocated,
        tallies,
        unknown: runs.into_iter().take(MAX_UNKNOWN).map(run).collect(),
    }
}

/// Adds each run of differing bytes of one cause to its tally; returns those without a cause.
fn tally_runs(differs: &[bool], owner: &[Cause], live: &[u8], tallies: &mut [Tally]) -> Vec<Range<usize>> {
    let mut unknown = Vec::new();
    let mut at = 0;
    while let Some(skip) = differs[at..].iter().position(|differs| *differs) {
        let start = at + skip;
        let cause = owner[start];
        let is_same = |(differs, owner): (&bool, &Cause)| *differs && *owner == cause;
        let len = differs[start..]
            .iter()
            .zip(&owner[start..])
            .take_while(|it| is_same(*it))
            .count();
        at = start + len;
        // A single breakpoint that no table explains is a probe: debugfs may be missing.
        let is_breakpoint = cause == Cause::Unknown && live[start..at] == [INT3];
        let cause = if is_breakpoint { Cause::Kprobes } else { cause };
        let tally = &mut tallies[cause as usize];
        tally.bytes += wide(len);
        if is_breakpoint {
            tally.sites += 1;
            tally.patched += 1;
        }
        if cause == Cause::Unknown {
            tally.patched += 1;
            unknown.push(start..at);
        }
    }
    unknown
}

/// For each byte of linked text, whether the executed one differs, other than by relocation; `slide` is as in
/// [`compare`].
pub fn differing(linked: &[u8], live: &[u8], slide: u64) -> Vec<bool> {
    let mut differs: Vec<bool> = linked.iter().zip(live).map(|(a, b)| a != b).collect();
    forgive_relocations(linked, live, slide, &mut differs);
    differs
}

/// INT3 (SDM vol. 2).
const INT3: u8 = 0xcc;

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Where a site lies among `n` bytes from `start` on.
fn range_of(site: &Site, start: ImageAddr, n: usize) -> Option<Range<usize>> {
    let first = usize::try_from(site.start.since(start)?).ok()?;
    let end = first.saturating_add(usize::try_from(site.len).ok()?).min(n);
    (first < end).then_some(first..end)
}

/// Clears `differs` where a word was only relocated; returns how many bytes that are.
fn forgive_relocations(linked: &[u8], live: &[u8], slide: u64, differs: &mut [bool]) -> u64 {
    /// Images are moved by multiples of 2 MiB (`CONFIG_PHYSICAL_ALIGN`), so the lower two bytes of a word are equal.
    /// The first byte that differs is its third or its fourth.
    const THIRD: usize = 2;
    const FOURTH: usize = 3;

    let moved = slide.to_le_bytes();
    let moved = u32::from_le_bytes([moved[0], moved[1], moved[2], moved[3]]);
    if moved == 0 {
        return 0;
    }
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let mut n_relocated = 0;
    for at in 0..linked.len() {
        if !differs[at] {
            continue;
        }
        let is_moved = |start: &usize| {
            let (old, new) = (word(linked, *start), word(live, *start));
            let by = old.zip(new).map(|(old, new)| new.wrapping_sub(old));
            by.is_some_and(|by| by == moved || by == moved.wrapping_neg())
        };
        let starts = [THIRD, FOURTH]
            .into_iter()
            .filter_map(|back| at.checked_sub(back));
        if let Some(start) = starts.clone().find(is_moved) {
            for differs in &mut differs[start..start + 4] {
                n_relocated += u64::from(std::mem::take(differs));
            }
        }
    }
    n_relocated
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: ImageAddr = ImageAddr(0xffff_ffff_8100_0000);

    fn site(cause: Cause, at: u64, len: u64) -> Site {
        Site {
            cause,
            start: ImageAddr(START.0 + at),
            len,
        }
    }

    fn bytes_by_cause(difference: &TextDifference) -> Vec<(Cause, u64, u64)> {
        let tallies = difference.tallies.iter().filter(|t| 0 < t.bytes);
        tallies.map(|t| (t.cause, t.patched, t.bytes)).collect()
    }

    #[test]
    fn each_byte_has_one_cause_and_the_last_one_to_patch_wins() {
        let bytes = [0x90; 32];
        let mut live = bytes;
        live[4..9].copy_from_slice(&[0xe9, 1, 2, 3, 4]);
        live[12] = 0xcc;
        live[20..22].copy_from_slice(&[1, 2]);
        let mut sites = [
            site(Cause::StaticKeys, 6, 2),
            site(Cause::Alternatives, 2, 7),
            site(Cause::Ftrace, 28, 9),
        ];
        sites.sort();
        let difference = compare(
            Linked {
                start: START,
                bytes: &bytes,
            },
            &live,
            0,
            &sites,
        );
        let expected = [
            (Cause::Unknown, 1, 2),
            (Cause::Alternatives, 1, 3),
            (Cause::StaticKeys, 1, 2),
            (Cause::Kprobes, 1, 1),
        ];
        assert_eq!(bytes_by_cause(&difference), expected);
        assert_eq!((difference.compared, difference.bytes()), (32, 8));
        let run = UnknownRun {
            start: ImageAddr(START.0 + 20),
            linked: vec![0x90; 2],
            live: vec![1, 2],
        };
        assert_eq!(difference.unknown, [run]);
        let ftrace = difference.tallies.iter().find(|t| t.cause == Cause::Ftrace);
        assert_eq!(ftrace.map(|t| (t.sites, t.patched)), Some((1, 0)));
    }

    #[test]
    fn addresses_that_moved_with_the_image_are_no_difference() {
        let slide = 0x2f20_0000_u64;
        let mut bytes = vec![0x48, 0xc7, 0xc7];
        bytes.extend(0x8254_fff0_u32.to_le_bytes());
        bytes.extend([0x65, 0x48, 0x8b, 0x05]);
        bytes.extend(0x7e12_3456_u32.to_le_bytes());
        bytes.extend([0x90; 4]);
        let mut live = bytes.clone();
        live[3..7].copy_from_slice(&(0x8254_fff0_u32.wrapping_add(0x2f20_0000)).to_le_bytes());
        live[11..15].copy_from_slice(&(0x7e12_3456_u32.wrapping_sub(0x2f20_0000)).to_le_bytes());
        live[16] = 0xc3;
        let linked = Linked {
            start: START,
            bytes: &bytes,
        };
        let difference = compare(linked, &live, slide, &[]);
        assert_eq!(bytes_by_cause(&difference), [(Cause::Unknown, 1, 1)]);
        assert_eq!(difference.relocated, 4);
        assert_eq!(
            compare(linked, &live, 0, &[]).bytes(),
            5,
            "an image that did not move has none"
        );
    }

    #[test]
    fn texts_of_odd_lengths() {
        let linked = Linked {
            start: START,
            bytes: &[1, 2, 3],
        };
        let sites = [site(Cause::Ftrace, 2, u64::MAX), site(Cause::Kprobes, 77, 1)];
        assert_eq!(compare(linked, &[], 0x20_0000, &sites).compared, 0);
        assert_eq!(
            compare(linked, &[1, 2, 4], 0x20_0000, &sites).bytes_of(Cause::Ftrace),
            1
        );
    }
}
