//! Options of annotated code.

use clap::Args;

use super::format::{TEXT_OR_JSON, one_of};
use super::recording::InputArgs;
use super::report::{LookArgs, RuleArgs};
use crate::cmd::annotate::{AnnotateOptions, What};
use crate::cmd::pager::Paging;
use hbbp_analysis::annotate::Query;
use hbbp_output::report::{Shown, TextOrJson};
use hbbp_resolve::kernel::recorded::KernelPlace;

/// What can be asked for, in the long help.
pub(super) const HELP: &str = "\
WHAT is one of
  FUNCTION        a name as in the symbol table or as in the source: ksys_read, core::fmt::write
  0xADDRESS       an address of the kernel or of a process
  MODULE+0xADDR   an address in a file: libc.so.6+0x9d4a0
  FILE:LINE       a line of the source, with debug information: net/core/dev.c:5127

Each instruction has its share of the function (%). The first one of each basic block has the other figures:
its executions with their standard error, the estimates of both methods where there are two, and the method
that counts (by); `!` marks a biased LBR estimate. Arrows lead from the end of a loop to its start.
`◄ image:` is what the static kernel image has instead of code that the kernel patched.";

#[derive(Debug, Args)]
pub(super) struct AnnotateArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Function to annotate, e.g. ksys_read.
    ///
    /// FUNCTION, 0xADDRESS, MODULE+0xADDRESS or FILE:LINE.
    #[arg(
        value_name = "WHAT",
        required_unless_present = "hottest",
        conflicts_with = "hottest"
    )]
    what: Option<String>,
    /// Annotate the N functions that executed most instructions.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u16).range(1..))]
    hottest: Option<u16>,
    /// Show all instructions, also those without executions or samples.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    rule: RuleArgs,
    /// Output format.
    #[arg(long, value_parser = one_of(&TEXT_OR_JSON), default_value = "text")]
    format: TextOrJson,
    #[command(flatten)]
    look: LookArgs,
    /// Do not show text in a pager.
    ///
    /// The pager is PAGER, or less.
    #[arg(long)]
    no_pager: bool,
}

impl AnnotateArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> AnnotateOptions {
        let input = self.input.into_options();
        let mut files = input.places.binaries.clone();
        if let KernelPlace::Vmlinux(image) = &input.kernel {
            files.push(image.clone());
        }
        let what = match (self.what, self.hottest) {
            (Some(what), _) => {
                let Ok(query) = what.parse::<Query>();
                What::Asked(query)
            }
            (None, hottest) => What::Hottest(hottest.unwrap_or(1).into()),
        };
        let paging = match self.format {
            TextOrJson::Text if !self.no_pager => Paging::Auto,
            TextOrJson::Text | TextOrJson::Json => Paging::Never,
        };
        AnnotateOptions {
            input,
            what,
            rule: self.rule.rule,
            format: self.format,
            look: self.look.into_look(),
            shown: if self.all { Shown::All } else { Shown::Executed },
            paging,
            files,
        }
    }
}
