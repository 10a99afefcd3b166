//! A list of two modules in memory, whole and damaged.

use proptest::prelude::*;

use super::*;
use hbbp_model::record::ModuleListLayout;

const HEAD: u64 = 0xffff_ffff_8280_0000;
/// Where a module has its description, tables, symbols, types, names, exported symbols.
const MODULES: [u64; 2] = [0xffff_ffff_c000_0000, 0xffff_ffff_c010_0000];
const LINKS: u64 = 8;
const LAYOUT: ModuleLayout = ModuleLayout {
    size: 64,
    name: 24,
    parts: [(0, 0); 2],
    tables: None,
    list: Some(ModuleListLayout {
        state: 0,
        links: 8,
        tables: 40,
        exported: 48,
        n_exported: 56,
    }),
};

type Memory = Vec<(u64, Vec<u8>)>;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A module with a function at its text, which it exports, another, and data.
fn module(at: u64, name: &[u8; 8], previous: u64, next: u64) -> Memory {
    let [tables, symbols, types, names, exported] =
        [0x1000, 0x2000, 0x3000, 0x4000, 0x5000].map(|it| at + it);
    let text = at + 0x8000;
    let entry = |name: u64, address: u64| words(&[name | 2 << 32, address, 0]);
    let table = [
        entry(0, 0),
        entry(1, text),
        entry(5, text + 0x40),
        entry(11, text + 0x1000),
    ]
    .concat();
    let to = |at: u64, to: u64| (to.wrapping_sub(at) as u32).to_le_bytes();
    let ksym = [to(exported, text), to(exported + 4, names + 1), [0; 4]].concat();
    vec![
        (
            at,
            words(&[
                0,
                next,
                previous,
                u64::from_le_bytes(*name),
                0,
                tables,
                exported,
                1,
            ]),
        ),
        (tables, words(&[symbols, 4, names, types])),
        (symbols, table),
        (types, b"ntTd".to_vec()),
        (names, [&b"\0one\0other\0data\0"[..], &[0; 600]].concat()),
        (exported, ksym),
    ]
}

fn two() -> Memory {
    let [first, second] = MODULES.map(|it| it + LINKS);
    let mut memory = vec![(HEAD, words(&[first, second]))];
    memory.extend(module(MODULES[0], b"ext4\0\0\0\0", HEAD, second));
    memory.extend(module(MODULES[1], b"hello\0\0\0", first, HEAD));
    memory
}

fn read(memory: &Memory, expected: &[&str]) -> Option<Vec<(String, char, u64)>> {
    let mut found = Vec::new();
    let mut read = |at: Va, out: &mut [u8]| {
        let bytes = memory.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(at.0.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(out.len())?)
        });
        bytes.is_some_and(|bytes| {
            out.copy_from_slice(bytes);
            true
        })
    };
    let mut take = |it: &Line<'_>| {
        let name = format!("{} [{}]", it.name, it.tag.unwrap_or(""));
        found.push((name, char::from(it.kind), it.address & 0xf_ffff));
    };
    read_module_list(Va(HEAD), &LAYOUT, expected, &mut read, &mut take)?;
    Some(found)
}

#[test]
fn symbols_of_all_modules_as_the_kernel_prints_them() {
    let found = read(&two(), &["ext4", "hello"]).expect("whole");
    let of = |module: &str| {
        let symbols = [
            ("one", 'T', 0x8000),
            ("other", 't', 0x8040),
            ("data", 'd', 0x9000),
        ];
        symbols.map(|(name, kind, at)| (format!("{name} [{module}]"), kind, at))
    };
    assert_eq!(found, [of("ext4"), of("hello")].concat());
    let mut unformed = two();
    unformed[1].1[0] = 3;
    assert_eq!(read(&unformed, &["hello"]), Some(of("hello").to_vec()));
    assert_eq!(read(&vec![(HEAD, words(&[HEAD, HEAD]))], &[]), Some(Vec::new()));
}

#[test]
fn a_list_that_does_not_agree_is_not_believed() {
    for other in [&["hello", "ext4"][..], &["ext4"], &["ext4", "hello", "x"], &[]] {
        assert_eq!(read(&two(), other), None);
    }
    let refused = |change: fn(&mut Memory)| {
        let mut memory = two();
        change(&mut memory);
        read(&memory, &["ext4", "hello"]).is_none()
    };
    assert!(!refused(|_| ()));
    assert!(refused(|it| it[1].1[16] ^= 8), "a link back to something else");
    assert!(refused(|it| it[0].1[8] ^= 8), "the last one is another");
    assert!(
        refused(|it| it[7].1[8..16].copy_from_slice(&(MODULES[0] + LINKS).to_le_bytes())),
        "it has no end"
    );
    assert!(refused(|it| it[2].1[8..12].fill(0xff)), "2^32 symbols");
    assert!(refused(|it| it[3].1.truncate(50)), "a table is cut");
    assert!(refused(|it| it[5].1.truncate(1)), "names are cut");
    assert!(refused(|it| it[1].1[56..60].fill(0xff)), "2^32 exported symbols");
    assert!(refused(|it| it[1].1[0] = 4), "an unknown state");
}

proptest! {
    #[test]
    fn damaged_lists_end(
        part in 0_usize..13,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
    ) {
        let mut memory = two();
        let bytes = &mut memory[part].1;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read(&memory, &["ext4", "hello"]);
    }
}
