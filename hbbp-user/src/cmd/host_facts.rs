//! What is known of this machine before a measurement starts, for the header of its report.

use hbbp_collect::cpu_list;
use hbbp_elf::build_id::read_kernel_build_id;
use hbbp_model::snapshot::{HostFacts, Run};

/// Run facts that are known before the start.
pub(super) fn facts(scope: String) -> Run {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let host = HostFacts {
        name: read("/proc/sys/kernel/hostname"),
        cpu_model: model
            .map(|(_, model)| model.trim().to_owned())
            .unwrap_or_default(),
        kernel_release: read("/proc/sys/kernel/osrelease"),
        kernel_build_id: read_kernel_build_id(),
        n_cpus: read_n_cpus(),
    };
    Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host,
        scope,
        ..Run::default()
    }
}

/// The number of CPUs online, for the header of a report.
pub(super) fn read_n_cpus() -> u32 {
    cpu_list::read_online()
        .ok()
        .and_then(|cpus| u32::try_from(cpus.len()).ok())
        .unwrap_or(1)
}
