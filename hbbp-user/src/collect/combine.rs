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

/// `BPF_F_MMAPABLE | BPF_F_INNER_MAP` (`include/uapi/linux/bpf.h`): the flags of the object's own definition.
const FLAGS: u32 = 1 << 10 | 1 << 12;

/// Two sets of tables, each with one table for each possible CPU.
pub struct Combiner {
    shown: ArrayOfMaps<MapData, Array<MapData, CombineTable>>,
    /// The tables that the programs combine in.
    combining: Tables,
    /// The empty ones.
    spare: Tables,
}

impl Combiner {
    /// Creates both sets and shows one of them to the programs.
    pub fn create(object: &mut Object) -> anyhow::Result<Self> {
        let mut shown = ArrayOfMaps::try_from(object.take_map(name::COMBINE)?)?;
        let n_cpus = aya::util::nr_cpus()
            .map_err(|(path, error)| anyhow::anyhow!("failed to read {path}: {error}"))?;
        let (combining, spare) = (Tables::create(n_cpus)?, Tables::create(n_cpus)?);
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
    fn create(n_cpus: usize) -> anyhow::Result<Self> {
        let map =
            Array::create(u32::try_from(n_cpus)?, FLAGS).context("failed to create the combining tables")?;
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
