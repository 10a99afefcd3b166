//! How much was sampled of a run.

/// The samples and stacks of the events that serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    /// Branch stacks.
    pub(super) n_stacks: f64,
    /// Streams of one of them.
    pub(super) streams_per_stack: f64,
    /// Samples of instruction pointers.
    pub(super) n_samples: f64,
    /// Taken branches between two stacks, or two samples if these are rarer.
    pub(super) period: f64,
}

impl Sampling {
    /// Of stacks that represent `units` of their event in all.
    ///
    /// Every taken branch ends a stream. Where another event took the stacks, these are its units, of which there are more: phases
    /// then are too few rather than too many.
    pub(super) fn new(units: f64, n_stacks: f64, streams_per_stack: f64, n_samples: f64) -> Self {
        let rarer = if 0.0 < n_samples { n_samples } else { n_stacks };
        Self {
            n_stacks,
            streams_per_stack,
            n_samples,
            period: units / rarer.min(n_stacks).max(1.0),
        }
    }
}
