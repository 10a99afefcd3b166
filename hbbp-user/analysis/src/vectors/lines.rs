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

/// The vectors of one thread, with advice in these words. Returns how many there are.
pub fn write_vectors(
    vectors: &Vectors<'_>,
    ids: &Ids,
    thread: u32,
    length: u64,
    instructions_only: bool,
    wording: Wording,
    out: &mut dyn Write,
) -> io::Result<u32> {
    let about = vectors.threads().get(thread as usize);
    let last = vectors.whole_slices(thread);
    let (mut total, mut n, mut written) = (0.0, 0_u32, Ok(()));
    vectors.each_of(thread, |slice, vector| {
        if written.is_err() {
            return;
        }
        total += vector.iter().map(|(_, value)| value).sum::<f64>();
        n += u32::from(slice < last && !vector.is_empty());
        if !instructions_only && !vector.is_empty() {
            let start = if slice < last { "T" } else { "#T" };
            written = write_line(start, ids, vector, out);
        }
    });
    written?;
    let about = about.map_or("", |about| about.name.as_str());
    writeln!(
        out,
        "\n# Thread {}: {}",
        thread + 1,
        if about.is_empty() {
            "all that was measured"
        } else {
            about
        }
    )?;
    writeln!(
        out,
        "#   Total intervals: {n} (Interval Size {length}{})",
        what(vectors.unit)
    )?;
    writeln!(out, "#   Total instructions: {total:.0}{}", what(vectors.unit))?;
    if !instructions_only {
        writeln!(
            out,
            "#   The line that begins with #T is the last interval, which is not complete"
        )?;
        writeln!(
            out,
            "#   Chance leaves a variance of {:.6e} in vectors divided by their sums, of all blocks together",
            vectors.chance(thread)
        )?;
    }
    for sentence in sentences(vectors, wording) {
        writeln!(out, "#   {sentence}")?;
    }
    Ok(n)
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

/// Address and function of each block.
pub fn write_places(vectors: &Vectors<'_>, ids: &Ids, out: &mut dyn Write) -> io::Result<()> {
    for (id, block) in ids.blocks(vectors) {
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
