//! The perf map or jitdump of a live process: which file it is, and whether it can be trusted.
//!
//! A perf map lies below the root of the process and is called after its id in its own pid namespace. A jitdump is mapped.
//! Anyone may write to such folders, so the file must be a regular one of the same owner as the process.

use std::os::unix::fs::MetadataExt;

use procfs::process::Process;

use super::mapped_file::open_below_process;
use hbbp_elf::byte_source::ByteSource;

/// The file of a map as it was at one time: device, inode, length, and when it was written to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MapStamp {
    place: (u64, u64),
    len: u64,
    written: (i64, i64),
}

impl MapStamp {
    /// That of an open file.
    pub(super) fn of(source: &ByteSource) -> Option<Self> {
        let ByteSource::File(file, len) = source else {
            return None;
        };
        let about = file.metadata().ok()?;
        Some(Self {
            place: (about.dev(), about.ino()),
            len: *len,
            written: (about.mtime(), about.mtime_nsec()),
        })
    }
}

/// Opens the map of a process, else the jitdump at a path; `None` if there is none, or none that can be trusted.
pub(super) fn open_trusted(tgid: u32, dump: Option<&str>) -> Option<ByteSource> {
    let process = Process::new(i32::try_from(tgid).ok()?).ok()?;
    let owner = process.uid().ok()?;
    let inner = process.status().ok()?.nspid?.into_iter().next_back()?;
    let map = open_below_process(tgid, &format!("/tmp/perf-{inner}.map")).ok();
    let file = map.or_else(|| open_below_process(tgid, dump?).ok())?;
    let trusted = match &file.source {
        ByteSource::File(file, _) => file.metadata().ok()?.uid() == owner,
        ByteSource::Bounded(..) | ByteSource::Memory(_) => false,
    };
    trusted.then_some(file.source)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command, Stdio};

    use hbbp_testing::missing::missing;

    use hbbp_elf::perf_map::read_perf_map;
    use hbbp_model::addr::ImageAddr;

    use super::*;

    /// Ends the processes of a namespace when it is dropped.
    struct Namespace(Child);

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn map_is_called_after_the_id_in_the_namespace() {
        const MAP: &str = "/tmp/perf-1.map";
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "sleep", "600"]);
        let Ok(mut outer) = unshare.stderr(Stdio::null()).spawn().map(Namespace) else {
            missing("unshare is missing (package util-linux)");
            return;
        };
        let pid = outer.0.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let inner = loop {
            if outer.0.try_wait().expect("it was spawned").is_some() {
                missing("a pid namespace needs root");
                return;
            }
            let children = fs::read_to_string(&children).unwrap_or_default();
            if let Some(inner) = children.split_whitespace().next() {
                break inner.parse().expect("a process id");
            }
        };
        fs::write(MAP, "1000 10 contained\n").expect("write");
        let file = open_trusted(inner, None).expect("it is there");
        let found = read_perf_map(&file).function_at(ImageAddr(0x1008), &file, 0);
        fs::remove_file(MAP).expect("clean up");
        assert_eq!(found.map(|s| s.name).as_deref(), Some("contained"));
    }

    #[test]
    fn own_map() {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        fs::write(&path, "1000 10 compiled\n").expect("write");
        let file = open_trusted(std::process::id(), None).expect("it is there");
        let found = read_perf_map(&file).function_at(ImageAddr(0x1008), &file, 0);
        fs::remove_file(&path).expect("clean up");
        assert_eq!(found.map(|s| s.name).as_deref(), Some("compiled"));
        assert!(open_trusted(u32::MAX, None).is_none());
    }
}
