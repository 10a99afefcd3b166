//! Which machines of a kind have counters, branch records and PEBS: one table, with the source and the date of each row.
//!
//! A cell is what the source says, or `unknown`. A machine type that no row covers is said to be unknown.

use serde::Serialize;

use super::ec2::{Ec2Group, MachineType};
use super::platform::Platform;

/// What some machines of a kind give.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::cmd) struct Offer {
    /// Which machines.
    pub(in crate::cmd) machines: &'static str,
    pub(in crate::cmd) counters: &'static str,
    pub(in crate::cmd) branch_records: &'static str,
    pub(in crate::cmd) pebs: &'static str,
    pub(in crate::cmd) source: &'static str,
    /// When the source said so; of a page without a date, when it was read.
    pub(in crate::cmd) dated: &'static str,
}

/// An offer, and whether this machine is one of those.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::cmd) struct OfferHere {
    #[serde(flatten)]
    pub(in crate::cmd) offer: Offer,
    /// `None` where the type of this machine is not known.
    pub(in crate::cmd) is_this: Option<bool>,
}

/// Who has this offer, and which machine types, where firmware names these.
struct Row {
    platforms: &'static [Platform],
    /// Of EC2's machine types; `None` where firmware does not say which.
    group: Option<Ec2Group>,
    offer: Offer,
}

const MEASURED_BY_INTEL: &str = "https://github.com/intel/optimization-zone/tree/main/hardware/PMU";
const AWS: &str =
    "https://github.com/aws/aws-graviton-getting-started/blob/main/perfrunbook/debug_hw_perf.md";
const METAL: &str = "as the processor";
const EC2: &[Platform] = &[Platform::Ec2Metal, Platform::Ec2Nitro, Platform::Ec2Xen];
const GOOGLE: &[Platform] = &[Platform::Google, Platform::GoogleMetal];
const KVM: &[Platform] = &[Platform::Kvm, Platform::Emulated];

const fn row(platforms: &'static [Platform], group: Option<Ec2Group>, offer: [&'static str; 6]) -> Row {
    let [machines, counters, branch_records, pebs, source, dated] = offer;
    Row {
        platforms,
        group,
        offer: Offer {
            machines,
            counters,
            branch_records,
            pebs,
            source,
            dated,
        },
    }
}

/// Machines; counters; branch records; PEBS; source; date.
static ROWS: [Row; 21] = [
    row(
        EC2,
        Some(Ec2Group::Metal),
        ["*.metal", "all", METAL, METAL, MEASURED_BY_INTEL, "2026-08"],
    ),
    row(
        EC2,
        Some(Ec2Group::EverySize),
        [
            "7i and 8i, every size",
            "of the core",
            "unknown",
            "unknown",
            MEASURED_BY_INTEL,
            "2026-08",
        ],
    ),
    row(
        EC2,
        Some(Ec2Group::Socket),
        [
            "whole sockets: from 12xlarge on of 5 (9xlarge of c5), 16xlarge of 6i, 24xlarge of 6a, 7a and 8a",
            "of the core",
            "unknown",
            "unknown",
            AWS,
            "2026-11",
        ],
    ),
    row(
        EC2,
        Some(Ec2Group::Basic),
        [
            "7a and 8a, smaller sizes",
            "a basic set",
            "unknown",
            "unknown",
            AWS,
            "2026-11",
        ],
    ),
    row(
        EC2,
        Some(Ec2Group::Below),
        [
            "5, 6i and 6a, smaller sizes",
            "none",
            "none",
            "none",
            AWS,
            "2026-11",
        ],
    ),
    row(
        &[Platform::Ec2Xen],
        None,
        [
            "m4.16xlarge and i3.16xlarge on dedicated hosts",
            "7 architectural events",
            "none",
            "none",
            "https://www.brendangregg.com/blog/2017-05-04/the-pmcs-of-ec2.html",
            "2017-05",
        ],
    ),
    row(
        GOOGLE,
        None,
        ["C3 bare metal", "all", METAL, METAL, MEASURED_BY_INTEL, "2026-08"],
    ),
    row(
        GOOGLE,
        None,
        [
            "C4 with --performance-monitoring-unit=standard or enhanced",
            "of the core, with taken branches",
            "unknown",
            "unknown",
            MEASURED_BY_INTEL,
            "2026-08",
        ],
    ),
    row(
        GOOGLE,
        None,
        [
            "C4 with --performance-monitoring-unit=architectural",
            "retired instructions, no taken branches",
            "unknown",
            "unknown",
            MEASURED_BY_INTEL,
            "2026-08",
        ],
    ),
    row(
        GOOGLE,
        None,
        [
            "other x86 machine types",
            "none",
            "none",
            "none",
            "https://cloud.google.com/compute/docs/pmu-overview",
            "2026-11",
        ],
    ),
    row(
        &[Platform::Azure],
        None,
        [
            "every size",
            "unknown",
            "unknown",
            "unknown",
            "no page of Azure's was found that says it",
            "2026-11",
        ],
    ),
    row(
        &[Platform::HyperV, Platform::Azure],
        None,
        [
            "own Hyper-V on Intel, Windows 1809 or Server 2019 and later, Set-VMProcessor NAME -Perfmon @(\"pmu\", \"lbr\", \"pebs\")",
            "yes",
            "yes",
            "yes, from version 4 of the PMU on",
            "https://learn.microsoft.com/windows-server/virtualization/hyper-v/manage/performance-monitoring-hardware",
            "2019-09",
        ],
    ),
    row(
        &[Platform::Wsl],
        None,
        [
            "WSL 0.50.2 and later, without hardwarePerformanceCounters=false",
            "yes, where Hyper-V can",
            "unknown",
            "unknown",
            "https://github.com/rr-debugger/rr/issues/3333",
            "2022-07",
        ],
    ),
    row(
        &[Platform::Firecracker],
        None,
        [
            "every microVM on x86",
            "none",
            "none",
            "none",
            "https://github.com/firecracker-microvm/firecracker/pull/284",
            "2018-05",
        ],
    ),
    row(
        &[Platform::VmWare],
        None,
        [
            "virtual CPU performance counters enabled (vpmc.enable)",
            "yes",
            "unknown",
            "unknown",
            "https://knowledge.broadcom.com/external/article/344161",
            "2026-11",
        ],
    ),
    row(
        &[Platform::VirtualBox],
        None,
        [
            "every guest",
            "none",
            "none",
            "none",
            "https://github.com/raptorjit/raptorjit/issues/159",
            "2018-03",
        ],
    ),
    row(
        KVM,
        None,
        [
            "own KVM, -cpu host,pmu=on, Intel up to Ice Lake with lbr-fmt",
            "yes",
            "yes, with lbr-fmt",
            "unknown",
            "Linux commit be635e34c284 (KVM: vmx/pmu: Expose LBR_FMT)",
            "2021-02",
        ],
    ),
    row(
        KVM,
        None,
        [
            "own KVM, -cpu host,pmu=on, Sapphire Rapids and later, and AMD",
            "yes",
            "none",
            "unknown",
            "Linux, arch/x86/kvm: vmx_get_perf_capabilities, and CPUID 0x80000022 in cpuid.c",
            "2026-11",
        ],
    ),
    row(
        KVM,
        None,
        [
            "own KVM, mediated (Linux 7.0, enable_mediated_pmu)",
            "all, without a detour",
            "none",
            "none",
            "Linux merge kvm-x86-pmu-6.20",
            "2026-02",
        ],
    ),
    row(
        &[Platform::Xen],
        None,
        [
            "booted with vpmu=on",
            "yes",
            "unknown",
            "unknown",
            "https://xenbits.xen.org/docs/unstable/misc/xen-command-line.html",
            "2026-11",
        ],
    ),
    row(
        &[
            Platform::BareMetal,
            Platform::Unknown,
            Platform::Azure,
            Platform::Firecracker,
            Platform::VirtualBox,
            Platform::Wsl,
        ],
        None,
        [
            "bare metal: Intel, and AMD from Zen 3 on",
            "all",
            "LBR; BRS on Zen 3, LBRv2 from Zen 4 on",
            "Intel; AMD has IBS",
            "Linux, arch/x86/events",
            "2026-11",
        ],
    ),
];

/// The offers of a kind, and which is that of this machine.
pub(super) fn of(platform: Platform, machine_type: &str) -> Vec<OfferHere> {
    // Below Xen, firmware does not name the machine type.
    let is_named = [Platform::Ec2Metal, Platform::Ec2Nitro].contains(&platform);
    let group = MachineType::parse(machine_type).and_then(|it| it.group());
    let rows = ROWS.iter().filter(|row| row.platforms.contains(&platform));
    rows.map(|row| OfferHere {
        offer: row.offer,
        is_this: row.group.filter(|_| is_named).map(|of| Some(of) == group),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(machine_type: &str) -> Vec<&'static str> {
        let offers = of(Platform::Ec2Nitro, machine_type);
        let covered = offers.iter().filter(|it| it.is_this == Some(true));
        covered.map(|it| it.offer.machines).collect()
    }

    #[test]
    fn machine_types_are_in_one_row_or_unknown() {
        const SOCKETS: &str =
            "whole sockets: from 12xlarge on of 5 (9xlarge of c5), 16xlarge of 6i, 24xlarge of 6a, 7a and 8a";
        for (machine_type, row) in [
            ("m7i.metal-24xl", "*.metal"),
            ("u-6tb1.metal", "*.metal"),
            ("c5.metal", "*.metal"),
            ("m7i.2xlarge", "7i and 8i, every size"),
            ("m7i-flex.large", "7i and 8i, every size"),
            ("r7iz.48xlarge", "7i and 8i, every size"),
            ("i8i.48xlarge", "7i and 8i, every size"),
            ("m5.12xlarge", SOCKETS),
            ("c5n.9xlarge", SOCKETS),
            ("m6i.16xlarge", SOCKETS),
            ("m6i.32xlarge", SOCKETS),
            ("c6a.24xlarge", SOCKETS),
            ("m8a.xlarge", "7a and 8a, smaller sizes"),
            ("m7a.large", "7a and 8a, smaller sizes"),
            ("r5d.xlarge", "5, 6i and 6a, smaller sizes"),
            ("m6i.large", "5, 6i and 6a, smaller sizes"),
            ("c6a.8xlarge", "5, 6i and 6a, smaller sizes"),
            ("m5.9xlarge", "5, 6i and 6a, smaller sizes"),
            ("c6i.12xlarge", "5, 6i and 6a, smaller sizes"),
        ] {
            assert_eq!(covered(machine_type), [row], "{machine_type}");
        }
        for unknown in [
            "m9x.large",
            "t3.micro",
            "m5a.large",
            "m6g.large",
            "large",
            "",
            "7.",
            "m5.\u{20ac}xlarge",
        ] {
            assert!(covered(unknown).is_empty(), "{unknown}");
        }
    }

    #[test]
    fn each_row_has_its_source_and_date() {
        for row in &ROWS {
            let offer = row.offer;
            assert!(!offer.source.is_empty() && !row.platforms.is_empty(), "{offer:?}");
            let date = offer.dated.split_once('-');
            assert!(
                date.is_some_and(|(year, month)| (2015..=2026).contains(&year.parse().unwrap_or(0))
                    && (1..=12).contains(&month.parse().unwrap_or(0))),
                "{offer:?}"
            );
        }
    }
}
