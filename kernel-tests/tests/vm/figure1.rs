//! Figure 1 of OptiWISE (Guo et al., CGO 2024) on the cost model of the emulated machine: samples alone and executions alone point
//! at cheap instructions that run often, and cycles for each execution at the division and at the load that misses.

use iced_x86::{Instruction, Mnemonic};
use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;

use crate::support;

/// Rounds of the outer loop, of 16 of the inner one each.
const ROUNDS: f64 = 800_000.0;
const INNER: f64 = 16.0;

/// Cycles between two samples of time, instructions between two samples, and taken branches between two stacks.
const TIME: &str = "--time=5003";
const PERIODS: (u64, u64) = (5003, 499);

/// An instruction of the two loops.
struct Line {
    instruction: Instruction,
    text: String,
    count: f64,
    time: f64,
    /// Cycles of an execution with their standard error, and by the cost model.
    cpi: (f64, f64),
    exact: f64,
}

impl Line {
    /// How often it was executed: those before the first conditional jump are in the inner loop.
    fn executions(lines: &[Self], at: usize) -> f64 {
        let inner_end = lines
            .iter()
            .position(|it| it.instruction.mnemonic() == Mnemonic::Jne);
        if inner_end.is_some_and(|end| at <= end) {
            INNER * ROUNDS
        } else {
            ROUNDS
        }
    }

    fn is_slow(&self) -> bool {
        matches!(self.instruction.mnemonic(), Mnemonic::Div | Mnemonic::Movntdqa)
    }
}

fn measured(hardware_profile: &str) -> Option<(Measured, String)> {
    let machine = support::machine("6.12")?;
    // Then the cycles of an instruction depend on its class alone.
    let text = support::hardware_profile(hardware_profile) + "\ntaken_cycles = 0\n";
    let mut setup = Setup::new(text.clone());
    setup.options = vec![TIME.to_owned()];
    (setup.period, setup.branch_period) = PERIODS;
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "figure1.c");
    let command = ["/bin/figure1", &ROUNDS.to_string()];
    Some((measure_command(machine, &command, &setup).unwrap(), text))
}

/// The instructions of the loops, from the target of their jumps to the last of these.
fn lines(measured: &Measured, hardware_profile: &str) -> Vec<Line> {
    let mut durations = Durations::new(&HardwareProfile::parse(hardware_profile).unwrap());
    let all = support::annotated(measured, "figure1");
    let jump = |(it, _): &&(Instruction, _)| it.mnemonic() == Mnemonic::Jne;
    let last = all.iter().rfind(jump).unwrap().0;
    let of_loops = last.near_branch_target()..=last.ip();
    let lines = all.into_iter().filter(|(it, _)| of_loops.contains(&it.ip()));
    lines
        .map(|(instruction, line)| {
            let number = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
            Line {
                text: line["text"].as_str().unwrap().to_owned(),
                count: number("count"),
                time: number("time"),
                cpi: (number("cpi"), number("cpi_std_error")),
                exact: f64::from(durations.of(&instruction)),
                instruction,
            }
        })
        .collect()
}

/// Prints the figure, checks that executions are off by no more than `allowed`, and that the division and the load carry the time.
fn assert_shape(lines: &[Line], allowed: f64) {
    let total: f64 = lines.iter().map(|line| line.time).sum();
    println!("  executions  time %      CPI        ±    exact");
    for line in lines {
        let ((cpi, error), share) = (line.cpi, 100.0 * line.time / total);
        println!(
            "{:>12.0} {share:>7.2} {cpi:>8.3} {error:>8.3} {:>8} {}",
            line.count, line.exact, line.text
        );
    }
    for (at, line) in lines.iter().enumerate() {
        let exact = Line::executions(lines, at);
        assert!(
            (line.count / exact - 1.0).abs() <= allowed,
            "{} of {exact}",
            line.count
        );
    }
    let (slow, fast): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| line.is_slow());
    let [divide, load] = slow[..] else {
        panic!("{} slow instructions", slow.len())
    };
    let fastest = fast.iter().map(|line| line.cpi.0).fold(0.0, f64::max);
    assert!(2.0 * fastest < divide.cpi.0 && divide.cpi.0 < load.cpi.0);
    assert!(0.7 < (divide.time + load.time) / total);
    // Executions alone say the same of both, and less than of the pair that is cheap.
    assert!((divide.count / load.count - 1.0).abs() <= 0.01 && 10.0 * load.count < lines[0].count);
}

#[test]
#[ignore = "runs in --all"]
fn division_and_missing_load_carry_the_time_of_figure_1() {
    let Some((measured, text)) = measured("ideal") else {
        return;
    };
    let lines = lines(&measured, &text);
    assert_shape(&lines, 0.03);
    for Line {
        cpi: (cpi, error),
        exact,
        text,
        ..
    } in &lines
    {
        assert!(
            (cpi - exact).abs() <= f64::max(0.05 * exact, 3.0 * error),
            "{text}: {cpi} ±{error} of {exact}"
        );
    }
}

/// Stacks of sixteen entries show the edges into a loop with a bias there, of 3 % of the outer loop.
#[test]
#[ignore = "runs in --all"]
fn figure_1_keeps_its_shape_with_the_faults_of_ivb() {
    let Some((measured, text)) = measured("ivb") else {
        return;
    };
    assert_shape(&lines(&measured, &text), 0.05);
}
