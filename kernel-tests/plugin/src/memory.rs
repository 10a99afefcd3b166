//! The memory the emulated PMU shares with the guest: a file, and the guest's RAM.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null_mut, write_volatile};

use kernel_tests::layout::{
    BYTES, CPU_AREA, CPU_AREA_BYTES, CpuArea, Header, IDT, MAGIC, MAX_CPUS, RING_BYTES, RING_SLOTS, RINGS,
    Record,
};

/// A file mapped for reading and writing, for as long as the process lives.
pub(crate) struct Mapping {
    base: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// Maps a whole file.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
        let (read_write, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new shared mapping of an open file; no Rust object lives in it yet.
        let base = unsafe { libc::mmap(null_mut(), bytes, read_write, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            bytes,
        })
    }

    /// The eight bytes at an offset; `None` outside the mapping.
    pub(crate) fn word(&self, offset: u64) -> Option<u64> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(8)?;
        if self.bytes < end {
            return None;
        }
        // SAFETY: the eight bytes lie within the mapping (checked above).
        let place = unsafe { self.base.add(offset) };
        // SAFETY: as above; the guest may write them, so the read is volatile and unaligned-safe by bytes.
        let bytes = unsafe { std::ptr::read_volatile(place.cast::<[u8; 8]>()) };
        Some(u64::from_le_bytes(bytes))
    }

    fn place<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: callers pass offsets of the layout, whose end is checked against the file's size at load.
        unsafe { self.base.add(offset) }.cast()
    }
}

/// The shared file, as `kernel_tests::layout` describes it.
pub(crate) struct Shared {
    mapping: Mapping,
}

impl Shared {
    /// Maps the file and writes its header.
    ///
    /// # Errors
    /// When the file cannot be mapped or has the wrong size.
    pub(crate) fn open(path: &Path, depth: u32, max_precise: u32) -> std::io::Result<Self> {
        let mapping = Mapping::open(path)?;
        if mapping.bytes != BYTES {
            return Err(std::io::Error::other("the shared memory file has the wrong size"));
        }
        let mut shared = Self { mapping };
        let header = shared.header();
        header.magic = MAGIC;
        header.depth = depth;
        header.max_precise = max_precise;
        Ok(shared)
    }

    pub(crate) fn header(&mut self) -> &mut Header {
        // SAFETY: the header lies at the start of the mapping; the guest writes none of its fields.
        unsafe { &mut *self.mapping.place::<Header>(0) }
    }

    /// A transition that cannot be explained.
    pub(crate) fn anomaly(&mut self) {
        self.header().anomalies += 1;
    }

    pub(crate) fn area(&mut self, cpu_idx: usize) -> &mut CpuArea {
        let place = self
            .mapping
            .place::<CpuArea>(CPU_AREA + cpu_idx % MAX_CPUS * CPU_AREA_BYTES);
        // SAFETY: the area lies within the mapping; only one virtual CPU runs at a time (thread=single), so
        // the guest does not write while the emulated PMU holds this reference.
        unsafe { &mut *place }
    }

    /// Address of an interrupt gate, as the driver left it.
    pub(crate) fn gate(&self, vector: u8) -> u64 {
        self.mapping
            .word((IDT + usize::from(vector) * 8) as u64)
            .unwrap_or(0)
    }

    /// Puts a record into the ring of a CPU and moves its head on.
    pub(crate) fn put(&mut self, cpu_idx: usize, record: Record) {
        let ring = RINGS + cpu_idx % MAX_CPUS * RING_BYTES;
        let slot = record.seq as usize % RING_SLOTS;
        let place = self.mapping.place::<Record>(ring + slot * size_of::<Record>());
        // SAFETY: the slot lies within the ring (asserted in the layout); the driver reads it only once
        // `head` has moved past it.
        unsafe { write_volatile(place, record) };
        self.area(cpu_idx).head += 1;
    }
}
