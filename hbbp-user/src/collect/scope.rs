//! Whose samples to take: the counters of an event for a scope.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};

use super::event::Source;
use super::perf::{Perf, Target};
use crate::snapshot::run::Period;

/// Whose samples to take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everything that runs.
    System,
    /// Everything that runs on these CPUs.
    Cpus(Vec<u32>),
    /// One process and what it creates.
    Process(u32),
    /// One process and what it creates, from its next exec on.
    Command(u32),
    /// A cgroup, by its folder.
    Cgroup(PathBuf),
}

/// Opens the counters of a source for a scope, disabled; `online` are the CPUs of this machine.
pub fn open_counters(source: &Source, scope: &Scope, online: &[u32]) -> anyhow::Result<Vec<Perf>> {
    let refused = |place: String| {
        let name = &source.name;
        let advice = match source.request.period {
            Period::Frequency(_) => ", and kernel.perf_event_max_sample_rate limits --frequency",
            Period::Fixed(_) => "",
        };
        move || {
            format!(
                "the kernel refused event {name} on {place}; run `hbbp-sys check` for what is allowed{advice}"
            )
        }
    };
    let has_event = |cpu: &u32| source.cpus.is_empty() || source.cpus.contains(cpu);
    let on_cpus = |cpus: &[u32]| -> anyhow::Result<Vec<Perf>> {
        let open = |cpu: &u32| {
            Perf::open(&source.request, &Target::Cpu(*cpu)).with_context(refused(format!("CPU {cpu}")))
        };
        cpus.iter().filter(|cpu| has_event(cpu)).map(open).collect()
    };
    match scope {
        Scope::System => on_cpus(online),
        Scope::Cpus(cpus) => {
            if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
                bail!("CPU {cpu} is not online; online CPUs: {online:?}");
            }
            on_cpus(cpus)
        }
        Scope::Process(pid) => {
            let mut counters = Vec::new();
            for tid in read_tasks(*pid)? {
                match Perf::open(&source.request, &Target::Task(tid)) {
                    Ok(counter) => counters.push(counter),
                    // It has ended since the tasks were listed.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error).with_context(refused(format!("task {tid}"))),
                }
            }
            if counters.is_empty() {
                bail!("process {pid} has exited");
            }
            Ok(counters)
        }
        Scope::Command(pid) => {
            let target = Target::TaskFromExec(*pid);
            Ok(vec![
                Perf::open(&source.request, &target).with_context(refused("the command".to_owned()))?,
            ])
        }
        Scope::Cgroup(path) => {
            let folder =
                File::open(path).with_context(|| format!("failed to open cgroup {}", path.display()))?;
            let open = |cpu: &u32| {
                let target = Target::Cgroup(folder.as_fd(), *cpu);
                Perf::open(&source.request, &target).map_err(|error| match error.raw_os_error() {
                    Some(libc::EBADF) => {
                        anyhow!("{} is not a cgroup of the perf_event controller", path.display())
                    }
                    _ => anyhow!(error).context(refused(format!("cgroup {}", path.display()))()),
                })
            };
            online.iter().filter(|cpu| has_event(cpu)).map(open).collect()
        }
    }
}

/// The tasks of a process. Those it creates later are followed by the kernel.
fn read_tasks(pid: u32) -> anyhow::Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&folder).map_err(|_| anyhow!("no process {pid}"))?;
    let tasks = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(tasks.collect())
}
