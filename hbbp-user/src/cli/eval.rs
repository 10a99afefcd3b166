//! Options of comparisons with exact counts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::format::{ERRORS_FORMATS, one_of};
use super::report::{LookArgs, RuleArgs, Top, parse_top};
use crate::cmd::eval::EvalOptions;
use hbbp_analysis::eval::{Level, Sampling};
use hbbp_output::report::ErrorsFormat;

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// Profile to evaluate.
    file: PathBuf,
    /// Exact counts of the same program.
    ///
    /// Lines `ADDRESS EXECUTIONS` after `M MODULE`, output of Callgrind (with --dump-instr=yes), a mix of Intel SDE, DynamoRIO's
    /// opcode_mix, or a file of the emulated machine (`cargo xtask vm`). Record that program alone, except with the last.
    #[arg(long, value_name = "FILE")]
    reference: PathBuf,
    /// Level at which errors are grouped.
    #[arg(short, long, value_enum, default_value_t = EvalLevel::Ring)]
    by: EvalLevel,
    /// Hold sampling methods side by side.
    ///
    /// Those that the profile has the samples for: classic, precise, precise-prime, randomised, distributed, ip+1,
    /// ip+1-distributed, lbr, hybrid. The others are named with their reason.
    #[arg(long, value_name = "METHOD,..", value_delimiter = ',', value_parser = parse_sampling)]
    methods: Vec<Sampling>,
    /// Write the blocks of the profile to FILE as CSV.
    ///
    /// `-` is standard output, without the errors. Rules are learnt from it: a line for each block has its features for a rule,
    /// and its executed instructions, exact and by each method. The last lines have, for each ring, what is in none of these blocks.
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
    #[command(flatten)]
    rule: RuleArgs,
    /// Show the top N groups and mnemonics (`all` for every one).
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = parse_top)]
    top: Top,
    /// Output format.
    ///
    /// `html` is a page that draws the errors by mnemonic.
    #[arg(long, value_parser = one_of(&ERRORS_FORMATS), default_value = "text")]
    format: ErrorsFormat,
    #[command(flatten)]
    look: LookArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EvalLevel {
    Ring,
    Module,
    Function,
}

fn parse_sampling(name: &str) -> Result<Sampling, String> {
    let found = Sampling::ALL.into_iter().find(|method| method.name() == name);
    found.ok_or_else(|| format!("the methods are {}", Sampling::ALL.map(Sampling::name).join(", ")))
}

impl EvalArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> EvalOptions {
        EvalOptions {
            rule: self.rule.rule,
            profile: self.file,
            reference: self.reference,
            by: match self.by {
                EvalLevel::Ring => Level::Ring,
                EvalLevel::Module => Level::Module,
                EvalLevel::Function => Level::Function,
            },
            methods: self.methods,
            blocks: self.blocks,
            top: self.top.0,
            format: self.format,
            look: self.look.into_look(),
        }
    }
}
