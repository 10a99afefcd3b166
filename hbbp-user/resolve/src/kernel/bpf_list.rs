//! The code that the kernel compiled of BPF programs, and the trampolines that call them, from its list of them in its memory:
//! what it prints of them in /proc/kallsyms, in the same order (kernel/bpf/core.c, `bpf_get_kallsym`), with their lengths.
//!
//! What it misses is printed, and read where it is hit.

use super::kallsyms_line::Line;
use super::kernel_list::{ListShape, walk_list};
use super::map::KernelMap;
use super::module_list::visible;
use hbbp_model::addr::Va;
use hbbp_model::record::CompiledLayout;

/// More than any machine loads.
const MAX_PROGRAMS: usize = 1 << 14;
/// A million instructions of 64 bytes.
const MAX_LEN: u64 = 64 << 20;

/// Hands over the code in the list that starts at `head`; `None`, and nothing, where the list cannot be read.
pub(super) fn read_bpf_list(
    head: Va,
    layout: &CompiledLayout,
    read: &mut dyn FnMut(Va, &mut [u8]) -> bool,
    take: &mut dyn FnMut(&Line<'_>),
) -> Option<()> {
    let shape = ListShape {
        head,
        size: layout.size,
        links: layout.links,
        most: MAX_PROGRAMS,
    };
    let found = walk_list(shape, read, |bytes| layout.parse(bytes))?;
    for code in &found {
        let name = visible(&code.name).filter(|name| !name.is_empty());
        let len = code
            .end
            .since(code.start)
            .filter(|len| (1..=MAX_LEN).contains(len));
        if let Some((name, len)) = name.zip(len)
            && KernelMap::in_module_area(code.start)
        {
            take(&Line {
                address: code.start.0,
                size: Some(len),
                // `BPF_SYM_ELF_TYPE` in include/linux/filter.h.
                kind: b't',
                name,
                tag: Some("bpf"),
            });
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 0xffff_ffff_8280_0000;
    const ENTRIES: [u64; 2] = [0xffff_8880_0123_4000, 0xffff_8880_0567_8000];
    const CODE: u64 = 0xffff_ffff_c040_0000;
    const LAYOUT: CompiledLayout = CompiledLayout {
        size: 56,
        start: 0,
        end: 8,
        name: 16,
        links: 40,
    };

    fn read(change: impl Fn(&mut Vec<u8>)) -> Option<Vec<(String, u64, Option<u64>)>> {
        let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        let [first, second] = ENTRIES.map(|it| it + 40);
        let entry = |start: u64, len: u64, name: &[u8], next: u64, previous: u64| {
            let name = [name, &[0; 24]].concat();
            [
                words(&[start, start + len]),
                name[..24].to_vec(),
                words(&[next, previous]),
            ]
            .concat()
        };
        let mut damaged = entry(CODE, 0x80, b"bpf_prog_6deef7357e7b", second, HEAD);
        change(&mut damaged);
        let memory = [
            (HEAD, words(&[first, second])),
            (ENTRIES[0], damaged),
            (
                ENTRIES[1],
                entry(CODE + 0x1000, 0x1000, b"bpf_trampoline_1", HEAD, first),
            ),
        ];
        let mut read = |at: Va, out: &mut [u8]| {
            let found = memory
                .iter()
                .find(|(start, bytes)| *start == at.0 && bytes.len() == out.len());
            found.is_some_and(|(_, bytes)| {
                out.copy_from_slice(bytes);
                true
            })
        };
        let mut found = Vec::new();
        read_bpf_list(Va(HEAD), &LAYOUT, &mut read, &mut |it| {
            found.push((it.name.to_owned(), it.address, it.size));
        })?;
        Some(found)
    }

    #[test]
    fn programs_have_their_names_and_lengths() {
        let found = read(|_| ()).expect("whole");
        let program = ("bpf_prog_6deef7357e7b".to_owned(), CODE, Some(0x80));
        let trampoline = ("bpf_trampoline_1".to_owned(), CODE + 0x1000, Some(0x1000));
        assert_eq!(found, [program, trampoline.clone()]);
        for (at, value) in [(8, 0), (15, 0), (16, 0), (16, 0xff), (3, 0)] {
            assert_eq!(read(|it| it[at] = value), Some(vec![trampoline.clone()]), "{at}");
        }
        for at in [40, 48] {
            assert_eq!(read(|it| it[at] ^= 8), None, "a link to something else");
        }
        assert_eq!(read(|it| it.truncate(55)), None, "nothing to read");
    }
}
