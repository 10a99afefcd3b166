//! CPUs that go and come while a collection samples.

use std::time::Instant;

use anyhow::Context as _;

use super::Collector;
use crate::cpu_list;
use crate::hotplug::{UNSEEN, enabled};
use crate::scope::Scope;
use hbbp_model::advice::Advised;
use hbbp_model::snapshot::run::Event;

impl Collector {
    /// Opens events anew on CPUs that came online since the last call, and starts them; to be called often while sampling runs.
    pub fn follow_cpus(&mut self) -> anyhow::Result<()> {
        let now = cpu_list::read_online().context("failed to list the CPUs")?;
        let (went, came) = self.online.look(&now);
        for cpu in went {
            self.counters.leave(cpu);
        }
        for cpu in came {
            let opened = self.open_on(cpu).and_then(|()| self.counters.enable_on(cpu));
            let missed = u64::try_from(self.online.looked.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // It may have gone again before all is open.
            let refused = opened.err().as_ref().map(Advised::of_error);
            self.online.opened(cpu, missed, refused);
        }
        self.online.looked = Instant::now();
        Ok(())
    }

    /// Settles the profile that ends: what was missed, and CPUs that went and came without being seen. To be called while
    /// sampling is stopped.
    pub(super) fn settle_cpus(&mut self, events: &mut [Event]) -> Vec<Advised> {
        let enabled = enabled(events);
        let longest = enabled.values().copied().max().unwrap_or(0);
        for (cpu, time) in enabled {
            let shortfall = longest.saturating_sub(time);
            let is_known = self.online.changes.contains_key(&cpu) || !self.online.now.contains(&cpu);
            if UNSEEN < shortfall && !is_known && self.counters.is_on_cpus() {
                self.counters.leave(cpu);
                let refused = self.open_on(cpu).err().as_ref().map(Advised::of_error);
                self.online.opened(cpu, shortfall, refused);
            }
        }
        let periods = self.counters.periods();
        self.online
            .settle(events, |number| periods.get(number).copied().unwrap_or(1))
    }

    /// Opens the sideband and the events of a CPU, which are not started yet.
    fn open_on(&mut self, cpu: u32) -> anyhow::Result<()> {
        self.records
            .sideband
            .renew(cpu)
            .context("failed to open the sideband events")?;
        for descriptor in self.records.sideband.newest() {
            self.records
                .wake
                .add(descriptor)
                .context("failed to wait for records of the kernel")?;
        }
        let scope = match &self.scope {
            Scope::Cpus(cpus) if !cpus.contains(&cpu) => return Ok(()),
            Scope::Cpus(_) => &Scope::System,
            // Counters of tasks go with them from CPU to CPU.
            Scope::Process(_) | Scope::Command(_) => return self.counted.cpus.give_place(cpu),
            scope => scope,
        };
        self.counted.cpus.give_place(cpu)?;
        self.counters.open_on(scope, cpu)
    }
}
