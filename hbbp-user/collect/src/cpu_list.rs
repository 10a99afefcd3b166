//! Lists of CPUs, as the kernel writes them and users give them: which are online, and which may come online.

use std::io;
use std::path::Path;

/// The numbers of the CPUs that are online.
pub fn read_online() -> io::Result<Vec<u32>> {
    read(Path::new("/sys/devices/system/cpu/online"))
}

/// The CPUs that may come online. Their numbers may have gaps.
pub(crate) fn read_possible() -> io::Result<Vec<u32>> {
    read(Path::new("/sys/devices/system/cpu/possible"))
}

fn read(path: &Path) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(path)?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed CPU list"))
}

/// Interprets a list of CPUs such as `0-3,8,10-11`.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    /// More than any kernel supports (`NR_CPUS`), so that a malformed range cannot fill the memory.
    const MAX_CPUS: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || MAX_CPUS <= last {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("3-1"), None);
        assert_eq!(parse("0-4294967295"), None);
        assert_eq!(parse("x"), None);
    }
}
