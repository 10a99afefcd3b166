//! Events that only count, in groups: those of a group have counters all at once or not at all, and one read gives the counts
//! of all of them.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use perf_event_open_sys::bindings;

use super::descriptor::{Perf, open, open_in};
use hbbp_model::addr::Ring;

/// What to count without samples.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Counting {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// The ring that counts.
    pub ring: Ring,
}

/// What the events of a group counted, and for how long in ns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Group {
    /// Time that they were enabled.
    pub enabled: u64,
    /// Time that they had counters.
    pub running: u64,
    /// What each counted.
    pub counts: Vec<u64>,
}

impl Counting {
    fn attr(&self) -> bindings::perf_event_attr {
        let times = bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
        let mut attr = bindings::perf_event_attr {
            type_: self.kind,
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: self.config,
            read_format: u64::from(times | bindings::PERF_FORMAT_GROUP),
            ..Default::default()
        };
        attr.set_exclude_guest(1);
        attr.set_exclude_kernel((self.ring == Ring::User).into());
        attr.set_exclude_user((self.ring == Ring::Kernel).into());
        attr
    }
}

impl Perf {
    /// Opens an event of a CPU that only counts, disabled. It is never pinned, so that it leaves the counters to those that sample.
    pub(crate) fn open_counting(counting: &Counting, cpu: u32) -> io::Result<Self> {
        let mut attr = counting.attr();
        attr.set_disabled(1);
        open(&mut attr, -1, Some(cpu), 0)
    }

    /// Opens another one that counts whenever this one does, and not without it: they share the counters or go without.
    pub(crate) fn open_beside(&self, counting: &Counting) -> io::Result<Self> {
        open_in(&mut counting.attr(), -1, self.cpu, Some(self.fd.as_fd()), 0)
    }

    /// What a group has counted so far, this event first, then the others as they were opened.
    pub(crate) fn read_group(&self, n: usize) -> io::Result<Group> {
        // The number of events and two times precede the counts (perf_event_open(2), "Reading results").
        let mut words = vec![0u64; 3 + n];
        let bytes = words.len() * size_of::<u64>();
        // SAFETY: the buffer holds as many bytes as the call may write.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let counts = words.split_off(3);
        match words.as_slice() {
            [_, enabled, running] if usize::try_from(got).is_ok_and(|got| got == bytes) => Ok(Group {
                enabled: *enabled,
                running: *running,
                counts,
            }),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
