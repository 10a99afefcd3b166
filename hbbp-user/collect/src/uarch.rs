//! Which events count "instructions retired" and "taken branches" on which processor, as data.
//!
//! A PMU of a driver that this table does not know may name them itself in its `events` folder.
//! Encodings (umask << 8 | event) and constraints: Intel's perfmon event lists and
//! arch/x86/events/intel/{core,ds}.c, arch/x86/events/amd/core.c of Linux 6.1 to 7.2.

use super::class_events::{self, ClassEvent};

/// A processor by its CPUID signature, as /proc/cpuinfo shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cpu {
    /// Who made it.
    pub vendor: Vendor,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
}

/// Who made a processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Vendor {
    /// GenuineIntel.
    Intel,
    /// AuthenticAMD, and HygonGenuine, which is Zen 1.
    Amd,
    /// Anybody else.
    Other,
}

/// An encoding with the highest useful `precise_ip`; lower levels are tried after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Encoding {
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `precise_ip`.
    pub precise: u8,
    /// The vendor's name.
    pub name: &'static str,
    /// Whether it counts near taken branches only.
    pub near_only: bool,
}

/// The events of one kind of core and what its branch records are known for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Core {
    /// Encodings of retired instructions, best first.
    pub instructions: &'static [Encoding],
    /// Taken branches; `None` where no event counts all of them.
    pub taken: Option<Encoding>,
    /// Events that count classes of instructions.
    pub classes: &'static [ClassEvent],
    /// The newest entry of a stack is repeated now and then.
    pub repeats_newest: bool,
    /// Stacks may hold entries that were never executed.
    pub wrong_paths: bool,
    /// The kernel takes `NO_FLAGS | NO_CYCLES`, which spare it reading a register for each entry.
    pub bare_entries: bool,
}

const fn event(config: u64, precise: u8, name: &'static str) -> Encoding {
    Encoding {
        config,
        precise,
        name,
        near_only: false,
    }
}

const fn near_taken(config: u64, precise: u8) -> Encoding {
    Encoding {
        near_only: true,
        ..event(config, precise, "BR_INST_RETIRED.NEAR_TAKEN")
    }
}

const PREC_DIST: Encoding = event(0x01c0, 2, "INST_RETIRED.PREC_DIST");
const PREC_DIST_3: Encoding = event(0x01c0, 3, "INST_RETIRED.PREC_DIST");
/// From Ice Lake on the kernel sends this encoding at level 3 to fixed counter 0, which is the precisely distributed
/// one. The encoding of its own (0x0100) meets an empty constraint there at level 3.
const FIXED: Encoding = event(0x00c0, 3, "INST_RETIRED.PREC_DIST (fixed counter 0)");
const FIXED_OWN: Encoding = event(0x0100, 2, "INST_RETIRED.PREC_DIST (fixed counter 0)");
const ANY_P: Encoding = event(0x00c0, 0, "INST_RETIRED.ANY_P");

const INTEL: Core = Core {
    instructions: &[PREC_DIST, ANY_P],
    // Before Ice Lake the interrupt reads the stack. The interrupt of a precise event comes with its record: the kernel itself takes
    // the newest entry for the branch that led to the recorded address (ds.c, intel_pmu_pebs_fixup_ip). The interrupt of an imprecise
    // event comes later, by some tens of cycles. Before Skylake, the kernel drops the records of two precise events that fire at once
    // (intel_pmu_drain_pebs_nhm). That should be fewer than one sample in a thousand at the default periods, by their lengths; it was
    // not measured. They are counted as missing.
    taken: Some(near_taken(0x20c4, 2)),
    classes: class_events::IVY_BRIDGE,
    repeats_newest: false,
    wrong_paths: false,
    bare_entries: true,
};

const SKYLAKE: Core = Core {
    instructions: &[PREC_DIST_3, ANY_P],
    classes: class_events::SKYLAKE,
    repeats_newest: true,
    ..INTEL
};
/// A precise event carries its branch stack in the record, exactly as it was.
const ICE_LAKE: Core = Core {
    instructions: &[FIXED, FIXED_OWN, ANY_P],
    classes: class_events::ICE_LAKE,
    ..INTEL
};
const GOLDEN_COVE: Core = Core {
    taken: Some(near_taken(0x20c4, 3)),
    ..ICE_LAKE
};
/// What its other encodings of branches are is not known here.
const COUGAR_COVE: Core = Core {
    taken: Some(near_taken(0xfbc4, 3)),
    classes: &[],
    ..GOLDEN_COVE
};
const GRACEMONT: Core = Core {
    instructions: &[FIXED, ANY_P],
    taken: Some(near_taken(0xc0c4, 3)),
    classes: class_events::GRACEMONT,
    ..INTEL
};
const DARKMONT: Core = Core {
    taken: Some(near_taken(0xfbc4, 3)),
    classes: &[],
    ..GRACEMONT
};
const GOLDMONT_PLUS: Core = Core {
    instructions: &[FIXED, ANY_P],
    taken: Some(event(0x80c4, 2, "BR_INST_RETIRED.ALL_TAKEN_BRANCHES")),
    classes: class_events::GRACEMONT,
    ..INTEL
};
const NO_TAKEN_EVENT: Core = Core {
    instructions: &[FIXED, ANY_P],
    taken: None,
    classes: &[],
    ..INTEL
};
const ZEN: Core = Core {
    instructions: &[event(0x00c0, 0, "ex_ret_instr")],
    taken: None,
    classes: class_events::ZEN,
    repeats_newest: false,
    wrong_paths: true,
    bare_entries: false,
};
/// Zen 3 has branch sampling (BRS) on this event alone; Zen 4 and later have LbrExtV2 on any.
const ZEN_3: Core = Core {
    taken: Some(event(0x00c4, 0, "ex_ret_brn_tkn")),
    ..ZEN
};

/// The kind of core that the PMU of that name belongs to; `None` for a processor that the table does not know.
pub(crate) fn core(cpu: Cpu, pmu: &str) -> Option<Core> {
    match (cpu.vendor, cpu.family) {
        (Vendor::Intel, 6) if pmu == "cpu_atom" || pmu == "cpu_lowpower" => Some(efficient_core(cpu.model)),
        (Vendor::Intel, 6) => intel(cpu.model),
        // Nova Lake.
        (Vendor::Intel, 18) => Some(COUGAR_COVE),
        (Vendor::Amd, 0x19 | 0x1a) => Some(ZEN_3),
        (Vendor::Amd, 0x17) => Some(ZEN),
        _ => None,
    }
}

fn efficient_core(model: u32) -> Core {
    match model {
        0xcc | 0xd5 | 0xe5 => DARKMONT,
        _ => GRACEMONT,
    }
}

fn intel(model: u32) -> Option<Core> {
    Some(match model {
        // Ivy Bridge, Haswell, Broadwell.
        0x3a | 0x3e | 0x3c | 0x45 | 0x46 | 0x3f | 0x3d | 0x47 | 0x4f | 0x56 => INTEL,
        // Skylake, Cascade Lake, Cooper Lake, Kaby Lake, Coffee Lake, Comet Lake.
        0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x55 => SKYLAKE,
        // Ice Lake, Tiger Lake, Rocket Lake.
        0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 => ICE_LAKE,
        // Sapphire, Emerald and Granite Rapids; the large cores of Alder, Raptor, Meteor, Lunar and Arrow Lake.
        0x8f | 0xcf | 0xad | 0xae | 0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0xaa | 0xac | 0xb5 | 0xbd | 0xc5
        | 0xc6 => GOLDEN_COVE,
        // The large cores of Panther Lake.
        0xcc | 0xd5 | 0xe5 => COUGAR_COVE,
        // Sierra Forest, Grand Ridge, Alder Lake-N.
        0xaf | 0xb6 | 0xbe => GRACEMONT,
        // Clearwater Forest.
        0xdd => DARKMONT,
        0x7a => GOLDMONT_PLUS,
        // Tremont and Knights Landing count taken branches only by kind.
        0x86 | 0x96 | 0x9c | 0x57 | 0x85 => NO_TAKEN_EVENT,
        _ => return None,
    })
}

/// Reads which processor this is.
pub(crate) fn read_cpu() -> Option<Cpu> {
    parse_cpu(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn parse_cpu(info: &str) -> Option<Cpu> {
    let field = |name: &str| {
        let values = info.lines().filter_map(|line| line.split_once(':'));
        values
            .filter(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim())
            .next()
    };
    let vendor = match field("vendor_id")? {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
        _ => Vendor::Other,
    };
    Some(Cpu {
        vendor,
        family: field("cpu family")?.parse().ok()?,
        model: field("model")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intel_model(model: u32) -> Cpu {
        Cpu {
            vendor: Vendor::Intel,
            family: 6,
            model,
        }
    }

    #[test]
    fn a_hybrid_processor_has_two_kinds_of_core() {
        let panther_lake = intel_model(0xcc);
        assert_eq!(core(panther_lake, "cpu_core"), Some(COUGAR_COVE));
        assert_eq!(core(panther_lake, "cpu_atom"), Some(DARKMONT));
        assert_eq!(core(intel_model(0x97), "cpu_atom"), Some(GRACEMONT));
        assert_eq!(core(intel_model(0x97), "cpu_core"), Some(GOLDEN_COVE));
    }

    #[test]
    fn the_papers_processor_uses_the_papers_events() {
        let ivy_town = core(intel_model(0x3e), "cpu").unwrap();
        assert_eq!(
            (ivy_town.instructions[0].config, ivy_town.taken.unwrap().config),
            (0x01c0, 0x20c4)
        );
    }

    #[test]
    fn stacks_of_intel_are_those_of_precise_events() {
        for model in [0x3e, 0x3f, 0x4f, 0x55, 0x6a, 0x8f] {
            assert!(2 <= core(intel_model(model), "cpu").unwrap().taken.unwrap().precise);
        }
    }

    /// Only skylake repeats newest entries and only amd records wrong paths.
    #[test]
    fn quirks_of_skylake_and_amd_are_theirs_alone() {
        assert!(core(intel_model(0x55), "cpu").unwrap().repeats_newest);
        assert!(!core(intel_model(0x8f), "cpu").unwrap().repeats_newest);
        let zen_4 = Cpu {
            vendor: Vendor::Amd,
            family: 0x19,
            model: 0x11,
        };
        let zen_4 = core(zen_4, "cpu").unwrap();
        assert!(zen_4.wrong_paths && !zen_4.bare_entries);
    }

    #[test]
    fn cpuinfo() {
        let info =
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: x\n";
        assert_eq!(parse_cpu(info), Some(intel_model(85)));
        assert_eq!(parse_cpu("vendor_id : x\n"), None);
    }
}
