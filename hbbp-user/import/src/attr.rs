//! `perf_event_attr` as a recording states it: what an event counts, and what its records hold.
//!
//! The structure has grown from 64 bytes to 136 and will grow on; only fields with the same offset in every size are
//! read, and those beyond the stated size are zero (`PERF_ATTR_SIZE_VER0` and on in `include/uapi/linux/perf_event.h`).

use super::bytes::Bytes;
use super::error::{Damaged, ImportError};
use hbbp_model::snapshot::run::{EventUnit, Period};

/// `PERF_ATTR_SIZE_VER0`.
pub(super) const SMALLEST: usize = 64;

pub(super) mod sample_type {
    //! `enum perf_event_sample_format`.
    pub(crate) const IP: u64 = 1;
    pub(crate) const TID: u64 = 1 << 1;
    pub(crate) const TIME: u64 = 1 << 2;
    pub(crate) const ADDR: u64 = 1 << 3;
    pub(crate) const READ: u64 = 1 << 4;
    pub(crate) const CALLCHAIN: u64 = 1 << 5;
    pub(crate) const ID: u64 = 1 << 6;
    pub(crate) const CPU: u64 = 1 << 7;
    pub(crate) const PERIOD: u64 = 1 << 8;
    pub(crate) const STREAM_ID: u64 = 1 << 9;
    pub(crate) const RAW: u64 = 1 << 10;
    pub(crate) const BRANCH_STACK: u64 = 1 << 11;
    pub(crate) const IDENTIFIER: u64 = 1 << 16;
}

/// `enum perf_branch_sample_type`: the filters that leave no branch out, and the mode that does.
const BRANCH_ANY: u64 = 1 << 3;
const BRANCH_CALL_STACK: u64 = 1 << 11;
pub(super) const BRANCH_HW_INDEX: u64 = 1 << 17;

const FLAG_FREQ: u64 = 1 << 10;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCKID: u64 = 1 << 25;

/// `CLOCK_MONOTONIC`.
const MONOTONIC: u32 = 1;

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const RAW_PMU: u32 = 4;

/// What a recording says of an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attr {
    /// Type: hardware, software, raw, or the number of a PMU.
    pub kind: u32,
    /// The event, in the terms of its type.
    pub config: u64,
    /// How often it was sampled.
    pub period: Period,
    /// `precise_ip`.
    pub precise: u8,
    /// Which fields a sample has.
    pub sample_type: u64,
    /// Which fields a counter value inside a sample has.
    pub read_format: u64,
    /// Which branches the stacks hold.
    pub branch_sample_type: u64,
    /// Whether other records end with the time and id fields of a sample.
    pub sample_id_all: bool,
    /// Whether times are those of CLOCK_MONOTONIC.
    pub is_monotonic: bool,
}

/// What is known of the machine and helps to understand raw events.
#[derive(Clone, Debug, Default)]
pub struct Pmus {
    /// Vendor of the processor is AMD (or Hygon), whose raw events differ from Intel's.
    pub amd: bool,
    /// Names of PMUs by their numbers.
    pub names: Vec<(u32, String)>,
}

/// Interprets an attribute; `bytes` may be longer or shorter than the size that it states.
pub(super) fn parse_attr(bytes: &[u8]) -> Result<Attr, Damaged> {
    let mut head = Bytes(bytes);
    let (kind, stated) = (head.u32()?, head.u32()?);
    let stated = usize::try_from(stated).map_err(|_| Damaged)?;
    let stated = if stated == 0 { SMALLEST } else { stated };
    if stated < SMALLEST || bytes.len() < SMALLEST {
        return Err(Damaged);
    }
    let config = head.u64()?;
    let (period, sample_type, read_format, flags) = (head.u64()?, head.u64()?, head.u64()?, head.u64()?);
    let branch_sample_type = bytes
        .get(72..80)
        .filter(|_| 80 <= stated)
        .map_or(Ok(0), |field| Bytes(field).u64())?;
    let clock = bytes
        .get(92..96)
        .filter(|_| 96 <= stated && flags & FLAG_USE_CLOCKID != 0)
        .map(|field| Bytes(field).u32())
        .transpose()?;
    Ok(Attr {
        kind,
        config,
        period: if flags & FLAG_FREQ == 0 {
            Period::Fixed(period)
        } else {
            Period::Frequency(period)
        },
        precise: u8::try_from(flags >> 15 & 3).unwrap_or(0),
        sample_type,
        read_format,
        branch_sample_type,
        sample_id_all: flags & FLAG_SAMPLE_ID_ALL != 0,
        is_monotonic: clock == Some(MONOTONIC),
    })
}

impl Attr {
    /// Whether its samples have all fields of the mask.
    pub(super) const fn has(&self, mask: u64) -> bool {
        self.sample_type & mask == mask
    }

    /// Whether its samples carry branch stacks that streams can be read from.
    pub(super) fn branch_stack(&self, name: &str) -> Result<bool, ImportError> {
        if !self.has(sample_type::BRANCH_STACK) {
            return Ok(false);
        }
        if self.branch_sample_type & BRANCH_CALL_STACK != 0 {
            return Err(ImportError::CallStack(name.to_owned()));
        }
        if self.branch_sample_type & BRANCH_ANY == 0 {
            return Err(ImportError::Filtered(name.to_owned()));
        }
        Ok(true)
    }

    /// What one unit of its count is.
    pub(super) fn unit(&self, pmus: &Pmus) -> EventUnit {
        let pmu = pmus
            .names
            .iter()
            .find(|(number, _)| *number == self.kind)
            .map(|(_, name)| name.as_str());
        match (self.kind, pmu) {
            // The upper half of a hardware event names the PMU on hybrid processors.
            (HARDWARE, _) => match self.config & 0xffff_ffff {
                0 | 9 => EventUnit::Cycles,
                1 => EventUnit::Instructions,
                _ => EventUnit::Other,
            },
            (SOFTWARE, _) => match self.config {
                0 | 1 => EventUnit::Nanoseconds,
                _ => EventUnit::Other,
            },
            (_, Some("ibs_op")) if self.config & IBS_COUNTS_OPS == 0 => EventUnit::Cycles,
            (_, Some("ibs_op")) => EventUnit::MicroOps,
            (RAW_PMU, _) | (_, Some("cpu" | "cpu_core" | "cpu_atom" | "cpu_lowpower")) if pmus.amd => {
                amd_unit(self.config)
            }
            (RAW_PMU, _) | (_, Some("cpu" | "cpu_core" | "cpu_atom" | "cpu_lowpower")) => {
                intel_unit(self.config)
            }
            _ => EventUnit::Other,
        }
    }

    /// Whether the event is known to count near branches only: BR_INST_RETIRED.NEAR_TAKEN of Intel's cores.
    pub(super) fn near_only(&self, pmus: &Pmus) -> bool {
        !pmus.amd
            && self.unit(pmus) == EventUnit::TakenBranches
            && matches!(self.config & 0xffff, 0x20c4 | 0xfbc4 | 0xc0c4)
    }

    /// A name where the recording gives none.
    pub(super) fn name(&self, pmus: &Pmus) -> String {
        let pmu = pmus
            .names
            .iter()
            .find(|(number, _)| *number == self.kind && RAW_PMU < self.kind);
        if let Some((_, pmu)) = pmu {
            return format!("{pmu}/{:#x}/", self.config);
        }
        match (self.kind, self.config & 0xffff_ffff) {
            (HARDWARE, 0) => "cycles".to_owned(),
            (HARDWARE, 1) => "instructions".to_owned(),
            (HARDWARE, 4) => "branches".to_owned(),
            (SOFTWARE, 0) => "cpu-clock".to_owned(),
            (SOFTWARE, 1) => "task-clock".to_owned(),
            (RAW_PMU, config) => format!("r{config:x}"),
            (kind, config) => format!("type {kind} config {config:#x}"),
        }
    }
}

/// `cnt_ctl` of the PMU ibs_op: dispatched operations rather than cycles.
const IBS_COUNTS_OPS: u64 = 1 << 19;
/// Edge, inverted and threshold bits: with them an event counts something else than its name says.
const MODIFIERS: u64 = 1 << 18 | 1 << 23 | 0xff << 24;

/// Events of Intel's performance monitoring by umask and code (Intel's tables, github.com/intel/perfmon).
pub(super) fn intel_unit(config: u64) -> EventUnit {
    if config & MODIFIERS != 0 {
        return EventUnit::Other;
    }
    match config & 0xffff {
        0x00c0 | 0x01c0 | 0x0100 => EventUnit::Instructions,
        // BR_INST_RETIRED.NEAR_TAKEN and its namesakes; 0x4088 is Westmere's BR_INST_EXEC.TAKEN.
        0x20c4 | 0xfbc4 | 0xc0c4 | 0x80c4 | 0x4088 => EventUnit::TakenBranches,
        0x003c | 0x013c | 0x0200 | 0x0300 => EventUnit::Cycles,
        _ => EventUnit::Other,
    }
}

/// Events of AMD's performance monitoring (Zen 1 to 6: tools/perf/pmu-events/arch/x86/amdzen*, Linux).
fn amd_unit(config: u64) -> EventUnit {
    if config & MODIFIERS != 0 {
        return EventUnit::Other;
    }
    match config & 0xff {
        0xc0 => EventUnit::Instructions,
        0xc1 => EventUnit::MicroOps,
        0xc4 => EventUnit::TakenBranches,
        0x76 => EventUnit::Cycles,
        _ => EventUnit::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(size: usize, stated: u32) -> Vec<u8> {
        let mut bytes = vec![0; size];
        bytes[..4].copy_from_slice(&RAW_PMU.to_le_bytes());
        bytes[4..8].copy_from_slice(&stated.to_le_bytes());
        bytes[8..16].copy_from_slice(&0x0053_4088_u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&500_000_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&0x807_u64.to_le_bytes());
        if let Some(field) = bytes.get_mut(72..80) {
            field.copy_from_slice(&8_u64.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn every_size_is_read() {
        for (size, stated) in [(80, 80), (96, 96), (136, 136), (200, 200), (104, 96)] {
            let attr = parse_attr(&bytes(size, stated)).unwrap();
            assert_eq!(attr.period, Period::Fixed(500_000));
            assert_eq!(attr.unit(&Pmus::default()), EventUnit::TakenBranches);
            assert!(attr.branch_stack("x").unwrap());
        }
        assert_eq!(parse_attr(&bytes(64, 0)).unwrap().branch_sample_type, 0);
        assert_eq!(parse_attr(&bytes(96, 72)).unwrap().branch_sample_type, 0);
        assert_eq!(parse_attr(&bytes(96, 8)), Err(Damaged));
        assert_eq!(parse_attr(&bytes(80, 80)[..63]), Err(Damaged));
    }

    #[test]
    fn clock_is_known_where_it_is_stated() {
        let with_clock = |clock: u32, flags: u64| {
            let mut bytes = bytes(96, 96);
            bytes[40..48].copy_from_slice(&flags.to_le_bytes());
            bytes[92..96].copy_from_slice(&clock.to_le_bytes());
            parse_attr(&bytes).unwrap().is_monotonic
        };
        assert!(with_clock(MONOTONIC, FLAG_USE_CLOCKID));
        assert!(!with_clock(0, FLAG_USE_CLOCKID) && !with_clock(MONOTONIC, 0));
    }

    #[test]
    fn call_stacks_and_filters_are_refused() {
        let mut attr = parse_attr(&bytes(96, 96)).unwrap();
        attr.branch_sample_type = BRANCH_CALL_STACK | 1;
        assert!(matches!(attr.branch_stack("x"), Err(ImportError::CallStack(_))));
        attr.branch_sample_type = 1 << 4;
        assert!(matches!(attr.branch_stack("x"), Err(ImportError::Filtered(_))));
        attr.sample_type = 7;
        assert!(!attr.branch_stack("x").unwrap());
    }

    #[test]
    fn units_follow_vendor_and_pmu() {
        let attr = |kind, config| Attr {
            kind,
            config,
            ..parse_attr(&bytes(96, 96)).unwrap()
        };
        let amd = Pmus {
            amd: true,
            names: vec![(11, "ibs_op".to_owned())],
        };
        let hybrid = Pmus {
            amd: false,
            names: vec![(10, "cpu_atom".to_owned())],
        };
        assert_eq!(attr(4, 0xc4).unit(&amd), EventUnit::TakenBranches);
        assert_eq!(
            attr(4, 0xc4).unit(&hybrid),
            EventUnit::Other,
            "all branches, taken or not"
        );
        assert_eq!(attr(10, 0xc0c4).unit(&hybrid), EventUnit::TakenBranches);
        assert!(attr(10, 0xc0c4).near_only(&hybrid) && !attr(4, 0xc4).near_only(&amd));
        assert_eq!(attr(0, 0xa_0000_0001).unit(&hybrid), EventUnit::Instructions);
        assert_eq!(attr(11, 1 << 19).unit(&amd), EventUnit::MicroOps);
        assert_eq!(
            attr(4, 0x1_00c0 | 1 << 24).unit(&hybrid),
            EventUnit::Other,
            "cycles with instructions"
        );
        assert_eq!(attr(1, 0).unit(&amd), EventUnit::Nanoseconds);
    }
}
