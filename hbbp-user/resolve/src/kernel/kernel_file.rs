//! Files of the kernel that check the capabilities of the reader only when they are opened.
//!
//! Each is opened once and stays open, so that a daemon can read it again after it has dropped CAP_SYSLOG and
//! CAP_SYS_RAWIO: symbols and modules (kernel/ksyms_common.c and kernel/module/procfs.c, `kallsyms_show_value`), and
//! kernel memory (fs/proc/kcore.c, `open_kcore`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// Bytes that are read at once; the kernel prints a page or less.
const AT_ONCE: usize = 64 << 10;

static OPENED: [OnceLock<File>; 3] = [const { OnceLock::new() }; 3];

/// Such a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KernelFile {
    /// Addresses need CAP_SYSLOG.
    Symbols,
    /// Addresses need CAP_SYSLOG.
    Modules,
    /// Needs CAP_SYS_RAWIO.
    Memory,
}

impl KernelFile {
    const ALL: [Self; 3] = [Self::Symbols, Self::Modules, Self::Memory];

    const fn path(self) -> &'static str {
        match self {
            Self::Symbols => "/proc/kallsyms",
            Self::Modules => "/proc/modules",
            Self::Memory => "/proc/kcore",
        }
    }

    /// The file, which all that ask for it share: it is read at offsets only.
    ///
    /// # Errors
    /// It cannot be opened; the next call tries again.
    pub(super) fn open(self) -> io::Result<File> {
        let opened = OPENED.get(self as usize).ok_or(io::ErrorKind::NotFound)?;
        if let Some(file) = opened.get() {
            return file.try_clone();
        }
        let file = File::open(self.path())?;
        opened.get_or_init(|| file).try_clone()
    }

    /// Reads all of the file as it is now.
    pub(super) fn read(self) -> io::Result<Vec<u8>> {
        let file = self.open()?;
        let mut text = Vec::new();
        let mut part = vec![0; AT_ONCE];
        loop {
            let at = u64::try_from(text.len()).unwrap_or(u64::MAX);
            match file.read_at(&mut part, at) {
                Ok(0) => return Ok(text),
                Ok(n) => text.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens them all while there are capabilities. What cannot be opened now is tried again when it is read.
pub fn open_kernel_files() {
    for file in KernelFile::ALL {
        let _ = file.open();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_read_again_from_their_start() {
        let [first, second] = [(); 2].map(|()| KernelFile::Symbols.read().unwrap());
        let line = |text: &[u8]| text.split(|byte| *byte == b'\n').next().unwrap().to_vec();
        assert_eq!(line(&first), line(&second));
        assert!(1000 < first.iter().filter(|byte| **byte == b'\n').count());
        let longest = first.len().max(second.len());
        assert!(first.len().abs_diff(second.len()) < longest / 10);
    }
}
