//! One descriptor that becomes readable when there are records that must be read soon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// Several descriptors in one.
#[derive(Debug)]
pub(crate) struct Wake {
    epoll: OwnedFd,
}

impl Wake {
    /// One for all of these.
    pub(crate) fn on<'a>(sources: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Self { epoll };
        for source in sources {
            wake.add(source)?;
        }
        Ok(wake)
    }

    /// One more; those that are closed leave by themselves.
    pub(crate) fn add(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.epoll, source, data, epoll::EventFlags::IN)?)
    }

    /// A descriptor of its own to wait for.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Makes it unreadable until there is something new; to be called before the sources are read.
    pub(crate) fn rest(&self) -> io::Result<()> {
        let mut events = [const {
            epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }
        }; 16];
        let now = rustix::time::Timespec::default();
        epoll::wait(&self.epoll, &mut events[..], Some(&now))?;
        Ok(())
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
