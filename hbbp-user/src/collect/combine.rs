//! The combining tables in front of the bank ([`hbbp_ebpf::combine`]), read through a mapping without a syscall.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::NonNull;

use anyhow::Context as _;
use aya::maps::{Array, ArrayOfMaps, IterableMap as _, MapData};
use hbbp_ebpf::combine::{CombineTable, Slot};
use hbbp_ebpf::{CountKey, Tally, name};

use super::object::Object;

/// Two sets of tables, each with one table for each possible CPU.
pub struct Combiner {
    shown: ArrayOfMaps<MapData, Array<MapData, CombineTable>>,
    /// The tables that the programs combine in.
    combining: Tables,
    /// The empty ones.
    spare: Tables,
}

impl Combiner {
    /// Takes both sets of the object and shows one of them to the programs.
    pub fn open(object: &mut Object) -> anyhow::Result<Self> {
        let mut shown = ArrayOfMaps::try_from(object.take_map(name::COMBINE)?)?;
        let [combining, spare] = name::COMBINES;
        let combining = Tables::open(object, combining)?;
        let spare = Tables::open(object, spare)?;
        shown
            .set(0, &combining.map, 0)
            .context("failed to show the combining tables to the programs")?;
        Ok(Self {
            shown,
            combining,
            spare,
        })
    }

    /// Lets the programs combine in the other set from now on. The update returns when no program uses the last one.
    pub fn flip(&mut self) -> anyhow::Result<()> {
        self.shown
            .set(0, &self.spare.map, 0)
            .context("failed to change the combining tables")?;
        mem::swap(&mut self.combining, &mut self.spare);
        Ok(())
    }

    /// Takes all counts out of the set that is not in use.
    pub fn take(&mut self, mut entry: impl FnMut(CountKey, Tally)) {
        for slot in self.spare.slots() {
            if slot.tally.hits != 0 {
                entry(slot.key, slot.tally);
                *slot = Slot::default();
            }
        }
    }
}

/// One set of tables, mapped.
struct Tables {
    map: Array<MapData, CombineTable>,
    base: NonNull<CombineTable>,
    n_cpus: usize,
}

impl Tables {
    fn open(object: &mut Object, name: &str) -> anyhow::Result<Self> {
        let map: Array<MapData, CombineTable> = Array::try_from(object.take_map(name)?)?;
        let n_cpus = usize::try_from(map.len())?;
        let fd = map.map().fd().as_fd().as_raw_fd();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = n_cpus * size_of::<CombineTable>();
        // SAFETY: a new mapping of a map that was made mappable and holds as many tables.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("failed to map the combining tables");
        }
        let base = NonNull::new(base.cast()).context("the combining tables were mapped at address 0")?;
        Ok(Self { map, base, n_cpus })
    }

    /// All slots. The caller sees to it that no program uses them.
    fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        let tables = NonNull::slice_from_raw_parts(self.base, self.n_cpus);
        // SAFETY: the mapping holds as many tables, any bits are a table, and it lives as long as `self`.
        let tables = unsafe { &mut *tables.as_ptr() };
        tables.iter_mut().flat_map(|table| &mut table.slots)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: mapped in `create` with this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.n_cpus * size_of::<CombineTable>()) };
    }
}
