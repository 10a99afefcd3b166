//! An entry of a branch stack as `perf script -F brstack` prints it.
//!
//! `FROM/TO/M|P|-[N]/X|-/A|-/CYCLES[/TYPE[/SPEC]]`: versions of perf add fields at the end (6.1 prints the type, later
//! ones the speculation too); an address may be followed by its file in brackets and preceded by a build id and a
//! colon (`tools/perf/builtin-script.c`).

use std::fmt;

use hbbp_ebpf::branch::BranchEntry;

/// `branch_type_name` in `tools/perf/util/branch.c`, by the number of the type.
const TYPES: [&str; 13] = [
    "-",
    "COND",
    "UNCOND",
    "IND",
    "CALL",
    "IND_CALL",
    "RET",
    "SYSCALL",
    "SYSRET",
    "COND_CALL",
    "COND_RET",
    "ERET",
    "IRQ",
];
/// `branch_spec_desc` there.
const SPECULATIONS: [&str; 4] = [
    "-",
    "SPEC_WRONG_PATH",
    "NON_SPEC_CORRECT_PATH",
    "SPEC_CORRECT_PATH",
];

/// Prints an entry as the newest perf does.
pub struct EntryText(pub BranchEntry);

impl fmt::Display for EntryText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BranchEntry { from, to, flags } = self.0;
        let prediction = match flags & 3 {
            0 => '-',
            2 => 'P',
            _ => 'M',
        };
        let mark = |bit: u64, mark: char| if flags & bit == 0 { '-' } else { mark };
        let (in_tx, abort, cycles) = (mark(4, 'X'), mark(8, 'A'), self.0.cycles());
        let kind = usize::try_from(flags >> 20 & 15)
            .ok()
            .and_then(|kind| TYPES.get(kind))
            .unwrap_or(&"-");
        let spec = usize::try_from(self.0.speculation())
            .ok()
            .and_then(|spec| SPECULATIONS.get(spec))
            .unwrap_or(&"-");
        write!(
            f,
            "{from:#x}/{to:#x}/{prediction}/{in_tx}/{abort}/{cycles}/{kind}/{spec}"
        )
    }
}

/// An address as a text gives it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TextAddress<'a> {
    /// Build id in front of it; the address is then one of that file.
    pub(super) build_id: Option<&'a str>,
    /// The address.
    pub(super) address: u64,
    /// Path of its file in brackets after it.
    pub(super) file: Option<&'a str>,
}

/// An entry as a text gives it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TextEntry<'a> {
    pub(super) from: TextAddress<'a>,
    pub(super) to: TextAddress<'a>,
    pub(super) flags: u64,
}

/// Interprets `[BUILDID:][0x]HEX[(FILE)]`.
pub(super) fn parse_address(text: &str) -> Option<TextAddress<'_>> {
    let (text, file) = match text.split_once('(') {
        Some((text, file)) => (text, Some(file.trim_end_matches(')'))),
        None => (text, None),
    };
    let (build_id, digits) = match text.split_once(':') {
        Some((id, digits)) => (Some(id), digits),
        None => (None, text),
    };
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // A sign would be understood too.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let address = u64::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    let known = build_id.is_none_or(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()));
    known.then_some(TextAddress {
        build_id,
        address,
        file,
    })
}

/// Whether a word looks like an entry: it may still be one without addresses (`-F brstacksym`).
pub(super) fn looks_like_entry(word: &str) -> bool {
    let prediction = fields(word).nth(2);
    prediction.is_some_and(|field| matches!(field, "M" | "P" | "-" | "MN" | "PN" | "-N" | "N"))
}

/// The fields between slashes, except those in brackets, as paths of files do.
fn fields(word: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    word.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth == 0
    })
}

/// Interprets one entry.
pub(super) fn parse_entry(word: &str) -> Option<TextEntry<'_>> {
    let mut fields = fields(word);
    let (from, to) = (parse_address(fields.next()?)?, parse_address(fields.next()?)?);
    let prediction = match fields.next()?.bytes().next()? {
        b'M' => 1,
        b'P' => 2,
        _ => 0,
    };
    let in_tx = u64::from(fields.next()? == "X") << 2;
    let abort = u64::from(fields.next()? == "A") << 3;
    let cycles = fields
        .next()
        .map_or(Some(0), |cycles| cycles.parse::<u64>().ok())?
        .min(0xffff)
        << 4;
    let number = |names: &[&str], name: Option<&str>| {
        let idx = names.iter().position(|known| Some(*known) == name).unwrap_or(0);
        u64::try_from(idx).unwrap_or(0)
    };
    let kind = number(&TYPES, fields.next()) << 20;
    let spec = number(&SPECULATIONS, fields.next()) << 24;
    Some(TextEntry {
        from,
        to,
        flags: prediction | in_tx | abort | cycles | kind | spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(word: &str) -> Option<u64> {
        parse_entry(word).map(|entry| entry.flags)
    }

    #[test]
    fn all_versions_of_perf() {
        assert_eq!(flags("0x401000/0x402000/P/-/-/0"), Some(2));
        assert_eq!(flags("0x401000/0x402000/M/X/A/17/"), Some(1 | 4 | 8 | 17 << 4));
        assert_eq!(flags("0x401000/0x402000/-/-/-/3/COND"), Some(3 << 4 | 1 << 20));
        assert_eq!(
            flags("0x401000/0x402000/PN/-/-/0/RET/SPEC_CORRECT_PATH"),
            Some(2 | 6 << 20 | 3 << 24)
        );
        assert_eq!(flags("0x1/0x2/P/-/-"), Some(2));
        assert_eq!(flags("main+0x10/f/P/-/-/0/"), None);
        assert!(looks_like_entry("main+0x10/f/P/-/-/0/"));
    }

    #[test]
    fn addresses_with_files_and_build_ids() {
        let entry = parse_entry("0x401000(/usr/bin/a)/0x7f00(/lib/b.so)/P/-/-/0/").unwrap();
        assert_eq!((entry.from.address, entry.to.address), (0x40_1000, 0x7f00));
        assert_eq!(
            (entry.from.file, entry.to.file),
            (Some("/usr/bin/a"), Some("/lib/b.so"))
        );
        let entry = parse_entry("ab01:1000/abc:0x20/P/-/-/0").unwrap();
        assert_eq!((entry.from.build_id, entry.from.address), (Some("ab01"), 0x1000));
        assert_eq!((entry.to.build_id, entry.to.address), (Some("abc"), 0x20));
        for odd in ["", "+1", "0x", "x:", ":1", "12345678901234567", "[unknown]"] {
            assert_eq!(parse_address(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        for flags in [
            0,
            1,
            2,
            6,
            8 | 2,
            0xffff << 4,
            3 << 20 | 2,
            2 << 24,
            3 << 24 | 12 << 20 | 1,
        ] {
            let entry = BranchEntry {
                from: 0xffff_ffff_8100_0000,
                to: 0x1000,
                flags,
            };
            let text = EntryText(entry).to_string();
            assert!(looks_like_entry(&text), "{text}");
            let read = parse_entry(&text).unwrap();
            assert_eq!(
                (read.from.address, read.to.address, read.flags),
                (entry.from, entry.to, flags),
                "{text}"
            );
        }
    }
}
