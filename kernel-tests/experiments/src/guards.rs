//! `cargo xtask vm guards`: the figures that no change may make worse, compared with the recorded ones; a part of
//! `cargo xtask bench` and of the tests on the emulated machine (`kernel-tests/tests/vm/cost.rs`).

use anyhow::{Result, ensure};
use clap::Parser;
use kernel_tests::guards::{self, Guard, SERIES};
use kernel_tests::kernel::Kernel;

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to measure.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Only these: stacks, programs, processes.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    pub(crate) results: results::Options,
}

/// The hardware profile whose stacks have 32 entries, always.
const HARDWARE_PROFILE: &str = "ideal";

/// Measures and prints, line by line as the runs end.
pub(crate) fn guards(args: &Args, results: &mut Results) -> Result<()> {
    let kernel = Kernel::get(SERIES)?;
    let profile = hardware_profile(HARDWARE_PROFILE)?;
    let is_asked = |name: &str| args.only.is_empty() || args.only.iter().any(|it| it == name);
    results.text(format_args!(
        "kernel {SERIES}, hardware profile {HARDWARE_PROFILE}: on a model of a processor, in instructions\n\
         {:<34} {:>9} {:>9} {:>6} {:>6}",
        "guard", "measured", "recorded", "ratio", "most"
    ));
    let mut exceeded = Vec::new();
    for (_, measure) in guards::ALL.into_iter().filter(|(name, _)| is_asked(name)) {
        for guard in measure(&kernel, &profile)? {
            print(results, &guard)?;
            if guard.is_exceeded() {
                exceeded.push(guard.name);
            }
        }
    }
    ensure!(
        exceeded.is_empty(),
        "more instructions than results/guards.txt allows: {}",
        exceeded.join(", ")
    );
    Ok(())
}

fn print(results: &mut Results, guard: &Guard) -> Result<()> {
    results.text(format_args!(
        "{:<34} {:>9.0} {:>9.0} {:>6.3} {:>6.2}",
        guard.name,
        guard.measured,
        guard.recorded,
        guard.ratio(),
        guard.most
    ));
    results.figures(&serde_json::to_value(guard)?)
}
