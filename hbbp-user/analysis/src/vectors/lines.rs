//! The files of exp-bbv: a line for each vector, `T:ID:COUNT   :ID:COUNT ..`, and one for each block, `F:ID:ADDRESS:FUNCTION`
//! (Valgrind manual, section 12.4).
//!
//! Ids are given in the order of first entry, from 1; in a line the blocks are sorted by address. A count is
//! instructions executed. SimPoint reads only lines that begin with `T`, so explanations are in comments, as is the
//! vector of the last, incomplete slice. `blocks.csv` has what `pc.out` has no field for.

use std::io::{self, Write};

use super::by_slice::{Block, Missing, Vector, Vectors};
use hbbp_estimate::Unit;
use hbbp_model::advice::{Advice, Wording};
use hbbp_model::printable::harmless;

/// The id of each block, 0 where it was not entered yet.
#[derive(Clone, Debug)]
pub struct Ids {
    of: Vec<u32>,
    /// Blocks in the order of their ids.
    order: Vec<u32>,
}

impl Ids {
    /// Ids in the order of first entry, thread after thread.
    pub fn new(vectors: &Vectors<'_>) -> Self {
        let mut ids = Self {
            of: vec![0; vectors.blocks().len()],
            order: Vec::new(),
        };
        vectors.each(|_, _, vector| {
            for (block, _) in vector {
                if let Some(id) = ids.of.get_mut(*block as usize).filter(|id| **id == 0) {
                    ids.order.push(*block);
                    *id = u32::try_from(ids.order.len()).unwrap_or(u32::MAX);
                }
            }
        });
        ids
    }

    /// Blocks with their ids, in the order of these.
    fn blocks<'a>(&self, vectors: &'a Vectors<'_>) -> impl Iterator<Item = (u32, &'a Block)> {
        let blocks = self
            .order
            .iter()
            .filter_map(|block| vectors.blocks().get(*block as usize));
        (1..).zip(blocks)
    }

    /// The id of a block.
    pub(super) fn id(&self, block: u32) -> u32 {
        self.of.get(block as usize).copied().unwrap_or(0)
    }
}

/// What one thread executed in all its intervals together, the incomplete one included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    /// Complete intervals with code.
    intervals: u32,
    instructions: f64,
    /// String instructions with a repeat prefix, all iterations of one as one.
    repeated: f64,
    fldcw: f64,
}

impl Totals {
    fn add(&mut self, vectors: &Vectors<'_>, vector: &Vector) {
        for (block, value) in vector {
            self.instructions += value;
            let Some(block) = vectors.blocks().get(*block as usize) else {
                continue;
            };
            let executions = value / f64::from(block.instructions.max(1));
            self.repeated += executions * f64::from(block.repeated);
            self.fldcw += executions * f64::from(block.fldcw);
        }
    }

    /// The comments that exp-bbv has at the end of a file.
    fn write(&self, vectors: &Vectors<'_>, thread: u32, length: u64, out: &mut dyn Write) -> io::Result<()> {
        let name = vectors.threads().get(thread as usize);
        let name = name
            .map(|about| about.name.as_str())
            .filter(|name| !name.is_empty());
        let unit = what(vectors.unit);
        writeln!(
            out,
            "# Thread {}: {}",
            thread + 1,
            name.unwrap_or("all that was measured")
        )?;
        writeln!(
            out,
            "#   Total intervals: {} (Interval Size {length}{unit})",
            self.intervals
        )?;
        writeln!(out, "#   Total instructions: {:.0}{unit}", self.instructions)?;
        writeln!(
            out,
            "#   Unique reps: {:.0}{unit} (no counter has their iterations)",
            self.repeated
        )?;
        writeln!(out, "#   Total fldcw instructions: {:.0}{unit}", self.fldcw)
    }
}

/// The vectors of one thread and their totals, with advice in these words. `length` is that of an interval.
pub fn write_vectors(
    vectors: &Vectors<'_>,
    ids: &Ids,
    thread: u32,
    length: u64,
    wording: Wording,
    out: &mut dyn Write,
) -> io::Result<()> {
    let last = vectors.whole_slices(thread);
    let (mut totals, mut written) = (Totals::default(), Ok(()));
    vectors.each_of(thread, |slice, vector| {
        if written.is_err() || vector.is_empty() {
            return;
        }
        totals.add(vectors, vector);
        totals.intervals += u32::from(slice < last);
        let start = if slice < last { "T" } else { "#T" };
        written = write_line(start, ids, vector, out);
    });
    written?;
    writeln!(out)?;
    totals.write(vectors, thread, length, out)?;
    writeln!(
        out,
        "#   The line that begins with #T is the last interval, which is not complete"
    )?;
    writeln!(
        out,
        "#   Chance leaves a variance of {:.6e} in vectors divided by their sums, of all blocks together",
        vectors.chance(thread)
    )?;
    for sentence in sentences(vectors, wording) {
        writeln!(out, "#   {sentence}")?;
    }
    Ok(())
}

/// The totals of each thread alone. `length` is that of an interval.
pub fn write_totals(vectors: &Vectors<'_>, length: u64, out: &mut dyn Write) -> io::Result<()> {
    for thread in 0..u32::try_from(vectors.threads().len()).unwrap_or(u32::MAX) {
        let last = vectors.whole_slices(thread);
        let mut totals = Totals::default();
        vectors.each_of(thread, |slice, vector| {
            totals.add(vectors, vector);
            totals.intervals += u32::from(slice < last && !vector.is_empty());
        });
        totals.write(vectors, thread, length, out)?;
    }
    Ok(())
}

/// One vector, in exp-bbv's spacing. Values below one half are left out.
fn write_line(start: &str, ids: &Ids, vector: &Vector, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{start}")?;
    for (block, value) in vector {
        if 0.5 <= *value {
            write!(out, ":{}:{value:.0}   ", ids.id(*block))?;
        }
    }
    writeln!(out)
}

/// What follows an amount of something else than instructions.
const fn what(unit: Unit) -> &'static str {
    match unit {
        Unit::Executions | Unit::RelativeExecutions => "",
        Unit::TimeWeightedSamples => ", in units of time",
        Unit::EventWeightedSamples => ", in units of the event",
    }
}

/// Why samples and streams are in no interval: how many, the cause, and what the user may do.
fn causes(vectors: &Vectors<'_>) -> [(u64, &'static str, Advice); 3] {
    let left_out = vectors.left_out();
    [
        (
            left_out.no_place,
            "of threads that there was no room for",
            Advice::LargerMaps,
        ),
        (
            left_out.behind_last,
            "after the last interval that can be numbered",
            Advice::LongerIntervals,
        ),
        (
            left_out.memory,
            "as there was no memory for more",
            Advice::LongerIntervals,
        ),
    ]
}

/// What the reader should know, with advice in these words.
pub fn sentences(vectors: &Vectors<'_>, wording: Wording) -> Vec<String> {
    let mut sentences = Vec::new();
    if vectors.unit == Unit::TimeWeightedSamples {
        sentences.push(
            "Intervals are spans of time, in ns of the clock or in cycles, and values are the time spent in a block: this machine \
             has no event that counts instructions"
                .to_owned(),
        );
    }
    let all = vectors.shared + vectors.outside + vectors.unshared;
    if 0 < vectors.empty {
        sentences.push(format!(
            "{} intervals have no line, as no sample of theirs arrived: later lines have numbers below those of their \
             intervals",
            vectors.empty
        ));
    }
    for (hits, cause, advice) in causes(vectors).iter().filter(|(hits, ..)| 0 < *hits) {
        sentences.push(format!(
            "{hits} samples and streams are in no interval, {cause}: {}",
            wording(*advice)
        ));
    }
    if 0.0005 * all < vectors.outside {
        sentences.push(format!(
            "{:.2} % of what was executed is in no interval for that reason",
            100.0 * vectors.outside / all
        ));
    }
    if 0.0005 * all < vectors.unshared {
        sentences.push(format!(
            "{:.2} % of what was executed is in no interval: code that was patched or replaced while it was measured",
            100.0 * vectors.unshared / all
        ));
    }
    let worth_saying = |missing: &&Missing| MANY < missing.samples && missing.due < 100 * missing.samples;
    for Missing { event, due, samples } in vectors.missing.iter().filter(worth_saying) {
        sentences.push(format!(
            "{samples} of {due} samples of {event} that were due did not arrive ({:.1} %): what they represent is in no vector; \
             the borders of intervals count it",
            100.0 * *samples as f64 / *due as f64
        ));
    }
    sentences
}

/// Missing samples that need no cause: each counter of a thread ends in the middle of a period.
const MANY: u64 = 100;

/// Address and function of each block that one of these threads executed.
pub fn write_places(
    vectors: &Vectors<'_>,
    ids: &Ids,
    threads: &[u32],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut executed = vec![false; vectors.blocks().len()];
    for thread in threads {
        vectors.each_of(*thread, |_, vector| {
            for (block, _) in vector {
                if let Some(executed) = executed.get_mut(*block as usize) {
                    *executed = true;
                }
            }
        });
    }
    let ours = |block: u32| executed.get(block as usize).copied().unwrap_or(false);
    let blocks = ids.order.iter().zip(ids.blocks(vectors));
    for (_, (id, block)) in blocks.filter(|(block, _)| ours(**block)) {
        writeln!(out, "F:{id}:{:x}:{}", block.address, harmless(&block.function))?;
    }
    Ok(())
}

/// Everything that is known of each block, as comma-separated values.
pub fn write_blocks(vectors: &Vectors<'_>, ids: &Ids, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["id", "ring", "module", "address", "instructions", "function"])?;
    for (id, block) in ids.blocks(vectors) {
        csv.write_record([
            id.to_string(),
            block.ring.to_string(),
            harmless(&block.module),
            format!("{:x}", block.address),
            block.instructions.to_string(),
            harmless(&block.function),
        ])?;
    }
    csv.flush()
}
