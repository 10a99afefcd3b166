//! perf events: opening, attaching a program, enabling, reading the count.
//!
//! aya opens events itself but cannot ask for a precise address or a branch stack, nor adopt an event that
//! somebody else has opened; so the events are opened here and the program is attached by ioctl, and aya only loads it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings, ioctls};

use hbbp_model::addr::Ring;
use hbbp_model::snapshot::run::{Counter, Period};

/// What to sample, as the kernel wants it.
#[derive(Clone, Debug)]
pub struct Request {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// When to take a sample.
    pub period: Period,
    /// `precise_ip`.
    pub precise: u8,
    /// Leave guests of this host out; events of IBS refuse it.
    pub exclude_guest: bool,
    /// Keep the event on its counter or fail, rather than share it. Software events have no counter to share.
    pub pinned: bool,
    /// Which branch stack its samples carry.
    pub stack: Option<Stack>,
    /// Whether its samples carry the call chain.
    pub chain: bool,
    /// The ring whose units it counts; `None` for both.
    pub ring: Option<Ring>,
}

/// What the entries of a branch stack contain. All taken branches of both rings are asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stack {
    /// Source, target and whatever the processor adds.
    Full,
    /// Source and target alone, which spares some kernels reading a register for each entry; AMD's driver refuses it.
    Bare,
}

impl Stack {
    /// `perf_event_attr.branch_sample_type`. Types are not asked for: on Intel's legacy branch records the kernel
    /// would decode every branch for them, and drop what it cannot decode without a mark.
    const fn branch_sample_type(self) -> u64 {
        let all = bindings::PERF_SAMPLE_BRANCH_ANY
            | bindings::PERF_SAMPLE_BRANCH_USER
            | bindings::PERF_SAMPLE_BRANCH_KERNEL;
        let bare = bindings::PERF_SAMPLE_BRANCH_NO_FLAGS | bindings::PERF_SAMPLE_BRANCH_NO_CYCLES;
        match self {
            Self::Full => all as u64,
            Self::Bare => (all | bare) as u64,
        }
    }
}

/// Where to sample.
#[derive(Debug)]
pub(crate) enum Target<'a> {
    /// All tasks of one CPU.
    Cpu(u32),
    /// One task and all that it will create, on any CPU.
    Task(u32),
    /// One task and all that it will create, from its next exec on.
    TaskFromExec(u32),
    /// All tasks of a cgroup on one CPU.
    Cgroup(BorrowedFd<'a>, u32),
}

/// An opened event; closing it detaches its program.
#[derive(Debug)]
pub(crate) struct Perf {
    pub(super) fd: OwnedFd,
    pub(super) cpu: Option<u32>,
}

impl Perf {
    /// Opens an event, disabled.
    ///
    /// `wakeup_events` is 1: with 0 the Intel driver may buffer precise samples, and while it drains that buffer it
    /// shows only the last one to a program (arch/x86/events/intel/ds.c).
    /// The sample type is empty, since a program needs none of the fields and each costs time.
    pub(crate) fn open(request: &Request, target: &Target<'_>) -> io::Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: request.kind,
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: request.config,
            read_format: u64::from(
                bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
            ),
            ..Default::default()
        };
        match request.period {
            Period::Fixed(period) | Period::Between(period, _) => {
                attr.__bindgen_anon_1.sample_period = period;
            }
            Period::Frequency(hertz) => {
                attr.__bindgen_anon_1.sample_freq = hertz;
                attr.set_freq(1);
            }
        }
        attr.__bindgen_anon_2.wakeup_events = 1;
        attr.set_disabled(1);
        attr.set_precise_ip(request.precise.into());
        attr.set_exclude_guest(request.exclude_guest.into());
        attr.set_exclude_user((request.ring == Some(Ring::Kernel)).into());
        attr.set_exclude_kernel((request.ring == Some(Ring::User)).into());
        if let Some(stack) = request.stack {
            attr.sample_type = u64::from(bindings::PERF_SAMPLE_BRANCH_STACK);
            attr.branch_sample_type = stack.branch_sample_type();
        }
        if request.chain {
            // The kernel unwinds before the program runs, both parts at once; programs on precise events are refused the
            // chain without it (kernel/events/core.c, `perf_event_set_bpf_handler`).
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_CALLCHAIN);
        }
        let (pid, cpu, flags) = match *target {
            Target::Cpu(cpu) => (-1, Some(cpu), 0),
            Target::Task(tid) | Target::TaskFromExec(tid) => {
                attr.set_inherit(1);
                (tid.cast_signed(), None, 0)
            }
            Target::Cgroup(cgroup, cpu) => (cgroup.as_raw_fd(), Some(cpu), bindings::PERF_FLAG_PID_CGROUP),
        };
        if matches!(target, Target::TaskFromExec(_)) {
            attr.set_enable_on_exec(1);
        }
        // The kernel pins events of CPUs only; those of tasks come and go with them.
        attr.set_pinned((request.pinned && cpu.is_some()).into());
        open(&mut attr, pid, cpu, flags.into())
    }

    /// Opens the sideband event of a CPU: no samples, only records about tasks and mappings, with times of
    /// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`.
    /// Build ids are not asked for: the kernel would mark the records of every other listener on the CPU as if they held one,
    /// of which some perf tools crash (kernel/events/core.c at v6.1, `perf_event_mmap_output`).
    pub(crate) fn open_sideband(cpu: u32) -> io::Result<Self> {
        let mut attr = sideband((SIDEBAND_BYTES / 2) as u32);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        // With build ids the kernel leaves device, inode and generation out, which are the only identity of a file.
        open(&mut attr, -1, Some(cpu), 0)
    }

    /// Opens the event of a CPU that reports only kernel text, as [`Self::open_sideband`]: it has a ring of its own, so
    /// that a storm of processes cannot overwrite it, and each record wakes its reader. Kernels that do not know a kind
    /// of record get the event without it; the returned list names what is missing.
    pub(crate) fn open_text(cpu: u32) -> io::Result<(Self, Vec<&'static str>)> {
        let mut attr = sideband(1);
        attr.set_ksymbol(1);
        attr.set_text_poke(1);
        open_without(
            attr,
            cpu,
            &[
                ("patches of kernel text (Linux 5.9)", |attr| attr.set_text_poke(0)),
                ("BPF programs and trampolines (Linux 5.1)", |attr| {
                    attr.set_ksymbol(0);
                }),
            ],
        )
    }

    /// Attaches a loaded program of type perf_event.
    pub(crate) fn attach(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; the kernel checks the type of the program.
        check(unsafe { ioctls::SET_BPF(self.fd.as_raw_fd(), program.as_raw_fd().cast_unsigned()) })
    }

    /// Starts counting.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event.
        check(unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Samples every `period` units from now on; the unfinished period is forgotten.
    pub(crate) fn set_period(&self, period: u64) -> io::Result<()> {
        // The kernel takes a pointer to the period (kernel/events/core.c, `_perf_ioctl`), and the wrapper takes it as an integer.
        let address = (&raw const period).expose_provenance() as u64;
        // SAFETY: the descriptor is an open perf event, and the number lives through the call.
        check(unsafe { ioctls::PERIOD(self.fd.as_raw_fd(), address) })
    }

    /// Stops counting.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event.
        check(unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// What the event has counted so far. An error of kind `UnexpectedEof` says that it lost its counter although it
    /// was pinned.
    pub(crate) fn read(&self) -> io::Result<Counter> {
        let mut words = [0u64; 3];
        let bytes = words.len() * size_of::<u64>();
        // SAFETY: the buffer holds as many bytes as the call may write.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        match usize::try_from(got) {
            Ok(got) if got == bytes => {
                let [count, enabled, running] = words;
                Ok(Counter {
                    cpu: self.cpu,
                    count,
                    enabled,
                    running,
                    ..Counter::default()
                })
            }
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// The CPU of the event, where it is bound to one.
    pub(crate) const fn cpu(&self) -> Option<u32> {
        self.cpu
    }
}

impl AsFd for Perf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Perf {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// An event of no samples, whose reader is woken when `wakeup` bytes are in its ring.
fn sideband(watermark: u32) -> bindings::perf_event_attr {
    let mut attr = bindings::perf_event_attr {
        type_: bindings::PERF_TYPE_SOFTWARE,
        size: size_of::<bindings::perf_event_attr>() as u32,
        config: u64::from(bindings::PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(bindings::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = watermark;
    attr.set_watermark(1);
    attr.set_disabled(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr
}

type Leave = fn(&mut bindings::perf_event_attr);

/// Opens an event without what the kernel does not know, from the newest kind of record to the oldest: each kernel
/// knows all up to some point. Names what is missing.
fn open_without(
    mut attr: bindings::perf_event_attr,
    cpu: u32,
    newest_first: &[(&'static str, Leave)],
) -> io::Result<(Perf, Vec<&'static str>)> {
    let mut missing = Vec::new();
    let mut newest_first = newest_first.iter();
    loop {
        match open(&mut attr, -1, Some(cpu), 0) {
            Ok(perf) => return Ok((perf, missing)),
            Err(error) => {
                let refused = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG));
                let next = newest_first.next().filter(|_| refused);
                let Some((what, leave)) = next else {
                    return Err(error);
                };
                missing.push(*what);
                leave(&mut attr);
                attr.size = size_of::<bindings::perf_event_attr>() as u32;
            }
        }
    }
}

/// Bytes of each CPU's ring of records about kernel text: switching a tracepoint writes 5 kB, tracing all functions
/// 3 MB, most of which is lost and found by reading.
pub(crate) const TEXT_RING_BYTES: usize = 256 << 10;

/// Bytes of each CPU's sideband ring. 200 programs a second leave about 2 kB each, 400 kB between two readings
/// that are a second late.
pub(crate) const SIDEBAND_BYTES: usize = 512 << 10;

pub(super) fn open(
    attr: &mut bindings::perf_event_attr,
    pid: i32,
    cpu: Option<u32>,
    flags: u64,
) -> io::Result<Perf> {
    open_in(attr, pid, cpu, None, flags)
}

/// Opens an event in the group of another one.
pub(super) fn open_in(
    attr: &mut bindings::perf_event_attr,
    pid: i32,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
    flags: u64,
) -> io::Result<Perf> {
    let leader = leader.map_or(-1, |leader| leader.as_raw_fd());
    let cpu_arg = cpu.map_or(-1, u32::cast_signed);
    let flags = flags | u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attribute is initialised and states its size.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, pid, cpu_arg, leader, flags) };
    check(fd.min(0))?;
    // SAFETY: the call returned a new descriptor that has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Perf { fd, cpu })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
