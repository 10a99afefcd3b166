//! Text that the user writes: rules and taxonomies.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::ensure;

/// Most bytes of such a file: a thousand times what those that are built in take. A device that never ends is refused.
const MOST: u64 = 1 << 20;

/// Reads a text file, or a pipe.
///
/// # Errors
/// It cannot be opened, is too long, or is not UTF-8.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    ensure!(
        u64::try_from(text.len()).is_ok_and(|len| len <= MOST),
        "it is longer than 1 MiB"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_long_files_are_refused() {
        for device in ["/dev/zero", "/dev/full", "/dev/urandom"] {
            assert!(read_text(Path::new(device)).is_err(), "{device}");
        }
        let made = tempfile::NamedTempFile::new().unwrap();
        let most = usize::try_from(MOST).unwrap();
        std::fs::write(made.path(), "a".repeat(most)).unwrap();
        assert_eq!(read_text(made.path()).unwrap().len(), most);
        std::fs::write(made.path(), "a".repeat(most + 1)).unwrap();
        assert!(read_text(made.path()).is_err());
    }
}
