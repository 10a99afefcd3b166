//! The records about processes that `perf script --show-mmap-events --show-task-events` prints between the samples.
//!
//! Formats: `perf_event__fprintf_*` in `tools/perf/util/event.c` of the kernel tree.

use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{BuildId, FileIdentity, Mmap, Record};

/// Interprets a line; `None` for lines that hold no record about an executable mapping or a process.
pub(super) fn parse_script_record(line: &str) -> Option<Record> {
    let (_, record) = line.split_once("PERF_RECORD_")?;
    if let Some(rest) = record
        .strip_prefix("MMAP2 ")
        .or_else(|| record.strip_prefix("MMAP "))
    {
        return parse_mmap(rest).map(Record::Mmap);
    }
    if let Some(rest) = record.strip_prefix("COMM") {
        // "COMM exec: name:pid/tid", where the name may hold anything.
        let exec = rest.starts_with(" exec");
        let (_, rest) = rest.split_once(": ")?;
        let (comm, ids) = rest.rsplit_once(':')?;
        let (pid, tid) = parse_ids(ids, '/')?;
        return Some(Record::Comm {
            pid,
            tid,
            comm: comm.into(),
            exec,
        });
    }
    let ids = |rest: &str| -> Option<((u32, u32), u32)> {
        let (child, parent) = rest.strip_prefix('(')?.split_once("):(")?;
        Some((
            parse_ids(child, ':')?,
            parse_ids(parent.split(')').next()?, ':')?.0,
        ))
    };
    if let Some(rest) = record.strip_prefix("FORK") {
        let ((pid, tid), parent_pid) = ids(rest)?;
        return Some(Record::Fork { pid, tid, parent_pid });
    }
    let ((pid, tid), _) = ids(record.strip_prefix("EXIT")?)?;
    Some(Record::Exit { pid, tid })
}

/// `pid/tid: [0xSTART(0xLEN) @ 0xOFFSET maj:min inode generation]: r-xp path`, or a build id in `<>` for the inode.
fn parse_mmap(rest: &str) -> Option<Mmap> {
    let (ids, rest) = rest.split_once(": [")?;
    let (place, rest) = rest.split_once("]: ")?;
    let (protection, path) = rest.split_once(' ')?;
    if !protection.contains('x') {
        return None;
    }
    // perf prints the pid of the kernel as -1.
    let pid = ids
        .split('/')
        .next()?
        .parse::<i64>()
        .ok()
        .and_then(|pid| u32::try_from(pid & 0xffff_ffff).ok())?;
    let (range, file) = place.split_once(" @ ")?;
    let (start, len) = range.split_once('(')?;
    let (offset, file) = file.split_once(' ').unwrap_or((file, ""));
    let (start, len) = (parse_hex(start)?, parse_hex(len.strip_suffix(')')?)?);
    start.checked_add(len)?;
    Some(Mmap {
        pid,
        start: Va(start),
        len,
        offset: FileOff(parse_hex(offset)?),
        identity: parse_identity(file),
        shared: protection.ends_with('s'),
        path: path.trim_end().into(),
    })
}

fn parse_identity(file: &str) -> FileIdentity {
    let build_id = file.trim().strip_prefix('<').and_then(|id| id.strip_suffix('>'));
    let build_id = build_id.and_then(parse_build_id).filter(|id| !id.is_empty());
    if let Some(build_id) = build_id.and_then(|id| BuildId::new(&id)) {
        return FileIdentity::BuildId(build_id);
    }
    let inode = || {
        let (device, rest) = file.split_once(' ')?;
        let (major, minor) = device.split_once(':')?;
        let mut numbers = rest.split(' ').map(|number| number.parse().ok());
        let inode = numbers.next()?.filter(|inode| *inode != 0)?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        Some(FileIdentity::Inode {
            major: number(major)?,
            minor: number(minor)?,
            inode,
            generation: numbers.next().flatten().unwrap_or(0),
        })
    };
    inode().unwrap_or(FileIdentity::Unknown)
}

/// Interprets a build id in hexadecimal.
pub fn parse_build_id(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect();
    if rest.is_empty() { bytes } else { None }
}

fn parse_hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn parse_ids(text: &str, between: char) -> Option<(u32, u32)> {
    let (pid, tid) = text.split_once(between)?;
    Some((pid.trim().parse().ok()?, tid.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmap(line: &str) -> Mmap {
        match parse_script_record(line) {
            Some(Record::Mmap(mmap)) => mmap,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mappings() {
        let inode = mmap(
            "a b 7 [001] 12.5: PERF_RECORD_MMAP2 7/8: [0x401000(0x2000) @ 0x1000 fe:01 77 9]: r-xp /usr/bin/a b\n",
        );
        assert_eq!((inode.pid, inode.start, inode.len), (7, Va(0x40_1000), 0x2000));
        assert_eq!((inode.offset, &*inode.path), (FileOff(0x1000), "/usr/bin/a b"));
        assert_eq!(
            inode.identity,
            FileIdentity::Inode {
                major: 0xfe,
                minor: 1,
                inode: 77,
                generation: 9
            }
        );
        let built = mmap("PERF_RECORD_MMAP2 7/7: [0x401000(0x2000) @ 0 <ab01ff>]: r-xp /a");
        assert_eq!(
            built.identity,
            FileIdentity::BuildId(BuildId::new(&[0xab, 1, 0xff]).unwrap())
        );
        let kernel = mmap(
            "PERF_RECORD_MMAP -1/0: [0xffffffff81e00000(0x3e8fa000) @ 0xffffffff81e00000]: x [kernel.kallsyms]_text",
        );
        assert_eq!((kernel.pid, &*kernel.path), (u32::MAX, "[kernel.kallsyms]_text"));
        assert_eq!(
            parse_script_record("PERF_RECORD_MMAP2 7/7: [0x1(0x2) @ 0 <>]: rw-p /a"),
            None
        );
        assert_eq!(
            parse_script_record("PERF_RECORD_MMAP2 7/7: [0xffffffffffffffff(0x2) @ 0 <>]: r-xp /a"),
            None
        );
    }

    #[test]
    fn processes() {
        let comm = |exec| Record::Comm {
            pid: 7,
            tid: 8,
            comm: "a:b/c".into(),
            exec,
        };
        assert_eq!(
            parse_script_record(" 1.5: PERF_RECORD_COMM: a:b/c:7/8"),
            Some(comm(false))
        );
        assert_eq!(
            parse_script_record("PERF_RECORD_COMM exec: a:b/c:7/8"),
            Some(comm(true))
        );
        let fork = Record::Fork {
            pid: 9,
            tid: 10,
            parent_pid: 7,
        };
        assert_eq!(parse_script_record("x PERF_RECORD_FORK(9:10):(7:8)"), Some(fork));
        assert_eq!(
            parse_script_record("x PERF_RECORD_EXIT(9:10):(7:8)"),
            Some(Record::Exit { pid: 9, tid: 10 })
        );
        for odd in [
            "",
            "PERF_RECORD_",
            "PERF_RECORD_EXIT(9",
            "PERF_RECORD_LOST 5",
            "PERF_RECORD_COMM: x",
        ] {
            assert_eq!(parse_script_record(odd), None, "{odd}");
        }
    }
}
