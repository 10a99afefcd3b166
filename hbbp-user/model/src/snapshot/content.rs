//! One measured run, and whether its parts fit together.

use std::fmt;

use super::counts::Interval;
use super::index::{EventIdx, ModuleIdx, ProcessIdx};
use super::loss::Losses;
use super::module::{Module, StaticBranch, Text};
use super::process::Process;
use super::run::Run;

/// One measured run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Host, events, periods, times and counts of the run.
    pub run: Run,
    /// What text can belong to: the kernel, its modules, ELF files, anonymous executable memory.
    pub modules: Vec<Module>,
    /// Process images, or their threads where these were counted separately; entry 0 is the kernel.
    pub processes: Vec<Process>,
    /// Paths of cgroups in the unified hierarchy (cgroup v2), as the tool saw them in `/proc/PID/cgroup`.
    pub cgroups: Vec<String>,
    /// Text that was hit, sorted by (module, start, since).
    pub text: Vec<Text>,
    /// Static branches in the text of the kernel image, sorted; none if the kernel's table of them could not be read.
    pub static_branches: Vec<StaticBranch>,
    /// What was counted, one entry for each drain, in the order of time.
    pub intervals: Vec<Interval>,
    /// What was lost or refused before it could be counted.
    pub losses: Losses,
}

/// The most that counts of one kind add up to, so that sums of sums have room: a hundred CPUs count as much in two years.
const MOST: u128 = 1 << 63;

impl Snapshot {
    /// What counts of each kind add up to, over all intervals.
    fn sums(&self) -> impl Iterator<Item = u128> {
        let intervals = || self.intervals.iter();
        let wide = u128::from;
        let ips = || intervals().flat_map(|it| it.ips.iter().chain(&it.refused));
        let branches = intervals().flat_map(|it| &it.branches);
        let chains = || intervals().flat_map(|it| &it.chains);
        let streams = || intervals().flat_map(|it| &it.streams);
        let counters = self.run.events.iter().flat_map(|event| &event.counters);
        [
            ips().map(|it| wide(it.hits)).sum(),
            ips().map(|it| wide(it.weight)).sum(),
            streams().map(|it| wide(it.hits)).sum(),
            streams()
                .filter_map(|it| it.cycles)
                .map(|it| wide(it.get()))
                .sum(),
            branches
                .map(|it| wide(it.hits) + wide(it.oldest) + wide(it.mispredicted.unwrap_or(0)))
                .sum(),
            chains().map(|it| wide(it.hits)).sum(),
            chains().map(|it| wide(it.weight)).sum(),
            counters.map(|it| wide(it.count)).sum(),
            self.run.events.iter().map(|it| wide(it.runs)).sum(),
            self.losses.iter().map(|(_, n, _)| wide(n)).sum(),
        ]
        .into_iter()
    }

    /// Checks that counts leave room for sums of them, as in reports: what comes from a file may hold anything.
    pub(crate) fn check_sums(&self) -> Result<(), Inconsistent> {
        holds(
            self.sums().all(|sum| sum <= MOST),
            "counts add up to more than 2^63",
        )
    }

    /// Checks that every index is in range and every vector in order, so that the pure half need not.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let module = |idx: ModuleIdx| (idx.0 as usize) < self.modules.len();
        holds(!self.processes.is_empty(), "no process image")?;
        for process in &self.processes {
            let cgroup = process.cgroup.map_or(0, |cgroup| cgroup.0 as usize + 1);
            holds(cgroup <= self.cgroups.len(), "process image has no cgroup")?;
            let by_start = process.mappings.is_sorted_by_key(|m| (m.start, m.from));
            holds(by_start, "mappings are not sorted")?;
            let inside = process
                .mappings
                .iter()
                .all(|m| module(m.module) && m.start < m.end);
            holds(inside, "mapping is empty or has no module")?;
        }
        for module in &self.modules {
            holds(
                module.symbols.is_sorted_by_key(|s| s.start),
                "symbols are not sorted",
            )?;
        }
        let in_order = self.text.is_sorted_by_key(|t| (t.module, t.start, t.since));
        holds(in_order, "text is not sorted")?;
        let branches = &self.static_branches;
        let known = branches.iter().all(|branch| module(branch.module));
        holds(
            known && branches.is_sorted(),
            "static branches are not sorted, or have no module",
        )?;
        for text in &self.text {
            let fits = u64::try_from(text.bytes.len()).is_ok_and(|len| text.start.checked_add(len).is_some());
            holds(
                module(text.module) && fits,
                "text has no module or exceeds the address space",
            )?;
        }
        self.check_counts()
    }

    fn check_counts(&self) -> Result<(), Inconsistent> {
        for interval in &self.intervals {
            // The greatest index of each kind is enough.
            let greatest = |(event, process): (u32, u32), (e, p): (EventIdx, ProcessIdx)| {
                (event.max(e.0), process.max(p.0))
            };
            let known = |rows: (u32, u32), n: usize| {
                let known = |idx: u32, n: usize| (idx as usize) < n;
                n == 0 || known(rows.0, self.run.events.len()) && known(rows.1, self.processes.len())
            };
            let ips = interval.ips.iter().map(|c| (c.event, c.process));
            let streams = interval.streams.iter().map(|c| (c.event, c.process));
            let branches = interval.branches.iter().map(|c| (c.event, c.process));
            let chains = interval.chains.iter().map(|c| (c.event, c.process));
            let refused = interval.refused.iter().map(|c| (c.event, c.process));
            holds(
                known(ips.fold((0, 0), greatest), interval.ips.len())
                    && known(streams.fold((0, 0), greatest), interval.streams.len())
                    && known(branches.fold((0, 0), greatest), interval.branches.len())
                    && known(chains.fold((0, 0), greatest), interval.chains.len())
                    && known(refused.fold((0, 0), greatest), interval.refused.len()),
                "count refers to a missing event or process image",
            )?;
        }
        Ok(())
    }
}

fn holds(ok: bool, what: &'static str) -> Result<(), Inconsistent> {
    if ok { Ok(()) } else { Err(Inconsistent(what)) }
}

/// An index of a snapshot that is out of range, or an order that is violated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Inconsistent(pub &'static str);

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inconsistent profile: {}", self.0)
    }
}

impl std::error::Error for Inconsistent {}
