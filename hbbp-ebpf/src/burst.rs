//! What the program on bursts hands to user space: the registers of a sample, and pages of memory as they were then.
//!
//! All goes into one ring: the head of a burst, and after it the pages that could be read. The program holds the head back
//! until it has written the pages, and user space reads in order, so a burst is complete when its head is seen.

/// A page of memory (SDM vol. 3, 4.5: pages of 4 KiB; larger ones are made of these).
pub const PAGE_BYTES: usize = 4096;

/// Bytes below the stack pointer that functions may use (System V ABI for x86-64, 3.2.2: the red zone).
const RED_ZONE: u64 = 128;

/// Pages of the stack: the one that the red zone begins in, and the one after it.
pub const STACK_PAGES: usize = 2;

/// Most other pages of a burst. The trial took 64; with interrupts off, the time of this many is bounded.
pub const WANTED_PAGES: usize = 16;

/// What bursts of a process read in addition to its stack: pages, or registers by [`of_register`], most wanted first; 0 after the last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WantedPages(pub [u64; WANTED_PAGES]);

/// Which page near the one that a register points to.
pub const NEAR: [u64; 3] = [0, PAGE_BYTES as u64, (PAGE_BYTES as u64).wrapping_neg()];

/// Instead of a page: the one that register `number` points to, at one of the distances [`NEAR`]. No process has the first page.
pub const fn of_register(number: u64, near: u64) -> u64 {
    1 + (near << 4 | number & 15)
}

/// The page that is wanted where the registers are these.
#[inline(always)]
pub fn page_of(wanted: u64, register: impl Fn(usize) -> u64) -> u64 {
    if PAGE_BYTES as u64 <= wanted {
        return wanted;
    }
    let code = wanted.wrapping_sub(1);
    let page = register((code & 15) as usize) & !(PAGE_BYTES as u64 - 1);
    match code >> 4 {
        0 => page,
        1 => page.wrapping_add(NEAR[1]),
        _ => page.wrapping_add(NEAR[2]),
    }
}

/// The registers of a sample of user code, and whose they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BurstHead {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15, in the order of their encoding.
    pub registers: [u64; 16],
    /// The address of the next instruction.
    pub rip: u64,
    /// RFLAGS.
    pub flags: u64,
    /// The address that FS begins at; 0 where the kernel does not report where it keeps that.
    pub fs_base: u64,
    /// Time of the sample in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// What the program took, in ns: interrupts were off meanwhile.
    pub took: u64,
    /// Thread group id, as of [`crate::CountKey`].
    pub tgid: u32,
    /// Exec id, as of [`crate::CountKey`].
    pub exec_id: u32,
    /// The CPU.
    pub cpu: u64,
}

/// A page of the burst whose head came last from the same CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BurstPage {
    /// The address of its first byte.
    pub address: u64,
    /// The CPU.
    pub cpu: u64,
    /// What it held.
    pub bytes: [u8; PAGE_BYTES],
}

/// How the samples of the event of bursts ended, on one CPU: each of `runs` is in one of the four below it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BurstStats {
    /// Samples.
    pub runs: u64,
    /// Bursts that were handed over.
    pub handed: u64,
    /// The ring was full.
    pub full: u64,
    /// Code of 32 bits, which is not emulated.
    pub compatible: u64,
    /// The process is not in the pid namespace of user space.
    pub outside: u64,
    /// Pages that were asked for; each is in one of the three below it.
    pub pages: u64,
    /// Pages that were handed over.
    pub pages_handed: u64,
    /// Pages that are not in memory, or not of the process.
    pub pages_absent: u64,
    /// The ring was full.
    pub pages_full: u64,
}

impl BurstStats {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            handed: self.handed + other.handed,
            full: self.full + other.full,
            compatible: self.compatible + other.compatible,
            outside: self.outside + other.outside,
            pages: self.pages + other.pages,
            pages_handed: self.pages_handed + other.pages_handed,
            pages_absent: self.pages_absent + other.pages_absent,
            pages_full: self.pages_full + other.pages_full,
        }
    }
}

/// The first page of the stack that a burst reads.
#[inline(always)]
pub const fn first_stack_page(rsp: u64) -> u64 {
    rsp.wrapping_sub(RED_ZONE) & !(PAGE_BYTES as u64 - 1)
}

/// The selector of code of 64 bits (`__USER_CS` in arch/x86/include/asm/segment.h).
pub const USER_CS: u64 = 0x33;

const _: () = assert!(size_of::<WantedPages>() == 8 * WANTED_PAGES);
const _: () = assert!(size_of::<BurstHead>() == 8 * 23);
const _: () = assert!(size_of::<BurstPage>() == 16 + PAGE_BYTES);
const _: () = assert!(size_of::<BurstStats>() == 72);

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding (asserted above), any bit pattern is a value; here and below.
    unsafe impl aya::Pod for super::WantedPages {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::BurstStats {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_means_pages_near_it() {
        let register = |number: usize| 0x7000_0123 + 0x10_0000 * number as u64;
        let page = |near| page_of(of_register(15, near), register);
        assert_eq!([0, 1, 2].map(page), [0x70f0_0000, 0x70f0_1000, 0x70ef_f000]);
        assert_eq!(page_of(0x5000, register), 0x5000);
        assert!(of_register(15, 2) < PAGE_BYTES as u64 && of_register(0, 0) != 0);
    }

    #[test]
    fn the_stack_begins_with_its_red_zone() {
        assert_eq!(first_stack_page(0x7ffe_1080), 0x7ffe_1000);
        assert_eq!(first_stack_page(0x7ffe_107f), 0x7ffe_0000);
        assert_eq!(first_stack_page(0), 0xffff_ffff_ffff_f000, "no page of a process");
    }
}
