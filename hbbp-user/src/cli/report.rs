//! Options of reports.

use clap::Args;

use crate::cmd::report::ReportOptions;
use crate::mix::Dimension;
use crate::names::Demangle;
use crate::report::{Colours, Format, Look};

#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    /// Rule that chooses between EBS and LBR: `balanced`, `paper` (as published), `bias`, or a rule file.
    #[arg(long, value_name = "RULE", default_value = "balanced")]
    pub(super) rule: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Dimensions of the rows, comma-separated, e.g. mnemonic, module, function, process, extension, category.
    #[arg(
        short,
        long,
        value_name = "DIMENSION",
        value_delimiter = ',',
        default_value = "mnemonic"
    )]
    pub(super) by: Vec<Dimension>,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    look: LookArgs,
    /// Show the top N rows (`all` for every row); the remainder is summed.
    #[arg(short = 'n', long, value_name = "N", default_value = "40", value_parser = parse_top)]
    top: Top,
    /// Output format: text, json or csv.
    #[arg(long, default_value = "text")]
    format: Format,
    /// Exit with status 3 if the measurement misses a quality limit.
    #[arg(long)]
    pub(super) strict: bool,
}

/// How many rows to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Top(pub(super) Option<usize>);

impl ReportArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> ReportOptions {
        ReportOptions {
            by: self.by,
            rule: self.rule.rule,
            top: self.top.0,
            format: self.format,
            look: self.look.into_look(),
            debug_files: Vec::new(),
        }
    }
}

/// Options of text.
#[derive(Debug, Args)]
pub(super) struct LookArgs {
    /// Show functions by the names of the symbol tables, not demangled.
    #[arg(long)]
    no_demangle: bool,
}

impl LookArgs {
    /// How text looks on standard output: as wide as the terminal, with colours and bars unless NO_COLOR is set
    /// (no-color.org) or the terminal has none.
    pub(super) fn into_look(self) -> Look {
        let width = terminal_width();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let colours = if width.is_some() && !is_set("NO_COLOR") && !is_dumb {
            Colours::Shown
        } else {
            Colours::Plain
        };
        Look {
            width: width.unwrap_or(Look::default().width),
            demangle: if self.no_demangle {
                Demangle::Off
            } else {
                Demangle::On
            },
            colours,
        }
    }
}

/// Columns of the terminal on standard output; `None` if it is not a terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (0 < size.ws_col).then_some(usize::from(size.ws_col))
}

pub(super) fn parse_top(text: &str) -> Result<Top, String> {
    match text {
        "all" => Ok(Top(None)),
        _ => text
            .parse()
            .map(|n| Top(Some(n)))
            .map_err(|_| "expected a number of rows or `all`".to_owned()),
    }
}
