//! Keeps a measurement within a budget of CPU time: measures what it takes, and sets the periods of its events as [`control`]
//! says.

mod control;

use super::session::now;
use crate::collect::Collector;
use crate::collect::overhead::{Runs, read_own_cpu, sampling_time};
use crate::snapshot::run::{CpuBudget, Run};
use control::{Control, Spent};

/// Why periods stay as they are although there is a budget.
const NO_CONTROL: &str = "the CPU budget is not kept: the kernel chooses the periods (--frequency), or events follow \
                          tasks (--pid), and periods cannot be adapted";

/// The budget of a running measurement.
pub(super) struct Budget {
    /// Parts per million of all CPUs.
    share: u32,
    control: Control,
    /// The runs of the programs when the last profile was taken, and what all samples had cost until then, in ns.
    runs: Vec<Runs>,
    sampling: u64,
}

impl Budget {
    /// Begins with the periods of the events, or says why these cannot be adapted.
    pub(super) fn open(share: u32, n_cpus: u32, collector: &Collector) -> Result<Self, &'static str> {
        if !collector.is_adaptable() {
            return Err(NO_CONTROL);
        }
        let spent = Spent {
            user: read_own_cpu(),
            sampling: 0,
        };
        Ok(Self {
            share,
            control: Control::new(f64::from(share) / 1e6, n_cpus, now(), spent),
            runs: collector.runs(),
            sampling: 0,
        })
    }

    /// Whether the samples cost so much that the interval should end.
    pub(super) fn is_urgent(&mut self, collector: &Collector) -> bool {
        let (time, _) = sampling_time(&self.runs, &collector.runs());
        let spent = Spent {
            user: read_own_cpu(),
            sampling: self.sampling.saturating_add(time),
        };
        self.control.is_urgent(now(), spent)
    }

    /// Settles what the samples of a run cost, and sets the periods of the next one. To be called while sampling stands still.
    pub(super) fn adapt(&mut self, collector: &mut Collector, run: &mut Run) -> anyhow::Result<()> {
        let spent = self.account(collector, run);
        let before = self.control.scale();
        let scale = self.control.next(now(), spent);
        if scale.to_bits() != before.to_bits() {
            collector.set_scale(scale)?;
        }
        Ok(())
    }

    /// Tells a run what its samples cost since the last one; returns what was spent in all.
    pub(super) fn account(&mut self, collector: &Collector, run: &mut Run) -> Spent {
        let runs = collector.runs();
        let (time, programs) = sampling_time(&self.runs, &runs);
        self.runs = runs;
        self.sampling = self.sampling.saturating_add(time);
        run.own_sampling = time;
        run.budget = Some(CpuBudget {
            share: self.share,
            programs,
        });
        Spent {
            user: read_own_cpu(),
            sampling: self.sampling,
        }
    }
}
