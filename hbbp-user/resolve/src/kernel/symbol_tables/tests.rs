//! Tables as scripts/kallsyms.c makes them, whole and damaged.

use proptest::prelude::*;

use super::super::kallsyms::{KallsymsBuilder, parse_kallsyms};
use super::*;

const STEXT: u64 = 0xffff_ffff_8100_0000;
const RELEASE: &str = "6.12.1";
/// Tokens of more than one character; each visible character is one as well.
const LONG_TOKENS: [&str; 5] = ["T__x64_sys_", "t__pfx_", "_stext", "sys_", "__"];

/// Addresses of the tables, in the order of Linux 6.12.
fn info(names: usize) -> Vmcoreinfo {
    let names_at = STEXT + 0x100_0000;
    let end = Va((names_at + names as u64).next_multiple_of(8));
    Vmcoreinfo {
        release: RELEASE.to_owned(),
        stext: Va(STEXT),
        n_symbols: Va(names_at - 8),
        names: Va(names_at),
        token_table: end,
        token_index: Va(end.0 + 0x1000),
        offsets: Va(end.0 + 0x1200),
        relative_base: Va(end.0 + 0x100_0000),
    }
}

/// Memory with the tables, and where they are.
#[derive(Clone)]
struct Tables {
    info: Vmcoreinfo,
    parts: Vec<(Va, Vec<u8>)>,
}

impl Tables {
    /// The tables of these symbols (address, type and name), with this meaning of addresses.
    fn of(symbols: &[(u64, String)], addresses: Addresses) -> Self {
        let mut texts = vec![String::new(); N_TOKENS];
        for (code, text) in (0..).zip(LONG_TOKENS) {
            let code: usize = code;
            texts[code] = text.to_owned();
        }
        for code in 0x21..0x7f_u8 {
            texts[usize::from(code)] = char::from(code).to_string();
        }
        let (mut table, mut index) = (Vec::new(), Vec::new());
        for text in &texts {
            index.extend(u16::try_from(table.len()).expect("short").to_le_bytes());
            table.extend(text.bytes().chain([0]));
        }
        let mut names = Vec::new();
        for (_, text) in symbols {
            let codes = codes(text);
            let len = u16::try_from(codes.len()).expect("short");
            match len {
                0..0x80 => names.push(len as u8),
                _ => names.extend([len as u8 & 0x7f | 0x80, (len >> 7) as u8]),
            }
            names.extend(codes);
        }
        let offset = |address: u64| match addresses {
            Addresses::Relative(base) => (address - base) as u32,
            Addresses::Signed(_) if address < 1 << 31 => address as u32,
            Addresses::Signed(base) => !((address - base) as u32),
        };
        let (Addresses::Relative(base) | Addresses::Signed(base)) = addresses;
        let offsets = symbols
            .iter()
            .flat_map(|(address, _)| offset(*address).to_le_bytes());
        let n = u32::try_from(symbols.len()).expect("few");
        let info = info(names.len());
        let parts = vec![
            (info.n_symbols, n.to_le_bytes().to_vec()),
            (info.offsets, offsets.collect()),
            (info.relative_base, base.to_le_bytes().to_vec()),
            (info.names, names),
            (info.token_table, table),
            (info.token_index, index),
        ];
        Self { info, parts }
    }

    /// Memory after a part reads as zeros up to the next one.
    fn read(&self, at: Va, out: &mut [u8]) -> bool {
        let Some((start, bytes)) = self.parts.iter().find(|(start, _)| *start == at) else {
            return false;
        };
        assert!(out.len() as u64 <= 64 << 20, "{start}: {} bytes", out.len());
        out.fill(0);
        let len = out.len().min(bytes.len());
        out[..len].copy_from_slice(&bytes[..len]);
        true
    }

    fn symbols(&self) -> Option<Vec<(u64, String)>> {
        let tables = SymbolTables::read(&self.info, RELEASE, &mut |at, out| self.read(at, out))?;
        let mut found = Vec::new();
        tables.for_each(
            |_, _| true,
            |it| found.push((it.address, format!("{}{}", char::from(it.kind), it.name))),
        )?;
        Some(found)
    }
}

/// The tokens of a text, the longest first.
fn codes(mut text: &str) -> Vec<u8> {
    let mut codes = Vec::new();
    while let Some(first) = text.bytes().next() {
        let long = (0..).zip(LONG_TOKENS).find(|(_, token)| text.starts_with(token));
        let (code, len) = long.map_or((first, 1), |(code, token)| (code, token.len()));
        codes.push(code);
        text = &text[len..];
    }
    codes
}

fn some(extra: &str) -> Vec<(u64, String)> {
    let all = [
        (STEXT, "T_text"),
        (STEXT, "T_stext"),
        (STEXT + 0x10, "t__pfx_do_idle"),
        (STEXT + 0x20, "tdo_idle"),
        (STEXT + 0x80, "T__x64_sys_read"),
        (STEXT + 0x80, "t__do_sys_read"),
        (STEXT + 0x90, extra),
        (STEXT + 0x100, "Djiffies"),
        (STEXT + 0x110, "D__tracepoint_irq_exit"),
        (STEXT + 0x120, "d__start___jump_table"),
        (STEXT + 0x130, "dmodules"),
        (STEXT + 0x140, "db"),
        (STEXT + 0x150, "dbpf_kallsyms"),
        (STEXT + 0x160, "B_end"),
    ];
    all.map(|(at, text)| (at, text.to_owned())).to_vec()
}

#[test]
fn both_meanings_of_addresses_and_long_names() {
    let symbols = some(&format!("t{}", "ab.c".repeat(127)));
    for base in [STEXT, STEXT - 0x20_0000] {
        let relative = Tables::of(&symbols, Addresses::Relative(base));
        assert_eq!(relative.symbols().as_ref(), Some(&symbols));
        let with_absolute = [
            &[
                (0, "Afixed_percpu_data".to_owned()),
                (0x1000, "Acpu_tss".to_owned()),
            ],
            &symbols[..],
        ];
        let with_absolute = with_absolute.concat();
        let signed = Tables::of(&with_absolute, Addresses::Signed(base));
        assert_eq!(signed.symbols(), Some(with_absolute));
    }
}

#[test]
fn the_same_table_as_that_of_the_printed_text() {
    let symbols = some("W_weak");
    let tables = Tables::of(&symbols, Addresses::Signed(STEXT));
    let tables = SymbolTables::read(&tables.info, RELEASE, &mut |at, out| tables.read(at, out));
    let mut builder = KallsymsBuilder::default();
    tables
        .expect("whole")
        .for_each(KallsymsBuilder::takes_name, |it| builder.add(it))
        .expect("whole");
    let decoded = builder.finish();
    let line = |(at, text): &(u64, String)| {
        let (kind, name) = text.split_at(1);
        format!("{at:016x} {kind} {name}\n")
    };
    let text: String = symbols.iter().map(line).collect();
    let printed = parse_kallsyms(text.as_bytes());
    assert!(decoded.iter().eq(printed.iter()));
    assert_eq!(decoded.iter().count(), 5);
    assert_eq!(decoded.image, printed.image);
}

#[test]
fn what_does_not_agree_is_not_believed() {
    let whole = Tables::of(&some("tx"), Addresses::Signed(STEXT));
    let refused = |change: fn(&mut Tables)| {
        let mut tables = whole.clone();
        change(&mut tables);
        tables.symbols().is_none()
    };
    assert!(!refused(|_| ()));
    assert!(refused(|it| it.info.release = "6.12.2".to_owned()));
    assert!(refused(|it| it.info.stext.0 += 16));
    assert!(refused(|it| it.info.relative_base.0 = 1), "nothing to read");
    assert!(refused(|it| it.parts[0].1 = vec![0; 4]), "no symbols");
    assert!(refused(|it| it.parts[0].1 = vec![0xff; 4]), "2^32 symbols");
    assert!(refused(|it| it.parts[0].1 = vec![0, 0, 0x10, 0]), "2^20 symbols");
    assert!(refused(|it| it.parts[0].1[0] += 1), "one name too few");
    assert!(refused(|it| it.parts[3].1[0] = 0xff), "a name beyond the end");
    assert!(
        refused(|it| it.parts[5].1[2 * usize::from(b'T')..][..2].fill(0xff)),
        "a token beyond the table"
    );
    assert!(refused(|it| it.parts[4].1.fill(b'a')), "an endless token");
    assert!(refused(|it| it.parts[4].1[0] = 0x80), "a token that is not text");
    assert!(refused(|it| it.parts[1].1.swap(0, 8)), "addresses descend");
    assert!(
        refused(|it| it.info.offsets.0 = it.info.token_index.0 + 8),
        "tables overlap"
    );
}

proptest! {
    #[test]
    fn any_names_come_back(names in prop::collection::vec("[a-zA-Z_.0-9$]{1,200}", 1..60), steps in prop::collection::vec(0_u64..200, 60)) {
        let mut at = STEXT;
        let mut symbols = vec![(STEXT, "T_stext".to_owned())];
        for (name, step) in names.iter().zip(steps) {
            at += step;
            symbols.push((at, format!("t{name}")));
        }
        for addresses in [Addresses::Signed(STEXT), Addresses::Relative(STEXT - 4096)] {
            let found = Tables::of(&symbols, addresses).symbols();
            prop_assert_eq!(found.as_ref(), Some(&symbols));
        }
    }

    #[test]
    fn damaged_tables_end_within_bounds(
        part in 0_usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut tables = Tables::of(&some("tx"), Addresses::Signed(STEXT));
        let bytes = &mut tables.parts[part].1;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = tables.symbols();
        let bytes = &mut tables.parts[part].1;
        bytes.truncate(cut.index(bytes.len()));
        let _ = tables.symbols();
    }
}
