//! The lines of source files next to annotated code.
//!
//! Debug information says which files these are, and it is the work of strangers: whoever names a file of root in it must not
//! have its lines printed. So they are read with the rights of the caller, no open waits for a pipe, and memory is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};

/// Bytes of source files that are read in all; the largest files of large projects have a tenth of it.
const MOST: u64 = 64 << 20;

/// The source files that were requested.
pub(super) struct SourceTexts {
    /// When the code was executed; `None` if that is not known.
    ran: Option<SystemTime>,
    files: HashMap<PathBuf, Option<Vec<String>>>,
    /// Bytes that may still be read.
    left: u64,
    /// Files that were changed after the code was executed.
    changed: Vec<PathBuf>,
}

impl SourceTexts {
    /// For code that was executed at this time, in ns since 1970; 0 if the time is not known.
    pub(super) fn new(ran: u64) -> Self {
        Self {
            ran: (0 < ran).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(ran)),
            files: HashMap::new(),
            left: MOST,
            changed: Vec::new(),
        }
    }

    /// The text of a line, `file:line`; `None` if its file is not here, or not as it was.
    pub(super) fn line(&mut self, source: &str) -> Option<String> {
        let (path, line) = source.rsplit_once(':')?;
        let line: usize = line.parse().ok()?;
        let path = Path::new(path);
        if !self.files.contains_key(path) {
            let lines = self.read(path);
            self.files.insert(path.to_owned(), lines);
        }
        let lines = self.files.get(path)?.as_ref()?;
        lines.get(line.checked_sub(1)?).cloned()
    }

    /// What the reader must know.
    pub(super) fn note(&self) -> Option<String> {
        let (first, others) = self.changed.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!(
            "{}{more} changed after the measurement, so source text is left out",
            first.display()
        ))
    }

    fn read(&mut self, path: &Path) -> Option<Vec<String>> {
        // Relative to a folder that is not known here.
        if !path.is_absolute() {
            return None;
        }
        // Opening a pipe without a writer would wait for one.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || self.left < metadata.len() {
            return None;
        }
        if self
            .ran
            .is_some_and(|ran| metadata.modified().is_ok_and(|at| ran < at))
        {
            self.changed.push(path.to_owned());
            return None;
        }
        let mut text = String::new();
        // A file may grow while it is read.
        let read = file.take(metadata.len()).read_to_string(&mut text).ok()?;
        self.left = self.left.saturating_sub(read as u64);
        Some(text.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> tempfile::NamedTempFile {
        let made = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(made.path(), "int main(void)\n{\n  return 0;\n}\n").unwrap();
        made
    }

    fn at(made: &tempfile::NamedTempFile, line: usize) -> String {
        format!("{}:{line}", made.path().display())
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let made = file();
        let mut texts = SourceTexts::new(0);
        assert_eq!(texts.line(&at(&made, 3)).as_deref(), Some("  return 0;"));
        assert_eq!(texts.line(&at(&made, 5)), None);
        assert_eq!(texts.line(&at(&made, 0)), None);
        assert_eq!(texts.line("main.c:1"), None);
        assert_eq!(texts.line("/no/such/main.c:1"), None);
        assert_eq!(texts.note(), None);
    }

    #[test]
    fn a_file_that_changed_since_has_no_lines_and_is_named() {
        let made = file();
        let mut texts = SourceTexts::new(1_000_000_000);
        assert_eq!(texts.line(&at(&made, 1)), None);
        assert_eq!(texts.line(&at(&made, 2)), None);
        let note = texts.note().unwrap();
        assert!(note.starts_with(made.path().to_str().unwrap()), "{note}");
        assert!(!note.contains("more"), "said once: {note}");
    }

    #[test]
    fn devices_and_pipes_are_not_read() {
        let mut texts = SourceTexts::new(0);
        assert_eq!(texts.line("/dev/zero:1"), None);
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.c");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(texts.line(&format!("{}:1", pipe.display())), None);
        texts.left = 8;
        assert_eq!(texts.line(&at(&file(), 1)), None, "no memory is left");
    }
}
