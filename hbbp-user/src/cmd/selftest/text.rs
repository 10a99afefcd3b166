//! The figures and the verdict as text.

use std::io::{self, Write};

use super::executions::{Compared, Executions, LoadErrors};
use super::time::{LoadTime, SYSTEM_CALLS};
use super::verdict::{Found, Tested};
use hbbp_analysis::eval::Method;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::Run;

/// Prints what was found of a run.
pub(super) fn write(run: &Run, found: &Found, out: &mut dyn Write) -> anyhow::Result<()> {
    let host = &run.host;
    writeln!(
        out,
        "self-test, {:.1} s; {}, {}",
        run.duration as f64 / 1e9,
        harmless(&host.kernel_release),
        harmless(&host.cpu_model)
    )?;
    let events: Vec<String> = run.events.iter().map(|event| harmless(&event.name)).collect();
    writeln!(out, "sampled: {}", events.join(", "))?;
    match &found.tested {
        Tested::Nothing => {}
        Tested::Executions(executions) => write_executions(executions, out)?,
        Tested::Time(times) => write_times(run, times, out)?,
    }
    writeln!(out)?;
    for note in &found.notes {
        writeln!(out, "note: {note}")?;
    }
    for off in &found.off {
        writeln!(out, "OFF: {off}")?;
    }
    let verdict = if found.is_off() { "OFF" } else { "PASS" };
    writeln!(out, "{verdict}: {}", said(found))?;
    Ok(())
}

/// The last line.
fn said(found: &Found) -> String {
    match (&found.tested, found.off.len()) {
        (Tested::Time(_), 0) => "time is where the loads spent it; executions were not tested".to_owned(),
        (_, 0) => "executions are what the loads executed, within chance and the limits".to_owned(),
        (_, 1) => "one thing is off".to_owned(),
        (_, n) => format!("{n} things are off"),
    }
}

fn write_executions(executions: &Executions, out: &mut dyn Write) -> io::Result<()> {
    let [a, b, c] = Method::ALL.map(Method::name);
    writeln!(
        out,
        "\nuser code: errors in % of the instructions of each load; ± is what is expected by chance\n\n\
         {:<33}{:>15}   {:^29}   {:^22}\n\
         {:<17}{:>16}{:>8}{:>7}   {a:>7}{b:>7}{c:>7}{:>8}   {a:>7}{b:>7}{c:>7}",
        "", "amount", "wrong mnemonic", "wrong block", "load", "instructions", "off", "±", "±"
    )?;
    for load in &executions.loads {
        write_load(load, executions.has_scale, out)?;
    }
    writeln!(out, "{}", amount("all", &executions.all))?;
    if !executions.has_scale {
        writeln!(
            out,
            "amounts have no scale on this machine: the mix of each load alone is judged"
        )?;
    }
    writeln!(out, "\nkernel code: errors in % of the calls of each function\n")?;
    for call in &executions.calls {
        let verdict = call.verdict().name();
        writeln!(out, "{}   {verdict}", amount(call.function, &call.calls))?;
    }
    for function in &executions.unseen {
        writeln!(out, "{function}: not tested, as no sample has this name")?;
    }
    Ok(())
}

/// The columns of an amount.
fn amount(name: &str, compared: &Compared) -> String {
    format!(
        "{name:<19}{:>14.0}{:>+8.2}{:>7.2}",
        compared.exact,
        100.0 * compared.relative(),
        100.0 * compared.relative_error()
    )
}

fn write_load(load: &LoadErrors, has_scale: bool, out: &mut dyn Write) -> io::Result<()> {
    let of_methods = |errors: [Option<f64>; 3]| {
        errors
            .map(|error| {
                error.map_or_else(
                    || format!("{:>7}", "-"),
                    |error| format!("{:>7.2}", 100.0 * error),
                )
            })
            .concat()
    };
    writeln!(
        out,
        "{}   {}{:>8.2}   {}   {}",
        amount(load.name, &load.instructions),
        of_methods(load.mnemonics),
        100.0 * load.mnemonics_by_chance,
        of_methods(load.blocks),
        load.verdict(has_scale).name()
    )
}

fn write_times(run: &Run, times: &[LoadTime], out: &mut dyn Write) -> io::Result<()> {
    if !run.without_executions.is_empty() {
        writeln!(
            out,
            "not tested: executions, branch stacks and counters: {}",
            harmless(&run.without_executions)
        )?;
    }
    writeln!(
        out,
        "not judged: time by instruction, which is not known exactly\n\n\
         time of each load in % of all: as the kernel counted it, and as it was sampled; ± is one standard error\n\n\
         {:<19}{:>10}{:>10}{:>7}",
        "load", "CPU time", "sampled", "±"
    )?;
    for time in times {
        writeln!(
            out,
            "{:<19}{:>10.2}{:>10.2}{:>7.2}   {}",
            time.name,
            100.0 * time.cpu,
            100.0 * time.sampled,
            100.0 * time.std_error,
            time.verdict().name()
        )?;
    }
    writeln!(
        out,
        "{SYSTEM_CALLS}: both rings, of bare calls and of reads of /dev/zero"
    )
}
