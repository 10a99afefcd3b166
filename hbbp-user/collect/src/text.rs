//! Live kernel text where /proc/kcore is missing: a BPF program copies it into a window that is mapped here.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr::NonNull;

use anyhow::Context as _;
use aya::maps::Map;
use hbbp_ebpf::{TEXT_WINDOW, name};

use super::bpf;
use super::object::Object;
use hbbp_model::addr::Va;

/// A view of kernel memory through the window of the text program.
/// It needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down for confidentiality.
#[derive(Debug)]
pub struct TextWindow {
    program: OwnedFd,
    /// Keeps the map alive as long as it is mapped.
    _map: Map,
    window: NonNull<u8>,
}

// SAFETY: the window is memory of the whole process, not of a thread, and its owner alone reads it.
unsafe impl Send for TextWindow {}

impl TextWindow {
    /// Loads the program and maps its window.
    pub fn open(object: &mut Object) -> anyhow::Result<Self> {
        let program = object.read_text()?;
        let map = object.take_map(name::TEXT)?;
        let fd = match &map {
            Map::Array(data) => data.fd().as_fd().as_raw_fd(),
            _ => anyhow::bail!("map {} is not an array", name::TEXT),
        };
        // SAFETY: a new mapping of a map that was made mappable and is TEXT_WINDOW bytes large.
        let window = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                TEXT_WINDOW,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if window == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("failed to mmap the kernel text buffer");
        }
        let window = NonNull::new(window.cast()).context("the kernel text buffer was mapped at address 0")?;
        Ok(Self {
            program,
            _map: map,
            window,
        })
    }

    /// Reads live kernel memory. False where any byte of it cannot be read; `out` then holds nothing of use.
    pub fn read(&self, start: Va, out: &mut [u8]) -> bool {
        let mut at = start;
        for chunk in out.chunks_mut(TEXT_WINDOW) {
            let len = chunk.len();
            if !matches!(
                bpf::run_raw_tracepoint(self.program.as_fd(), &[at.0, len as u64]),
                Ok(0)
            ) {
                return false;
            }
            let out = NonNull::from(&mut *chunk).cast();
            // SAFETY: the window is mapped for TEXT_WINDOW bytes, no less than `len`; only the program writes to it,
            // and it has just returned.
            unsafe { self.window.copy_to_nonoverlapping(out, len) };
            let Some(next) = at.checked_add(len as u64) else {
                return false;
            };
            at = next;
        }
        true
    }
}

impl Drop for TextWindow {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.window.as_ptr().cast(), TEXT_WINDOW) };
    }
}
