//! Mitigations of CPU vulnerabilities: which instructions of live kernel text are executed for one of them.
//!
//! Thunks and helpers are known by their symbols (arch/x86/lib/retpoline.S, arch/x86/entry/entry.S and
//! arch/x86/entry/calling.h, Linux 6.1 to 6.12), inline instructions by their effect. The branch to a thunk replaces
//! the return or the indirect branch that would be there otherwise, so it is not counted. Where a mitigation is off,
//! its replacement is executed and has its name: the NOP after each indirect call for retpolines, the jump over the
//! filling of the return stack. So figures of two boots differ exactly where their kernels do.

use std::ops::Range;

use hbbp_decode::Decoder;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::symbols::function;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, Text};

/// Names of the mitigations; the first is that of all other instructions.
pub(super) const NAMES: [&str; 12] = [
    NONE,
    RETPOLINE,
    INDIRECT_TARGET,
    RETURN_THUNK,
    UNTRAINED,
    RETURN_STACK,
    LFENCE,
    VERW,
    IBPB,
    IBRS,
    HISTORY,
    PTI,
];

const NONE: &str = "none";
const RETPOLINE: &str = "retpoline";
const INDIRECT_TARGET: &str = "indirect target selection";
const RETURN_THUNK: &str = "return thunk";
const UNTRAINED: &str = "untrained return";
const RETURN_STACK: &str = "return stack filling";
const LFENCE: &str = "lfence";
const VERW: &str = "verw";
const IBPB: &str = "IBPB";
const IBRS: &str = "IBRS";
const HISTORY: &str = "branch history clearing";
const PTI: &str = "page table isolation";

/// Beginnings of the symbols of thunks and helpers.
const SYMBOLS: [(&str, &str); 20] = [
    ("__x86_indirect_its_thunk", INDIRECT_TARGET),
    ("its_return_thunk", INDIRECT_TARGET),
    ("its_static_thunk", INDIRECT_TARGET),
    ("__x86_indirect_", RETPOLINE),
    // The first thunk of Linux 6.1 has this symbol too.
    ("__indirect_thunk_start", RETPOLINE),
    ("__x86_return_", RETURN_THUNK),
    ("call_depth_return_thunk", RETURN_THUNK),
    ("retbleed_return_thunk", RETURN_THUNK),
    ("srso_return_thunk", RETURN_THUNK),
    ("srso_alias_return_thunk", RETURN_THUNK),
    ("srso_safe_ret", RETURN_THUNK),
    ("srso_alias_safe_ret", RETURN_THUNK),
    ("retbleed_untrain_ret", UNTRAINED),
    ("zen_untrain_ret", UNTRAINED),
    ("entry_untrain_ret", UNTRAINED),
    ("srso_untrain_ret", UNTRAINED),
    ("srso_alias_untrain_ret", UNTRAINED),
    ("entry_ibpb", IBPB),
    ("write_ibpb", IBPB),
    ("clear_bhb_loop", HISTORY),
];

/// The function that switches stacks, and fills the return stack buffer in between (arch/x86/entry/entry_64.S).
const SWITCH: &str = "__switch_to_asm";

/// Beginnings of the symbols of kernel entry and exit, where PTI switches page tables.
const ENTRY: [&str; 8] = [
    "entry_",
    "asm_",
    "error_",
    "paranoid_",
    "syscall_return",
    "swapgs_restore",
    "common_interrupt_return",
    "nmi_",
];

/// Numbers of the registers that write a prediction barrier and the speculation controls (SDM vol. 4, table 2-2).
const IA32_SPEC_CTRL: u64 = 0x48;
const IA32_PRED_CMD: u64 = 0x49;

/// Name of the mitigation of each instruction of the block at a range of a text, in their order; nothing for user code.
pub fn block_mitigations(module: &Module, text: &Text, block: Range<usize>) -> Vec<&'static str> {
    let start = text.start.0.saturating_add(block.start as u64);
    let before = text.bytes.get(..block.start).unwrap_or(&[]);
    let bytes = text.bytes.get(block).filter(|_| module.kind.is_kernel());
    let decoder = Decoder::try_with_ip(64, bytes.unwrap_or(&[]), start);
    let block: Vec<Instruction> = decoder.into_iter().flatten().collect();
    let function = function(module, ImageAddr(start)).unwrap_or_default();
    mitigations(&function, &block, before)
}

/// Name of the mitigation of each instruction of a block of kernel text, in their order.
///
/// `function` is the symbol that covers the block, and `before` the bytes in front of it.
pub(super) fn mitigations(function: &str, block: &[Instruction], before: &[u8]) -> Vec<&'static str> {
    let by_symbol = SYMBOLS
        .iter()
        .find(|(beginning, _)| function.starts_with(beginning));
    if let Some((_, name)) = by_symbol {
        return vec![name; block.len()];
    }
    if ends_filling(block, before) {
        return vec![RETURN_STACK; block.len()];
    }
    let mut names: Vec<&'static str> = block.iter().map(in_place).collect();
    let is_entry = ENTRY.iter().any(|beginning| function.starts_with(beginning));
    for (at, instruction) in block.iter().enumerate() {
        let run = match instruction.code() {
            Code::Wrmsr => wrmsr(block.get(..at).unwrap_or(&[])),
            Code::Mov_cr_r64 if is_entry => switches_tables(block.get(..at).unwrap_or(&[])),
            Code::Mov_r64_cr if is_entry => Some((at, PTI)),
            _ if function == SWITCH && belongs_to_filling(instruction) => Some((at, RETURN_STACK)),
            _ => None,
        };
        if let Some((from, name)) = run
            && let Some(names) = names.get_mut(from..=at)
        {
            names.fill(name);
        }
    }
    if let ([first, ..], Some(name)) = (block, names.first_mut())
        && is_filler(first, before)
    {
        *name = RETPOLINE;
    }
    names
}

/// What an instruction is by itself.
fn in_place(instruction: &Instruction) -> &'static str {
    match instruction.mnemonic() {
        Mnemonic::Lfence => LFENCE,
        Mnemonic::Verw => VERW,
        // A call to the byte after the INT3 that follows it: it fills a return stack buffer.
        Mnemonic::Call if is_filling_call(instruction) => RETURN_STACK,
        _ => NONE,
    }
}

/// Whether an instruction is a call to the byte after the INT3 that follows it.
fn is_filling_call(instruction: &Instruction) -> bool {
    instruction.is_call_near() && instruction.near_branch_target() == instruction.next_ip() + 1
}

/// Rounds of the filling: 32 calls, two in each (`RSB_CLEAR_LOOPS` in arch/x86/include/asm/nospec-branch.h).
const FILLING_ROUNDS: u64 = 16;

/// Whether an instruction of [`SWITCH`] is there for the filling: the number of rounds, the credit of the call depth
/// after it, or the jump over it where it is off.
fn belongs_to_filling(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 if instruction.op0_kind() == OpKind::Register => {
            instruction.immediate(1) == FILLING_ROUNDS
        }
        Code::Mov_rm64_imm32 => {
            instruction.memory_segment() == Register::GS && instruction.immediate(1) == u64::MAX
        }
        Code::Jmp_rel8_64 => true,
        _ => false,
    }
}

/// Whether a block follows the last call of `__FILL_RETURN_BUFFER` (arch/x86/include/asm/nospec-branch.h): it takes the
/// return addresses off the stack and counts the rounds.
fn ends_filling(block: &[Instruction], before: &[u8]) -> bool {
    /// call over one byte; int3.
    const CALL: [u8; 6] = [0xe8, 1, 0, 0, 0, 0xcc];

    let frees = block
        .first()
        .is_some_and(|first| first.mnemonic() == Mnemonic::Add && first.op0_register() == Register::RSP);
    before.ends_with(&CALL) && frees
}

/// Whether an instruction is the NOP that replaces a retpoline call after an indirect call.
fn is_filler(instruction: &Instruction, before: &[u8]) -> bool {
    let call = match before {
        [.., 0x41, 0xff, 0xd0..=0xd7] => 3,
        [.., 0xff, 0xd0..=0xd7] => 2,
        _ => return false,
    };
    // `call __x86_indirect_thunk_rax`, with a CS prefix for R8 to R15.
    let fills = call + instruction.len();
    instruction.mnemonic() == Mnemonic::Nop && (fills == 5 || fills == 6)
}

/// Where the write of a model-specific register begins, and what it is for, by the number that ECX gets.
fn wrmsr(before: &[Instruction]) -> Option<(usize, &'static str)> {
    let sets_ecx = |it: &&Instruction| it.code() == Code::Mov_r32_imm32 && it.op0_register() == Register::ECX;
    let at = before.iter().rposition(|it| sets_ecx(&it))?;
    match before.get(at)?.immediate(1) {
        IA32_SPEC_CTRL => Some((at, IBRS)),
        IA32_PRED_CMD => Some((at, IBPB)),
        _ => None,
    }
}

/// Where the switch of page tables begins that ends with a write of CR3.
fn switches_tables(before: &[Instruction]) -> Option<(usize, &'static str)> {
    let at = before.iter().rposition(|it| it.code() == Code::Mov_r64_cr)?;
    Some((at, PTI))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn names(function: &str, bytes: &[u8], before: &[u8]) -> Vec<&'static str> {
        let block: Vec<Instruction> = Decoder::try_with_ip(64, bytes, 0x1000).unwrap().collect();
        mitigations(function, &block, before)
    }

    #[test]
    fn thunks_are_known_by_their_symbols() {
        for (function, name) in [
            ("__x86_indirect_thunk_rax", RETPOLINE),
            ("__x86_indirect_its_thunk_rax", INDIRECT_TARGET),
            ("__indirect_thunk_start", RETPOLINE),
            ("__x86_return_thunk", RETURN_THUNK),
            ("srso_alias_untrain_ret", UNTRAINED),
            ("clear_bhb_loop", HISTORY),
            ("vfs_read", NONE),
        ] {
            assert_eq!(names(function, &[0xc3], &[]), [name]);
        }
    }

    #[test]
    fn inline_instructions_are_known_by_their_effect() {
        // lfence; verw [rip]; nop
        let bytes = [0x0f, 0xae, 0xe8, 0x0f, 0x00, 0x2d, 0, 0, 0, 0, 0x90];
        assert_eq!(names("f", &bytes, &[]), [LFENCE, VERW, NONE]);
        // nop; mov ecx, 0x49; mov eax, 1; xor edx, edx; wrmsr
        let ibpb = [
            0x90, 0xb9, 0x49, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x30,
        ];
        assert_eq!(names("f", &ibpb, &[]), [NONE, IBPB, IBPB, IBPB, IBPB]);
        let other = [0xb9, 0x10, 0, 0, 0, 0x0f, 0x30];
        assert_eq!(names("f", &other, &[]), [NONE, NONE]);
        // mov rax, cr3; and rax, ..; mov cr3, rax
        let tables = [
            0x0f, 0x20, 0xd8, 0x48, 0x25, 0xff, 0xe7, 0xff, 0xff, 0x0f, 0x22, 0xd8,
        ];
        assert_eq!(names("entry_SYSCALL_64", &tables, &[]), [PTI; 3]);
        assert_eq!(names("switch_mm_irqs_off", &tables, &[]), [NONE; 3]);
    }

    #[test]
    fn filling_of_the_return_stack_is_one_thing() {
        let call = [0xe8, 1, 0, 0, 0];
        assert_eq!(names("__switch_to_asm", &call, &[]), [RETURN_STACK]);
        // add rsp, 16; dec r12; jne
        let rest = [0x48, 0x83, 0xc4, 0x10, 0x49, 0xff, 0xcc, 0x75, 0xee];
        let before = [0xe8, 1, 0, 0, 0, 0xcc];
        assert_eq!(names("__switch_to_asm", &rest, &before), [RETURN_STACK; 3]);
        assert_eq!(names("__switch_to_asm", &rest, &[]), [NONE; 3]);
        // push rbp; mov r12, 16, at the end of its block
        let first = [0x55, 0x49, 0xc7, 0xc4, 0x10, 0, 0, 0];
        assert_eq!(names("__switch_to_asm", &first, &[]), [NONE, RETURN_STACK]);
        // mov qword ptr gs:[0x10], -1; mov rsp, [rsi]
        let credit = [
            0x65, 0x48, 0xc7, 0x04, 0x25, 0x10, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x26,
        ];
        assert_eq!(names("__switch_to_asm", &credit, &[]), [RETURN_STACK, NONE]);
        assert_eq!(names("f", &credit, &[]), [NONE; 2]);
        // jmp over it; the jump to the next function is a long one.
        assert_eq!(names("__switch_to_asm", &[0xeb, 0x2a], &[]), [RETURN_STACK]);
        assert_eq!(names("__switch_to_asm", &[0xe9, 0, 1, 0, 0], &[]), [NONE]);
    }

    #[test]
    fn fillers_of_retpolines_follow_indirect_calls() {
        let nop = [0x0f, 0x1f, 0x00];
        assert_eq!(names("f", &nop, &[0xff, 0xd0]), [RETPOLINE]);
        assert_eq!(names("f", &nop, &[0x41, 0xff, 0xd3]), [RETPOLINE]);
        assert_eq!(names("f", &nop, &[0xff, 0x50, 0x10]), [NONE]);
        assert_eq!(names("f", &[0x0f, 0x1f, 0x44, 0, 0], &[0xff, 0xd0]), [NONE]);
    }
}
