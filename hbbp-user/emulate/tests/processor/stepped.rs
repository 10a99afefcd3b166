//! A process that is stepped by ptrace(2), and what its registers have.

use std::ffi::c_void;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use hbbp_emulate::{Machine, Value, Vector};
use libc::{c_int, pid_t};

/// The regset of the state that XSAVE saves (linux/elf.h, NT_X86_XSTATE).
const NT_X86_XSTATE: usize = 0x202;

/// Offsets in the area of XSAVE (SDM vol. 1, 13.4): XMM0 and the header.
const XMM: usize = 160;
const HEADER: usize = 512;

/// The components of the area: the upper halves of YMM0 to YMM15, the masks, the upper halves of ZMM0 to ZMM15, and ZMM16 on.
const UPPER_YMM: u32 = 2;
const MASKS: u32 = 5;
const UPPER_ZMM: u32 = 6;
const HIGH_ZMM: u32 = 7;

/// The registers of vectors and masks.
#[derive(Clone)]
pub(crate) struct Vectors {
    pub(crate) zmm: [[u8; 64]; 32],
    pub(crate) masks: [u64; 8],
}

/// Where each component of the area begins (CPUID leaf 13). `None` where the processor lacks it.
static COMPONENTS: LazyLock<[Option<usize>; 8]> = LazyLock::new(|| {
    std::array::from_fn(|number| {
        let leaf = std::arch::x86_64::__cpuid_count(13, u32::try_from(number).unwrap());
        (leaf.eax != 0).then(|| usize::try_from(leaf.ebx).unwrap())
    })
});

fn component(number: u32) -> Option<usize> {
    COMPONENTS[usize::try_from(number).unwrap()]
}

/// A part of a vector in the area.
struct Part {
    component: u32,
    begin: usize,
    /// Where it lies in the vector.
    bytes: std::ops::Range<usize>,
}

/// The parts of vector `number`.
fn parts(number: usize) -> Vec<Part> {
    let part = |component, begin: Option<usize>, bytes: std::ops::Range<usize>, number: usize| {
        let begin = begin? + number * bytes.len();
        Some(Part {
            component,
            begin,
            bytes,
        })
    };
    let parts = if number < 16 {
        vec![
            part(1, Some(XMM), 0..16, number),
            part(UPPER_YMM, component(UPPER_YMM), 16..32, number),
            part(UPPER_ZMM, component(UPPER_ZMM), 32..64, number),
        ]
    } else {
        vec![part(HIGH_ZMM, component(HIGH_ZMM), 0..64, number - 16)]
    };
    parts.into_iter().flatten().collect()
}

/// The flags that are compared.
pub(crate) const FLAGS: u64 = 0xcd5;

/// A stopped process.
pub(crate) struct Stepped {
    pub(crate) pid: pid_t,
}

/// How a process stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    Signal(c_int),
    Ended,
}

/// The general-purpose registers, flags and bases.
pub(crate) type Registers = libc::user_regs_struct;

/// What XSAVE saves of vectors.
pub(crate) struct Area(Vec<u8>);

impl Stepped {
    /// A child that runs nothing but what its registers lead to. It shares mappings that are shared.
    pub(crate) fn fork() -> Self {
        // SAFETY: the child makes system calls alone.
        let pid = unsafe { libc::fork() };
        assert!(0 <= pid, "{}", io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: it asks to be traced.
            unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            // SAFETY: it ends with its tracer.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                // SAFETY: it stops until it is traced.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
        }
        let stepped = Self { pid };
        assert_eq!(stepped.wait(), Stop::Signal(libc::SIGSTOP));
        stepped
    }

    fn request(&self, request: u32, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: the pointers among the arguments are of this function's callers, and live through it.
        let result = unsafe { libc::ptrace(request, self.pid, address, data) };
        if result == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits for the next stop.
    pub(crate) fn wait(&self) -> Stop {
        let mut status = 0;
        // SAFETY: the status is a local variable.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        if pid == self.pid && libc::WIFSTOPPED(status) {
            Stop::Signal(libc::WSTOPSIG(status))
        } else {
            Stop::Ended
        }
    }

    /// Executes an instruction.
    pub(crate) fn step(&self) -> Stop {
        match self.request(libc::PTRACE_SINGLESTEP, 0, 0) {
            Ok(()) => self.wait(),
            Err(_) => Stop::Ended,
        }
    }

    /// Lets it run on.
    pub(crate) fn go_on(&self, signal: c_int) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, usize::try_from(signal).unwrap())
    }

    pub(crate) fn registers(&self) -> Registers {
        // SAFETY: zeros are registers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, &raw mut registers as usize)
            .unwrap();
        registers
    }

    pub(crate) fn set_registers(&self, registers: &Registers) {
        self.request(libc::PTRACE_SETREGS, 0, std::ptr::from_ref(registers) as usize)
            .unwrap();
    }

    pub(crate) fn area(&self) -> Area {
        let mut bytes = vec![0; 16384];
        let mut iov = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast::<c_void>(),
            iov_len: bytes.len(),
        };
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, &raw mut iov as usize)
            .unwrap();
        bytes.truncate(iov.iov_len);
        Area(bytes)
    }

    pub(crate) fn set_area(&self, area: &mut Area) {
        let mut iov = libc::iovec {
            iov_base: area.0.as_mut_ptr().cast::<c_void>(),
            iov_len: area.0.len(),
        };
        self.request(libc::PTRACE_SETREGSET, NT_X86_XSTATE, &raw mut iov as usize)
            .unwrap();
    }

    /// Reads a page of its memory.
    pub(crate) fn page(&self, address: u64) -> Option<[u8; 4096]> {
        let mut page = [0; 4096];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        memory.read_exact_at(&mut page, address).ok()?;
        Some(page)
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // SAFETY: the process is a child of this one.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while self.wait() != Stop::Ended {}
    }
}

impl Area {
    pub(crate) fn vectors(&self) -> Vectors {
        let state = u64::from_le_bytes(self.0[HEADER..HEADER + 8].try_into().unwrap());
        // A component that is not in use has its first state, zeros.
        let is_used = |component: u32| state >> component & 1 != 0;
        let mut vectors = Vectors {
            zmm: [[0; 64]; 32],
            masks: [0; 8],
        };
        for (number, vector) in vectors.zmm.iter_mut().enumerate() {
            for part in parts(number).into_iter().filter(|part| is_used(part.component)) {
                let from = &self.0[part.begin..][..part.bytes.len()];
                vector[part.bytes].copy_from_slice(from);
            }
        }
        if let Some(begin) = component(MASKS).filter(|_| is_used(MASKS)) {
            for (number, mask) in vectors.masks.iter_mut().enumerate() {
                *mask = u64::from_le_bytes(self.0[begin + 8 * number..][..8].try_into().unwrap());
            }
        }
        vectors
    }

    pub(crate) fn set_vectors(&mut self, vectors: &Vectors) {
        let mut used = 1;
        for (number, vector) in vectors.zmm.iter().enumerate() {
            for part in parts(number) {
                used |= 1 << part.component;
                self.0[part.begin..][..part.bytes.len()].copy_from_slice(&vector[part.bytes]);
            }
        }
        if let Some(begin) = component(MASKS) {
            used |= 1 << MASKS;
            for (number, mask) in vectors.masks.iter().enumerate() {
                self.0[begin + 8 * number..][..8].copy_from_slice(&mask.to_le_bytes());
            }
        }
        self.0[HEADER] |= used;
    }
}

/// The registers in the order of their encoding.
pub(crate) fn in_order(it: &Registers) -> [u64; 16] {
    in_order_mut(&mut it.clone()).map(|register| *register)
}

/// The same, to change them.
pub(crate) fn in_order_mut(it: &mut Registers) -> [&mut u64; 16] {
    let low = [&mut it.rax, &mut it.rcx, &mut it.rdx, &mut it.rbx];
    let named = [&mut it.rsp, &mut it.rbp, &mut it.rsi, &mut it.rdi];
    let numbered = [&mut it.r8, &mut it.r9, &mut it.r10, &mut it.r11];
    let last = [&mut it.r12, &mut it.r13, &mut it.r14, &mut it.r15];
    let mut all = low.into_iter().chain(named).chain(numbered).chain(last);
    std::array::from_fn(|_| all.next().unwrap())
}

/// A machine with these registers.
pub(crate) fn machine(registers: &Registers, vectors: &Vectors) -> Machine {
    let mut machine = Machine::new(registers.rip);
    machine.registers = in_order(registers).map(Value::known);
    machine.flags = Value::known(registers.eflags);
    machine.vectors = vectors.zmm.map(|bytes| Vector {
        bytes,
        known: u64::MAX,
    });
    machine.masks = vectors.masks.map(Value::known);
    machine.fs_base = registers.fs_base;
    machine.gs_base = registers.gs_base;
    machine
}

/// What an emulated machine knows that the processor does not have.
pub(crate) fn differences(machine: &Machine, registers: &Registers) -> Vec<String> {
    let mut found = Vec::new();
    if machine.rip != registers.rip {
        found.push(format!("rip {:x}, is {:x}", machine.rip, registers.rip));
    }
    for (number, (value, real)) in machine.registers.iter().zip(in_order(registers)).enumerate() {
        if value.bits != real & value.known {
            found.push(format!(
                "r{number} {:x} of {:x}, is {real:x}",
                value.bits, value.known
            ));
        }
    }
    let known = machine.flags.known & FLAGS;
    if machine.flags.bits & known != registers.eflags & known {
        let bits = machine.flags.bits & known;
        found.push(format!(
            "flags {bits:x} of {known:x}, is {:x}",
            registers.eflags & FLAGS
        ));
    }
    found
}

/// The same of vectors and masks.
pub(crate) fn vector_differences(machine: &Machine, real: &Vectors) -> Vec<String> {
    let both = machine.vectors.iter().zip(&real.zmm).enumerate();
    let differ = both.filter(|(_, (vector, real))| {
        (0..64).any(|at| vector.known >> at & 1 != 0 && vector.bytes[at] != real[at])
    });
    let vectors = differ.map(|(number, (vector, real))| format!("zmm{number} {vector:x?}, is {real:x?}"));
    let both = machine.masks.iter().zip(&real.masks).enumerate();
    let differ = both.filter(|(_, (mask, real))| mask.bits != **real & mask.known);
    let masks = differ.map(|(number, (mask, real))| format!("k{number} {mask:x?}, is {real:x}"));
    vectors.chain(masks).collect()
}
