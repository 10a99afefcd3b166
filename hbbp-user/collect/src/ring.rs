//! The ring in which the kernel writes the records of one event, on one CPU.
//!
//! It is the protocol of `include/uapi/linux/perf_event.h`, struct `perf_event_mmap_page`: the kernel advances `data_head`, the
//! reader `data_tail`, and a record may wrap around the end of the data area.

use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::perf::Perf;

const PAGE: usize = 4096;

/// The ring of one CPU.
#[derive(Debug)]
pub(super) struct Ring {
    area: Area,
    pub(super) perf: Perf,
    /// The record that is being read, copied out of the ring.
    record: Vec<u8>,
    /// Whether its CPU went offline, after which nothing comes any more.
    pub(super) has_ended: bool,
}

impl Ring {
    /// Maps the ring of an event, whose data area has this length.
    pub(super) fn new(perf: Perf, bytes: usize) -> io::Result<Self> {
        Ok(Self {
            area: Area::map(perf.as_fd(), bytes)?,
            perf,
            record: Vec::new(),
            has_ended: false,
        })
    }

    /// Shows the positions of what was written since the last call, a buffer for one record, and what copies bytes from a
    /// position. It then gives the bytes back to the kernel.
    pub(super) fn read(&mut self, show: impl FnOnce(&Range<u64>, &mut Vec<u8>, &dyn Fn(u64, &mut [u8]))) {
        let head = self
            .area
            .position(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        let tail = self.area.position(offset_of!(perf_event_mmap_page, data_tail));
        let read = tail.load(Ordering::Relaxed);
        show(&(read..head), &mut self.record, &|position, out| {
            self.area.copy(position, out);
        });
        tail.store(head.max(read), Ordering::Release);
    }
}

/// The mapping of a ring: a control page and the data area.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    /// Length of the data area.
    bytes: usize,
}

impl Area {
    fn map(ring: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = PAGE + bytes;
        // SAFETY: a new shared mapping of the event's ring; nothing else uses the address range.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                libc::MAP_SHARED,
                ring.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a ring was mapped at address 0"))?;
        Ok(Self { base, bytes })
    }

    fn position(&self, field: usize) -> &AtomicU64 {
        // SAFETY: the field lies in the control page, which is mapped.
        let field = unsafe { self.base.add(field) }.cast::<AtomicU64>();
        // SAFETY: an aligned u64, mapped as long as `self` lives, which both sides access atomically.
        unsafe { field.as_ref() }
    }

    /// Copies bytes of the data area, from a position that only grows, around its end. No record is longer than the area: what is asked
    /// for beyond that stays as it is.
    fn copy(&self, position: u64, out: &mut [u8]) {
        let start = (position % self.bytes as u64) as usize;
        let len = out.len().min(self.bytes);
        let (before_end, after_end) = out[..len].split_at_mut(len.min(self.bytes - start));
        self.copy_flat(start, before_end);
        self.copy_flat(0, after_end);
    }

    fn copy_flat(&self, start: usize, out: &mut [u8]) {
        let out_start = NonNull::from(&mut *out).cast();
        // SAFETY: `copy` keeps start + length within the data area, which is mapped after the control page.
        let start = unsafe { self.base.add(PAGE + start) };
        // SAFETY: as above; the kernel does not write between tail and head.
        unsafe { start.copy_to_nonoverlapping(out_start, out.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    /// A ring of a page whose bytes count up by blocks of 16, as a file that is as long as control page and data area. What lies
    /// beyond cannot be touched.
    fn area() -> Area {
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(&[0xff; PAGE]).unwrap();
        let data: Vec<u8> = (0..PAGE).map(|at| (at / 16) as u8).collect();
        file.write_all(&data).unwrap();
        Area::map(file.as_fd(), PAGE).unwrap()
    }

    fn copied(area: &Area, position: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0xee; len];
        area.copy(position, &mut out);
        out
    }

    #[test]
    fn records_wrap_around_the_end() {
        let area = area();
        let lap = 7 * PAGE as u64;
        assert_eq!(copied(&area, lap, 2), [0, 0]);
        assert_eq!(
            copied(&area, lap + PAGE as u64 - 16, 48),
            [[255; 16], [0; 16], [1; 16]].concat()
        );
        assert_eq!(
            copied(&area, lap + 32, PAGE)[PAGE - 33..],
            [[255; 1].as_slice(), &[0; 16], &[1; 16]].concat()
        );
    }

    /// Bytes beyond the area were read before, and after its end those of other mappings.
    #[test]
    fn no_more_is_copied_than_the_area_holds() {
        let area = area();
        for (position, len) in [(0, PAGE + 1), (16, 4 * PAGE), (u64::MAX, 1 << 20)] {
            let out = copied(&area, position, len);
            assert!(out[PAGE..].iter().all(|byte| *byte == 0xee), "{position}, {len}");
            assert!(out[..PAGE].iter().filter(|byte| **byte == 0xee).count() <= 16);
        }
    }
}
