//! jitdump: the file in which a compiler at run time writes each function with its address, its time and its code
//! (tools/perf/Documentation/jitdump-specification.txt, Linux).

use crate::byte_source::ByteSource;

/// The first four bytes, as a number of this machine.
const MAGIC: u32 = 0x4a69_5444;
/// Bytes of the file's head, and of the head of a record.
const HEAD: u64 = 40;
const RECORD_HEAD: u64 = 16;
/// Bytes of a record of a function, without its name and its code, and of a move.
const LOAD: u64 = 56;
const MOVE: u64 = 64;
/// `JITDUMP_FLAGS_ARCH_TIMESTAMP`: times are those of the processor.
const ARCH_TIMESTAMP: u64 = 1;
/// Records beyond this number are left out, so that short ones cannot fill the memory.
const MAX_RECORDS: usize = 1 << 18;
/// Functions that are searched for the one that was moved. Compilers move what they wrote lately, and no file may make the
/// search long.
const MAX_SEARCHED: usize = 1 << 12;

/// What a jitdump holds.
#[derive(Debug, Default)]
pub struct JitDump {
    /// The process that wrote it.
    pub pid: u32,
    /// Whether its times are those of CLOCK_MONOTONIC, in ns, as the specification wants.
    pub has_times: bool,
    /// Functions in the order of the file, which is that of time.
    pub functions: Vec<DumpedFunction>,
    /// Whether there are more records than are read.
    pub is_cut: bool,
}

/// A function that was put at an address, by its compiler or by a move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DumpedFunction {
    /// When.
    pub time: u64,
    /// Its address.
    pub address: u64,
    /// Bytes of its code.
    pub len: u64,
    /// Offset of its code in the file.
    pub code: u64,
    /// Offset of the record with its name in the file.
    pub(super) record: u64,
}

/// Whether a file is a jitdump.
pub(crate) fn is_jit_dump(file: &ByteSource) -> bool {
    number(file, 0) == Some(MAGIC)
}

/// Whether a path is that of a jitdump: `jit-PID.dump`.
pub fn is_jit_dump_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let pid = name
        .strip_prefix("jit-")
        .and_then(|name| name.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a jitdump; one that is damaged, or still being written, as far as it is whole.
pub fn read_jit_dump(file: &ByteSource) -> JitDump {
    let mut dump = JitDump::default();
    if !is_jit_dump(file) {
        return dump;
    }
    dump.pid = number(file, 20).unwrap_or(0);
    dump.has_times = long(file, 32).is_some_and(|flags| flags & ARCH_TIMESTAMP == 0);
    let mut next = number(file, 8).map_or(HEAD, u64::from).max(HEAD);
    for _ in 0..MAX_RECORDS {
        let Some((at, record)) = Record::at(file, next).map(|record| (next, record)) else {
            return dump;
        };
        let function = match record.id {
            0 => record.loaded(at),
            1 => record.moved(&dump.functions),
            _ => None,
        };
        dump.functions.extend(function);
        next = at.saturating_add(record.len);
    }
    dump.is_cut = true;
    dump
}

/// The name in the record of a function of this length; `None` if there is no such record.
pub(super) fn name_at(record: u64, len: u64, file: &ByteSource) -> Option<String> {
    let found = Record::at(file, record)?.loaded(record)?;
    (found.len == len).then(|| file.read_name(record + LOAD))?
}

/// A record, as far as its longest head.
struct Record {
    id: u32,
    len: u64,
    time: u64,
    head: [u8; MOVE as usize],
}

impl Record {
    /// The record at an offset, if all of it is there.
    fn at(file: &ByteSource, at: u64) -> Option<Self> {
        let left = file.len().checked_sub(at)?;
        let mut head = [0; MOVE as usize];
        let there = head.get_mut(..usize::try_from(left.min(MOVE)).ok()?)?;
        file.read_into(at, there).then_some(())?;
        let record = Self {
            id: u32::from_le_bytes(*head.first_chunk()?),
            len: u64::from(u32::from_le_bytes(*head.get(4..)?.first_chunk()?)),
            time: u64::from_le_bytes(*head.get(8..)?.first_chunk()?),
            head,
        };
        (RECORD_HEAD <= record.len && record.len <= left).then_some(record)
    }

    fn field(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.head.get(at..)?.first_chunk()?))
    }

    /// The function of a JIT_CODE_LOAD; its code is at the end of the record.
    fn loaded(&self, at: u64) -> Option<DumpedFunction> {
        let (address, len) = (self.field(32)?, self.field(40)?);
        let code = self.len.checked_sub(len)?;
        let is_whole = self.id == 0 && 0 < len && LOAD < code && address.checked_add(len).is_some();
        is_whole.then_some(DumpedFunction {
            time: self.time,
            address,
            len,
            code: at.checked_add(code)?,
            record: at,
        })
    }

    /// The function of a JIT_CODE_MOVE, which is the last one that was put where it comes from.
    fn moved(&self, before: &[DumpedFunction]) -> Option<DumpedFunction> {
        let (from, to, len) = (self.field(32)?, self.field(40)?, self.field(48)?);
        to.checked_add(len)?;
        let moved = before.iter().rev().take(MAX_SEARCHED);
        let mut moved = moved.filter(|function| function.address == from && function.len == len);
        let moved = moved.next().filter(|_| self.len == MOVE)?;
        Some(DumpedFunction {
            time: self.time,
            address: to,
            ..*moved
        })
    }
}

fn number(file: &ByteSource, at: u64) -> Option<u32> {
    Some(u32::from_le_bytes(*file.read(at, 4)?.first_chunk()?))
}

fn long(file: &ByteSource, at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(*file.read(at, 8)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The head of a file of this process.
    pub(crate) fn head(pid: u32) -> Vec<u8> {
        let words = [MAGIC, 1, 40, 62, 0, pid, 0, 0, 0, 0];
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn record(id: u32, time: u64, fields: &[u64], rest: &[u8]) -> Vec<u8> {
        let len = 24 + 8 * fields.len() + rest.len();
        let mut bytes = [id.to_le_bytes(), u32::try_from(len).unwrap().to_le_bytes()].concat();
        bytes.extend(time.to_le_bytes());
        bytes.extend([7_u32, 7].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        bytes.extend(rest);
        bytes
    }

    pub(crate) fn load(time: u64, address: u64, name: &str, code: &[u8]) -> Vec<u8> {
        let rest = [name.as_bytes(), &[0], code].concat();
        record(0, time, &[address, address, code.len() as u64, 1], &rest)
    }

    pub(crate) fn moved(time: u64, from: u64, to: u64, len: u64) -> Vec<u8> {
        record(1, time, &[to, from, to, len, 1], &[])
    }

    #[test]
    fn functions_have_their_times_and_their_code() {
        let [first, other] = [
            load(10, 0x1000, "first", &[1, 2, 3]),
            record(2, 11, &[], b"lines"),
        ];
        let second = load(12, 0x2000, "second", &[4, 5]);
        let moved = moved(13, 0x1000, 0x3000, 3);
        let cut = load(14, 0x4000, "cut", &[6; 100]);
        let mut bytes = [head(7), first, other, second, moved, cut].concat();
        bytes.truncate(bytes.len() - 1);
        let file = ByteSource::Memory(bytes);
        let dump = read_jit_dump(&file);
        assert!(is_jit_dump(&file) && dump.has_times && !dump.is_cut && dump.pid == 7);
        let found = dump.functions.iter().map(|found| {
            let code = file.read(found.code, found.len).unwrap();
            let name = name_at(found.record, found.len, &file).unwrap();
            (found.time, found.address, name, code)
        });
        let found: Vec<_> = found.collect();
        let expected =
            |time, address, name: &str, code: &[u8]| (time, address, name.to_owned(), code.to_vec());
        assert_eq!(
            found,
            [
                expected(10, 0x1000, "first", &[1, 2, 3]),
                expected(12, 0x2000, "second", &[4, 5]),
                expected(13, 0x3000, "first", &[1, 2, 3]),
            ]
        );
    }

    #[test]
    fn other_files_and_lying_records_are_none() {
        assert!(
            read_jit_dump(&ByteSource::Memory(b"MZ".to_vec()))
                .functions
                .is_empty()
        );
        let lying = record(0, 1, &[0x1000, 0x1000, u64::MAX, 1], b"x\0");
        let endless = record(0, 1, &[u64::MAX, u64::MAX, 1, 1], b"x\0\x90");
        let nowhere = moved(2, 0x5000, 0x6000, 9);
        let short = 3_u32.to_le_bytes();
        let file = [
            head(7),
            lying,
            endless,
            nowhere,
            vec![0; 4],
            short.to_vec(),
            vec![0; 80],
        ]
        .concat();
        assert!(read_jit_dump(&ByteSource::Memory(file)).functions.is_empty());
    }

    #[test]
    fn paths_are_those_of_the_specification() {
        assert!(is_jit_dump_path("/tmp/jit-12.dump") && is_jit_dump_path("jit-1.dump"));
        assert!(
            !["/tmp/jit-.dump", "/tmp/jit-1x.dump", "/jit-1.dump/a", "x-1.dump"]
                .map(is_jit_dump_path)
                .contains(&true)
        );
    }
}
