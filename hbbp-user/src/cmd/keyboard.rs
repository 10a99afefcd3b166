//! The terminal of `top`: keys that were pressed, and whether it is still there.
//!
//! The library that reads keys tries again for ever when a terminal is gone, as reading it then gives no bytes, or an error
//! (crossterm 0.29, `UnixInternalEventSource::try_read`). So the terminal is waited for here, and no key is read of one that
//! hung up.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What a terminal that is gone shows, whoever waits for what.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// Time to wait for the rest of a key.
const PART_OF_A_KEY: Duration = Duration::from_millis(5);

/// Where keys are read: standard input if it is a terminal, else the terminal of the session, as the library does.
#[derive(Debug)]
pub(super) struct Keyboard {
    of_session: Option<File>,
}

/// What the terminal had to say.
#[derive(Debug)]
pub(super) enum Heard {
    /// Nothing for some time.
    Nothing,
    /// A key, or another size.
    Event(Event),
    /// It is gone.
    Gone,
}

impl Keyboard {
    /// Finds the terminal; fails where there is none.
    pub(super) fn open() -> anyhow::Result<Self> {
        let of_session = if io::stdin().is_terminal() {
            None
        } else {
            let opened = File::options().read(true).write(true).open("/dev/tty");
            Some(opened.context("no terminal to read keys from: use `hbbp-sys top --batch`")?)
        };
        Ok(Self { of_session })
    }

    /// Waits for a key, up to some time.
    pub(super) fn wait(&self, time: Duration) -> anyhow::Result<Heard> {
        // What was read before, and another size of the screen, need no key to be there.
        for time in [Duration::ZERO, time] {
            if self.is_gone(time) {
                return Ok(Heard::Gone);
            }
            if event::poll(Duration::ZERO).context("failed to read a key")? {
                return Ok(Heard::Event(event::read().context("failed to read a key")?));
            }
        }
        // Bytes that are there may be no whole key.
        thread::sleep(PART_OF_A_KEY);
        Ok(Heard::Nothing)
    }

    /// Whether the terminal is gone, after up to some time, until it has something to say.
    pub(super) fn is_gone(&self, time: Duration) -> bool {
        let (input, output) = (io::stdin(), io::stdout());
        let keys: BorrowedFd<'_> = self
            .of_session
            .as_ref()
            .map_or(input.as_fd(), |file| file.as_fd());
        let mut ends = [
            PollFd::from_borrowed_fd(keys, PollFlags::IN),
            PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty()),
        ];
        let time = Timespec::try_from(time).ok();
        match poll(&mut ends, time.as_ref()) {
            Ok(_) => ends.iter().any(|end| end.revents().intersects(GONE)),
            Err(error) => error != Errno::INTR,
        }
    }
}
