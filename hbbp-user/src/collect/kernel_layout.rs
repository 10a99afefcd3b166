//! Where the kernel keeps a task's `self_exec_id` and the count of a perf event, from the BTF that describes its types.
//!
//! Rust objects carry no relocations for kernel structures, so the offset is read here and handed to the programs as
//! a constant. Kernels with a randomised layout have most members of a task in a structure without a name
//! (`randomized_struct_fields_start` in include/linux/compiler_types.h), which is looked into as well.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use btf_rs::{Backend, Btf, Member, Type};
use rustix::fs::{MemfdFlags, memfd_create};

/// Offset in bytes of `self_exec_id` in `struct task_struct`, or the reason why it is not known.
pub fn read_exec_id_offset(btf: &Btf) -> Result<u32, String> {
    offset_of(btf, "task_struct", "self_exec_id")
}

/// Offset in bytes of `count` in `struct perf_event`, or the reason why it is not known or programs may not read there
/// (LOCKDOWN_BPF_READ_KERNEL in include/linux/security.h).
pub fn read_event_count_offset(btf: &Btf) -> Result<u32, String> {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err("kernel lockdown is `confidentiality`".to_owned());
    }
    offset_of(btf, "perf_event", "count")
}

fn offset_of(btf: &Btf, structure: &str, member: &str) -> Result<u32, String> {
    let types = btf
        .resolve_types_by_name(structure)
        .map_err(|error| error.to_string())?;
    let offset = |found: &Type| match found {
        Type::Struct(it) => bit_offset(btf, &it.members, member, MAX_DEPTH),
        _ => None,
    };
    let found = types.iter().find_map(offset);
    found
        .map(|bits| bits / 8)
        .ok_or_else(|| format!("{PATH} has no {structure}.{member}"))
}

/// Structures without a name that are nested in each other.
const MAX_DEPTH: u32 = 8;

/// The offset of a member in bits, also of one in a structure or union without a name.
fn bit_offset(btf: &Btf, members: &[Member], wanted: &str, depth: u32) -> Option<u32> {
    let depth = depth.checked_sub(1)?;
    members.iter().find_map(|member| {
        let name = btf.resolve_name(member).unwrap_or_default();
        if name == wanted {
            return Some(member.bit_offset());
        }
        if !name.is_empty() {
            return None;
        }
        let (Type::Struct(inner) | Type::Union(inner)) = btf.resolve_chained_type(member).ok()? else {
            return None;
        };
        let inside = bit_offset(btf, &inner.members, wanted, depth)?;
        inside.checked_add(member.bit_offset())
    })
}

const PATH: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's description of its own types, or the reason why there is none.
pub fn open_btf() -> Result<Btf, String> {
    // A mapped file is searched for one type; of any other, all 100,000 types are parsed. The kernel's own file can be mapped
    // since Linux 6.16.
    let btf = Btf::from_file_with_backend(PATH, Backend::Mmap)
        .or_else(|_| from_copy())
        .or_else(|_| Btf::from_file(PATH));
    btf.map_err(|error| format!("{PATH} cannot be read: {error}"))
}

/// The same from a copy in memory, which can be mapped on every kernel.
fn from_copy() -> Result<Btf, btf_rs::Error> {
    let memory = memfd_create(c"btf", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut copy = File::from(memory);
    io::copy(&mut File::open(PATH)?, &mut copy)?;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    Btf::from_file_with_backend(path, Backend::Mmap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: u32 = 1 << 24;
    const STRUCT: u32 = 4 << 24;

    /// BTF (Documentation/bpf/btf.rst) of these types and names.
    fn btf(types: &[u32], names: &[&str]) -> Btf {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let names = [&[""], names].concat().join("\0") + "\0";
        let (n_types, n_names) = (types.len() as u32, names.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(
            [24, 0, n_types, n_types, n_names]
                .map(u32::to_le_bytes)
                .as_flattened(),
        );
        bytes.extend(types);
        bytes.extend(names.into_bytes());
        Btf::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn the_member_is_found_in_a_plain_and_in_a_randomised_task() {
        // Offsets of the names: 1 u32, 5 task_struct, 17 flags, 23 self_exec_id.
        let names = ["u32", "task_struct", "flags", "self_exec_id"];
        let int = [1, INT, 4, 32];
        let (flags, exec_id) = ([17, 1, 0], [23, 1, 32]);
        let plain = [&int[..], &[5, STRUCT | 2, 8], &flags, &exec_id].concat();
        assert_eq!(read_exec_id_offset(&btf(&plain, &names)), Ok(4));
        // Type 2 has no name, and stands in the task at byte 8.
        let inner = [&[0, STRUCT | 2, 8][..], &flags, &exec_id].concat();
        let task = [&[5, STRUCT | 2, 16][..], &flags, &[0, 2, 64]].concat();
        let randomised = [&int[..], &inner, &task].concat();
        assert_eq!(read_exec_id_offset(&btf(&randomised, &names)), Ok(12));
        // A structure that holds itself ends.
        let endless = [&int[..], &[5, STRUCT | 1, 8], &[0, 2, 0]].concat();
        assert!(read_exec_id_offset(&btf(&endless, &names)).is_err());
    }
}
