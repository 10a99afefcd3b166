//! `hbbp-sys completions` and `hbbp-sys man`: texts that are generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cmd::Job;
use crate::cmd::manual::Page;

/// How each shell finds the script.
pub(super) const COMPLETIONS_HELP: &str = "\
Install the script where the shell looks for it:
  bash  hbbp-sys completions bash > ~/.local/share/bash-completion/completions/hbbp-sys
  zsh   hbbp-sys completions zsh > DIR/_hbbp-sys, with DIR in $fpath
  fish  hbbp-sys completions fish > ~/.config/fish/completions/hbbp-sys.fish
The packages install those of bash, zsh and fish.";

/// How a page is shown.
pub(super) const MAN_HELP: &str = "\
Show a page: hbbp-sys man report | man -l -
Install all: hbbp-sys man --output ~/.local/share/man/man1";

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Print the page of this subcommand. Default: the page of hbbp-sys.
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "output")]
    subcommand: Option<String>,
    /// Write the pages of hbbp-sys and of each subcommand to this directory instead.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl ManArgs {
    /// The pages of a command line, and where they go.
    pub(super) fn into_job(self, root: Command) -> anyhow::Result<Job> {
        let root = built(root);
        if let Some(folder) = self.output {
            let commands = std::iter::once(&root).chain(root.get_subcommands());
            let pages = commands.map(page).collect::<anyhow::Result<_>>()?;
            return Ok(Job::SaveManual(pages, folder));
        }
        let command = match &self.subcommand {
            None => &root,
            Some(name) => root.find_subcommand(name).with_context(|| {
                format!("unknown subcommand `{name}`; `hbbp-sys --help` lists the subcommands")
            })?,
        };
        Ok(Job::Print(page(command)?.text))
    }
}

/// The completion script of a command line for a shell.
pub(super) fn completions(mut root: Command, shell: Shell) -> Job {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "hbbp-sys", &mut script);
    Job::Print(script)
}

/// The command line with the names of its subcommands. `help` has no page: it prints what the others hold.
fn built(root: Command) -> Command {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    root
}

fn page(command: &Command) -> anyhow::Result<Page> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok(Page {
        file: man.get_filename(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn job(subcommand: Option<&str>, output: Option<&str>) -> anyhow::Result<Job> {
        let args = ManArgs {
            subcommand: subcommand.map(str::to_owned),
            output: output.map(PathBuf::from),
        };
        args.into_job(Cli::command())
    }

    #[test]
    fn each_subcommand_has_a_page_with_its_options() {
        let Ok(Job::SaveManual(pages, _)) = job(None, Some("man1")) else {
            panic!()
        };
        assert_eq!(pages.len(), 1 + built(Cli::command()).get_subcommands().count());
        assert_eq!(pages[0].file, "hbbp-sys.1");
        for (page, command) in pages[1..].iter().zip(built(Cli::command()).get_subcommands()) {
            assert_eq!(page.file, format!("hbbp-sys-{}.1", command.get_name()));
            let text = String::from_utf8(page.text.clone()).unwrap().replace('\\', "");
            for long in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(text.contains(&format!("--{long}")), "{}: --{long}", page.file);
            }
        }
    }

    #[test]
    fn one_page_is_printed_by_the_name_of_its_subcommand() {
        for (name, title) in [
            (None, ".TH hbbp-sys 1"),
            (Some("report"), ".TH hbbp-sys-report 1"),
        ] {
            let Ok(Job::Print(text)) = job(name, None) else {
                panic!()
            };
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(title), "{text}");
        }
        let error = job(Some("colour"), None).unwrap_err();
        assert!(
            error.to_string().contains("unknown subcommand `colour`"),
            "{error}"
        );
    }

    #[test]
    fn scripts_complete_each_subcommand() {
        for shell in Shell::value_variants() {
            let Job::Print(script) = completions(Cli::command(), *shell) else {
                panic!()
            };
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(
                    script.contains(command.get_name()),
                    "{shell}: {}",
                    command.get_name()
                );
            }
        }
    }
}
