//! The functions of programs written in Go, whose runtime needs their names: `.gopclntab` stays when a program is stripped
//! (Go's `src/internal/abi/symtab.go` and `src/debug/gosym/pclntab.go`).

use hbbp_model::addr::FileOff;

use crate::byte_source::ByteSource;
use crate::layout::{Section, SymbolFile};

/// The largest programs have some hundred thousand functions.
const MAX_FUNCTIONS: u64 = 1 << 20;
/// The first word of the table, since Go 1.20 and 1.18: offsets are those from the beginning of the text.
const GO_120: u32 = 0xffff_fff1;
const GO_118: u32 = 0xffff_fff0;

/// The functions of a program, and where their names are in the file.
#[derive(Debug)]
pub(crate) struct GoFunctions {
    pub(crate) names: FileOff,
    pub(crate) functions: Vec<GoFunction>,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoFunction {
    pub(crate) start: u64,
    pub(crate) len: u32,
    /// Where its name begins from the first of all names on.
    pub(crate) name: u32,
}

/// Reads them; `None` if it was not written in Go, or by a compiler before 1.18.
pub(crate) fn read_go_functions(own: SymbolFile<'_>) -> Option<GoFunctions> {
    let (source, layout) = (own.source, own.layout);
    let named = |section: &&Section| {
        let name = layout.section_name(source, section);
        name.is_some_and(|name| name.ends_with(".gopclntab"))
    };
    let table = layout.sections.iter().find(named)?;
    let at = |offset: u64| table.offset.0.checked_add(offset);
    // Magic, two zeros, quantum of instructions, size of a pointer; then words: functions, files, start of the text, and the
    // offsets of names, units, files, pc tables and functions.
    let head: Vec<u8> = source.read(at(0)?, 8 + 8 * 8)?;
    let (head, words) = head.split_first_chunk::<8>()?;
    let (magic, kind) = head.split_first_chunk::<4>()?;
    let is_known = [GO_120, GO_118].contains(&u32::from_le_bytes(*magic)) && kind == [0, 0, 1, 8];
    let (words, _) = words.as_chunks::<8>();
    let word = |nth: usize| words.get(nth).map(|word| u64::from_le_bytes(*word));
    let (n, names, functions) = (word(0)?, word(3)?, word(7)?);
    (is_known && n <= MAX_FUNCTIONS).then_some(())?;
    let text = match word(2)? {
        // The linker leaves it to the loader of a program that may be loaded anywhere.
        0 => text_start(own)?,
        start => start,
    };
    let entries = read_words(source, at(functions)?, 2 * n + 1)?;
    let (starts, _) = entries.as_chunks::<2>();
    let ends = entries.iter().skip(2).step_by(2);
    let mut found = Vec::with_capacity(starts.len());
    for ([start, info], end) in starts.iter().zip(ends) {
        // The start once more, and the name.
        let info = at(functions)?.checked_add(u64::from(*info))?.checked_add(4)?;
        let mut name = [0; 4];
        if source.read_into(info, &mut name) && start < end {
            found.push(GoFunction {
                start: text.checked_add(u64::from(*start))?,
                len: end - start,
                name: u32::from_le_bytes(name),
            });
        }
    }
    Some(GoFunctions {
        names: FileOff(at(names)?),
        functions: found,
    })
}

/// The address of the section of code.
fn text_start(own: SymbolFile<'_>) -> Option<u64> {
    let layout = own.layout;
    let code = layout.sections.iter().filter(|section| section.executable);
    let mut text =
        code.filter(|section| layout.section_name(own.source, section).as_deref() == Some(".text"));
    text.next().map(|section| section.start.0)
}

fn read_words(source: &ByteSource, offset: u64, n: u64) -> Option<Vec<u32>> {
    let bytes = source.read(offset, n.checked_mul(4)?)?;
    let (words, _) = bytes.as_chunks::<4>();
    Some(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use hbbp_model::addr::ImageAddr;
    use proptest::prelude::*;

    use super::*;
    use crate::functions::read_functions;
    use crate::layout::read_layout;
    use crate::made_elf::{MadeSection, made};

    /// A table of two functions, as `readelf -x .gopclntab` shows that of a program of Go 1.19.
    fn table(text: u64) -> Vec<u8> {
        let mut bytes = [&GO_118.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        // Functions, files, text, and the offsets of names, units, files, pc tables and functions.
        for word in [2, 1, text, 72, 0, 0, 0, 96] {
            bytes.extend(u64::to_le_bytes(word));
        }
        bytes.extend(b"main.first\0main.second\0\0");
        // Start and information of each, and the end; then the information: start, name.
        for word in [0x10_u32, 20, 0x30, 28, 0x40, 0x10, 0, 0x30, 11] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    fn program(name: &'static str, table: Vec<u8>) -> ByteSource {
        let mut section = MadeSection::unmapped(name, table);
        section.start = 0x9000;
        made(vec![MadeSection::code(0x1000, 0x80), section])
    }

    fn names(source: &ByteSource) -> Vec<(u64, u64, String)> {
        let layout = read_layout(source).unwrap();
        let functions = read_functions(
            SymbolFile {
                source,
                layout: &layout,
            },
            &[],
        );
        let at = |at| functions.read_function_at(ImageAddr(at), source, &[]);
        let found = [0x1008, 0x1010, 0x103f, 0x1040].map(at);
        let named = found.into_iter().flatten();
        named.map(|s| (s.start.0, s.len, s.name)).collect()
    }

    #[test]
    fn stripped_programs_have_the_names_of_the_runtime() {
        let expected = [
            (0x1010, 0x20, "main.first".to_owned()),
            (0x1030, 0x10, "main.second".to_owned()),
        ];
        // The second one is for a program whose text is moved when it is loaded.
        for (name, text) in [(".gopclntab", 0x1000), (".data.rel.ro.gopclntab", 0)] {
            assert_eq!(names(&program(name, table(text))), expected);
        }
        let mut other = table(0x1000);
        other[0] = 0xf5;
        assert_eq!(names(&program(".gopclntab", other)), []);
    }

    proptest! {
        #[test]
        fn any_table_ends(changes in prop::collection::vec((0usize..130, any::<u8>()), 1..9)) {
            let mut table = table(0x1000);
            for (at, value) in changes {
                if let Some(byte) = table.get_mut(at) {
                    *byte = value;
                }
            }
            names(&program(".gopclntab", table));
        }
    }
}
