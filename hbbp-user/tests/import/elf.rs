//! Made-up programs: one segment of code, and a build id where one is wanted.

use crate::run::Folder;

/// A program to write.
pub(crate) struct Program<'a> {
    pub(crate) code: &'a [u8],
    /// Offset of the code in the file; a whole number of pages or not.
    pub(crate) offset: u64,
    /// Its address.
    pub(crate) address: u64,
    pub(crate) build_id: &'a [u8],
}

/// A function with a loop of one block, a call and a jump back.
///
/// ```text
/// 00 mov ecx, 10      05 dec ecx      07 jne 05      09 call 10      0e jmp 00      10 ret
/// ```
pub(crate) const LOOP: &[u8] = &[
    0xb9, 10, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xe8, 2, 0, 0, 0, 0xeb, 0xf0, 0xc3,
];

/// Writes a program of [`LOOP`], which lies 0x1000 bytes from the start of its file, and returns its path.
pub(crate) fn write_loop(folder: &Folder, name: &str, address: u64, build_id: &[u8]) -> String {
    let bytes = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address,
        build_id,
    });
    folder.write(name, bytes).to_str().unwrap().to_owned()
}

/// The file of a program: ELF header, program headers, notes, code. No sections.
pub(crate) fn elf(program: &Program<'_>) -> Vec<u8> {
    let mut note = Vec::new();
    for n in [4, u32::try_from(program.build_id.len()).unwrap(), 3] {
        note.extend(n.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(program.build_id);
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [3_u16, 62] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(1_u32.to_le_bytes());
    for word in [program.address, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    let len = u64::try_from(program.code.len()).unwrap();
    let note_len = if program.build_id.is_empty() {
        0
    } else {
        u64::try_from(note.len()).unwrap()
    };
    bytes.extend(header(1, 5, program.offset, program.address, len));
    bytes.extend(header(4, 4, 176, 176, note_len));
    bytes.extend(note);
    bytes.resize(usize::try_from(program.offset).unwrap(), 0);
    bytes.extend(program.code);
    bytes
}

/// A copy of kernel memory as perf writes it: an ELF core file.
pub(crate) fn kcore(address: u64, code: &[u8]) -> Vec<u8> {
    let mut bytes = elf(&Program {
        code,
        offset: 0x1000,
        address,
        build_id: &[],
    });
    bytes[16] = 4;
    bytes[56] = 1;
    bytes
}

fn header(kind: u32, flags: u32, offset: u64, address: u64, len: u64) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(flags.to_le_bytes());
    for word in [offset, address, address, len, len, 0x1000] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}
