//! The part of QEMU's plugin interface (version 1, QEMU 7.2 and later) that the emulated PMU uses.
//!
//! Source: `include/qemu/qemu-plugin.h` of QEMU; the declarations are our own.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Identity QEMU gave to this plugin.
pub(crate) type Id = u64;

/// Opaque translation block.
#[repr(C)]
pub(crate) struct Tb {
    _opaque: [u8; 0],
}

/// Opaque translated instruction.
#[repr(C)]
pub(crate) struct Insn {
    _opaque: [u8; 0],
}

/// Opaque physical address of a memory access.
#[repr(C)]
pub(crate) struct HwAddr {
    _opaque: [u8; 0],
}

/// What QEMU says of itself at load time.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_cur: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// `QEMU_PLUGIN_CB_NO_REGS`: a callback does not look at registers.
pub(crate) const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_W`: stores only.
pub(crate) const MEM_W: c_int = 2;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub(crate) const ADD_U64: c_int = 0;

pub(crate) type TransCallback = extern "C" fn(Id, *mut Tb);
pub(crate) type ExecCallback = extern "C" fn(c_uint, *mut c_void);
pub(crate) type MemCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub(crate) type SimpleCallback = extern "C" fn(Id);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: TransCallback);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        callback: ExecCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: ExecCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        op: c_int,
        counter: *mut u64,
        addend: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: MemCallback,
        flags: c_int,
        rw: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_reset(id: Id, callback: SimpleCallback);
    pub(crate) fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(tb: *const Tb, idx: usize) -> *mut Insn;
    pub(crate) fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    pub(crate) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub(crate) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub(crate) fn qemu_plugin_get_hwaddr(info: u32, vaddr: u64) -> *mut HwAddr;
    pub(crate) fn qemu_plugin_hwaddr_is_io(address: *const HwAddr) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(address: *const HwAddr) -> u64;
}
