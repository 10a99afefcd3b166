//! Marks for programs in the guest: where the reference counts begin and end, to the instruction.

use std::arch::asm;

/// Reference counts start after this, on every CPU.
pub fn start() {
    // SAFETY: a no-op to the processor (see `layout::DOORBELL`); it touches no register and no memory.
    unsafe { asm!(".byte 0x0f,0x1f,0x84,0x00,0x05,0x00,0x42,0x48") };
}

/// Reference counts end before this, on every CPU.
pub fn stop() {
    // SAFETY: as in `start`.
    unsafe { asm!(".byte 0x0f,0x1f,0x84,0x00,0x06,0x00,0x42,0x48") };
}

/// Writes the reference file on the host and forgets its counts.
pub fn write() {
    // SAFETY: as in `start`.
    unsafe { asm!(".byte 0x0f,0x1f,0x84,0x00,0x09,0x00,0x42,0x48") };
}
