//! `hbbp-sys eval`: compares a saved profile with exact counts of the same run.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use hbbp_analysis::eval::{Exact, Level, Sampling, evaluate};
use hbbp_estimate::stages::Stage;
use hbbp_model::advice::Advised;
use hbbp_model::profile::{self, Output};
use hbbp_model::snapshot::Process;
use hbbp_output::report::{Errors, ErrorsFormat, Look, write_pairs};

/// What to compare, and how to show it.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalOptions {
    /// The profile.
    pub profile: PathBuf,
    /// The exact counts, in any format of [`Exact`].
    pub reference: PathBuf,
    /// Level of the groups.
    pub by: Level,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Sampling methods to hold side by side; the estimates of the profile where there are none.
    pub methods: Vec<Sampling>,
    /// Where the training pairs of rules go.
    pub blocks: Option<PathBuf>,
    /// Limit of groups and of mnemonics; `None` for all.
    pub top: Option<usize>,
    /// The form of the comparison.
    pub format: ErrorsFormat,
    /// How text looks.
    pub look: Look,
}

/// Reads both files and prints the errors to `out`.
pub(crate) fn eval(options: &EvalOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let blocks = options.blocks.as_deref().map(Output::open).transpose()?;
    let snapshot = profile::read(&options.profile)?;
    let path = &options.reference;
    let bytes = fs::read(path).with_context(|| format!("failed to read the reference {}", path.display()))?;
    let exact = Exact::parse(&bytes).with_context(|| format!("failed to parse {}", path.display()))?;
    let is_joined = |process: &Process| process.tgid == Process::JOINED;
    if matches!(exact, Exact::Blocks(_)) && snapshot.processes.iter().any(is_joined) {
        bail!(
            "the profile has processes that are counted together, and the reference has each: record with --each-process"
        );
    }
    let mut rule = super::rule::read(&options.rule)?;
    if !options.methods.is_empty() {
        // The methods of the field count samples at their reported address, and nothing else.
        rule.stages = rule.stages.without(Stage::Landing).without(Stage::Classes);
    }
    let evaluation = evaluate(&snapshot, &exact, &rule).map_err(Advised::from)?;
    if let Some(blocks) = blocks {
        let is_standard = blocks.is_standard();
        let mut bytes = Vec::new();
        write_pairs(&evaluation, &mut bytes)?;
        blocks.write(&bytes, out)?;
        if is_standard {
            return Ok(());
        }
    }
    let mut out = BufWriter::new(out);
    let sampling = options.methods.iter();
    let sampling: Vec<_> = sampling
        .map(|method| (*method, method.served(&snapshot, &evaluation)))
        .collect();
    let errors = Errors::new(&evaluation, options.by, options.top).by_sampling(&sampling);
    errors.write(options.format, options.look, &mut out)?;
    out.flush()?;
    Ok(())
}
