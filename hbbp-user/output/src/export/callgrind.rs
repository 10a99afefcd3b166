//! Callgrind's profile format, version 1 (valgrind's manual, "Callgrind Format Specification"), for KCachegrind and
//! callgrind_annotate: executions and samples of each instruction, by object, function and source line.
//!
//! ```text
//! ob=object
//! fl=file  fn=function
//! address line amount samples
//! fi=file                          lines of another file, inlined
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::counted::{Counted, Only, is_in};
use super::image::{FOR_ALL, Written};
use super::names::Names;
use hbbp_code::locate::Site;
use hbbp_estimate::Unit;
use hbbp_model::addr::ImageAddr;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{ModuleIdx, SourceLocations};

/// What callgrind writes for an unknown file.
const UNKNOWN: &str = "???";

/// The event of the amounts: `Ir` is callgrind's own name for executions, which time is not.
const fn event(unit: Unit) -> &'static str {
    match unit {
        Unit::Executions | Unit::RelativeExecutions => "Ir",
        Unit::TimeWeightedSamples => "Time",
        Unit::EventWeightedSamples => "Weight",
    }
}

/// Costs of the instructions of a function, by address.
type Costs = BTreeMap<ImageAddr, (u64, u64)>;

/// Writes the executions of a profile, or of one of its modules; without a location, lines have the number 0.
pub fn write_callgrind(
    counted: &Counted<'_>,
    only: Only<'_>,
    locations: &SourceLocations,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let mut written = Written::default();
    let functions = functions(counted, only, &mut written);
    let total = |kind: &str| written.sums.get(kind).copied().unwrap_or(0);
    let (event, noun) = (event(counted.counts.assignment.unit), counted.noun());
    writeln!(out, "# callgrind format\nversion: 1\ncreator: hbbp-sys")?;
    writeln!(
        out,
        "positions: instr line\nevent: {event} : {noun}\nevent: Smp : Samples\nevents: {event} Smp"
    )?;
    writeln!(out, "summary: {} {}", total(FOR_ALL), total(SAMPLES))?;
    let names = Names::new(counted);
    let mut object = None;
    for ((module, function), costs) in &functions {
        if object.replace(*module) != Some(*module) {
            let site = |at: &ImageAddr| Site {
                module: *module,
                addr: *at,
            };
            let name = costs
                .keys()
                .next()
                .map(site)
                .map_or("", |site| names.module(site));
            writeln!(out, "\nob={}", not_an_id(name))?;
        }
        write_function(*module, function, costs, locations, out)?;
    }
    Ok(written)
}

const SAMPLES: &str = "samples";

fn functions(
    counted: &Counted<'_>,
    only: Only<'_>,
    written: &mut Written,
) -> BTreeMap<(ModuleIdx, String), Costs> {
    let mut amounts: BTreeMap<Site, (f64, u64)> = BTreeMap::new();
    for executed in counted.executed_in(only) {
        amounts.entry(executed.site).or_default().0 += executed.executions;
    }
    let wanted = |site: &Site| is_in(only, site.module);
    for ((site, _), hits) in counted
        .samples()
        .into_iter()
        .filter(|((site, _), _)| wanted(site))
    {
        let sum = &mut amounts.entry(site).or_default().1;
        *sum = sum.saturating_add(hits);
    }
    let executions: Vec<f64> = amounts.values().map(|(executions, _)| *executions).collect();
    let names = Names::new(counted);
    let mut functions: BTreeMap<(ModuleIdx, String), Costs> = BTreeMap::new();
    for ((site, (_, samples)), count) in amounts.iter().zip(counted.whole(&executions)) {
        written.add(FOR_ALL, count);
        written.add(SAMPLES, *samples);
        let function = functions.entry((site.module, names.function(*site))).or_default();
        function.insert(site.addr, (count, *samples));
    }
    functions
}

/// A name that does not begin like the number of a compressed one, `(7)`: the readers would take the number for the name, and from
/// then on every such number for this one.
fn not_an_id(name: &str) -> String {
    let number = name.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let is_id =
        number.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()));
    if is_id {
        format!("_{name}")
    } else {
        name.to_owned()
    }
}

fn write_function(
    module: ModuleIdx,
    function: &str,
    costs: &Costs,
    locations: &SourceLocations,
    out: &mut dyn Write,
) -> io::Result<()> {
    let location = |at: ImageAddr| {
        let line = locations.get(&(module, at))?.line.as_deref()?;
        let (file, number) = line.rsplit_once(':')?;
        Some((not_an_id(&harmless(file)), number.parse::<u64>().ok()?))
    };
    let of_function = costs.keys().next().and_then(|at| location(*at));
    let own_file = of_function.map_or_else(|| UNKNOWN.to_owned(), |(file, _)| file);
    writeln!(out, "fl={own_file}\nfn={}", not_an_id(function))?;
    let mut current = own_file.clone();
    for (at, (executions, samples)) in costs {
        let (file, line) = location(*at).unwrap_or_else(|| (own_file.clone(), 0));
        if file != current {
            writeln!(out, "fi={file}")?;
            current = file;
        }
        writeln!(out, "{:#x} {line} {executions} {samples}", at.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_numbers_of_names() {
        for id in ["(1) alias", "(27)"] {
            assert_eq!(not_an_id(id), format!("_{id}"));
        }
        for name in ["main", "(anonymous namespace)::f", "()", "(1", "(1a) x"] {
            assert_eq!(not_an_id(name), name);
        }
    }
}
