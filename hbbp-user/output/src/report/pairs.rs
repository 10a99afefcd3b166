//! The blocks of a profile with their exact counts, as
//!
//! Columns: where a block is; its executed instructions, exact and by each method; after these, its features, named as in
//! rule files, so that a reader finds new ones by the titles. Executions are instructions executed, divided by the length.
//! The last lines have a ring and no address: what is in none of the blocks before, so that all lines make the totals.

use std::io::{self, Write};

use hbbp_analysis::eval::{Amounts, Evaluation, FunctionKey};
use hbbp_estimate::rule::{Feature, Features};
use hbbp_model::printable::csv_name;

/// The first titles; those of the features follow.
const TITLES: [&str; 8] = [
    "ring",
    "module",
    "function",
    "address",
    "reference",
    "ebs",
    "lbr",
    "hybrid",
];

/// Writes one line for each training pair, and the remainder of each ring.
///
/// # Errors
/// Of `out`, or where the reference has no addresses.
pub fn write_pairs(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    let pairs = evaluation.pairs.as_ref().ok_or_else(|| {
        io::Error::other("the reference counts mnemonics without their addresses, so that it has no blocks")
    })?;
    let mut lines = csv::Writer::from_writer(out);
    lines.write_record(TITLES.into_iter().chain(Feature::NAMED.map(|(name, _)| name)))?;
    for pair in &pairs.blocks {
        let function = evaluation.function(pair);
        let name = |of: fn(&FunctionKey) -> &str| csv_name(function.map_or("", of));
        let location = [
            pair.ring.to_string(),
            name(|it| &it.module),
            name(|it| &it.function),
            format!("{:#x}", pair.start.0),
        ];
        lines.write_record(
            location
                .into_iter()
                .chain(figures(&pair.amounts))
                .chain(values(&pair.features)),
        )?;
    }
    for (ring, amounts) in &pairs.remainder {
        let location = [ring.to_string(), String::new(), String::new(), String::new()];
        let none = Feature::NAMED.map(|_| String::new());
        lines.write_record(location.into_iter().chain(figures(amounts)).chain(none))?;
    }
    lines.flush()
}

fn figures(amounts: &Amounts) -> [String; 4] {
    let Amounts {
        reference,
        ebs,
        lbr,
        hybrid,
    } = amounts;
    [reference, ebs, lbr, hybrid].map(f64::to_string)
}

fn values(features: &Features) -> [String; Feature::NAMED.len()] {
    // The sum of no samples is -0.0.
    Feature::NAMED.map(|(_, feature)| (features.value(feature) + 0.0).to_string())
}
