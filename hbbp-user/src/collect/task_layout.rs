//! Where the kernel keeps a task's `self_exec_id`, from the BTF that describes its types.
//!
//! Rust objects carry no relocations for kernel structures, so the offset is read here and handed to the programs as
//! a constant.

use btf_rs::{Backend, Btf, Type};

/// Offset in bytes of `self_exec_id` in `struct task_struct`, or the reason why it is not known.
pub fn read_exec_id_offset(btf: &Btf) -> Result<u32, String> {
    let types = btf
        .resolve_types_by_name("task_struct")
        .map_err(|error| error.to_string())?;
    for found in types {
        let Type::Struct(task) = found else { continue };
        for member in &task.members {
            if btf.resolve_name(member).is_ok_and(|name| name == "self_exec_id") {
                return Ok(member.bit_offset() / 8);
            }
        }
    }
    Err(format!("{PATH} has no task_struct.self_exec_id"))
}

const PATH: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's description of its own types, or the reason why there is none.
pub fn open_btf() -> Result<Btf, String> {
    // Mapping it (Linux 6.16) spares parsing 100,000 types to find one.
    let btf =
        Btf::from_file_with_backend(PATH, Backend::Mmap).or_else(|_| Btf::from_bytes(&std::fs::read(PATH)?));
    btf.map_err(|error| format!("{PATH} cannot be read: {error}"))
}
