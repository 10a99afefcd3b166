//! The kernel's way in and out of system calls: interrupts are off there, so no sample of a clock asks for its text.

use super::map::Region;
use super::space::KernelSpace;
use crate::clock::now;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::ModuleKind;

/// Where SYSCALL leads (arch/x86/entry/entry_64.S). Before SYSRET come some symbols of its own.
const ENTRY: &str = "entry_SYSCALL_64";
/// Bytes that are searched for SYSRET: the entry of Linux 6.12 has less than 400.
const MOST_BYTES: u64 = 1024;
/// SYSRET without its prefix (Intel SDM volume 2).
const SYSRET: [u8; 2] = [0x0f, 0x07];

/// CALL with a relative target of 32 bits (Intel SDM volume 2).
const CALL: u8 = 0xe8;

/// Functions that turn interrupts on and off again for a system call (arch/x86/entry/common.c, kernel/entry/common.c), which
/// differ by version.
const FUNCTIONS: [&str; 4] = [
    "do_syscall_64",
    "syscall_enter_from_user_mode",
    "syscall_exit_to_user_mode",
    "exit_to_user_mode_prepare",
];

impl KernelSpace {
    /// Has the text of system calls in the snapshot, as if it had been hit, where the kernel was hit elsewhere.
    pub(crate) fn add_system_calls(&mut self) {
        let is_image = |region: &Region| {
            let module = self.map.module(region.module);
            module.is_some_and(|module| module.kind == ModuleKind::Kernel)
        };
        if !self.hit.values().any(is_image) {
            return;
        }
        if let Some((entry, _)) = self.map.named(ENTRY) {
            let mut at = Va(entry);
            while at.0 - entry < MOST_BYTES {
                match self.add_function(at) {
                    Some(end) if at < end => at = end,
                    _ => break,
                }
            }
        }
        for (start, _) in FUNCTIONS.map(|name| self.map.named(name)).into_iter().flatten() {
            self.add_function(Va(start));
            self.add_callees(Va(start));
        }
    }

    /// Adds the functions that one calls: bytes of a direct call whose target is where a function begins.
    fn add_callees(&mut self, at: Va) {
        let region = self.map.region_at(at, now());
        let text = self.texts.get(&region.module);
        let bytes = text
            .and_then(|text| text.from(ImageAddr(at.0)))
            .unwrap_or_default();
        let called = |(offset, call): (u64, &[u8])| {
            let [CALL, relative @ ..] = *<&[u8; 5]>::try_from(call).ok()? else {
                return None;
            };
            let next = at.0.wrapping_add(offset).wrapping_add(5);
            Some(next.wrapping_add_signed(i32::from_le_bytes(relative).into()))
        };
        let called: Vec<u64> = (0..).zip(bytes.windows(5)).filter_map(called).collect();
        for target in called.into_iter().map(Va) {
            let region = self.map.region_at(target, now());
            let function = self.map.function_at(target, &region);
            if function.is_some_and(|function| function.start.0 == target.0) {
                self.add_function(target);
            }
        }
    }

    /// Adds the function at an address. Returns its end, or nothing if SYSRET is in it or it cannot be read.
    fn add_function(&mut self, at: Va) -> Option<Va> {
        let region = self.map.region_at(at, now());
        self.hit.entry((region.start, region.from)).or_insert(region);
        self.copy_early(at, &region);
        let text = self.texts.get_mut(&region.module)?;
        let held = text.hit(ImageAddr(at.0))?;
        let bytes = text.from(ImageAddr(at.0)).unwrap_or_default();
        let returns = bytes.windows(SYSRET.len()).any(|bytes| bytes == SYSRET);
        (!returns).then_some(Va(held.end.0))
    }
}
