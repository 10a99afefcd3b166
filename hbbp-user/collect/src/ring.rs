//! The ring in which the kernel writes the records of one event, on one CPU.
//!
//! It is the protocol of `include/uapi/linux/perf_event.h`, struct `perf_event_mmap_page`: the kernel advances `data_head`, the
//! reader `data_tail`, and a record may wrap around the end of the data area.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::perf::Perf;

const PAGE: usize = 4096;

/// The ring of one CPU.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) perf: Perf,
    base: NonNull<u8>,
    /// Length of the data area.
    bytes: usize,
    /// The record that is being read, copied out of the ring.
    record: Vec<u8>,
    /// Whether its CPU went offline, after which nothing comes any more.
    pub(super) has_ended: bool,
}

impl Ring {
    /// Maps the ring of an event, whose data area has this length.
    pub(super) fn new(perf: Perf, bytes: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = PAGE + bytes;
        // SAFETY: a new shared mapping of the event's ring; nothing else uses the address range.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                libc::MAP_SHARED,
                perf.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a ring was mapped at address 0"))?;
        Ok(Self {
            perf,
            base,
            bytes,
            record: Vec::new(),
            has_ended: false,
        })
    }

    fn position(&self, field: usize) -> &AtomicU64 {
        // SAFETY: the field lies in the control page, which is mapped.
        let field = unsafe { self.base.add(field) }.cast::<AtomicU64>();
        // SAFETY: an aligned u64, mapped as long as `self` lives, which both sides access atomically.
        unsafe { field.as_ref() }
    }

    /// Shows the positions of what was written since the last call, a buffer for one record, and what copies bytes from a
    /// position; then gives the bytes back to the kernel.
    pub(super) fn read(&mut self, show: impl FnOnce(&Range<u64>, &mut Vec<u8>, &dyn Fn(u64, &mut [u8]))) {
        let head = self
            .position(std::mem::offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        let tail_field = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        let tail = self.position(tail_field).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        show(&(tail..head), &mut record, &|position, out| {
            self.copy(position, out);
        });
        self.record = record;
        self.position(tail_field).store(head.max(tail), Ordering::Release);
    }

    /// Copies bytes of the data area, from a position that only grows, around its end.
    fn copy(&self, position: u64, out: &mut [u8]) {
        let start = (position % self.bytes as u64) as usize;
        let (before_end, after_end) = out.split_at_mut(out.len().min(self.bytes - start));
        self.copy_flat(start, before_end);
        self.copy_flat(0, after_end);
    }

    fn copy_flat(&self, start: usize, out: &mut [u8]) {
        let out_start = NonNull::from(&mut *out).cast();
        // SAFETY: the caller keeps start + length within the data area, which is mapped after the control page.
        let start = unsafe { self.base.add(PAGE + start) };
        // SAFETY: as above; the kernel does not write between tail and head.
        unsafe { start.copy_to_nonoverlapping(out_start, out.len()) };
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.bytes) };
    }
}
