//! The progress bar of a measurement, of an import, or of a search for source lines, on a terminal only.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar that is cleared on drop.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A progress bar for a measurement of this duration, or a clock if it has no end. Nothing is drawn if standard
    /// error is not a terminal; a measurement without an end then says in a line what ends it.
    pub(crate) fn start(duration: Option<Duration>) -> Self {
        if duration.is_none() && !io::stderr().is_terminal() {
            // The receiver may be gone.
            let _ = writeln!(
                io::stderr(),
                "hbbp-sys: measuring until Ctrl-C (or for a time: --duration 10)"
            );
        }
        let millis = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let (bar, template) = match millis {
            Some(millis) => (
                ProgressBar::new(millis),
                "measuring {bar:40} {elapsed} (Ctrl-C to stop)",
            ),
            None => (
                ProgressBar::no_length(),
                "measuring {spinner} {elapsed} (Ctrl-C to stop)",
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// A progress bar for reading a number of bytes.
    pub(crate) fn reading(bytes: u64) -> Self {
        let bar = ProgressBar::new(bytes);
        if let Ok(style) = ProgressStyle::with_template("reading {bar:40} {percent}% {elapsed}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// A progress bar for looking up the source lines of a number of instructions. To open debug information takes seconds, in
    /// which the clock goes on.
    pub(crate) fn of_lines(instructions: usize) -> Self {
        let bar = ProgressBar::new(instructions as u64);
        if let Ok(style) = ProgressStyle::with_template("source lines {bar:40} {percent}% {elapsed}") {
            bar.set_style(style);
        }
        if io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self(bar)
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Number of bytes read so far.
    pub(crate) fn at_byte(&self, byte: u64) {
        self.0.set_position(byte);
    }

    /// Time since the start.
    pub(crate) fn at(&self, elapsed: Duration) {
        self.0
            .set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
