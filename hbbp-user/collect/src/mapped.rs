//! Tables that the programs fill and user space reads through a mapping, without a syscall.
//!
//! Of most sorts there are two: one is shown to the programs, the other is read and emptied.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::NonNull;

use anyhow::Context as _;
use aya::Pod;
use aya::maps::{Array, ArrayOfMaps, IterableMap as _, MapData};

use super::object::Object;

/// Two tables, of which one is in use.
pub(crate) struct Pair<T: Pod> {
    shown: ArrayOfMaps<MapData, Array<MapData, T>>,
    used: Mapped<T>,
    spare: Mapped<T>,
}

impl<T: Pod> Pair<T> {
    /// Takes both tables of the object and shows the first to the programs, by the array of maps `shown`.
    pub(crate) fn open(object: &mut Object, shown: &str, tables: [&str; 2]) -> anyhow::Result<Self> {
        let mut shown = ArrayOfMaps::try_from(object.take_map(shown)?)?;
        let [used, spare] = tables;
        let used = Mapped::<T>::open(object, used)?;
        let spare = Mapped::open(object, spare)?;
        shown
            .set(0, &used.map, 0)
            .context("failed to pass the count maps to the BPF programs")?;
        Ok(Self { shown, used, spare })
    }

    /// Lets the programs fill the other table from now on. The update returns when no program uses the last one
    /// (kernel/bpf/syscall.c, `maybe_wait_bpf_programs`).
    pub(crate) fn flip(&mut self) -> anyhow::Result<()> {
        self.shown
            .set(0, &self.spare.map, 0)
            .context("failed to switch the count maps")?;
        mem::swap(&mut self.used, &mut self.spare);
        Ok(())
    }

    /// The table that no program uses. It is to be left empty.
    pub(crate) fn spare(&mut self) -> &mut [T] {
        let all = NonNull::slice_from_raw_parts(self.spare.base, self.spare.n);
        // SAFETY: the mapping holds as many, any bits are a value, no program writes to it, and it lives as long as `self`.
        unsafe { &mut *all.as_ptr() }
    }
}

/// An array of the object, mapped.
pub(crate) struct Mapped<T: Pod> {
    map: Array<MapData, T>,
    base: NonNull<T>,
    n: usize,
}

impl<T: Pod> Mapped<T> {
    /// Takes the array with this name.
    pub(crate) fn open(object: &mut Object, name: &str) -> anyhow::Result<Self> {
        // The kernel rounds the size of each value up to this (kernel/bpf/arraymap.c, `array_map_alloc`).
        const {
            assert!(
                size_of::<T>().is_multiple_of(8),
                "values follow each other without a gap"
            );
        };
        let map: Array<MapData, T> = Array::try_from(object.take_map(name)?)?;
        let n = usize::try_from(map.len())?;
        let fd = map.map().fd().as_fd().as_raw_fd();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = n * size_of::<T>();
        // SAFETY: a new mapping of a map that was made mappable and holds as many values.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("failed to mmap the count maps");
        }
        let base = NonNull::new(base.cast()).context("the count maps were mapped at address 0")?;
        Ok(Self { map, base, n })
    }

    /// The numbers of its elements.
    pub(crate) const fn all(&self) -> Range<usize> {
        0..self.n
    }

    /// One element, which programs may write to.
    pub(crate) const fn at(&self, idx: usize) -> Option<NonNull<T>> {
        if idx < self.n {
            // SAFETY: within the mapping.
            Some(unsafe { self.base.add(idx) })
        } else {
            None
        }
    }
}

// SAFETY: it owns its mapping, and is a pointer to that for no other reason than that programs write there too.
unsafe impl<T: Pod + Send> Send for Mapped<T> {}
// SAFETY: a shared one gives pointers alone, and who reads through them says why that is sound.
unsafe impl<T: Pod + Sync> Sync for Mapped<T> {}

impl<T: Pod> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.n * size_of::<T>()) };
    }
}
