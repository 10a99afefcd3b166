//! The sample profile of LLVM in its extensible binary form (llvm/lib/ProfileData/SampleProfWriter.cpp, LLVM 22): the lines of
//! [`super::autofdo`], read faster and one function at a time.
//!
//! ```text
//! magic, version                      numbers of variable length (ULEB128)
//! number of sections                  64 bits, as the table is
//! type, flags, offset, length         for each section
//! summary                             totals, and the counts that make up shares of all executions
//! names                               their number; each with a zero at its end
//! offsets                             of each function in the next section, by name
//! functions                           entries, name, total, lines with calls, inlined functions
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::autofdo::{FunctionSamples, SampleProfile, canonical};
use hbbp_model::leb128;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{NameIdx, SourceFrames};

/// `SPMagic(SPF_Ext_Binary)`: "SPROF42", and the form.
const MAGIC: u64 = u64::from_be_bytes(*b"SPROF42\x04");
/// `SPVersion`.
const VERSION: u64 = 103;

/// `SecType`.
const SUMMARY: u64 = 1;
const NAMES: u64 = 2;
const OFFSETS: u64 = 4;
const FUNCTIONS: u64 = 32;

/// `ProfileSummaryBuilder::DefaultCutoffs`, in millionths of all executions.
const CUTOFFS: [u64; 16] = [
    10_000, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 950_000,
    990_000, 999_000, 999_900, 999_990, 999_999,
];

/// The names of a profile by their index in the table.
type Names = BTreeMap<String, u64>;

/// Writes a profile.
pub fn write_extbinary(
    profile: &SampleProfile,
    frames: &SourceFrames,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = names(profile, frames);
    let writer = Writer {
        frames,
        names: &names,
    };
    let mut functions = Vec::new();
    let mut offsets = Vec::new();
    leb128::write(&mut offsets, profile.functions.len() as u64);
    for (name, samples) in &profile.functions {
        leb128::write(&mut offsets, writer.name(name));
        leb128::write(&mut offsets, functions.len() as u64);
        leb128::write(&mut functions, samples.head);
        writer.body(name, samples, &mut functions);
    }
    let mut table = Vec::new();
    leb128::write(&mut table, names.len() as u64);
    for name in names.keys() {
        table.extend(name.bytes());
        table.push(0);
    }
    let sections = [
        (SUMMARY, summary(profile)),
        (NAMES, table),
        (OFFSETS, offsets),
        (FUNCTIONS, functions),
    ];
    let mut head = Vec::new();
    leb128::write(&mut head, MAGIC);
    leb128::write(&mut head, VERSION);
    head.extend((sections.len() as u64).to_le_bytes());
    let mut offset = (head.len() + sections.len() * 32) as u64;
    for (kind, bytes) in &sections {
        for number in [*kind, 0, offset, bytes.len() as u64] {
            head.extend(number.to_le_bytes());
        }
        offset += bytes.len() as u64;
    }
    out.write_all(&head)?;
    sections.iter().try_for_each(|(_, bytes)| out.write_all(bytes))
}

/// Every name of a profile: of functions, inlined functions and callees.
fn names(profile: &SampleProfile, frames: &SourceFrames) -> Names {
    let mut found: BTreeSet<String> = profile.functions.keys().map(|name| harmless(name)).collect();
    for samples in profile.functions.values() {
        add_names(samples, frames, &mut found);
    }
    found.into_iter().zip(0..).collect()
}

fn add_names(samples: &FunctionSamples, frames: &SourceFrames, found: &mut BTreeSet<String>) {
    let mut add = |name: NameIdx| found.insert(harmless(canonical(frames.name(name))));
    for line in samples.body.values() {
        line.calls.keys().for_each(|name| {
            add(*name);
        });
    }
    for (_, name) in samples.inlined.keys() {
        add(*name);
    }
    for inlined in samples.inlined.values() {
        add_names(inlined, frames, found);
    }
}

struct Writer<'a> {
    frames: &'a SourceFrames,
    names: &'a Names,
}

impl Writer<'_> {
    fn name(&self, name: &str) -> u64 {
        self.names.get(&harmless(name)).copied().unwrap_or(0)
    }

    fn name_of(&self, name: NameIdx) -> u64 {
        self.name(canonical(self.frames.name(name)))
    }

    fn body(&self, name: &str, samples: &FunctionSamples, out: &mut Vec<u8>) {
        leb128::write(out, self.name(name));
        leb128::write(out, samples.total);
        leb128::write(out, samples.body.len() as u64);
        for ((line, discriminator), counted) in &samples.body {
            for number in [u64::from(*line), u64::from(*discriminator), counted.count] {
                leb128::write(out, number);
            }
            leb128::write(out, counted.calls.len() as u64);
            for (callee, calls) in &counted.calls {
                leb128::write(out, self.name_of(*callee));
                leb128::write(out, *calls);
            }
        }
        leb128::write(out, samples.inlined.len() as u64);
        for (((line, discriminator), name), inlined) in &samples.inlined {
            leb128::write(out, u64::from(*line));
            leb128::write(out, u64::from(*discriminator));
            self.body(canonical(self.frames.name(*name)), inlined, out);
        }
    }
}

/// Totals, and for each cutoff the smallest of the greatest counts that make it up, and their number.
fn summary(profile: &SampleProfile) -> Vec<u8> {
    let mut counts: Vec<u64> = Vec::new();
    for samples in profile.functions.values() {
        add_counts(samples, &mut counts);
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let total = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let heads = profile.functions.values().map(|samples| samples.head);
    let mut bytes = Vec::new();
    for number in [
        total,
        counts.first().copied().unwrap_or(0),
        heads.max().unwrap_or(0),
        counts.len() as u64,
        profile.functions.len() as u64,
        CUTOFFS.len() as u64,
    ] {
        leb128::write(&mut bytes, number);
    }
    let (mut reached, mut taken, mut least) = (0_u128, 0_u64, 0_u64);
    let mut left = counts.iter().peekable();
    for cutoff in CUTOFFS {
        let wanted = u128::from(total) * u128::from(cutoff) / 1_000_000;
        while reached < wanted
            && let Some(count) = left.next()
        {
            (reached, taken, least) = (reached + u128::from(*count), taken + 1, *count);
        }
        for number in [cutoff, least, taken] {
            leb128::write(&mut bytes, number);
        }
    }
    bytes
}

fn add_counts(samples: &FunctionSamples, counts: &mut Vec<u64>) {
    counts.extend(samples.body.values().map(|line| line.count));
    for inlined in samples.inlined.values() {
        add_counts(inlined, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::autofdo::LineSamples;
    use super::*;

    /// The numbers that these bytes hold.
    fn numbers(bytes: &[u8]) -> Vec<u64> {
        let encoded = bytes.split_inclusive(|byte| byte & 0x80 == 0);
        let number = |bytes: &[u8]| {
            let low_first = bytes.iter().rev();
            low_first.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
        };
        encoded.map(number).collect()
    }

    #[test]
    fn shares_are_made_up_of_no_more_counts_than_they_need() {
        let line = |n| {
            let line = LineSamples {
                count: 10,
                ..LineSamples::default()
            };
            ((n, 0), line)
        };
        let samples = FunctionSamples {
            head: 3,
            body: (0..10).map(line).collect(),
            ..FunctionSamples::default()
        };
        let mut profile = SampleProfile::default();
        profile.functions.insert("f".to_owned(), samples);
        let numbers = numbers(&summary(&profile));
        let (sums, shares) = numbers.split_at(6);
        assert_eq!(sums, [100, 10, 3, 10, 1, CUTOFFS.len() as u64]);
        let needed = shares.as_chunks::<3>().0.iter().map(|[.., n]| *n);
        let expected = [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10, 10];
        assert!(needed.eq(expected), "{shares:?}");
    }

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        let encoded = |number| {
            let mut bytes = Vec::new();
            leb128::write(&mut bytes, number);
            bytes
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(0x7f), [0x7f]);
        assert_eq!(encoded(0x80), [0x80, 1]);
        assert_eq!(encoded(624_485), [0xe5, 0x8e, 0x26]);
    }
}
