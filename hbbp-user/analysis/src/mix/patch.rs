//! Sites that the kernel patches: the instructions that live kernel text has there for a tracepoint, another static
//! branch or ftrace, on or off.
//!
//! Static branches are known from the kernel's table ([`hbbp_model::snapshot::Snapshot::static_branches`]). Calls for ftrace are
//! the first instruction of a function after ENDBR64: a NOP of five bytes, or a call of a trampoline where the function is
//! traced (arch/x86/kernel/ftrace.c, `ftrace_nop_replace`).

use iced_x86::{Instruction, Mnemonic};

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, StaticBranch};

/// Names of what is at such sites; the first is that of all other instructions.
pub(super) const NAMES: [&str; 8] = [
    NONE,
    "tracepoint nop",
    "tracepoint jump",
    "static branch nop",
    "static branch jump",
    FTRACE_NOP,
    FTRACE_CALL,
    OTHER_NOP,
];

const NONE: &str = "none";
const FTRACE_NOP: &str = "ftrace nop";
const FTRACE_CALL: &str = "ftrace call";
const OTHER_NOP: &str = "other nop";

/// Beginning of the symbols of ftrace's own trampolines (arch/x86/kernel/ftrace_64.S); those that it makes have the same
/// beginning in /proc/kallsyms.
const TRAMPOLINE: &str = "ftrace_";
/// Bytes of a call, and of the NOP that replaces it.
const CALL: usize = 5;
/// Bytes of ENDBR64 (SDM vol. 2).
const ENDBR: u64 = 4;

/// What is at each of these instructions of kernel text, in their order. `branches` are the static branches of the
/// module, sorted; `target` names the function at an address of the kernel.
pub(super) fn patches(
    module: &Module,
    branches: &[StaticBranch],
    block: &[Instruction],
    target: impl Fn(ImageAddr) -> Option<String>,
) -> Vec<&'static str> {
    let named = |instruction: &Instruction| {
        let at = ImageAddr(instruction.ip());
        let is_nop = instruction.mnemonic() == Mnemonic::Nop;
        let branch = branches.binary_search_by_key(&at, |branch| branch.addr).ok();
        if let Some(branch) = branch.and_then(|nth| branches.get(nth)) {
            return match (branch.tracepoint, is_nop, instruction.is_jmp_short_or_near()) {
                (true, true, _) => "tracepoint nop",
                (true, _, true) => "tracepoint jump",
                (false, true, _) => "static branch nop",
                (false, _, true) => "static branch jump",
                // A breakpoint, while the site is patched.
                _ => NONE,
            };
        }
        let is_entry = instruction.len() == CALL && is_entry(module, at);
        let calls_trampoline = || {
            let name = target(ImageAddr(instruction.near_branch_target()));
            name.is_some_and(|name| name.starts_with(TRAMPOLINE))
        };
        match is_nop {
            true if is_entry => FTRACE_NOP,
            true => OTHER_NOP,
            false if is_entry && instruction.is_call_near() && calls_trampoline() => FTRACE_CALL,
            false => NONE,
        }
    };
    block.iter().map(named).collect()
}

/// Whether a function begins at an address, or has nothing but ENDBR64 before it.
fn is_entry(module: &Module, at: ImageAddr) -> bool {
    let symbol = module.symbol_at(at);
    let into = symbol.and_then(|symbol| at.since(symbol.start));
    into == Some(0) || into == Some(ENDBR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{ModuleIdx, ModuleKind, Symbol};
    use iced_x86::{Decoder, DecoderOptions};

    const START: u64 = 0xffff_ffff_8100_0000;

    fn module() -> Module {
        Module {
            name: "[kernel]".to_owned(),
            kind: ModuleKind::Kernel,
            build_id: Vec::new(),
            symbols: vec![Symbol {
                start: ImageAddr(START),
                len: 64,
                name: "f".to_owned(),
            }],
        }
    }

    fn names(code: &[&[u8]], branches: &[(u64, bool)]) -> Vec<&'static str> {
        let bytes = code.concat();
        let block: Vec<Instruction> = Decoder::with_ip(64, &bytes, START, DecoderOptions::NONE)
            .into_iter()
            .collect();
        assert_eq!(block.len(), code.len());
        let branches: Vec<StaticBranch> = branches
            .iter()
            .map(|(at, tracepoint)| StaticBranch {
                module: ModuleIdx(0),
                addr: ImageAddr(START + at),
                tracepoint: *tracepoint,
            })
            .collect();
        let target = |at: ImageAddr| {
            Some(
                if at.0 == START + 0x209 {
                    "ftrace_caller"
                } else {
                    "g"
                }
                .to_owned(),
            )
        };
        patches(&module(), &branches, &block, target)
    }

    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];
    const NOP2: &[u8] = &[0x66, 0x90];
    const PUSH: &[u8] = &[0x55];

    #[test]
    fn sites_that_are_off_are_nops() {
        let code = [ENDBR64, NOP5, PUSH, NOP5, NOP2, NOP5, NOP2, &[0x90]];
        let branches = [(10, true), (15, false), (17, false)];
        let expected = [
            NONE,
            FTRACE_NOP,
            NONE,
            "tracepoint nop",
            "static branch nop",
            "static branch nop",
            OTHER_NOP,
            OTHER_NOP,
        ];
        assert_eq!(names(&code, &branches), expected);
        assert_eq!(names(&[NOP5, PUSH], &[]), [FTRACE_NOP, NONE]);
    }

    #[test]
    fn sites_that_are_on_are_jumps_and_calls() {
        // call ftrace_caller; push; jmp +5; jmp +5; call g
        let code: [&[u8]; 6] = [
            ENDBR64,
            &[0xe8, 0, 2, 0, 0],
            &[0xe9, 5, 0, 0, 0],
            &[0xeb, 5],
            &[0xe8, 0, 3, 0, 0],
            &[0xcc],
        ];
        let expected = [
            NONE,
            FTRACE_CALL,
            "tracepoint jump",
            "static branch jump",
            NONE,
            NONE,
        ];
        assert_eq!(names(&code, &[(9, true), (14, false), (21, false)]), expected);
        // A call of something else at the entry is the function's own.
        assert_eq!(names(&[&[0xe8, 0, 3, 0, 0]], &[]), [NONE]);
    }

    #[test]
    fn all_names_are_listed() {
        let own = [
            "tracepoint nop",
            "static branch jump",
            FTRACE_CALL,
            OTHER_NOP,
            NONE,
        ];
        assert!(own.iter().all(|name| NAMES.contains(name)));
    }
}
