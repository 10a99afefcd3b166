//! Build ids, from ELF notes as stored in files, in process memory and in /sys.

use std::fs;

use object::elf::{ELF_NOTE_GNU, NT_GNU_BUILD_ID};

/// A build id is a hash, as a rule of 20 bytes, or what the user of a linker gave it. Longer ones are cut.
pub(crate) const MAX_BUILD_ID: usize = 64;

/// Reads the build id of the running kernel from /sys/kernel/notes; empty if there is none.
pub fn read_kernel_build_id() -> Vec<u8> {
    fs::read("/sys/kernel/notes")
        .ok()
        .and_then(|n| parse_build_id(&n))
        .unwrap_or_default()
}

/// Reads the build id of a loaded module from /sys/module; empty if there is none.
pub fn read_module_build_id(module: &str) -> Vec<u8> {
    let path = format!("/sys/module/{module}/notes/.note.gnu.build-id");
    fs::read(path)
        .ok()
        .and_then(|n| parse_build_id(&n))
        .unwrap_or_default()
}

/// Finds the GNU build id in a run of ELF notes with 4-byte alignment (little endian).
pub fn parse_build_id(notes: &[u8]) -> Option<Vec<u8>> {
    let mut remainder = notes;
    loop {
        let name_len = word(remainder, 0)?;
        let desc_len = word(remainder, 4)?;
        let kind = word(remainder, 8)?;
        let name = remainder.get(12..)?.get(..name_len)?;
        let desc_at = name_len.checked_next_multiple_of(4)?.checked_add(12)?;
        let desc = remainder.get(desc_at..)?.get(..desc_len)?;
        let is_gnu = name.strip_suffix(&[0]) == Some(ELF_NOTE_GNU);
        let is_build_id = u32::try_from(kind) == Ok(NT_GNU_BUILD_ID);
        if is_gnu && is_build_id && !desc.is_empty() {
            return Some(desc.iter().copied().take(MAX_BUILD_ID).collect());
        }
        let next = desc_len.checked_next_multiple_of(4)?.checked_add(desc_at)?;
        remainder = remainder.get(next..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::hex;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [name.len(), desc.len()] {
            out.extend(u32::try_from(word).expect("short").to_le_bytes());
        }
        out.extend(kind.to_le_bytes());
        for part in [name, desc] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn the_build_id_follows_other_notes() {
        let mut notes = note(b"Xen\0", 6, &[1; 7]);
        notes.extend(note(b"GNU\0", 3, &[0xab; 20]));
        assert_eq!(parse_build_id(&notes), Some(vec![0xab; 20]));
        assert_eq!(hex(&[0xab, 1]), "ab01");
    }

    #[test]
    fn hostile_lengths_end_the_search() {
        let mut notes = note(b"GNU\0", 3, &[1; 20]);
        notes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse_build_id(&notes), None);
        assert_eq!(parse_build_id(&[]), None);
        assert_eq!(parse_build_id(&note(b"GNU\0", 3, &[1; 20])[..30]), None);
        assert_eq!(
            parse_build_id(&note(b"GNU\0", 3, &[7; 99])),
            Some(vec![7; MAX_BUILD_ID])
        );
    }

    #[test]
    fn this_kernel_has_one() {
        let id = read_kernel_build_id();
        assert!(id.is_empty() || id.len() == 20, "{}", hex(&id));
    }
}
