//! Whether a file that was opened is the one that a mapping shows: by device, inode and generation.
//!
//! Records and /proc/PID/maps state the device of the superblock and the kernel's number of the inode
//! (kernel/events/core.c, `perf_event_mmap_event`; fs/proc/task_mmu.c, `show_map_vma`). `stat` asks the file system, which
//! may answer with others: btrfs has a device for each subvolume, overlayfs one for each layer (fs/overlayfs/inode.c,
//! `ovl_map_dev_ino`), and before Linux 6.8 mappings of overlayfs showed the file of the layer. Such devices belong to no
//! driver: their major number is 0. There the file is mapped here as well, so that the kernel makes the same statement of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, RawFd};

use rustix::fs::{self, Stat};

use super::proc_scan::parse_line;
use hbbp_model::record::FileIdentity;

/// How a file was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// By the mapping itself: it is what is mapped there now.
    ByMapping,
    /// By a path, which may lead elsewhere.
    ByPath,
}

/// Whether an opened file with this `stat` is the one that a mapping shows. A `stat` without these fields identifies no
/// mapping.
pub(super) fn is_mapped(file: &File, stat: &Stat, found: Found, identity: &FileIdentity) -> bool {
    let FileIdentity::Inode {
        major,
        minor,
        inode,
        generation,
    } = *identity
    else {
        return false;
    };
    let device = (fs::major(stat.st_dev), fs::minor(stat.st_dev));
    let is_same = (device, stat.st_ino) == ((major, minor), inode)
        || device.0 == 0
            && match found {
                Found::ByMapping => stat.st_ino == inode,
                Found::ByPath => as_mapped(file).is_some_and(|here| here.agrees(identity)),
            };
    is_same && (generation == 0 || [0, generation].contains(&read_generation(file)))
}

/// The generation of an inode; 0 if its file system does not report it.
fn read_generation(file: &File) -> u64 {
    /// `FS_IOC_GETVERSION` of include/uapi/linux/fs.h.
    const GET_VERSION: libc::Ioctl = 0x8008_7601_u32 as libc::Ioctl;
    let mut generation: libc::c_long = 0;
    // SAFETY: file systems write an int or a long there, and hold on to nothing.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION, &raw mut generation) };
    // Generations have 32 bits in the kernel.
    if result == 0 {
        (generation & 0xffff_ffff).cast_unsigned()
    } else {
        0
    }
}

/// How the kernel identifies a file that is mapped into this process.
fn as_mapped(file: &File) -> Option<FileIdentity> {
    let page = Page::map(file.as_raw_fd())?;
    let lines = BufReader::with_capacity(1 << 16, File::open("/proc/self/maps").ok()?).split(b'\n');
    let mut mappings = lines
        .map_while(Result::ok)
        .filter_map(|line| parse_line(std::process::id(), &String::from_utf8_lossy(&line)));
    let holds = |start: u64, len: u64| start <= page.0 && page.0 - start < len;
    mappings
        .find(|mmap| holds(mmap.start.0, mmap.len))
        .map(|mmap| mmap.identity)
}

/// The first page of a file, mapped and never touched; its address.
struct Page(u64);

impl Page {
    const LEN: usize = 4096;

    fn map(file: RawFd) -> Option<Self> {
        // SAFETY: a new mapping, which no other code reads.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::LEN,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file,
                0,
            )
        };
        (at != libc::MAP_FAILED).then(|| Self(at.expose_provenance() as u64))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and nothing borrows from it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0 as usize), Self::LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(file: &File, generation: u64) -> FileIdentity {
        let stat = fs::fstat(file).unwrap();
        FileIdentity::Inode {
            major: fs::major(stat.st_dev),
            minor: fs::minor(stat.st_dev),
            inode: stat.st_ino,
            generation,
        }
    }

    #[test]
    fn a_file_is_mapped_here_as_others_map_it() {
        let file = File::open("/proc/self/exe").unwrap();
        let stat = fs::fstat(&file).unwrap();
        let here = as_mapped(&file).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(own.to_str().unwrap()));
        let there = parse_line(1, line.unwrap()).unwrap().identity;
        assert_eq!(here, there);
        for found in [Found::ByMapping, Found::ByPath] {
            assert!(is_mapped(&file, &stat, found, &here));
            assert!(!is_mapped(&file, &stat, found, &FileIdentity::Unknown));
        }
    }

    #[test]
    fn an_inode_number_that_was_used_before_is_another_file() {
        let file = File::open("/proc/self/exe").unwrap();
        let stat = fs::fstat(&file).unwrap();
        let generation = read_generation(&file);
        if generation == 0 {
            println!("skipped: this file system reports no generation");
            return;
        }
        let FileIdentity::Inode {
            major, minor, inode, ..
        } = as_mapped(&file).unwrap()
        else {
            panic!("a file has an inode");
        };
        for (of_record, expected) in [(0, true), (generation, true), (generation ^ 1, false)] {
            let of_record = FileIdentity::Inode {
                major,
                minor,
                inode,
                generation: of_record,
            };
            for found in [Found::ByMapping, Found::ByPath] {
                assert_eq!(is_mapped(&file, &stat, found, &of_record), expected);
            }
        }
    }

    /// A file of memory has an anonymous device; its number is the one of another file there.
    #[test]
    fn number_without_a_driver_identifies_no_file() {
        let fd = fs::memfd_create("a", fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(fd);
        file.set_len(4096).unwrap();
        let stat = fs::fstat(&file).unwrap();
        let FileIdentity::Inode {
            major, minor, inode, ..
        } = identity(&file, 0)
        else {
            panic!("a file has an inode");
        };
        assert_eq!(major, 0);
        let elsewhere = FileIdentity::Inode {
            major,
            minor: minor + 1,
            inode,
            generation: 0,
        };
        assert!(!is_mapped(&file, &stat, Found::ByPath, &elsewhere));
        assert!(is_mapped(&file, &stat, Found::ByPath, &identity(&file, 0)));
    }
}
