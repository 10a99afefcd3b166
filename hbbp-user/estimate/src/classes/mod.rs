//! Exact counts of classes of instructions tie the estimates of blocks: they are adjusted so that what they say of each class and
//! ring agrees with what was counted of it, each to its error.
//!
//! ```text
//! counts of classes (snapshot) -> counted: the whole run, with errors
//! streams -> contents: what each adds -> least_squares -> streams   (streams; what runs together changes together)
//! blocks  -> contents: what each adds -> least_squares -> blocks    (tied; what no stream shows, and what is left)
//! ```
//!
//! What was counted has hardly any error of chance, but is of a few sums only. So streams and blocks change by what their own errors
//! leave open: the less certain ones more. Where there are branch stacks, streams are adjusted first, so that blocks that
//! run together stay together: with blocks alone, the mnemonics of no class were further off in some loads than without
//! any counts (kernel-tests/results/classes.txt).

mod contents;
mod counted;
mod least_squares;
mod ties;

use super::basis::Basis;
use super::error::clustered;
use super::sources::stream::Stream;
use super::stages::{Stage, Stages};
use super::{BlockCount, Estimate, Figure, Part, Unit};
use contents::{Contents, of_streams};
pub use counted::units;
use counted::{Counted, counted};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::InstructionClass;
use least_squares::{Row, fit};
pub use ties::{TiedSum, Ties};

/// A class of instructions in a ring: what was counted, and what is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassEstimate {
    /// The class.
    pub class: InstructionClass,
    /// The ring.
    pub ring: Ring,
    /// Instructions counted, extrapolated to the whole run.
    pub counted: Figure,
    /// The share of the run in which it was counted.
    pub share: f64,
    /// Estimated from samples alone, with the error of blocks that are independent.
    pub sampled: Figure,
    /// Estimated from samples and counts; the same as `sampled` where counts did not tie the estimate.
    pub estimated: f64,
    /// Whether the count tied the estimate.
    pub ties: bool,
}

/// By how much the streams of a class and ring add up to more than before they were tied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    class: InstructionClass,
    ring: Ring,
    by: f64,
}

/// Ties the weights of streams to the counts of classes.
pub(super) fn streams_tied(basis: Basis<'_>, streams: &mut [Stream], streams_per_stack: f64) -> Vec<Shift> {
    let (run, assignment) = (&basis.snapshot.run, basis.assignment);
    let serves = basis.runs(Stage::Classes) && assignment.unit == Unit::Executions && !streams.is_empty();
    if !serves || run.classes.is_empty() {
        return Vec::new();
    }
    let counted = counted(run, assignment);
    let classes: Vec<(InstructionClass, Ring)> = counted.iter().map(|it| (it.class, it.ring)).collect();
    let contents = of_streams(basis.map, streams, |text| basis.ring(text), &classes);
    let rows = contents.into_iter().zip(&counted).map(|(terms, counted)| Row {
        terms,
        counted: counted.amount,
    });
    let rows: Vec<Row> = rows.collect();
    let certain = rows
        .iter()
        .zip(&counted)
        .filter(|(_, counted)| counted.is_certain);
    let tying: Vec<Row> = certain
        .filter(|(row, _)| !row.terms.is_empty())
        .map(|(row, _)| row.clone())
        .collect();
    let sampled: Vec<f64> = streams.iter().map(|stream| stream.weight).collect();
    // What is off most is how much each ring ran: that is set right for all of its streams alike before the classes tell them apart.
    let is_whole = |it: &Counted| it.class == InstructionClass::Instructions && it.is_certain;
    let of_rings = rows.iter().zip(&counted).filter(|(_, counted)| is_whole(counted));
    for (row, _) in of_rings {
        let sum = row.sum(&sampled);
        for (stream, _) in row.terms.iter().filter(|_| 0.0 < sum) {
            if let Some(stream) = streams.get_mut(*stream) {
                stream.weight *= row.counted.value / sum;
            }
        }
    }
    let error = |stream: &Stream| clustered(stream.hits as f64, stream.weight, streams_per_stack);
    let (weights, variances): (Vec<f64>, Vec<f64>) = streams
        .iter()
        .map(|stream| (stream.weight, error(stream) * error(stream)))
        .unzip();
    let fitted = fit(&weights, &variances, &tying);
    for (stream, weight) in streams.iter_mut().zip(&fitted.values) {
        stream.weight = *weight;
    }
    let shifts = rows.iter().zip(&classes).map(|(row, (class, ring))| Shift {
        class: *class,
        ring: *ring,
        by: row.sum(&fitted.values) - row.sum(&sampled),
    });
    shifts.collect()
}

/// Classes of instructions that were counted beside the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// By (class, ring); none if figures are no executions.
    pub estimates: Vec<ClassEstimate>,
    /// What their counts take off the variances of sums.
    pub ties: Ties,
}

/// Ties the blocks, and their parts by process image, to the counts of classes. Figures that are no executions are not tied, and
/// have no classes.
pub(super) fn tied(
    basis: Basis<'_>,
    streams: &[Stream],
    shifts: &[Shift],
    blocks: &mut [BlockCount],
    parts: &mut [Part],
) -> Classes {
    let (run, assignment) = (&basis.snapshot.run, basis.assignment);
    if run.classes.is_empty() || assignment.unit != Unit::Executions {
        return Classes::default();
    }
    let contents = Contents::new(basis.map, streams);
    let mut classes = Vec::new();
    let mut rows = Vec::new();
    let (values, variances) = sampled(blocks);
    for counted in counted(run, assignment) {
        let Some(terms) = contents.terms(counted.class, counted.ring, blocks) else {
            continue;
        };
        let row = Row {
            terms,
            counted: counted.amount,
        };
        let mut class = ClassEstimate::new(&counted, &row, &values, &variances, basis.stages);
        let mut shifted = shifts
            .iter()
            .filter(|it| (it.class, it.ring) == (class.class, class.ring));
        class.sampled.value -= shifted.next().map_or(0.0, |shift| shift.by);
        classes.push(class);
        rows.push(row);
    }
    let tying: Vec<Row> = rows
        .iter()
        .zip(&classes)
        .filter(|(_, class)| class.ties)
        .map(|(row, _)| row.clone())
        .collect();
    if tying.is_empty() {
        return Classes {
            estimates: classes,
            ties: Ties::default(),
        };
    }
    let fitted = fit(&values, &variances, &tying);
    for (block, (value, variance)) in blocks.iter_mut().zip(fitted.values.iter().zip(&fitted.variances)) {
        block.tied = Some(Estimate {
            hits: block.chosen().hits,
            count: *value,
            std_error: variance.sqrt(),
        });
    }
    for part in parts {
        let values = values.get(part.block).zip(fitted.values.get(part.block));
        if let Some((before, after)) = values.filter(|(before, _)| 0.0 < **before) {
            part.count *= after / before;
        }
    }
    for (class, row) in classes.iter_mut().zip(&rows) {
        class.estimated = row.sum(&fitted.values);
    }
    let ties = Ties::new(fitted.factor, fitted.prior, &tying);
    Classes {
        estimates: classes,
        ties,
    }
}

/// The chosen estimates of the blocks, and their variances.
fn sampled(blocks: &[BlockCount]) -> (Vec<f64>, Vec<f64>) {
    let chosen = blocks.iter().map(BlockCount::chosen);
    chosen.map(|it| (it.count, it.std_error * it.std_error)).unzip()
}

impl ClassEstimate {
    fn new(counted: &Counted, row: &Row, values: &[f64], variances: &[f64], stages: Stages) -> Self {
        let sampled = Figure::new(row.sum(values), row.variance(variances));
        Self {
            class: counted.class,
            ring: counted.ring,
            counted: counted.amount,
            share: counted.share,
            sampled,
            estimated: sampled.value,
            ties: stages.run(Stage::Classes) && counted.is_certain && 0.0 < sampled.value,
        }
    }

    /// Estimated over counted, less 1; 0 if neither is anything.
    pub fn residual(&self) -> f64 {
        relative(self.estimated, self.counted.value)
    }

    /// The same of samples alone.
    pub fn residual_of_samples(&self) -> f64 {
        relative(self.sampled.value, self.counted.value)
    }
}

fn relative(estimated: f64, counted: f64) -> f64 {
    if 0.0 < counted {
        estimated / counted - 1.0
    } else if 0.0 < estimated {
        f64::INFINITY
    } else {
        0.0
    }
}
