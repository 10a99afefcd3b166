//! Record bodies as bytes, turned into typed records.
//!
//! The same layouts come from the live sideband ring and from perf.data files, where they may be hostile: any length
//! that does not hold is an error, never a panic.
//! (The crate linux-perf-event-reader asserts on the length of a build id, and leaves KSYMBOL and TEXT_POKE unparsed.)
//! Layouts: `enum perf_event_type` in `include/uapi/linux/perf_event.h`.

use std::fmt;

use super::{BuildId, FileIdentity, Mmap, Names, Record};
use crate::addr::{FileOff, Va};

/// A record that ends too early or says something impossible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("truncated or inconsistent record")
    }
}

impl std::error::Error for Malformed {}

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const KSYMBOL: u32 = 17;
const TEXT_POKE: u32 = 20;

/// `PERF_RECORD_MISC_MMAP_DATA` and `PERF_RECORD_MISC_COMM_EXEC` share a bit, whose meaning depends on the record type.
const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
/// The record has a build id instead of device, inode and generation.
pub const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
const PROT_EXEC: u32 = 4;
/// include/uapi/linux/mman.h; the kernel writes it for VM_MAYSHARE (kernel/events/core.c, `perf_event_mmap_event`).
const MAP_SHARED: u32 = 1;
const KSYMBOL_TYPE_BPF: u16 = 1;
const KSYMBOL_UNREGISTER: u16 = 1;

/// Interprets the body of a record of the given type, without its header.
/// `None` for types that say nothing about processes or kernel text, and for mappings of data. Names that recur are held once.
pub fn parse_record(
    kind: u32,
    misc: u16,
    body: &[u8],
    names: &mut Names,
) -> Result<Option<Record>, Malformed> {
    let mut body = Body(body);
    let record = match kind {
        MMAP if misc & MISC_MMAP_DATA != 0 => return Ok(None),
        MMAP => Record::Mmap(mmap(&mut body, names)?),
        MMAP2 => return Ok(mmap2(&mut body, misc, names)?.map(Record::Mmap)),
        COMM => {
            let (pid, tid) = (body.u32()?, body.u32()?);
            Record::Comm {
                pid,
                tid,
                comm: names.of_bytes(body.0),
                exec: misc & MISC_COMM_EXEC != 0,
            }
        }
        FORK | EXIT => {
            let (pid, parent_pid, tid, _parent_tid) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            match kind {
                FORK => Record::Fork { pid, tid, parent_pid },
                _ => Record::Exit { pid, tid },
            }
        }
        KSYMBOL => {
            let (start, len, kind, flags) = (Va(body.u64()?), body.u32()?, body.u16()?, body.u16()?);
            Record::Ksymbol {
                start,
                len,
                name: body.string(),
                bpf: kind == KSYMBOL_TYPE_BPF,
                gone: flags & KSYMBOL_UNREGISTER != 0,
            }
        }
        TEXT_POKE => {
            let (start, old_len, new_len) = (Va(body.u64()?), body.u16()?, body.u16()?);
            let old = body.take(old_len.into())?.to_vec();
            let new = body.take(new_len.into())?.to_vec();
            Record::TextPoke { start, old, new }
        }
        LOST => {
            let _id = body.u64()?;
            Record::Lost(body.u64()?)
        }
        LOST_SAMPLES => Record::Lost(body.u64()?),
        _ => return Ok(None),
    };
    Ok(Some(record))
}

fn mmap(body: &mut Body<'_>, names: &mut Names) -> Result<Mmap, Malformed> {
    let (pid, start, len, offset) = extent(body)?;
    Ok(Mmap {
        pid,
        start,
        len,
        offset,
        identity: FileIdentity::Unknown,
        shared: false,
        path: names.of_bytes(body.0),
    })
}

/// `None` for a mapping of data.
fn mmap2(body: &mut Body<'_>, misc: u16, names: &mut Names) -> Result<Option<Mmap>, Malformed> {
    let (pid, start, len, offset) = extent(body)?;
    let identity = identity(body, misc)?;
    let (prot, flags) = (body.u32()?, body.u32()?);
    let mmap = Mmap {
        pid,
        start,
        len,
        offset,
        identity,
        shared: flags & MAP_SHARED != 0,
        path: names.of_bytes(body.0),
    };
    Ok((prot & PROT_EXEC != 0).then_some(mmap))
}

fn extent(body: &mut Body<'_>) -> Result<(u32, Va, u64, FileOff), Malformed> {
    let (pid, _tid) = (body.u32()?, body.u32()?);
    let (start, len, offset) = (Va(body.u64()?), body.u64()?, FileOff(body.u64()?));
    start.checked_add(len).ok_or(Malformed)?;
    Ok((pid, start, len, offset))
}

/// The kernel marks records that hold an inode as if they held a build id where another listener asked for build ids
/// (kernel/events/core.c at v6.1, `perf_event_mmap_output`). So the mark is believed where the bytes are those of a build id.
fn identity(body: &mut Body<'_>, misc: u16) -> Result<FileIdentity, Malformed> {
    let held = body.array()?;
    let build_id = (misc & MISC_MMAP_BUILD_ID != 0)
        .then(|| build_id(&held))
        .flatten();
    build_id.map_or_else(|| inode(&mut Body(&held)), |id| Ok(FileIdentity::BuildId(id)))
}

/// A build id: its size, three zeros, and the id, which the kernel fills with zeros to 20 bytes. `None` for what cannot be
/// one: with a size of 0, of more than 20, or with bytes after the end.
fn build_id(held: &[u8; 24]) -> Option<BuildId> {
    let (&[size, 0, 0, 0], id) = held.split_first_chunk()? else {
        return None;
    };
    let (id, rest) = id.split_at_checked(usize::from(size))?;
    let is_one = !id.is_empty() && rest.iter().all(|byte| *byte == 0);
    BuildId::new(id).filter(|_| is_one)
}

fn inode(body: &mut Body<'_>) -> Result<FileIdentity, Malformed> {
    let (major, minor) = (body.u32()?, body.u32()?);
    let (inode, generation) = (body.u64()?, body.u64()?);
    Ok(match inode {
        0 => FileIdentity::Unknown,
        inode => FileIdentity::Inode {
            major,
            minor,
            inode,
            generation,
        },
    })
}

/// The rest of a record body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes up to the first zero, or all of them; bytes that are not UTF-8 are replaced.
    fn string(&self) -> String {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(self.0.get(..end).unwrap_or(self.0)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmap2(misc_id: &[u8; 24], prot: u32) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(7u32.to_le_bytes());
        body.extend(8u32.to_le_bytes());
        for field in [0x40_0000u64, 0x1000, 0x2000] {
            body.extend(field.to_le_bytes());
        }
        body.extend(misc_id);
        body.extend(prot.to_le_bytes());
        body.extend(2u32.to_le_bytes());
        body.extend(b"/bin/true\0\0\0\0\0\0\0");
        body
    }

    #[test]
    fn mmap2_build_id_is_parsed() {
        let mut id = [0; 24];
        id[0] = 16;
        id[4..20].fill(0xab);
        let record = parse_record(MMAP2, MISC_MMAP_BUILD_ID, &mmap2(&id, 5), &mut Names::default()).unwrap();
        let Some(Record::Mmap(mmap)) = record else {
            panic!("{record:?}")
        };
        assert_eq!(
            (mmap.pid, mmap.start, mmap.len, mmap.offset),
            (7, Va(0x40_0000), 0x1000, FileOff(0x2000))
        );
        assert_eq!(
            mmap.identity,
            FileIdentity::BuildId(BuildId::new(&[0xab; 16]).unwrap())
        );
        assert_eq!(&*mmap.path, "/bin/true");
        assert!(!mmap.shared, "MAP_PRIVATE");
    }

    #[test]
    fn an_inode_that_is_marked_as_a_build_id_is_read_as_one() {
        let inode = |major: u32, generation: u64| {
            let mut held = [0; 24];
            held[..4].copy_from_slice(&major.to_le_bytes());
            held[4..8].copy_from_slice(&3u32.to_le_bytes());
            held[8..16].copy_from_slice(&77u64.to_le_bytes());
            held[16..].copy_from_slice(&generation.to_le_bytes());
            held
        };
        let identity = |held: &[u8; 24], misc| {
            let record = parse_record(MMAP2, misc, &mmap2(held, 5), &mut Names::default());
            let Ok(Some(Record::Mmap(mmap))) = record else {
                panic!("{record:?}")
            };
            mmap.identity
        };
        // A major number of 1 to 15 is decided by the generation, one of 16 to 20 is ambiguous.
        for (major, generation) in (0..16)
            .map(|major| (major, 0x9abc_def0))
            .chain((21..0x200).map(|major| (major, 0)))
        {
            let held = inode(major, generation);
            let expected = FileIdentity::Inode {
                major,
                minor: 3,
                inode: 77,
                generation,
            };
            for misc in [0, MISC_MMAP_BUILD_ID] {
                assert_eq!(identity(&held, misc), expected);
            }
        }
    }

    #[test]
    fn data_mappings_are_skipped() {
        assert_eq!(
            parse_record(MMAP2, 0, &mmap2(&[0; 24], 1), &mut Names::default()),
            Ok(None)
        );
        assert_eq!(
            parse_record(MMAP, MISC_MMAP_DATA, &[], &mut Names::default()),
            Ok(None)
        );
    }

    #[test]
    fn text_poke_has_old_and_new_bytes() {
        let mut body = 0xffff_ffff_8100_0000u64.to_le_bytes().to_vec();
        body.extend([2, 0, 2, 0, 0x66, 0x90, 0xeb, 0x05]);
        let record = parse_record(TEXT_POKE, 0, &body, &mut Names::default()).unwrap();
        let start = Va(0xffff_ffff_8100_0000);
        assert_eq!(
            record,
            Some(Record::TextPoke {
                start,
                old: vec![0x66, 0x90],
                new: vec![0xeb, 5]
            })
        );
    }

    proptest::proptest! {
        #[test]
        fn parse_of_garbage_never_panics(kind in 0u32..24, misc: u16, body: Vec<u8>) {
            let _ = parse_record(kind, misc, &body, &mut Names::default());
        }
    }
}
