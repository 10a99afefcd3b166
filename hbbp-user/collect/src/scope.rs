//! Whose samples to take: the counters of an event for a scope.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use procfs::process::Process;

use super::perf::{Perf, Target};
use super::source::Source;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::run::Period;

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
pub(crate) fn open_counters(source: &Source, scope: &Scope, online: &[u32]) -> anyhow::Result<Vec<Perf>> {
    let has_event = |cpu: &u32| source.cpus.is_empty() || source.cpus.contains(cpu);
    let on_cpus = |cpus: &[u32]| -> anyhow::Result<Vec<Perf>> {
        let open = |cpu: &u32| {
            let opened = Perf::open(&source.request, &Target::Cpu(*cpu));
            opened.with_context(|| refused(source, &format!("CPU {cpu}")))
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
        Scope::Process(pid) => open_tasks(source, *pid),
        Scope::Command(pid) => {
            let opened = Perf::open(&source.request, &Target::TaskFromExec(*pid));
            Ok(vec![opened.with_context(|| refused(source, "the command"))?])
        }
        Scope::Cgroup(path) => {
            let cpus = online.iter().filter(|cpu| has_event(cpu));
            open_cgroup(source, path, cpus)
        }
    }
}

/// What an error says where the kernel opens no counter.
fn refused(source: &Source, place: &str) -> Advised {
    let advice = match source.request.period {
        Period::Frequency(_) => Advice::CheckPermissionsAndFrequency,
        Period::Fixed(_) | Period::Between(..) => Advice::CheckPermissions,
    };
    let why = format!("the kernel refused event {} on {place}", source.name);
    Advised::new(why, advice)
}

/// One counter for each task of a process.
fn open_tasks(source: &Source, pid: u32) -> anyhow::Result<Vec<Perf>> {
    let mut counters = Vec::new();
    for tid in read_tasks(pid)? {
        match Perf::open(&source.request, &Target::Task(tid)) {
            Ok(counter) => counters.push(counter),
            // It has ended since the tasks were listed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error).with_context(|| refused(source, &format!("task {tid}"))),
        }
    }
    if counters.is_empty() {
        bail!("process {pid} has exited");
    }
    Ok(counters)
}

/// One counter of a cgroup for each of these CPUs.
fn open_cgroup<'a>(
    source: &Source,
    path: &Path,
    cpus: impl Iterator<Item = &'a u32>,
) -> anyhow::Result<Vec<Perf>> {
    let shown = path.display();
    let folder = File::open(path).with_context(|| format!("failed to open cgroup {shown}"))?;
    let open = |cpu: &u32| {
        let target = Target::Cgroup(folder.as_fd(), *cpu);
        Perf::open(&source.request, &target).map_err(|error| match error.raw_os_error() {
            Some(libc::EBADF) => anyhow!("{shown} is not a cgroup of the perf_event controller"),
            _ => anyhow!(error).context(refused(source, &format!("cgroup {shown}"))),
        })
    };
    cpus.map(open).collect()
}

/// The tasks of a process. Those it creates later are followed by the kernel.
fn read_tasks(pid: u32) -> anyhow::Result<Vec<u32>> {
    let missing = || anyhow!("no process {pid}");
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    let tasks = process.ok_or_else(missing)?.tasks().map_err(|_| missing())?;
    let tasks = tasks.filter_map(|task| u32::try_from(task.ok()?.tid).ok());
    Ok(tasks.collect())
}
