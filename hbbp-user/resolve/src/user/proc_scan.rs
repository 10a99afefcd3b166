//! Processes from before the run: one walk over /proc.
//!
//! Records describe only what happens from now on, so each live process is read once: name, number of threads,
//! executable mappings. The text of `maps` is interpreted here and not by procfs, because that crate gives up a whole
//! process over one path that is not UTF-8. Any user can make such a path.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use procfs::process::Process;

use crate::clock::now;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{FileIdentity, Mmap};

/// A live process as /proc shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scanned {
    /// Thread group id.
    pub tgid: u32,
    /// Command name.
    pub comm: String,
    /// The process that created it; 0 if that is none, or outside of our pid namespace.
    pub parent: u32,
    /// Number of its threads.
    pub n_threads: u32,
    /// When it was read, in ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// Executable mappings, and the files that are mapped next to executable memory; none for kernel threads.
    pub mappings: Vec<Mmap>,
    /// Whether these are all.
    pub whole: bool,
}

/// Reads all live processes; those that end meanwhile or may not be read are left out.
pub fn read_processes() -> Vec<Scanned> {
    read_tgids().into_iter().filter_map(read_process).collect()
}

/// Reads the ids of all live processes.
pub(crate) fn read_tgids() -> Vec<u32> {
    let processes = procfs::process::all_processes().into_iter().flatten();
    processes
        .filter_map(|p| u32::try_from(p.ok()?.pid).ok())
        .collect()
}

/// Reads one live process; `None` if it is gone or may not be read.
pub fn read_process(tgid: u32) -> Option<Scanned> {
    let at = now();
    let stat = Process::new(i32::try_from(tgid).ok()?).ok()?.stat().ok()?;
    let maps = read_maps(tgid, File::open(format!("/proc/{tgid}/maps")).ok()?).ok()?;
    Some(Scanned {
        tgid,
        comm: stat.comm,
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        n_threads: u32::try_from(stat.num_threads).unwrap_or(1),
        at,
        mappings: maps.mappings,
        whole: maps.whole,
    })
}

struct Maps {
    mappings: Vec<Mmap>,
    whole: bool,
}

/// Reads the executable mappings of /proc/PID/maps, up to a number that no real process reaches: a hostile one can have
/// `vm.max_map_count` of them with paths of 4 KiB. A line that is truncated is left out.
fn read_maps(tgid: u32, maps: impl Read) -> io::Result<Maps> {
    /// Bytes of all lines.
    const MOST_READ: u64 = 64 << 20;

    let mut text = BufReader::with_capacity(1 << 16, maps.take(MOST_READ));
    let (mut line, mut lines) = (Vec::new(), Lines::default());
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            let whole = 0 < text.into_inner().limit();
            return Ok(lines.finish(whole));
        }
        if let Some(line) = line.strip_suffix(b"\n")
            && !lines.take(tgid, line)
        {
            return Ok(lines.finish(false));
        }
    }
}

/// Interprets the text of /proc/PID/maps as [`read_process`] does; lines that make no sense are skipped.
pub fn parse_maps(tgid: u32, text: &[u8]) -> Vec<Mmap> {
    let mut lines = Lines::default();
    for line in text.split(|b| *b == b'\n') {
        if !lines.take(tgid, line) {
            break;
        }
    }
    lines.finish(true).mappings
}

/// The lines of /proc/PID/maps that are kept, in the order of their addresses.
#[derive(Debug, Default)]
struct Lines {
    kept: Vec<Mmap>,
    /// Bytes of them.
    n_bytes: usize,
    /// The last line of a file that is not executable, if no other file came since. The memory that comes next may have replaced
    /// text of that file.
    before: Option<Vec<u8>>,
    /// Whether executable memory came since the last file.
    is_after_memory: bool,
}

impl Lines {
    /// Takes a line; whether there is room for another one.
    fn take(&mut self, tgid: u32, line: &[u8]) -> bool {
        match is_executable(line) {
            Some(true) => {
                let before = self.before.take();
                self.is_after_memory = is_memory(line);
                before
                    .filter(|_| self.is_after_memory)
                    .is_none_or(|before| self.keep(tgid, &before))
                    && self.keep(tgid, line)
            }
            Some(false) if line.contains(&b'/') => {
                if mem::take(&mut self.is_after_memory) {
                    return self.keep(tgid, line);
                }
                let before = self.before.get_or_insert_default();
                before.clear();
                before.extend_from_slice(line);
                true
            }
            _ => true,
        }
    }

    fn keep(&mut self, tgid: u32, line: &[u8]) -> bool {
        let Some(mmap) = parse_line(tgid, &String::from_utf8_lossy(line)) else {
            return true;
        };
        self.n_bytes += line.len();
        let fits = self.n_bytes <= MOST_KEPT;
        if fits {
            self.kept.push(mmap);
        }
        fits
    }

    fn finish(self, whole: bool) -> Maps {
        Maps {
            mappings: self.kept,
            whole,
        }
    }
}

/// Bytes of the lines that are kept of a process.
const MOST_KEPT: usize = 16 << 20;

/// What the permissions of a line say; `None` if there are none.
fn is_executable(line: &[u8]) -> Option<bool> {
    let perms = line.split(|b| *b == b' ').nth(1)?;
    Some(perms.get(2) == Some(&b'x'))
}

/// Whether a line is of memory: without a name, or with the names that `prctl(PR_SET_VMA_ANON_NAME)` and mm/hugetlb.c give.
fn is_memory(line: &[u8]) -> bool {
    let names = |name: &[u8]| line.windows(name.len()).any(|part| part == name);
    let is_unnamed = !line.contains(&b'/') && !line.contains(&b'[');
    is_unnamed || names(b" [anon:") || names(b" /anon_hugepage")
}

/// `start-end perms offset major:minor inode path`, where the path may hold blanks and may be missing.
pub(super) fn parse_line(pid: u32, line: &str) -> Option<Mmap> {
    let (range, remainder) = line.split_once(' ')?;
    let (perms, remainder) = remainder.split_once(' ')?;
    let (offset, remainder) = remainder.split_once(' ')?;
    let (device, remainder) = remainder.split_once(' ')?;
    let (inode, path) = remainder.split_once(' ').unwrap_or((remainder, ""));
    let (start, end) = range.split_once('-')?;
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let start = hex(start)?;
    let (major, minor) = device.split_once(':')?;
    let inode = inode.parse().ok()?;
    let identity = match inode {
        0 => FileIdentity::Unknown,
        _ => FileIdentity::Inode {
            major: u32::from_str_radix(major, 16).ok()?,
            minor: u32::from_str_radix(minor, 16).ok()?,
            inode,
            generation: 0,
        },
    };
    let path = path.trim_start_matches(' ');
    let path = if path.is_empty() {
        ANONYMOUS.to_owned()
    } else {
        path.replace("\\012", "\n")
    };
    let len = hex(end)?.checked_sub(start).filter(|len| 0 < *len)?;
    Some(Mmap {
        pid,
        start: Va(start),
        len,
        offset: FileOff(hex(offset)?),
        identity,
        shared: perms.as_bytes().get(3) == Some(&b's'),
        path: path.into(),
    })
}

/// How records name memory without a file; maps leaves the name empty.
pub(crate) const ANONYMOUS: &str = "//anon";

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55c3b61c1000-55c3b61c3000 r--p 00000000 fe:00 247030                     /usr/bin/cat
55c3b61c3000-55c3b61c8000 r-xp 00002000 fe:00 247030                     /usr/bin/cat
55c3ce444000-55c3ce465000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0\x20
7f0000002000-7f0000003000 r-xs 00001000 00:01 1025                       /memfd:a b (deleted)
7fedae20c000-7fedae20e000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn executable_mappings_only() {
        let maps = parse_maps(7, MAPS.as_bytes());
        let paths: Vec<_> = maps.iter().map(|m| &*m.path).collect();
        assert_eq!(
            paths,
            [
                "/usr/bin/cat",
                "//anon",
                "/memfd:a b (deleted)",
                "[vdso]",
                "[vsyscall]"
            ]
        );
        let identity = FileIdentity::Inode {
            major: 0xfe,
            minor: 0,
            inode: 247_030,
            generation: 0,
        };
        assert_eq!(
            maps[0],
            Mmap {
                pid: 7,
                start: Va(0x55c3_b61c_3000),
                len: 0x5000,
                offset: FileOff(0x2000),
                identity,
                shared: false,
                path: "/usr/bin/cat".into(),
            }
        );
        assert_eq!(maps[1].identity, FileIdentity::Unknown);
        assert!(maps[2].shared);
    }

    /// The text of a program was moved to memory, all of it or a part.
    #[test]
    fn files_around_executable_memory_are_kept() {
        let files = |maps: &str| -> Vec<String> {
            let maps = parse_maps(1, maps.as_bytes());
            let files = maps.iter().filter(|mmap| mmap.path.contains("/app"));
            files.map(|mmap| format!("{:x}", mmap.start.0)).collect()
        };
        let line = |start: u64, perms: &str, name: &str| {
            format!("{start:x}-{:x} {perms} 00000000 fe:00 5 {name}\n", start + 0x1000)
        };
        let whole = [
            line(0x1000, "r--p", "/app"),
            line(0x2000, "r-xp", ""),
            line(0x3000, "r-xp", "/anon_hugepage (deleted)"),
            line(0x4000, "r--p", "/app"),
            line(0x5000, "rw-p", "/app"),
        ];
        assert_eq!(files(&whole.concat()), ["1000", "4000"]);
        let part = [
            line(0x1000, "r--p", "/app"),
            line(0x2000, "r-xp", "/app"),
            line(0x3000, "rwxp", "[anon:text]"),
            line(0x4000, "rw-p", "[heap]"),
            line(0x5000, "r--p", "/app"),
        ];
        assert_eq!(files(&part.concat()), ["2000", "5000"]);
        let none = [
            line(0x1000, "r--p", "/app"),
            line(0x2000, "r-xp", "[vdso]"),
            line(0x3000, "r--p", "/app"),
        ];
        assert!(files(&none.concat()).is_empty());
    }

    #[test]
    fn garbage_and_odd_paths() {
        assert!(parse_maps(1, b"").is_empty());
        assert!(
            parse_maps(
                1,
                b"10-5 r-xp 0 0:0 0 /x\nzz-1 r-xp 0 0:0 0\n1-2 r-xp\n1-2 r-xp 0 0 0\n"
            )
            .is_empty()
        );
        let odd = parse_maps(1, b"1000-2000 r-xp 00000000 fe:00 5 /tmp/a\\012b\xff\n");
        assert_eq!(&*odd[0].path, "/tmp/a\nb\u{fffd}");
    }

    #[test]
    fn a_giant_table_is_truncated_after_a_whole_line() {
        let line = format!("1000-2000 r-xp 00000000 fe:00 5 /{}\n", "x".repeat(4000));
        let maps = read_maps(1, Repeated(line.as_bytes(), 0)).expect("no error");
        assert_eq!(maps.mappings.len(), (16 << 20) / (line.len() - 1));
        assert!(maps.mappings.iter().all(|m| m.path.len() == 4001));
        assert!(!maps.whole);
    }

    #[test]
    fn mappings_of_data_take_no_memory() {
        let data = "1000-2000 rw-p 00000000 fe:00 5 /data\n".repeat(1 << 20);
        let text = data + "3000-4000 r-xp 00000000 fe:00 5 /code\n";
        let maps = read_maps(1, text.as_bytes()).expect("no error");
        assert_eq!((maps.mappings.len(), maps.whole), (1, true));
    }

    /// A text that never ends.
    struct Repeated<'a>(&'a [u8], usize);

    impl Read for Repeated<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *out {
                *byte = self.0[self.1 % self.0.len()];
                self.1 += 1;
            }
            Ok(out.len())
        }
    }

    #[test]
    fn this_process_is_there() {
        let own = std::process::id();
        let all = read_processes();
        let me = all.iter().find(|p| p.tgid == own).expect("own process");
        assert!(me.mappings.iter().any(|m| &*m.path == "[vdso]"));
        assert!(0 < me.n_threads);
    }
}
