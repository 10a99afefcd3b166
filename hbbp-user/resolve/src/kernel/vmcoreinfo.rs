//! What the kernel says of itself for tools that read its memory: release, and addresses of a few symbols.
//!
//! It is a note of /proc/kcore (kernel/vmcore_info.c, before Linux 6.9 kernel/crash_core.c): lines such as
//! `OSRELEASE=6.12.1` and `SYMBOL(_stext)=ffffffff81000000`. Since Linux 6.0 the tables of symbols are among them.

use hbbp_model::addr::Va;

/// Where the kernel has its symbols, and what they are checked by.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Vmcoreinfo {
    /// As uname gives it.
    pub(super) release: String,
    /// First byte of the functions of the image, as it runs.
    pub(super) stext: Va,
    /// Number of symbols, 32 bits.
    pub(super) n_symbols: Va,
    /// For each symbol 32 bits of its address.
    pub(super) offsets: Va,
    /// What these are relative to, 64 bits.
    pub(super) relative_base: Va,
    /// The names in tokens.
    pub(super) names: Va,
    /// The texts of the tokens.
    pub(super) token_table: Va,
    /// Where each of 256 tokens has its text, 16 bits each.
    pub(super) token_index: Va,
}

/// The note's name and its end.
const NAME: &[u8] = b"VMCOREINFO\0";

/// The text of the note among others: each has the lengths of its name and of what it describes, its type, and both, filled
/// up to 4 bytes.
pub(super) fn find_vmcoreinfo(mut notes: &[u8]) -> Option<&str> {
    loop {
        let (lengths, remainder) = notes.split_first_chunk::<12>()?;
        let [n0, n1, n2, n3, t0, t1, t2, t3, ..] = *lengths;
        let (name, remainder) = split_part(remainder, u32::from_le_bytes([n0, n1, n2, n3]))?;
        let (text, remainder) = split_part(remainder, u32::from_le_bytes([t0, t1, t2, t3]))?;
        if name == NAME {
            return str::from_utf8(text).ok();
        }
        notes = remainder;
    }
}

/// The first `len` bytes, and what follows them and what fills them up to 4 bytes. The last one may not be filled up.
fn split_part(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(len).ok()?;
    let padded = len.checked_next_multiple_of(4)?.min(bytes.len());
    Some((bytes.get(..len)?, bytes.get(padded..)?))
}

impl Vmcoreinfo {
    /// Interprets the text; `None` if something is missing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let values = text.lines().filter_map(|line| line.split_once('='));
            values
                .into_iter()
                .find_map(|(name, value)| (name == key).then_some(value))
        };
        let symbol = |name: &str| {
            let address = u64::from_str_radix(value(&format!("SYMBOL({name})"))?, 16).ok()?;
            (0 < address).then_some(Va(address))
        };
        Some(Self {
            release: value("OSRELEASE")?.to_owned(),
            stext: symbol("_stext")?,
            n_symbols: symbol("kallsyms_num_syms")?,
            offsets: symbol("kallsyms_offsets")?,
            relative_base: symbol("kallsyms_relative_base")?,
            names: symbol("kallsyms_names")?,
            token_table: symbol("kallsyms_token_table")?,
            token_index: symbol("kallsyms_token_index")?,
        })
    }

    /// Bytes from the start of a table up to the next one, and no more than `most`.
    pub(super) fn len_of(&self, table: Va, most: u64) -> u64 {
        let tables = [
            self.n_symbols,
            self.offsets,
            self.relative_base,
            self.names,
            self.token_table,
            self.token_index,
        ];
        let lens = tables.iter().filter_map(|next| next.since(table));
        lens.filter(|len| 0 < *len).min().unwrap_or(most).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Debian's 6.12 has it, but for other lines.
    const TEXT: &str = "OSRELEASE=6.12.57+deb12-amd64\nBUILD-ID=d5\nPAGESIZE=4096\nSYMBOL(_stext)=ffffffff81000000\n\
        SYMBOL(kallsyms_names)=ffffffff822ef4e8\nSYMBOL(kallsyms_num_syms)=ffffffff822ef4e0\n\
        SYMBOL(kallsyms_token_table)=ffffffff8252a5b0\nSYMBOL(kallsyms_token_index)=ffffffff8252a970\n\
        SYMBOL(kallsyms_offsets)=ffffffff8252ab70\nSYMBOL(kallsyms_relative_base)=ffffffff825e2ab0\nKERNELOFFSET=0\n";

    fn note(name: &[u8], text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for len in [name.len(), text.len(), 0] {
            bytes.extend(u32::try_from(len).expect("short").to_le_bytes());
        }
        for part in [name, text] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_note_is_found_among_others_and_read() {
        let notes = [note(b"CORE\0", &[1; 337]), note(NAME, TEXT.as_bytes())].concat();
        assert_eq!(find_vmcoreinfo(&notes), Some(TEXT));
        let found = Vmcoreinfo::parse(TEXT).expect("whole");
        assert_eq!(found.release, "6.12.57+deb12-amd64");
        assert_eq!(found.relative_base, Va(0xffff_ffff_825e_2ab0));
        assert_eq!(found.len_of(found.names, 1 << 30), 0x23_b0c8);
        assert_eq!(found.len_of(found.names, 9), 9);
        assert_eq!(found.len_of(found.relative_base, 8), 8, "the last of them");
        for len in 0..notes.len() {
            let cut = find_vmcoreinfo(&notes[..len]);
            assert!(cut.is_none() || len + 4 > notes.len(), "{len}");
        }
        for endless in [note(b"", b""), vec![0xff; 64]] {
            assert_eq!(find_vmcoreinfo(&endless), None);
        }
    }

    #[test]
    fn without_one_of_its_addresses_it_says_nothing() {
        for line in TEXT.lines().filter(|line| !line.starts_with(['B', 'P', 'K'])) {
            assert_eq!(Vmcoreinfo::parse(&TEXT.replace(line, "")), None, "{line}");
        }
    }
}
