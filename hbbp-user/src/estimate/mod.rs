//! Estimates of how often each basic block ran (paper sections III and IV).

/// What the figures of an estimate are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Estimated executions of instructions.
    Executions,
    /// Samples of a clock or of cycles: they say where time passed, not what was executed.
    TimeWeightedSamples,
    /// Samples of an event that counts neither executions nor time, such as micro-operations:
    /// they weigh an instruction by what it has of the event.
    EventWeightedSamples,
}

/// Where the figure of a block comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// Eventing IPs (paper section III.A).
    Ebs,
    /// Streams between the entries of branch stacks (paper section III.B).
    Lbr,
}

impl Unit {
    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::TimeWeightedSamples => "time_weighted_samples",
            Self::EventWeightedSamples => "event_weighted_samples",
        }
    }

    /// What a column of such figures is called.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Executions => "estimated executions",
            Self::TimeWeightedSamples => "time-weighted samples",
            Self::EventWeightedSamples => "event-weighted samples",
        }
    }
}

impl Source {
    /// Stable name, used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
        }
    }
}
