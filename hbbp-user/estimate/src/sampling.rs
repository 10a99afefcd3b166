//! How much was sampled of a run.

/// The samples and stacks of the events that serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Branch stacks that the streams came from.
    pub n_stacks: f64,
    /// Streams in one branch stack, on average.
    pub(crate) streams_per_stack: f64,
    /// Samples of the EBS events in the run, those without a block included.
    pub n_samples: f64,
    /// Those of them that divided the kernel's streams between process images; 0 where none did.
    pub kernel_samples: f64,
    /// Taken branches between two stacks, or two samples if these are rarer.
    pub(crate) period: f64,
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
            kernel_samples: 0.0,
            period: units / rarer.min(n_stacks).max(1.0),
        }
    }
}
