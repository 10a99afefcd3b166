//! Which classes that processors count an instruction belongs to.
//!
//! What an event counts is defined by its vendor: Intel's perfmon event lists with their long descriptions, AMD's PPRs. From them:
//!
//! - Loads and stores are instructions with at least one of them (MEM_INST_RETIRED: "at least one architecturally
//!   visible load"), so an instruction that reads, changes and writes memory counts as both. POP and RET load, PUSH and
//!   CALL store, and a REP string instruction counts once. Lists up to Golden Cove count software prefetches among the
//!   loads.
//! - Not defined, and so taken alike: what microcode does for far returns, system calls, XSAVE and other long
//!   instructions; and whether a REP string instruction is counted once for the whole of it where it was interrupted.
//! - Locked loads are those with a LOCK prefix, and XCHG with memory, which locks without (SDM vol. 3A, 9.1.2).
//! - Conditional branches are Jcc, and LOOP and JRCXZ, of which the lists say nothing.
//! - INST_RETIRED.NOP counts NOPs of any length and, where it is described at length, ENDBR.
//! - FP_ARITH_INST_RETIRED counts arithmetic alone, and fused multiply-add and dot products twice.

use iced_x86::{FlowControl, Instruction as Decoded, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};

use super::form::Form;
use hbbp_model::snapshot::InstructionClass as Class;

impl Form {
    /// How much one execution adds to the count of a class. Of conditional branches that are taken, or are not, it says which may
    /// be.
    pub fn counts_as(&self, class: Class) -> u8 {
        self.decoded().map_or(0, |decoded| counts_as(&decoded, class))
    }
}

fn counts_as(instruction: &Decoded, class: Class) -> u8 {
    if instruction.is_invalid() {
        return 0;
    }
    let mnemonic = instruction.mnemonic();
    match class {
        Class::Instructions => 1,
        Class::Loads => u8::from(memory_access(instruction).reads || is_prefetch(mnemonic)),
        Class::Stores => memory_access(instruction).writes.into(),
        Class::Locked => {
            let in_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
            (instruction.has_lock_prefix() || mnemonic == Mnemonic::Xchg && in_memory).into()
        }
        Class::Conditional | Class::Taken | Class::NotTaken => {
            (instruction.flow_control() == FlowControl::ConditionalBranch).into()
        }
        Class::Calls => (mnemonic == Mnemonic::Call).into(),
        Class::Returns => (mnemonic == Mnemonic::Ret).into(),
        Class::Nops => matches!(mnemonic, Mnemonic::Nop | Mnemonic::Endbr32 | Mnemonic::Endbr64).into(),
        Class::ScalarSingle => arithmetic(instruction, "ss", None),
        Class::ScalarDouble => arithmetic(instruction, "sd", None),
        Class::PackedSingle128 => arithmetic(instruction, "ps", Some(16)),
        Class::PackedDouble128 => arithmetic(instruction, "pd", Some(16)),
        Class::PackedSingle256 => arithmetic(instruction, "ps", Some(32)),
        Class::PackedDouble256 => arithmetic(instruction, "pd", Some(32)),
        Class::PackedSingle512 => arithmetic(instruction, "ps", Some(64)),
        Class::PackedDouble512 => arithmetic(instruction, "pd", Some(64)),
    }
}

/// What an instruction does with memory; the stack is memory, and what only computes an address does nothing with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryAccess {
    /// It reads, or may.
    pub reads: bool,
    /// It writes, or may.
    pub writes: bool,
}

/// What a decoded instruction does with memory.
pub fn memory_access(instruction: &Decoded) -> MemoryAccess {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory();
    let any = |wanted: &[OpAccess]| used.iter().any(|memory| wanted.contains(&memory.access()));
    MemoryAccess {
        reads: any(&[
            OpAccess::Read,
            OpAccess::CondRead,
            OpAccess::ReadWrite,
            OpAccess::ReadCondWrite,
        ]),
        writes: any(&[
            OpAccess::Write,
            OpAccess::CondWrite,
            OpAccess::ReadWrite,
            OpAccess::ReadCondWrite,
        ]),
    }
}

fn is_prefetch(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
    )
}

/// What floating-point arithmetic on this type adds, in registers of as many bytes: the names of its instructions end with the
/// type, but for its beginning they are the same for all types.
fn arithmetic(instruction: &Decoded, element: &str, bytes: Option<usize>) -> u8 {
    const ONCE: [&str; 14] = [
        "add", "sub", "mul", "div", "min", "max", "sqrt", "rsqrt", "rcp", "rsqrt14", "rcp14", "hadd", "hsub",
        "addsub",
    ];
    const FUSED: [&str; 4] = ["fmadd", "fmsub", "fnmadd", "fnmsub"];
    if bytes.is_some_and(|bytes| instruction.op0_register().size() != bytes) {
        return 0;
    }
    let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let Some(name) = name.strip_suffix(element) else {
        return 0;
    };
    let name = name.strip_prefix('v').unwrap_or(name);
    let is_fused = FUSED.iter().any(|fused| name.starts_with(fused)) || name == "dp";
    if is_fused { 2 } else { ONCE.contains(&name).into() }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// The classes of an instruction, with how often it counts where that is not once.
    fn classes(bytes: &[u8]) -> Vec<String> {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), bytes.len());
        let of = |class: &Class| match counts_as(&instruction, *class) {
            0 => None,
            1 => Some(class.id().to_owned()),
            n => Some(format!("{n} {}", class.id())),
        };
        Class::ALL.iter().skip(1).filter_map(of).collect()
    }

    #[test]
    fn what_accesses_memory_is_a_load_a_store_or_both() {
        let loads = ["loads"];
        let stores = ["stores"];
        // mov (%rax),%ecx; pop %rax; prefetcht0 (%rax); cmp %eax,(%rax)
        for load in [&[0x8b, 0x08][..], &[0x58], &[0x0f, 0x18, 0x08], &[0x39, 0x00]] {
            assert_eq!(classes(load), loads, "{load:x?}");
        }
        // mov %ecx,(%rax); push %rax
        for store in [&[0x89, 0x08][..], &[0x50]] {
            assert_eq!(classes(store), stores, "{store:x?}");
        }
        // add %eax,(%rax); push (%rax); rep movsb; pop (%rax)
        for both in [&[0x01, 0x00][..], &[0xff, 0x30], &[0xf3, 0xa4], &[0x8f, 0x00]] {
            assert_eq!(classes(both), ["loads", "stores"], "{both:x?}");
        }
        // lea (%rax),%rcx; add %eax,%ecx; pause
        for none in [&[0x48, 0x8d, 0x08][..], &[0x01, 0xc1], &[0xf3, 0x90]] {
            assert_eq!(classes(none), [""; 0], "{none:x?}");
        }
    }

    #[test]
    fn locks_are_prefixed_or_implied() {
        assert_eq!(classes(&[0xf0, 0xff, 0x00]), ["loads", "stores", "locked"]);
        assert_eq!(classes(&[0x87, 0x08]), ["loads", "stores", "locked"]);
        assert_eq!(classes(&[0x87, 0xc8]), [""; 0], "xchg %ecx,%eax");
    }

    #[test]
    fn branches() {
        let conditional = ["conditional", "taken", "not_taken"];
        // jne; loop; jrcxz
        for branch in [&[0x75, 0x00][..], &[0xe2, 0x00], &[0xe3, 0x00]] {
            assert_eq!(classes(branch), conditional, "{branch:x?}");
        }
        assert_eq!(classes(&[0xe8, 0, 0, 0, 0]), ["stores", "calls"]);
        assert_eq!(classes(&[0xff, 0x10]), ["loads", "stores", "calls"]);
        assert_eq!(classes(&[0xc3]), ["loads", "returns"]);
        assert_eq!(classes(&[0xeb, 0x00]), [""; 0], "jmp");
    }

    #[test]
    fn no_ops() {
        for nop in [
            &[0x90][..],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa],
        ] {
            assert_eq!(classes(nop), ["nops"], "{nop:x?}");
        }
    }

    #[test]
    fn floating_point_by_type_and_width() {
        // addsd %xmm1,%xmm0; vaddps %ymm1,%ymm0,%ymm0; vfmadd231pd %xmm2,%xmm1,%xmm0; sqrtss %xmm1,%xmm0
        assert_eq!(classes(&[0xf2, 0x0f, 0x58, 0xc1]), ["scalar_double"]);
        assert_eq!(classes(&[0xc5, 0xfc, 0x58, 0xc1]), ["packed_single_256"]);
        assert_eq!(classes(&[0xc4, 0xe2, 0xf1, 0xb8, 0xc2]), ["2 packed_double_128"]);
        assert_eq!(classes(&[0xf3, 0x0f, 0x51, 0xc1]), ["scalar_single"]);
        // movaps, paddd, cvtsi2sd, movsd %xmm1,%xmm0: no arithmetic of floating point.
        for none in [
            &[0x0f, 0x28, 0xc1][..],
            &[0x66, 0x0f, 0xfe, 0xc1],
            &[0xf2, 0x0f, 0x2a, 0xc1],
            &[0xf2, 0x0f, 0x10, 0xc1],
        ] {
            assert_eq!(classes(none), [""; 0], "{none:x?}");
        }
    }
}
