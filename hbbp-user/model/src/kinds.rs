//! Kinds of instructions that differ in the time they take, and the time that each is known to take.
//!
//! The kinds are those that optimization manuals distinguish. Their times in cycles are starting points, which a
//! recording overrides (`import` and `estimate`), and only ratios matter. They are latencies of Intel's big cores in
//! round numbers. Their sources are the Intel 64 and IA-32 Architectures Optimization Reference Manual, appendix on
//! latency and throughput, and Agner Fog's instruction tables. Where latency and throughput differ much, as for loads,
//! the time is between the two.

use hbbp_decode::Modern;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

/// How many kinds there are.
pub const N_KINDS: usize = 11;

/// Instructions of each kind in a stream, or their mean number in many.
pub type Kinds = [f64; N_KINDS];

/// Indices into [`Kinds`].
pub mod kind {
    /// All others.
    pub const PLAIN: usize = 0;
    /// Loads.
    pub const LOAD: usize = 1;
    /// Stores.
    pub(crate) const STORE: usize = 2;
    /// Multiplications of integers.
    pub(crate) const MULTIPLY: usize = 3;
    /// Divisions and roots, of integers and floats.
    pub const DIVIDE: usize = 4;
    /// Floats and vectors.
    pub(crate) const FLOAT: usize = 5;
    /// Atomic access to memory.
    pub(crate) const LOCKED: usize = 6;
    /// What drains the pipeline or runs long microcode: fences, far branches, registers of the system.
    pub const SYSTEM: usize = 7;
    /// String instructions with a REP prefix, whatever their count.
    pub(crate) const REPEATED: usize = 8;
    /// Loads past the caches.
    pub(crate) const STREAMING: usize = 9;
    /// The taken branch that ends a stream, in addition to its instruction.
    pub const TAKEN: usize = 10;
}

/// For each kind: cycles, and by what factor these may be wrong (one standard deviation of the logarithm).
pub const KNOWN_TIMES: [(f64, f64); N_KINDS] = [
    (1.0, 1.1),
    (2.0, 2.0),
    (1.0, 2.0),
    (3.0, 2.0),
    (20.0, 2.0),
    (3.0, 2.0),
    (20.0, 2.0),
    (50.0, 2.0),
    (30.0, 3.0),
    (100.0, 3.0),
    (1.0, 2.0),
];

/// The kind of an instruction, where `modern` is what differs from the one that iced-x86 knows.
pub fn kind_of(
    instruction: &Instruction,
    modern: Option<Modern>,
    info: &mut InstructionInfoFactory,
) -> usize {
    let mnemonic = instruction.mnemonic();
    // The nearest one is a move.
    if let Some("RDMSR" | "WRMSRNS" | "URDMSR" | "UWRMSR") = modern.and_then(|modern| modern.mnemonic) {
        return kind::SYSTEM;
    }
    let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if is_repeated && instruction.is_string_instruction() {
        return kind::REPEATED;
    }
    if is_system(mnemonic, instruction) {
        return kind::SYSTEM;
    }
    if instruction.has_lock_prefix() {
        return kind::LOCKED;
    }
    if is_division(mnemonic) {
        return kind::DIVIDE;
    }
    let info = info.info(instruction);
    let (mut loads, mut stores) = (false, false);
    for memory in info.used_memory() {
        match memory.access() {
            OpAccess::Read | OpAccess::CondRead => loads = true,
            OpAccess::Write | OpAccess::CondWrite => stores = true,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (loads, stores) = (true, true),
            _ => {}
        }
    }
    match mnemonic {
        // An exchange with memory is atomic without a prefix.
        Mnemonic::Xchg if loads => kind::LOCKED,
        Mnemonic::Movntdqa | Mnemonic::Vmovntdqa => kind::STREAMING,
        Mnemonic::Mul | Mnemonic::Imul | Mnemonic::Mulx => kind::MULTIPLY,
        _ if is_float(instruction) => kind::FLOAT,
        _ if loads => kind::LOAD,
        _ if stores => kind::STORE,
        _ => kind::PLAIN,
    }
}

fn is_division(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Div
            | M::Idiv
            | M::Divss
            | M::Divsd
            | M::Divps
            | M::Divpd
            | M::Vdivss
            | M::Vdivsd
            | M::Vdivps
            | M::Vdivpd
            | M::Vdivsh
            | M::Vdivph
            | M::Fdiv
            | M::Fdivp
            | M::Fdivr
            | M::Fdivrp
            | M::Fidiv
            | M::Sqrtss
            | M::Sqrtsd
            | M::Sqrtps
            | M::Sqrtpd
            | M::Vsqrtss
            | M::Vsqrtsd
            | M::Vsqrtps
            | M::Vsqrtpd
            | M::Vsqrtsh
            | M::Vsqrtph
            | M::Fsqrt
    )
}

fn is_system(mnemonic: Mnemonic, instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let is_far = matches!(
        instruction.flow_control(),
        FlowControl::Interrupt | FlowControl::Exception
    ) || matches!(
        mnemonic,
        M::Syscall | M::Sysenter | M::Sysret | M::Sysretq | M::Sysexit | M::Sysexitq
    );
    is_far
        || matches!(
            mnemonic,
            M::Iret
                | M::Iretd
                | M::Iretq
                | M::Retf
                | M::Cpuid
                | M::Wrmsr
                | M::Wrmsrns
                | M::Rdmsr
                | M::Rdpmc
                | M::Rdtsc
                | M::Rdtscp
                | M::Invlpg
                | M::Invpcid
                | M::Wbinvd
                | M::Lfence
                | M::Mfence
                | M::Sfence
                | M::Serialize
                | M::Pause
                | M::Swapgs
                | M::Hlt
                | M::Mwait
                | M::Clflush
                | M::Clflushopt
                | M::Xgetbv
                | M::Xsetbv
                | M::Fxsave
                | M::Fxsave64
                | M::Fxrstor
                | M::Fxrstor64
                | M::Xsave
                | M::Xsave64
                | M::Xsaveopt
                | M::Xsaveopt64
                | M::Xsavec
                | M::Xsavec64
                | M::Xsaves
                | M::Xsaves64
                | M::Xrstor
                | M::Xrstor64
                | M::Xrstors
                | M::Xrstors64
                | M::In
                | M::Out
        )
}

fn is_float(instruction: &Instruction) -> bool {
    let register = instruction.op0_register();
    register.is_vector_register() || register.is_st()
}

#[cfg(test)]
mod tests {
    use hbbp_decode::Decoder;

    use super::*;

    #[test]
    fn kinds_follow_the_effect_of_instructions() {
        let cases: [(&[u8], usize); 23] = [
            (&[0x01, 0xd0], kind::PLAIN),                                // add eax, edx
            (&[0x8d, 0x04, 0x0a], kind::PLAIN),                          // lea eax, [rdx+rcx]
            (&[0x74, 0x00], kind::PLAIN),                                // je
            (&[0x8b, 0x07], kind::LOAD),                                 // mov eax, [rdi]
            (&[0x01, 0x07], kind::LOAD),                                 // add [rdi], eax
            (&[0xc3], kind::LOAD),                                       // ret
            (&[0x89, 0x07], kind::STORE),                                // mov [rdi], eax
            (&[0xe8, 0, 0, 0, 0], kind::STORE),                          // call
            (&[0x0f, 0xaf, 0xc1], kind::MULTIPLY),                       // imul eax, ecx
            (&[0xf7, 0xf9], kind::DIVIDE),                               // idiv ecx
            (&[0xf2, 0x0f, 0x58, 0xc1], kind::FLOAT),                    // addsd xmm0, xmm1
            (&[0xf0, 0x01, 0x07], kind::LOCKED),                         // lock add [rdi], eax
            (&[0x87, 0x07], kind::LOCKED),                               // xchg [rdi], eax
            (&[0x0f, 0x05], kind::SYSTEM),                               // syscall
            (&[0xf3, 0x48, 0xa5], kind::REPEATED),                       // rep movsq
            (&[0x66, 0x0f, 0x38, 0x2a, 0x07], kind::STREAMING),          // movntdqa xmm0, [rdi]
            (&[0x62, 0xf4, 0xe4, 0x18, 0x01, 0xc1], kind::PLAIN),        // add rbx, rcx, rax
            (&[0x62, 0xf4, 0xe4, 0x18, 0xc1, 0x21, 0x11], kind::LOAD),   // shl rbx, [rcx], 0x11
            (&[0x62, 0xf4, 0xe4, 0x18, 0xaf, 0x01], kind::MULTIPLY),     // imul rbx, rax, [rcx]
            (&[0x62, 0xf4, 0xfc, 0x0c, 0x44, 0x01], kind::STORE),        // cfcmove [rcx], rax
            (&[0x62, 0xf5, 0x7d, 0x08, 0x5e, 0xd1], kind::DIVIDE),       // vdivbf16 xmm2, xmm0, xmm1
            (&[0x62, 0xf4, 0x7f, 0x08, 0xf8, 0xc1], kind::SYSTEM),       // urdmsr rcx, rax
            (&[0xc4, 0xe7, 0x7b, 0xf6, 0xc1, 1, 0, 0, 0], kind::SYSTEM), // rdmsr rcx, 1
        ];
        let mut info = InstructionInfoFactory::new();
        for (bytes, kind) in cases {
            let mut decoder = Decoder::try_with_ip(64, bytes, 0).unwrap();
            let instruction = decoder.decode();
            let found = kind_of(&instruction, decoder.modern(), &mut info);
            assert_eq!(found, kind, "{bytes:x?}");
        }
    }
}
