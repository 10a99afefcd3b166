//! `hbbp-sys eval`: a saved profile beside exact counts of the same span.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::estimate::Rule;
use crate::estimate::rule::PAPER;
use crate::eval::{Level, evaluate};
use crate::reference::Reference;
use crate::report::{Errors, Format};
use crate::snapshot::file;

/// What to compare, and how to show it.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalOptions {
    /// The profile.
    pub profile: PathBuf,
    /// The reference file.
    pub reference: PathBuf,
    /// What the groups are.
    pub by: Level,
    /// File with the rule that chooses between EBS and LBR; `None` for the paper's.
    pub rule: Option<PathBuf>,
    /// Most groups, and most mnemonics; `None` for all.
    pub top: Option<usize>,
    /// The form of the comparison.
    pub format: Format,
    /// Most columns of a line of text.
    pub width: usize,
}

/// Reads both files and prints the errors to `out`.
pub fn eval(options: &EvalOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let snapshot = file::read(&options.profile)?;
    let path = &options.reference;
    let bytes = fs::read(path).with_context(|| format!("failed to read the reference {}", path.display()))?;
    let reference =
        Reference::parse(&bytes).with_context(|| format!("failed to understand {}", path.display()))?;
    let rule = read_rule(options.rule.as_deref())?;
    let evaluation = evaluate(&snapshot, &reference, &rule)?;
    let mut out = BufWriter::new(out);
    Errors::new(&evaluation, options.by, options.top).write(options.format, options.width, &mut out)?;
    out.flush()?;
    Ok(())
}

fn read_rule(path: Option<&Path>) -> anyhow::Result<Rule> {
    let Some(path) = path else {
        return PAPER.parse().context("failed to read the rule of the paper");
    };
    let text =
        fs::read_to_string(path).with_context(|| format!("failed to read the rule {}", path.display()))?;
    text.parse()
        .with_context(|| format!("failed to understand the rule {}", path.display()))
}
