//! What a machine is, by its facts.

use super::facts::Facts;

/// A kind of machine that gives its counters in a way of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Platform {
    Ec2Metal,
    Ec2Nitro,
    Ec2Xen,
    GoogleMetal,
    Google,
    Azure,
    Wsl,
    HyperV,
    Firecracker,
    VmWare,
    VirtualBox,
    /// QEMU without KVM.
    Emulated,
    Kvm,
    /// Below KVM, without SMBIOS, as a user who may not read the ACPI tables sees a microVM.
    HiddenKvm,
    Xen,
    /// A hypervisor that is not known here.
    Unknown,
    BareMetal,
}

/// The asset tag of the chassis of each virtual machine of Azure.
const AZURE: &str = "7783-7084-3265-9085-8269-3286-77";

impl Platform {
    /// Clouds before the hypervisors that they are built on.
    pub(super) fn of(facts: &Facts) -> Self {
        let dmi = &facts.dmi;
        let is_google = dmi.product_name == "Google Compute Engine";
        let is_microsoft = dmi.sys_vendor == "Microsoft Corporation" && dmi.product_name == "Virtual Machine";
        let is_xen = facts.names_itself("XenVMMXenVMM") || facts.hypervisor_type == "xen";
        let is_hyper_v = facts.names_itself("Microsoft Hv");
        match dmi.sys_vendor.as_str() {
            "Amazon EC2" if facts.is_guest => return Self::Ec2Nitro,
            "Amazon EC2" => return Self::Ec2Metal,
            "Xen" if dmi.bios_version.ends_with(".amazon") => return Self::Ec2Xen,
            _ if is_google && facts.is_guest => return Self::Google,
            _ if is_google => return Self::GoogleMetal,
            _ if is_microsoft && dmi.chassis_asset_tag == AZURE => return Self::Azure,
            "innotek GmbH" => return Self::VirtualBox,
            vendor if vendor.starts_with("VMware") && facts.is_guest => return Self::VmWare,
            _ => {}
        }
        let is_nameless = dmi.sys_vendor.is_empty() && dmi.product_name.is_empty();
        if facts.acpi_oem.as_deref() == Some("FIRECK") {
            Self::Firecracker
        } else if facts.names_itself("VMwareVMware") {
            Self::VmWare
        } else if facts.names_itself("VBoxVBoxVBox") {
            Self::VirtualBox
        } else if facts.names_itself("KVMKVMKVM") && is_nameless && facts.acpi_oem.is_none() {
            Self::HiddenKvm
        } else if facts.names_itself("KVMKVMKVM") {
            Self::Kvm
        } else if facts.names_itself("TCGTCGTCGTCG") {
            Self::Emulated
        } else if is_xen {
            Self::Xen
        } else if is_hyper_v && facts.kernel_release.to_lowercase().contains("microsoft") {
            Self::Wsl
        } else if is_hyper_v {
            Self::HyperV
        } else if facts.is_guest {
            Self::Unknown
        } else {
            Self::BareMetal
        }
    }

    /// Its name, and what distinguishes one machine of the kind from another.
    pub(super) fn described(self, facts: &Facts) -> String {
        let dmi = &facts.dmi;
        let made = [dmi.sys_vendor.as_str(), &dmi.product_name].join(" ");
        let made = match made.trim() {
            "" => String::new(),
            made => format!(" ({made})"),
        };
        match self {
            Self::Ec2Metal => format!("Amazon EC2 {}, bare metal", dmi.product_name),
            Self::Ec2Nitro => format!("Amazon EC2 {}, below the Nitro hypervisor", dmi.product_name),
            Self::Ec2Xen => format!("Amazon EC2, below Xen {}", dmi.bios_version),
            Self::GoogleMetal => "Google Compute Engine, bare metal".to_owned(),
            Self::Google => {
                "Google Compute Engine, below KVM; firmware does not name the machine type".to_owned()
            }
            Self::Azure => {
                "Microsoft Azure, below Hyper-V; firmware does not name the machine size".to_owned()
            }
            Self::Wsl => "WSL 2, below Hyper-V".to_owned(),
            Self::HyperV => "a virtual machine below Hyper-V".to_owned(),
            Self::Firecracker => "a microVM of Firecracker, below KVM".to_owned(),
            Self::VmWare => format!("a virtual machine of VMware{made}"),
            Self::VirtualBox => format!("a virtual machine of VirtualBox{made}"),
            Self::Emulated => format!("a machine that QEMU emulates without KVM{made}"),
            Self::Kvm => format!("a virtual machine below KVM{made}"),
            Self::HiddenKvm => "a virtual machine below KVM; only root can read of which kind".to_owned(),
            Self::Xen => format!("a virtual machine below Xen{made}"),
            Self::Unknown => match facts.hypervisors.join(", ") {
                names if names.is_empty() => format!("a virtual machine below an unnamed hypervisor{made}"),
                names => format!("a virtual machine below an unknown hypervisor, `{names}`{made}"),
            },
            Self::BareMetal => format!("bare metal{made}"),
        }
    }

    /// The machine as the subject of a sentence.
    pub(super) fn subject(self, facts: &Facts) -> String {
        match self {
            Self::Ec2Metal | Self::Ec2Nitro => format!("this EC2 instance ({})", facts.dmi.product_name),
            Self::Ec2Xen => "this EC2 instance".to_owned(),
            Self::GoogleMetal | Self::BareMetal => "this machine".to_owned(),
            Self::Google => "this Compute Engine VM".to_owned(),
            Self::Azure => "this Azure VM".to_owned(),
            Self::Wsl => "this WSL 2 VM".to_owned(),
            Self::HyperV => "this Hyper-V guest".to_owned(),
            Self::Firecracker => "this Firecracker microVM".to_owned(),
            Self::VmWare => "this VMware guest".to_owned(),
            Self::VirtualBox => "this VirtualBox guest".to_owned(),
            Self::Emulated => "this emulated machine".to_owned(),
            Self::Kvm | Self::HiddenKvm => "this KVM guest".to_owned(),
            Self::Xen => "this Xen guest".to_owned(),
            Self::Unknown => "this virtual machine".to_owned(),
        }
    }

    /// How a machine of this kind gets a PMU: a clause.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::Ec2Nitro | Self::Ec2Xen => "use a *.metal type, or one of 7i or 8i",
            Self::Google => "use C4 with --performance-monitoring-unit=standard, or C3 bare metal",
            Self::Azure => "no size of Azure is known to have one: use bare metal",
            Self::Wsl => {
                "update WSL, which passes it on unless .wslconfig has hardwarePerformanceCounters=false"
            }
            Self::HyperV => "on its host: Set-VMProcessor NAME -Perfmon @(\"pmu\", \"lbr\", \"pebs\")",
            Self::Firecracker => "Firecracker hides it from its guests: use bare metal",
            Self::VmWare => "enable virtual CPU performance counters in its settings (vpmc.enable)",
            Self::VirtualBox => "VirtualBox is not known to give one: use QEMU with -cpu host,pmu=on",
            Self::Emulated => "run QEMU with -accel kvm -cpu host,pmu=on",
            Self::Kvm => "on its host: -cpu host,pmu=on; a cloud may have it on bare metal only",
            Self::HiddenKvm => "`sudo hbbp-sys check` says of which kind it is, and how one is had there",
            Self::Xen => "boot Xen with vpmu=on",
            Self::Unknown => "ask who runs it for a virtual PMU, or use bare metal",
            Self::Ec2Metal | Self::GoogleMetal | Self::BareMetal => {
                "another driver may hold it, or this kernel is too old for the CPU"
            }
        }
    }
}
