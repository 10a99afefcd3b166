//! Names that recur in records, each held once: a machine that starts programs all the time names the same few files.

use std::collections::HashSet;
use std::sync::Arc;

/// Most names that are held, and their bytes: users can make up new ones for ever. Beyond that all are forgotten; those
/// that are used elsewhere live on there.
const MAX_NAMES: usize = 1 << 12;
const MAX_BYTES: usize = 1 << 20;

/// Names, each once.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: HashSet<Arc<str>>,
    n_bytes: usize,
}

impl Names {
    /// A name as records write it: up to the first zero, or all of the bytes. What is not UTF-8 is replaced.
    pub(crate) fn of_bytes(&mut self, bytes: &[u8]) -> Arc<str> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        self.of(&String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)))
    }

    /// A name.
    pub(crate) fn of(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if MAX_NAMES <= self.names.len() || MAX_BYTES < self.n_bytes.saturating_add(name.len()) {
            *self = Self::default();
        }
        let new: Arc<str> = Arc::from(name);
        self.n_bytes += name.len();
        self.names.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_once_up_to_a_bound() {
        let mut names = Names::default();
        let first = names.of_bytes(b"/bin/true\0\0garbage");
        assert_eq!(&*first, "/bin/true");
        assert!(Arc::ptr_eq(&first, &names.of("/bin/true")));
        assert_eq!(&*names.of_bytes(b"\xff"), "\u{fffd}");
        for n in 0..=MAX_NAMES {
            names.of(&n.to_string());
        }
        assert!(names.names.len() <= MAX_NAMES, "{}", names.names.len());
        assert!(!Arc::ptr_eq(&first, &names.of("/bin/true")));
        for n in 0..40 {
            names.of(&format!("{n}{}", "x".repeat(1 << 16)));
            assert!(names.n_bytes <= MAX_BYTES);
        }
    }
}
