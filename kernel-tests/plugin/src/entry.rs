//! Where QEMU calls in: load, translation, execution, doorbells.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::slice::from_raw_parts;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use kernel_tests::layout::{Doorbell, MAX_CPUS};

use crate::api::{self, Id, Info, Insn, Tb};
use crate::block::{Block, GATE};
use crate::machine::Machine;
use crate::timer::Frame;
use crate::trace::Traced;

/// Version of QEMU's plugin interface that this plugin was written for.
#[unsafe(no_mangle)]
#[expect(unreachable_pub, reason = "QEMU looks the symbol up by its name")]
pub static qemu_plugin_version: c_int = 1;

static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(null_mut());
static ID: AtomicU64 = AtomicU64::new(0);

/// A doorbell instruction, at its index in its block (no block before the machine is attached).
struct Bell {
    doorbell: Doorbell,
    block: Option<&'static Block>,
    index: u32,
}

/// QEMU loads the plugin: `dir=DIRECTORY` names the harness' files, `trace=on` keeps the branch trace,
/// `trace=stacks` the branch stacks alone.
///
/// # Safety
/// Called by QEMU with valid pointers.
#[unsafe(no_mangle)]
#[expect(unreachable_pub, reason = "QEMU looks the symbol up by its name")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a valid description for the time of the call.
    let info = unsafe { &*info };
    if !info.system_emulation {
        return complain("the emulated PMU needs qemu-system, not user emulation");
    }
    let n = usize::try_from(argc).unwrap_or(0);
    // SAFETY: QEMU passes `argc` valid strings that live as long as the plugin.
    let words = unsafe { from_raw_parts(argv, n) };
    // SAFETY: each is a C string, as above.
    let words = words
        .iter()
        .map(|word| unsafe { CStr::from_ptr(*word) }.to_string_lossy().into_owned());
    let mut directory = PathBuf::new();
    let mut traced = Traced::Nothing;
    for word in words {
        match word.split_once('=') {
            Some(("dir", path)) => directory = path.into(),
            Some(("trace", "on")) => traced = Traced::Branches,
            Some(("trace", "stacks")) => traced = Traced::Stacks,
            _ => {
                return complain(&format!(
                    "argument '{word}' is not dir=DIRECTORY, trace=on or trace=stacks"
                ));
            }
        }
    }
    match Machine::new(&directory, traced) {
        Ok(machine) => MACHINE.store(Box::into_raw(Box::new(machine)), Relaxed),
        Err(error) => return complain(&format!("{error:#}")),
    }
    ID.store(id, Relaxed);
    // SAFETY: a registration with the id that QEMU just gave.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate_before_attach) };
    0
}

#[expect(
    clippy::print_stderr,
    reason = "QEMU's standard error is where the harness looks for the reason"
)]
fn complain(message: &str) -> c_int {
    eprintln!("hbbp-vm plugin: {message}");
    1
}

/// The one machine.
fn machine() -> &'static mut Machine {
    // SAFETY: set once in qemu_plugin_install before any callback is registered and never freed. With
    // thread=single QEMU makes one callback at a time, and no callback calls another.
    unsafe { &mut *MACHINE.load(Relaxed) }
}

/// Until the driver attaches, the guest boots at the emulator's own speed; only doorbells are looked for.
extern "C" fn translate_before_attach(_id: Id, tb: *mut Tb) {
    for insn in instructions(tb) {
        if Doorbell::of(bytes(insn)) == Some(Doorbell::Attach) {
            hang_bell(
                insn,
                Bell {
                    doorbell: Doorbell::Attach,
                    block: None,
                    index: 0,
                },
            );
        }
    }
}

/// The emulator forgot all its code: from here on every block is translated with the emulated PMU watching.
extern "C" fn attached(id: Id) {
    // SAFETY: QEMU calls this when the plugin has been reset; it may register again.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate) };
    machine().model.shared.header().running = 1;
}

/// No gate of the kernel has more bytes before its first store (arch/x86/include/asm/idtentry.h: ENDBR64, ASM_CLAC, CLD).
const GATE_START: u64 = 16;

extern "C" fn translate(_id: Id, tb: *mut Tb) {
    let model = &mut machine().model;
    let insns = instructions(tb);
    let Some(&first) = insns.first() else { return };
    let mut code = Vec::new();
    let mut lengths = Vec::with_capacity(insns.len());
    for insn in &insns {
        let bytes = bytes(*insn);
        code.extend_from_slice(bytes);
        lengths.push(bytes.len() as u16);
    }
    // SAFETY: an instruction of the block being translated.
    let start = unsafe { api::qemu_plugin_insn_vaddr(first) };
    let gate = model.gates.get(&start).copied();
    let block = model.blocks.intern(start, code, &lengths, gate);
    // The first store of a gate may come in the block after its own.
    let is_behind_gate = || (1..GATE_START).any(|bytes| model.gates.contains_key(&start.wrapping_sub(bytes)));
    let shows_frame = block.flags & GATE != 0 || is_behind_gate();
    let data = std::ptr::from_ref(block).cast_mut().cast::<c_void>();
    // SAFETY: the block is being translated, and `block` lives for ever.
    unsafe { api::qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, api::NO_REGS, data) };
    for (index, insn) in insns.iter().enumerate() {
        if let Some(doorbell) = Doorbell::of(bytes(*insn))
            && (block.ring == 1 || doorbell.is_mark())
        {
            hang_bell(
                *insn,
                Bell {
                    doorbell,
                    block: Some(block),
                    index: index as u32,
                },
            );
        }
        if shows_frame && pushes(bytes(*insn)) {
            // SAFETY: an instruction of the block being translated; no data is passed.
            unsafe {
                api::qemu_plugin_register_vcpu_mem_cb(
                    *insn,
                    store_at_gate,
                    api::NO_REGS,
                    api::MEM_W,
                    null_mut(),
                );
            }
        }
    }
    if let Some(last) = insns.last() {
        let reached = &raw mut machine().reached;
        // SAFETY: as above; the counter lives as long as the machine.
        unsafe { api::qemu_plugin_register_vcpu_insn_exec_inline(*last, api::ADD_U64, reached, 1) };
    }
}

/// Whether an instruction is a push or a call, the first of which stores below a frame. Others of a gate may leave the block
/// within a helper of QEMU 7.2, which then keeps their callbacks beyond the life of the block (its issue 1381): guests with more
/// code than fits into its buffer of blocks failed after some minutes.
fn pushes(code: &[u8]) -> bool {
    let insn = Decoder::new(64, code, DecoderOptions::NONE).decode();
    matches!(insn.mnemonic(), Mnemonic::Push | Mnemonic::Call)
}

fn instructions(tb: *mut Tb) -> Vec<*mut Insn> {
    // SAFETY: QEMU passes a valid block to the translation callback.
    let n = unsafe { api::qemu_plugin_tb_n_insns(tb) };
    // SAFETY: as above, with an index below the number of instructions.
    (0..n)
        .map(|index| unsafe { api::qemu_plugin_tb_get_insn(tb, index) })
        .collect()
}

fn bytes<'a>(insn: *mut Insn) -> &'a [u8] {
    // SAFETY: the instruction is valid during the translation callback, where alone this is called.
    let data = unsafe { api::qemu_plugin_insn_data(insn) };
    // SAFETY: as above.
    let n = unsafe { api::qemu_plugin_insn_size(insn) };
    // SAFETY: QEMU's copy of the instruction has that many bytes and lives as long.
    unsafe { from_raw_parts(data.cast(), n) }
}

/// Calls [`ring`] when the instruction executes. The bell is never freed: the emulated code points at it.
fn hang_bell(insn: *mut Insn, bell: Bell) {
    let data = Box::into_raw(Box::new(bell)).cast();
    // SAFETY: an instruction of the block being translated; the bell lives for ever.
    unsafe { api::qemu_plugin_register_vcpu_insn_exec_cb(insn, ring, api::NO_REGS, data) };
}

extern "C" fn execute(cpu: c_uint, data: *mut c_void) {
    // SAFETY: the data registered in `translate`: a block that is never freed.
    let block: &'static Block = unsafe { &*data.cast::<Block>() };
    let machine = machine();
    let cpu_idx = cpu as usize % MAX_CPUS;
    if machine.running == cpu_idx {
        let reached = machine.reached;
        machine.reached = 0;
        if machine.cpus[cpu_idx].step_fast(block, reached) {
            return;
        }
        return step(machine, cpu_idx, block, reached);
    }
    machine.switch_to(cpu_idx);
    let reached = machine.reached;
    machine.reached = 0;
    step(machine, cpu_idx, block, reached);
}

/// Out of line, so that the fast path of [`execute`] saves no registers.
#[cold]
#[inline(never)]
fn step(machine: &mut Machine, cpu_idx: usize, block: &'static Block, reached: u64) {
    let Machine { cpus, model, .. } = machine;
    model.step(&mut cpus[cpu_idx], cpu_idx, block, reached != 0);
}

/// The first store of a gate's block: below it lies the frame that the processor pushed.
extern "C" fn store_at_gate(cpu: c_uint, info: u32, address: u64, _data: *mut c_void) {
    let machine = machine();
    let Some(cpu_state) = machine.cpus.get_mut(cpu as usize) else {
        return;
    };
    let Some(arrival) = cpu_state.arrival.take() else {
        return;
    };
    // The store is a push, so the stack pointer was eight above; there lies the error code if the vector
    // has one (Intel SDM volume 3, table 6-1), and then the return address.
    let has_code = matches!(arrival.gate.vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
    let distance = if has_code { 16 } else { 8 };
    let frame = physical(info, address).and_then(|physical| {
        let ram = &machine.model.ram;
        Some(Frame {
            resume: ram.word(physical + distance)?,
            // Above the address and CS.
            flags: ram.word(physical + distance + 16)?,
        })
    });
    let frame = frame.unwrap_or_else(|| {
        machine.model.shared.anomaly();
        Frame::unknown(&arrival)
    });
    machine.model.arrive(cpu_state, cpu as usize, arrival, frame);
}

fn physical(info: u32, address: u64) -> Option<u64> {
    // SAFETY: called within a memory callback with its own arguments.
    let place = unsafe { api::qemu_plugin_get_hwaddr(info, address) };
    if place.is_null() {
        return None;
    }
    // SAFETY: a valid handle until the callback returns.
    if unsafe { api::qemu_plugin_hwaddr_is_io(place) } {
        return None;
    }
    // SAFETY: as above.
    Some(unsafe { api::qemu_plugin_hwaddr_phys_addr(place) })
}

extern "C" fn ring(cpu: c_uint, data: *mut c_void) {
    // SAFETY: the data registered in `hang_bell`: a bell that is never freed.
    let bell = unsafe { &*data.cast::<Bell>() };
    let machine = machine();
    let cpu_idx = cpu as usize;
    if bell.doorbell == Doorbell::Attach {
        return attach(machine);
    }
    let Some(block) = bell.block else { return };
    // A start covers what follows its own instruction, all others what precedes theirs.
    let starts = matches!(bell.doorbell, Doorbell::StartAll | Doorbell::Start);
    let end = bell.index + u32::from(starts);
    if let Some(cpu) = machine.cpus.get_mut(cpu_idx) {
        let first = cpu.first;
        machine
            .model
            .retire(cpu, cpu_idx, block, first, end.max(first), None);
        cpu.first = end.max(first);
    }
    match bell.doorbell {
        Doorbell::Attach => {}
        Doorbell::Switch => switch_task(machine, cpu_idx),
        Doorbell::Config => machine.configure(cpu_idx),
        Doorbell::Read => machine.read(cpu_idx),
        Doorbell::StartAll => (0..machine.cpus.len()).for_each(|cpu_idx| machine.open_span(cpu_idx)),
        Doorbell::StopAll => (0..machine.cpus.len()).for_each(|cpu_idx| machine.close_span(cpu_idx)),
        Doorbell::Start => machine.open_span(cpu_idx),
        Doorbell::Stop => machine.close_span(cpu_idx),
        Doorbell::Freeze => machine.freeze(cpu_idx, true),
        Doorbell::Unfreeze => machine.freeze(cpu_idx, false),
        Doorbell::Write => {
            if let Err(error) = machine.write() {
                complain(&format!("failed to write the reference: {error}"));
            }
        }
    }
}

fn attach(machine: &mut Machine) {
    let model = &mut machine.model;
    for vector in 0..=u8::MAX {
        let address = model.shared.gate(vector);
        if address != 0 {
            // Vectors may share a gate; any number serves then, none of them is a fault.
            model.gates.entry(address).or_insert(vector);
        }
    }
    // SAFETY: the id that QEMU gave; the reset happens once no CPU runs, and then calls back.
    unsafe { api::qemu_plugin_reset(ID.load(Relaxed), attached) };
}

fn switch_task(machine: &mut Machine, cpu_idx: usize) {
    let model = &mut machine.model;
    let area = model.shared.area(cpu_idx);
    let (tgid, comm) = (area.tgid, area.comm);
    model.accounts.name(tgid, &comm);
    if let Some(cpu) = machine.cpus.get_mut(cpu_idx) {
        cpu.owner[0] = tgid;
        if model.hardware_profile.zero_on_switch {
            cpu.wiped = cpu.branches;
        }
    }
}
