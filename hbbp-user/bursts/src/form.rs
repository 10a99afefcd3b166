//! What the time of an instruction depends on.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess, Register};

/// Where the flags lie among registers.
pub(crate) const FLAGS: usize = 0;
/// Registers whose readiness is followed: the flags, and by number all of iced-x86.
pub(crate) const REGISTERS: usize = 256;

/// What an instruction does to the predictor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Branch {
    /// Nothing: none, or one that always leads to the same address, or a return, whose target processors keep a stack of.
    Foreseen,
    /// It may be taken or not.
    Conditional,
    /// Its target is in a register or memory.
    Indirect,
}

/// What the time of an instruction depends on.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// Registers that addresses are made of.
    pub(crate) addresses: Vec<usize>,
    /// Registers that are read for anything else.
    pub(crate) reads: Vec<usize>,
    /// Registers that are written.
    pub(crate) writes: Vec<usize>,
    /// Cycles from its operands to its result.
    pub(crate) latency: f64,
    /// Cycles that it keeps a divider busy.
    pub(crate) divider: f64,
    pub(crate) loads: bool,
    pub(crate) stores: bool,
    pub(crate) branch: Branch,
    /// Whether a conditional branch after it enters together with it (Intel optimization manual, 3.4.2.2: macro-fusion).
    pub(crate) fuses: bool,
}

impl Form {
    pub(crate) fn of(it: &Instruction, infos: &mut InstructionInfoFactory) -> Self {
        let info = infos.info(it);
        let is_stack = it.is_stack_instruction();
        // The stack pointer is kept up without the execution units.
        let counts = |register: Register| !(is_stack && register.full_register() == Register::RSP);
        let mut form = Self {
            addresses: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            latency: latency(it),
            divider: divider(it),
            loads: false,
            stores: false,
            branch: match it.flow_control() {
                FlowControl::ConditionalBranch => Branch::Conditional,
                FlowControl::IndirectBranch | FlowControl::IndirectCall => Branch::Indirect,
                _ => Branch::Foreseen,
            },
            fuses: matches!(
                it.mnemonic(),
                M::Cmp | M::Test | M::Add | M::Sub | M::And | M::Inc | M::Dec
            ),
        };
        for memory in info.used_memory() {
            let parts = [memory.base(), memory.index()];
            let parts = parts
                .iter()
                .filter(|part| **part != Register::None && counts(**part));
            form.addresses.extend(parts.map(|part| number(*part)));
            let (loads, stores) = loads_and_stores(memory.access());
            form.loads |= loads;
            form.stores |= stores;
        }
        let breaks = breaks_dependency(it);
        for register in info
            .used_registers()
            .iter()
            .filter(|used| counts(used.register()))
        {
            let (reads, writes) = loads_and_stores(register.access());
            let number = number(register.register());
            if reads && !breaks && !form.addresses.contains(&number) {
                form.reads.push(number);
            }
            if writes {
                form.writes.push(number);
            }
        }
        if it.rflags_read() != 0 {
            form.reads.push(FLAGS);
        }
        if it.rflags_modified() != 0 {
            form.writes.push(FLAGS);
        }
        form
    }
}

fn number(register: Register) -> usize {
    register.full_register() as usize
}

const fn loads_and_stores(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => (false, false),
    }
}

/// Whether the result is the same whatever is read (Intel optimization manual, 3.5.1.7: zeroing idioms).
fn breaks_dependency(it: &Instruction) -> bool {
    let is_idiom = matches!(
        it.mnemonic(),
        M::Xor | M::Sub | M::Pxor | M::Vpxor | M::Xorps | M::Vxorps | M::Xorpd | M::Vxorpd
    );
    is_idiom && it.op_count() <= 3 && {
        let last = it.op_count().saturating_sub(1);
        let registers = (it.op_register(last), it.op_register(last.saturating_sub(1)));
        registers.0 != Register::None && registers.0 == registers.1
    }
}

/// Cycles from operands in registers to the result, of AMD's family 19h; Intel's cores since Ice Lake differ by one or two
/// (Agner Fog, Instruction tables, Zen 3).
fn latency(it: &Instruction) -> f64 {
    let is_wide = it.op0_register().is_gpr64();
    match it.mnemonic() {
        // Renamed.
        M::Mov
        | M::Movaps
        | M::Movups
        | M::Movapd
        | M::Movdqa
        | M::Movdqu
        | M::Vmovaps
        | M::Vmovups
        | M::Vmovdqa
        | M::Vmovdqu
        | M::Nop
        | M::Endbr64 => 0.0,
        M::Imul | M::Mul | M::Mulx => 3.0,
        M::Div | M::Idiv if is_wide => 17.0,
        M::Div | M::Idiv => 11.0,
        M::Divsd | M::Vdivsd | M::Divpd | M::Vdivpd => 13.0,
        M::Divss | M::Vdivss | M::Divps | M::Vdivps => 10.0,
        M::Sqrtsd | M::Vsqrtsd | M::Sqrtpd | M::Vsqrtpd => 20.0,
        M::Sqrtss | M::Vsqrtss | M::Sqrtps | M::Vsqrtps => 14.0,
        M::Addsd
        | M::Addss
        | M::Subsd
        | M::Subss
        | M::Mulsd
        | M::Mulss
        | M::Vaddsd
        | M::Vsubsd
        | M::Vmulsd
        | M::Vaddss
        | M::Vsubss
        | M::Vmulss
        | M::Addpd
        | M::Addps
        | M::Subpd
        | M::Subps
        | M::Mulpd
        | M::Mulps => 3.0,
        M::Vfmadd132sd | M::Vfmadd213sd | M::Vfmadd231sd => 4.0,
        M::Cvtsi2sd | M::Cvttsd2si | M::Cvtsd2si | M::Cvtsi2ss | M::Cvttss2si => 7.0,
        M::Cvtss2sd | M::Cvtsd2ss => 4.0,
        M::Ucomisd | M::Comisd | M::Ucomiss | M::Comiss => 4.0,
        M::Movd | M::Movq | M::Pmovmskb => 3.0,
        M::Crc32 => 3.0,
        M::Pause => 65.0,
        M::Rdtsc | M::Rdtscp | M::Cpuid => 100.0,
        _ if it.has_lock_prefix() => 18.0,
        _ => 1.0,
    }
}

/// Cycles until another division may begin (as above, reciprocal throughput).
fn divider(it: &Instruction) -> f64 {
    match it.mnemonic() {
        M::Div | M::Idiv if it.op0_register().is_gpr64() => 10.0,
        M::Div | M::Idiv => 6.0,
        M::Divsd | M::Vdivsd | M::Divpd | M::Vdivpd => 5.0,
        M::Divss | M::Vdivss | M::Divps | M::Vdivps => 3.5,
        M::Sqrtsd | M::Vsqrtsd | M::Sqrtpd | M::Vsqrtpd => 9.0,
        M::Sqrtss | M::Vsqrtss | M::Sqrtps | M::Vsqrtps => 5.0,
        _ => 0.0,
    }
}
