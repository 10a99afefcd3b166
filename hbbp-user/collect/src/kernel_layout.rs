//! Where the kernel keeps a task's `self_exec_id` and the count of a perf event, from the BTF that describes its types.
//!
//! Rust objects carry no relocations for kernel structures, so the offset is read here and handed to the programs as
//! a constant. Kernels with a randomised layout have most members of a task in a structure without a name
//! (`randomized_struct_fields_start` in include/linux/compiler_types.h), which is looked into as well.

use super::btf::{Btf, PATH};

/// Offset in bytes of `self_exec_id` in `struct task_struct`, or the reason why it is not known.
pub fn read_exec_id_offset(btf: &Btf) -> Result<u32, String> {
    offset_of(btf, "task_struct", "self_exec_id")
}

/// Offset in bytes of `count` in `struct perf_event`, or the reason why it is not known or programs may not read there
/// (LOCKDOWN_BPF_READ_KERNEL in include/linux/security.h).
pub(crate) fn read_event_count_offset(btf: &Btf) -> Result<u32, String> {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err("kernel lockdown is `confidentiality`".to_owned());
    }
    offset_of(btf, "perf_event", "count")
}

/// Offset in bytes of `thread.fsbase` in `struct task_struct`, or the reason why it is not known.
pub(crate) fn read_fs_base_offset(btf: &Btf) -> Result<u32, String> {
    Ok(offset_of(btf, "task_struct", "thread")? + offset_of(btf, "thread_struct", "fsbase")?)
}

fn offset_of(btf: &Btf, structure: &str, member: &str) -> Result<u32, String> {
    let found = btf.offset_of(&btf.structure(structure)?, member);
    found.ok_or_else(|| format!("{PATH} has no {structure}.{member}"))
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::{INT, STRUCT, btf};
    use super::*;

    #[test]
    fn the_member_is_found_in_a_plain_and_in_a_randomised_task() {
        // Offsets of the names: 1 u32, 5 task_struct, 17 flags, 23 self_exec_id.
        let names = ["u32", "task_struct", "flags", "self_exec_id"];
        let int = [1, INT, 4, 32];
        let (flags, exec_id) = ([17, 1, 0], [23, 1, 32]);
        let plain = [&int[..], &[5, STRUCT | 2, 8], &flags, &exec_id].concat();
        assert_eq!(read_exec_id_offset(&btf(&plain, &names)), Ok(4));
        // Type 2 has no name, and is in the task at byte 8.
        let inner = [&[0, STRUCT | 2, 8][..], &flags, &exec_id].concat();
        let task = [&[5, STRUCT | 2, 16][..], &flags, &[0, 2, 64]].concat();
        let randomised = [&int[..], &inner, &task].concat();
        assert_eq!(read_exec_id_offset(&btf(&randomised, &names)), Ok(12));
        // A structure that holds itself ends.
        let endless = [&int[..], &[5, STRUCT | 1, 8], &[0, 2, 0]].concat();
        assert!(read_exec_id_offset(&btf(&endless, &names)).is_err());
    }
}
