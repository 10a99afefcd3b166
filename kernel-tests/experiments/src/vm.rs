//! `cargo xtask vm`: runs a command on the emulated machine and brings back what it left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use kernel_tests::host;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::{Clock, Machine, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::workload::Workload;

use crate::profile_file::hardware_profile;
use crate::results::Results;
use crate::{
    ablation, accuracy, classes, cost, guards, methods, optimizers, recordings, statistics, without_stacks,
};

/// What to boot and run. COMMAND is a program of the host (copied with its libraries), `hbbp-sys` (built static), the
/// name of a workload, or an applet of busybox.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Virtual CPUs, at most 8.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    cpus: u32,
    /// Hardware profile: a file of kernel-tests/hardware-profiles, or a path.
    #[arg(long, default_value = "ideal")]
    hardware_profile: String,
    /// Derive guest time from the instruction count, so that runs are repeatable.
    #[arg(long)]
    icount: bool,
    /// When the reference counts.
    #[arg(long, value_enum, default_value_t = Span::Command)]
    span: Span,
    /// Keep every branch and sample (slow).
    #[arg(long)]
    trace: bool,
    /// Workloads whose programs the command uses.
    #[arg(long)]
    workload: Vec<String>,
    /// Further programs of the host to copy, with their libraries.
    #[arg(long)]
    program: Vec<PathBuf>,
    /// Time limit in seconds.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Directory for the files of the guest and the reference.
    #[arg(long, default_value = "target/vm/last")]
    out: PathBuf,
    /// Command to run in the guest.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What has a command of its own.
#[derive(Debug, Subcommand)]
enum Task {
    /// Print the errors of the estimates by workload, hardware profile and kernel, as in Figure 2 of the paper.
    Accuracy(accuracy::Args),
    /// Print the errors of kept profiles without their branch stacks, and compare the means with bounds.
    WithoutStacks(without_stacks::Args),
    /// Print the errors of what is imported of perf's recordings, whose stacks any event may have triggered.
    Recordings(recordings::Args),
    /// Print the errors of the sampling methods of the field side by side, as in Table 1 of "Base of Trust".
    Methods(methods::Args),
    /// Print what each stage of the estimate is worth: errors and calibration without it.
    Ablation(ablation::Args),
    /// Print what counts of classes of instructions are worth, on the emulated machine.
    Classes(classes::Args),
    /// Print what exported profiles are worth to clang and llvm-bolt, compared with those of LLVM's converters.
    Optimizers(optimizers::Args),
    /// Print the cost of a branch stack in instructions, for hbbp-sys and for `perf record -b -a`.
    Cost(cost::Args),
    /// Print the figures that no change may make worse, compared with the recorded ones.
    Guards(guards::Args),
    /// Print how errors decrease with the number of samples (1/sqrt(n) without bias).
    Slope(statistics::SlopeArgs),
    /// Print how often the true value is within two standard errors of the report.
    Calibration(statistics::CalibrationArgs),
}

/// When the reference counts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Span {
    /// While the command runs.
    Command,
    /// While a CPU has a sampling event.
    Events,
    /// When a program in the guest says so.
    Program,
}

/// Boots, runs, prints what the command printed, and leaves its files.
pub(crate) fn vm(args: &Args) -> Result<()> {
    match &args.task {
        Some(Task::Accuracy(args)) => return accuracy::accuracy(args),
        Some(Task::WithoutStacks(args)) => return without_stacks::without_stacks(args),
        Some(Task::Recordings(args)) => return recordings::recordings(args),
        Some(Task::Methods(args)) => return methods::methods(args),
        Some(Task::Ablation(args)) => return ablation::ablation(args),
        Some(Task::Classes(args)) => return classes::classes(args),
        Some(Task::Optimizers(args)) => return optimizers::optimizers(args),
        Some(Task::Cost(args)) => return cost::cost(args),
        Some(Task::Guards(args)) => return guards::guards(args, &mut Results::begin(&args.results)?),
        Some(Task::Slope(args)) => return statistics::slopes(args),
        Some(Task::Calibration(args)) => return statistics::calibration(args),
        None => {}
    }
    let kernel = Kernel::get(&args.kernel)?;
    let mut machine = Machine::new(&kernel)
        .cpus(args.cpus)
        .hardware_profile(&hardware_profile(&args.hardware_profile)?)
        .limit(Duration::from_secs(args.limit))
        .marks(match args.span {
            Span::Command => Marks::Command,
            Span::Events => Marks::Events,
            Span::Program => Marks::Program,
        });
    if args.icount {
        machine = machine.clock(Clock::Instructions);
    }
    if args.trace {
        machine = machine.traced();
    }
    let command = bring(&mut machine, &kernel, args)?;
    let outcome = machine.run(&command)?;
    let reference = keep(&outcome, &args.out)?;
    print!("{}", outcome.text("stdout").unwrap_or_default());
    eprint!("{}", outcome.text("stderr").unwrap_or_default());
    eprintln!(
        "exit code {} after {:.1} s; files and {reference} in {}",
        outcome.exit_code,
        outcome.took.as_secs_f64(),
        args.out.display()
    );
    ensure!(
        outcome.exit_code == 0,
        "the command failed in the guest\n{}",
        outcome.log
    );
    Ok(())
}

/// Puts in what the command needs, and says how it is called in the guest.
fn bring(machine: &mut Machine, kernel: &Kernel, args: &Args) -> Result<Vec<String>> {
    machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
    for name in &args.workload {
        let workload = Workload::named(name).with_context(|| format!("unknown workload `{name}`"))?;
        workload.install(machine, kernel)?;
    }
    for program in &args.program {
        machine.files().program(program)?;
    }
    if args.command.iter().any(|word| word.contains("hbbp-sys")) {
        machine.files().hbbp_sys()?;
    }
    let [first, rest @ ..] = args.command.as_slice() else {
        return Ok(Vec::new());
    };
    if let (Some(workload), []) = (Workload::named(first), rest) {
        workload.install(machine, kernel)?;
        return Ok(workload.words().to_vec());
    }
    if Path::new(first).is_absolute() && Path::new(first).exists() {
        machine.files().program(Path::new(first))?;
        return Ok(args.command.clone());
    }
    let in_guest = first == "hbbp-sys" || first.starts_with('/');
    let shell = if in_guest {
        Vec::new()
    } else {
        vec!["/bin/busybox".to_owned()]
    };
    Ok(shell.into_iter().chain(args.command.iter().cloned()).collect())
}

/// Copies the guest's files and the reference; says what reference there is.
fn keep(outcome: &Outcome, out: &Path) -> Result<String> {
    let out = host::workspace().join(out);
    fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    for (name, bytes) in &outcome.files {
        fs::write(out.join(name), bytes)?;
    }
    fs::write(out.join("console"), &outcome.log)?;
    for entry in fs::read_dir(outcome.directory())? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = name.to_string_lossy();
        if ["reference", "branches", "samples."]
            .iter()
            .any(|kept| kind.starts_with(kept))
        {
            fs::copy(entry.path(), out.join(&name))?;
        }
    }
    let reference = outcome.reference()?;
    let [user, kernel] = reference.instructions;
    Ok(format!(
        "the reference ({user} instructions of user code, {kernel} of the kernel)"
    ))
}
