//! What is said of an export: what its files hold, and what they could not say.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use hbbp_model::profile::Output;
use hbbp_output::export::counted::{Counted, WholeNumbers};
use hbbp_output::export::image::Written;
use indicatif::HumanCount;

/// What is said of an export.
pub(super) struct Summary {
    pub(super) noun: &'static str,
    pub(super) warnings: Vec<String>,
}

impl Summary {
    /// Begins with what all files together leave out.
    pub(super) fn new(runs: &[Counted<'_>], numbers: WholeNumbers) -> Self {
        let mut left_out: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (n, sentence) in runs.iter().flat_map(Counted::left_out) {
            let sum = left_out.entry(sentence).or_default();
            *sum = sum.saturating_add(n);
        }
        let sentence = |(sentence, n)| format!("{} {sentence}", HumanCount(n));
        Self {
            noun: numbers.noun,
            warnings: left_out.into_iter().map(sentence).collect(),
        }
    }

    /// Writes a file, or to standard output, and says what is in it.
    pub(super) fn save(
        &mut self,
        output: Option<&Path>,
        bytes: &[u8],
        written: &Written,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let Some(path) = output else {
            out.write_all(bytes)?;
            self.left_out(written);
            return Ok(());
        };
        let opened = Output::open(path)?;
        let is_standard = opened.is_standard();
        opened.write(bytes, out)?;
        if is_standard {
            self.left_out(written);
        } else {
            self.wrote(path, written, out)?;
        }
        Ok(())
    }

    /// Prints what a file holds.
    pub(super) fn wrote(&mut self, path: &Path, written: &Written, out: &mut dyn Write) -> io::Result<()> {
        let sums = written
            .sums
            .iter()
            .map(|(kind, n)| format!("{} {kind}", HumanCount(*n)));
        let sums: Vec<String> = sums.collect();
        writeln!(out, "{}: {} (in {})", path.display(), sums.join(", "), self.noun)?;
        self.left_out(written);
        Ok(())
    }

    /// Keeps what a file could not say.
    pub(super) fn left_out(&mut self, written: &Written) {
        let left_out = written.left_out.iter();
        self.warnings.extend(
            left_out.map(|(why, n)| format!("left out: {} {why} (in {})", HumanCount(*n), self.noun)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_summary_are_grouped() {
        let mut written = Written::default();
        written.add("ranges", 4_489_233_333);
        written.left_out.insert("without a line", 12_345);
        let mut summary = Summary {
            noun: "estimated executions",
            warnings: Vec::new(),
        };
        let mut out = Vec::new();
        summary.wrote(Path::new("x.txt"), &written, &mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said, "x.txt: 4,489,233,333 ranges (in estimated executions)\n");
        assert_eq!(
            summary.warnings,
            ["left out: 12,345 without a line (in estimated executions)"]
        );
    }
}
