//! Whether what is left is to be done soon: then no more files of processes are opened, which may take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is haste; copies share it.
#[derive(Clone, Debug, Default)]
pub struct Haste(Arc<AtomicBool>);

impl Haste {
    /// There is haste from now on.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether there is.
    pub(super) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
