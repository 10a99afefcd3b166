//! The terminal of `top`: keys that were pressed, and whether it is still there.
//!
//! The library that reads keys tries again for ever when a terminal is gone, as reading it then gives no bytes, or an error
//! (crossterm 0.29, `UnixInternalEventSource::try_read`). So the terminal is waited for here, and no key is read of one that
//! hung up. Where it hangs up while the library reads, a thread of its own ends the program.
//!
//! It also waits for changes of the terminal alone, and forgets the change that comes together with the signal of another size:
//! that key would be read with the next one. It is woken again for a key that is still there.

use std::fs::File;
use std::io::{self, IsTerminal as _, Stdin};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{process, thread};

use anyhow::Context as _;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// What a terminal that is gone shows, whoever waits for what.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// Time to wait for the rest of a key.
const PART_OF_A_KEY: Duration = Duration::from_millis(5);

/// Time in which the program ends by itself when its terminal is gone.
const GRACE: Duration = Duration::from_secs(1);

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

/// Ends the program some time after its terminal is gone, in case that the library tries to read it for ever.
#[expect(clippy::exit, reason = "the thread that would end it does not come back")]
fn end_with(terminal: &OwnedFd) {
    loop {
        let mut ends = [PollFd::new(terminal, PollFlags::empty())];
        match poll(&mut ends, None) {
            Ok(_) if ends[0].revents().intersects(GONE) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
    thread::sleep(GRACE);
    process::exit(0);
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
        let keyboard = Self { of_session };
        let terminal = keyboard.keys(&io::stdin()).try_clone_to_owned();
        let terminal = terminal.context("failed to watch the terminal")?;
        let watch = thread::Builder::new().name("hang-up".to_owned());
        watch
            .spawn(move || end_with(&terminal))
            .context("failed to watch the terminal")?;
        Ok(keyboard)
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
        self.wake_reader();
        Ok(Heard::Nothing)
    }

    /// Wakes the library where it left a key: whoever sets the attributes of a terminal, even as they were, wakes all who wait
    /// for it (`n_tty_set_termios` in drivers/tty/n_tty.c, Linux v6.12).
    fn wake_reader(&self) {
        let input = io::stdin();
        let keys = self.keys(&input);
        let mut ends = [PollFd::from_borrowed_fd(keys, PollFlags::IN)];
        let has_key = poll(&mut ends, Some(&Timespec::default()));
        if has_key.is_ok_and(|n| 0 < n)
            && let Ok(attributes) = tcgetattr(keys)
        {
            // Where it fails, the key is read with the next one.
            let _ = tcsetattr(keys, OptionalActions::Now, &attributes);
        }
    }

    fn keys<'a>(&'a self, input: &'a Stdin) -> BorrowedFd<'a> {
        let of_session = self.of_session.as_ref();
        of_session.map_or(input.as_fd(), |file| file.as_fd())
    }

    /// Whether the terminal is gone, after up to some time, until it has something to say.
    pub(super) fn is_gone(&self, time: Duration) -> bool {
        let (input, output) = (io::stdin(), io::stdout());
        let keys = self.keys(&input);
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
