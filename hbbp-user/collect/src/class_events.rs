//! The events that count classes of instructions, by kind of core, as data.
//!
//! Encodings (umask << 8 | event): Intel's perfmon event lists, AMD's PPRs and the tables of Linux' perf made from them.
//! Only events that count instructions when they retire are of use: MEM_UOPS_RETIRED of Haswell and before counts
//! operations, `ls_dispatch` of AMD what was dispatched, `ex_ret_brn` interrupts and exceptions too.

use hbbp_model::snapshot::InstructionClass as Class;

/// An event that counts a class.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClassEvent {
    /// The class.
    pub class: Class,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// The vendor's name.
    pub name: &'static str,
}

pub(super) const fn event(class: Class, config: u64, name: &'static str) -> ClassEvent {
    ClassEvent { class, config, name }
}

const ANY_P: ClassEvent = event(Class::Instructions, 0x00c0, "INST_RETIRED.ANY_P");
const NEAR_CALL: ClassEvent = event(Class::Calls, 0x02c4, "BR_INST_RETIRED.NEAR_CALL");
const NEAR_RETURN: ClassEvent = event(Class::Returns, 0x08c4, "BR_INST_RETIRED.NEAR_RETURN");
const CONDITIONAL: ClassEvent = event(Class::Conditional, 0x01c4, "BR_INST_RETIRED.CONDITIONAL");
const NOT_TAKEN: ClassEvent = event(Class::NotTaken, 0x10c4, "BR_INST_RETIRED.NOT_TAKEN");
const ALL_LOADS: ClassEvent = event(Class::Loads, 0x81d0, "MEM_INST_RETIRED.ALL_LOADS");
const ALL_STORES: ClassEvent = event(Class::Stores, 0x82d0, "MEM_INST_RETIRED.ALL_STORES");
const LOCK_LOADS: ClassEvent = event(Class::Locked, 0x21d0, "MEM_INST_RETIRED.LOCK_LOADS");
const NOP: ClassEvent = event(Class::Nops, 0x02c0, "INST_RETIRED.NOP");

/// From the most instructions to the fewest: where there are few counters, the first are counted more often.
pub(crate) const IVY_BRIDGE: &[ClassEvent] = &[ANY_P, CONDITIONAL, NOT_TAKEN, NEAR_CALL, NEAR_RETURN];

/// As [`IVY_BRIDGE`]; floating point from FP_ARITH_INST_RETIRED.
pub(crate) const SKYLAKE: &[ClassEvent] = &[
    ANY_P,
    ALL_LOADS,
    ALL_STORES,
    CONDITIONAL,
    NOT_TAKEN,
    NEAR_CALL,
    NEAR_RETURN,
    NOP,
    LOCK_LOADS,
    SCALAR_DOUBLE,
    SCALAR_SINGLE,
    PACKED_DOUBLE_128,
    PACKED_SINGLE_128,
    PACKED_DOUBLE_256,
    PACKED_SINGLE_256,
    PACKED_DOUBLE_512,
    PACKED_SINGLE_512,
];

const SCALAR_DOUBLE: ClassEvent = event(Class::ScalarDouble, 0x01c7, "FP_ARITH_INST_RETIRED.SCALAR_DOUBLE");
const SCALAR_SINGLE: ClassEvent = event(Class::ScalarSingle, 0x02c7, "FP_ARITH_INST_RETIRED.SCALAR_SINGLE");
const PACKED_DOUBLE_128: ClassEvent = event(
    Class::PackedDouble128,
    0x04c7,
    "FP_ARITH_INST_RETIRED.128B_PACKED_DOUBLE",
);
const PACKED_SINGLE_128: ClassEvent = event(
    Class::PackedSingle128,
    0x08c7,
    "FP_ARITH_INST_RETIRED.128B_PACKED_SINGLE",
);
const PACKED_DOUBLE_256: ClassEvent = event(
    Class::PackedDouble256,
    0x10c7,
    "FP_ARITH_INST_RETIRED.256B_PACKED_DOUBLE",
);
const PACKED_SINGLE_256: ClassEvent = event(
    Class::PackedSingle256,
    0x20c7,
    "FP_ARITH_INST_RETIRED.256B_PACKED_SINGLE",
);
const PACKED_DOUBLE_512: ClassEvent = event(
    Class::PackedDouble512,
    0x40c7,
    "FP_ARITH_INST_RETIRED.512B_PACKED_DOUBLE",
);
const PACKED_SINGLE_512: ClassEvent = event(
    Class::PackedSingle512,
    0x80c7,
    "FP_ARITH_INST_RETIRED.512B_PACKED_SINGLE",
);

/// From Ice Lake on branches have new encodings. Cores without 512-bit units count none there.
pub(crate) const ICE_LAKE: &[ClassEvent] = &[
    ANY_P,
    ALL_LOADS,
    ALL_STORES,
    event(Class::Taken, 0x01c4, "BR_INST_RETIRED.COND_TAKEN"),
    event(Class::NotTaken, 0x10c4, "BR_INST_RETIRED.COND_NTAKEN"),
    NEAR_CALL,
    NEAR_RETURN,
    NOP,
    LOCK_LOADS,
    SCALAR_DOUBLE,
    SCALAR_SINGLE,
    PACKED_DOUBLE_128,
    PACKED_SINGLE_128,
    PACKED_DOUBLE_256,
    PACKED_SINGLE_256,
    PACKED_DOUBLE_512,
    PACKED_SINGLE_512,
];

/// The small cores count operations of loads and stores, not instructions.
pub(crate) const GRACEMONT: &[ClassEvent] = &[
    ANY_P,
    event(Class::Conditional, 0x7ec4, "BR_INST_RETIRED.COND"),
    event(Class::Taken, 0xfec4, "BR_INST_RETIRED.COND_TAKEN"),
    event(Class::Calls, 0xf9c4, "BR_INST_RETIRED.NEAR_CALL"),
    event(Class::Returns, 0xf7c4, "BR_INST_RETIRED.NEAR_RETURN"),
];

/// All generations of Zen (PMCx0C0, PMCx0D1, PMCx0C8).
pub(crate) const ZEN: &[ClassEvent] = &[
    event(Class::Instructions, 0x00c0, "ex_ret_instr"),
    event(Class::Conditional, 0x00d1, "ex_ret_cond"),
    event(Class::Returns, 0x00c8, "ex_ret_near_ret"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_counts_a_class_twice() {
        for table in [IVY_BRIDGE, SKYLAKE, ICE_LAKE, GRACEMONT, ZEN] {
            assert_eq!(table[0].class, Class::Instructions);
            let mut classes: Vec<Class> = table.iter().map(|event| event.class).collect();
            classes.sort_unstable();
            classes.dedup();
            assert_eq!(classes.len(), table.len());
        }
    }
}
