//! The emulated machine: branch records and exact instruction counts, for kernel and user code.
//!
//! Few development machines have branch-recording hardware, virtual machines least of all, and no
//! instrumentation tool counts kernel code. So QEMU, in software emulation, runs an unmodified distribution
//! kernel. A TCG plugin (`plugin/`, the emulated PMU) observes every executed block, and counts each exactly. A
//! driver in the guest (`driver/`) passes its records to the perf core of the kernel. Everything above the driver
//! is unmodified: perf core, eBPF, `hbbp-sys` itself.
//!
//! **A result on this machine is a result on a model of a processor, not a measurement of one.** Every text that quotes
//! one says so.
//!
//! # To run something
//! By hand, `cargo xtask vm --kernel 6.12 --cpus 2 --hardware-profile ivb -- COMMAND`. In a test:
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use kernel_tests::{artifacts, kernel::Kernel, machine::{Machine, Marks}};
//!
//! let kernel = Kernel::get("6.12")?;
//! let mut machine = Machine::new(&kernel).cpus(2).marks(Marks::Events);
//! machine.files().hbbp_sys()?;
//! let outcome = machine.run(&["/bin/hbbp-sys", "--duration", "5"])?;
//! let report = outcome.stdout()?;
//! let exact = outcome.reference()?;
//! # let _ = (report, exact); Ok(())
//! # }
//! ```
//!
//! # How it works
//! 1. [`kernel`] fetches a kernel with apt, [`artifacts`] builds plugin, driver, PID 1 and workloads, and
//!    [`files`] holds what the guest gets. [`machine`] starts QEMU from a checkpoint after the boot, with one thread
//!    for all virtual CPUs, so that blocks never interleave and counts are exact. The watchdog reads the guest's log: a
//!    panic, a stall, a hang or a missing verdict is an error that shows it.
//! 2. PID 1 (`src/bin/guest-init.rs`) loads the driver. The driver passes the addresses of the interrupt gates to the
//!    emulated PMU and rings [`layout::Doorbell::Attach`]; from then on every instruction is seen. A doorbell is a
//!    no-op with a number in it, and models a write to a model-specific register.
//! 3. The driver registers the PMU `cpu`, of type raw, instead of the core PMU that the machine lacks. It has the
//!    encodings of Intel's two events, perf's generic cycles, instructions and branches, and eight classes of
//!    instructions that only count ([`classes`]). A counter that overflows leaves a [`layout::Record`] in a ring. A
//!    timer and each task switch raise an NMI to their own CPU; its handler passes the records to
//!    `perf_event_overflow`. Counters are frozen in the code of the driver; `hbbp_emu/` next to the `type` of the PMU
//!    in sysfs counts every record by outcome.
//! 4. The [`mod@reference`] counts between marks: while the command runs, while events sample, or where a
//!    program in the guest says so ([`machine::Marks`], [`mark`]).
//!
//! # How the emulated PMU counts
//! - A block that stopped early took an exception there; the instruction did not retire. Where interrupted code goes on
//!   is read from the frame that the processor pushed, so that a conditional branch before an interrupt is known to be
//!   taken or not. Transitions that cannot be explained are counted (`anomalies`); tests assert that there are none.
//! - REP: one instruction, retired when control leaves it ([`mod@reference`]).
//! - An interrupt's entry in the stack comes from the instruction that it kept from running.
//! - Hardware faults are set by [`hardware_profile`] files, all off by default.
//! - The driver reports each task switch, so user code is counted per process.

pub mod accuracy;
pub mod artifacts;
pub mod bolt;
pub mod budget;
mod checkpoint;
pub mod classes;
pub mod cost;
pub mod durations;
pub mod files;
pub mod guards;
pub mod guest;
mod hardware;
pub mod hardware_profile;
pub mod host;
mod initramfs;
pub mod kernel;
pub mod layout;
pub mod machine;
pub mod mark;
mod monitor;
pub mod optimizers;
pub mod outcome;
pub mod programs;
pub mod recording;
pub mod reference;
pub mod repeat;
pub mod trace;
mod watchdog;
pub mod witness;
pub mod workload;

#[cfg(test)]
use hbbp_testing::missing;
