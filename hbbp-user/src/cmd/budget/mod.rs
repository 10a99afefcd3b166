//! Keeps a measurement within a budget of CPU time: measures what it takes, and sets the periods of its events as [`control`]
//! says.

mod control;
mod records;

use control::{Control, Spent};
use hbbp_collect::Collector;
use hbbp_collect::overhead::{READ_RECORD, Runs, read_own_cpu, record_time, sampling_time};
use hbbp_elf::parser::Parser;
use hbbp_model::record::Timed;
use hbbp_model::snapshot::run::{CpuBudget, Run};
use hbbp_resolve::clock::now;
pub(super) use records::Change;
use records::RecordAccount;

/// Why periods stay as they are although there is a budget.
const NO_CONTROL: &str = "the CPU budget is not kept: the kernel chooses the periods (--frequency), or events follow \
                          tasks (--pid), and periods cannot be adapted";

/// The budget of a running measurement.
pub(super) struct Budget {
    /// Parts per million of all CPUs.
    share: u32,
    /// Its workers are paid from the budget, too.
    parser: Parser,
    control: Control,
    /// The runs of the programs when the last profile was taken, and what all samples had cost until then, in ns.
    runs: Vec<Runs>,
    sampling: u64,
    account: RecordAccount,
    /// What the kernel took to write records, in ns: in all, and until the last profile was taken.
    records: u64,
    records_taken: u64,
    /// Seconds for which records were paused, as far as these were reported.
    rested_told: u64,
}

impl Budget {
    /// Begins with the periods of the events, or says why these cannot be adapted.
    pub(super) fn open(
        share: u32,
        n_cpus: u32,
        collector: &Collector,
        parser: &Parser,
    ) -> Result<Self, &'static str> {
        if !collector.is_adaptable() {
            return Err(NO_CONTROL);
        }
        let spent = Spent {
            user: read_own_cpu().saturating_add(parser.spent()),
            sampling: 0,
        };
        let part = f64::from(share) / 1e6;
        Ok(Self {
            share,
            parser: parser.clone(),
            control: Control::new(part, n_cpus, now(), spent),
            runs: collector.runs(),
            sampling: 0,
            account: RecordAccount::new(part * f64::from(n_cpus.max(1)), now()),
            records: 0,
            records_taken: 0,
            rested_told: 0,
        })
    }

    /// Notes records that were read.
    pub(super) fn note_records(&mut self, records: &[Timed]) {
        let (time, n) = record_time(records);
        self.records = self.records.saturating_add(time);
        self.account
            .draw(time.saturating_add(n.saturating_mul(READ_RECORD)));
    }

    /// Whether the kernel should stop or resume writing records; `None` if nothing changes.
    pub(super) fn change_of_records(&mut self) -> Option<Change> {
        self.account.change(now())
    }

    /// Factor by which the time between two polls is longer than usual.
    pub(super) const fn pace(&self) -> u32 {
        self.control.pace()
    }

    /// By what intervals are to be longer than asked for.
    pub(super) const fn lengthening(&self) -> u32 {
        self.control.lengthening()
    }

    /// For how many seconds records rested since the last call: a second that was begun is reported as a whole one, once.
    pub(super) fn take_rested(&mut self) -> u64 {
        let seconds = self.account.rested(now()).div_ceil(1_000_000_000);
        seconds - std::mem::replace(&mut self.rested_told, seconds)
    }

    /// CPU time of user space in ns: of this process and its workers, and what the kernel took to write records.
    fn user_time(&self) -> u64 {
        read_own_cpu()
            .saturating_add(self.parser.spent())
            .saturating_add(self.records)
    }

    /// Whether the samples cost so much that the interval should end.
    pub(super) fn is_urgent(&mut self, collector: &Collector) -> bool {
        let (time, _) = sampling_time(&self.runs, &collector.runs());
        let spent = Spent {
            user: self.user_time(),
            sampling: self.sampling.saturating_add(time),
        };
        self.control.is_urgent(now(), spent)
    }

    /// Settles what the samples of a run cost, and sets the periods of the next one. Call it while sampling is stopped.
    pub(super) fn adapt(&mut self, collector: &mut Collector, run: &mut Run) -> anyhow::Result<()> {
        let spent = self.account(collector, run);
        let before = self.control.scale();
        let scale = self.control.next(now(), spent);
        if scale.to_bits() != before.to_bits() {
            collector.set_scale(scale)?;
        }
        Ok(())
    }

    /// Reports to a run what its samples cost since the last call; returns the total cost.
    pub(super) fn account(&mut self, collector: &Collector, run: &mut Run) -> Spent {
        let runs = collector.runs();
        let (time, programs) = sampling_time(&self.runs, &runs);
        self.runs = runs;
        self.sampling = self.sampling.saturating_add(time);
        let records = self.records - std::mem::replace(&mut self.records_taken, self.records);
        run.overhead.sampling = time.saturating_add(records);
        run.overhead.budget = Some(CpuBudget {
            share: self.share,
            programs,
        });
        Spent {
            user: self.user_time(),
            sampling: self.sampling,
        }
    }
}
