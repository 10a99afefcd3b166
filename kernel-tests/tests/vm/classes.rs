//! Counts of classes of instructions: they are exact, rotate along with the samples, and constrain the mix.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::accuracy::{Errors, Measured, Setup, measure_command};
use kernel_tests::classes::{Class, uncounted};
use kernel_tests::reference::Reference;
use serde_json::Value;

use crate::support;

/// System calls, and their program: four times those of the suite, so that each class has a hundred turns.
const LOAD: &str = "storms syscalls 200000";

/// Periods that are as many times as long, so that the samples are as many.
const PERIODS: (u64, u64) = (40_009, 4_001);

/// Stacks that come 20 to 60 cycles late are what counts can correct most.
fn measured(series: &str) -> Option<Measured> {
    let mut setup = Setup::new(support::hardware_profile("ivb-imprecise"));
    setup.options.push("--classes".to_owned());
    (setup.period, setup.branch_period) = PERIODS;
    let mut machine = setup.prepare(support::machine(series)?);
    support::add_workload(&mut machine, "storms.c");
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup).unwrap())
}

/// Exact executions by class and ring, kernel first; the reference has no branches that are not taken.
fn exact(reference: &Reference) -> BTreeMap<(&'static str, &'static str), f64> {
    let mut sums = BTreeMap::new();
    for block in &reference.blocks {
        let ring = if block.start >> 63 == 1 { "kernel" } else { "user" };
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            let of = Class::ALL.into_iter().filter(|class| class.has(&instruction));
            for name in of.map(Class::name).chain(["instructions"]) {
                *sums.entry((name, ring)).or_insert(0.0) += block.executions as f64;
            }
        }
    }
    sums.retain(|(name, _), _| *name != "not_taken");
    sums
}

fn number(class: &Value, field: &str) -> f64 {
    class[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} of {class}"))
}

/// Prints each class and returns those that are 1 % and more of all instructions.
fn large(classes: &[Value]) -> Vec<&Value> {
    let all = classes.iter().filter(|class| class["class"] == "instructions");
    let all: f64 = all.map(|class| number(class, "counted")).sum();
    for class in classes {
        println!(
            "{:>13} {:6} {:5.1} % of the run, counted {:.4e} +- {:.1e}, residual {:+.3} %, of samples {:+.3} %",
            class["class"].as_str().unwrap(),
            class["ring"].as_str().unwrap(),
            100.0 * number(class, "share"),
            number(class, "counted"),
            number(class, "counted_std_error"),
            100.0 * class["residual"].as_f64().unwrap_or(f64::NAN),
            100.0 * (number(class, "sampled") / number(class, "counted") - 1.0),
        );
    }
    classes
        .iter()
        .filter(|class| all / 100.0 <= number(class, "counted"))
        .collect()
}

/// Eight classes and all instructions in two rings are eighteen events, and there are six counters in addition to the
/// two that sample: the instructions of both rings count all the time, and the others rotate in groups of four.
fn assert_shares(classes: &[Value]) {
    assert_eq!(classes.len(), 2 * (Class::ALL.len() + 1), "{classes:#?}");
    for class in classes {
        let share = number(class, "share");
        let (least, most) = match class["class"].as_str() {
            Some("instructions") => (0.9, 1.0),
            _ => (0.15, 0.35),
        };
        assert!((least..=most).contains(&share), "{class}");
    }
}

fn assert_counts(classes: &[Value], exact: &BTreeMap<(&'static str, &'static str), f64>) {
    let all: f64 = [("instructions", "kernel"), ("instructions", "user")]
        .iter()
        .map(|key| exact[key])
        .sum();
    // A class that is rare may be all in a few turns, and then its error is not known either.
    let known = exact.iter().filter(|(_, exact)| all / 1000.0 <= **exact);
    for ((name, ring), exact) in known {
        let class = classes
            .iter()
            .find(|class| class["class"] == *name && class["ring"] == *ring);
        let class = class.unwrap_or_else(|| panic!("no {name} of {ring}"));
        let off = number(class, "counted") - exact;
        // Few numbers are beyond three standard errors by chance; four leave room for turns that are not independent.
        let bound = 4.0 * number(class, "counted_std_error");
        assert!(off.abs() <= bound, "{name} of {ring}: {off} of {exact}: {class}");
    }
}

/// The change by constraints in the errors of mnemonics that no class holds: the sum over them of how much farther off
/// each is, and what that sum is by chance alone, a standard deviation. By chance, equal numbers of them get better and
/// worse.
fn harm(untied: &Errors, tied: &Errors, others: &BTreeSet<String>) -> (f64, f64) {
    let off = |errors: &Errors| -> BTreeMap<String, f64> {
        let mnemonics = errors.whole.mnemonics.iter();
        mnemonics
            .filter(|it| others.contains(&it.mnemonic))
            .map(|it| {
                (
                    it.mnemonic.clone(),
                    (it.executions.hybrid - it.executions.reference).abs(),
                )
            })
            .collect()
    };
    let (before, after) = (off(untied), off(tied));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let at = |errors: &BTreeMap<String, f64>, name| errors.get(name).copied().unwrap_or(0.0);
    let changes = names.into_iter().map(|name| at(&after, name) - at(&before, name));
    let (sum, squares) = changes.fold((0.0, 0.0), |(sum, squares), change| {
        (sum + change, squares + change * change)
    });
    (sum, f64::sqrt(squares))
}

fn classes_constrain_the_mix(series: &str) {
    let Some(measured) = measured(series) else { return };
    let classes = measured.report["classes"].as_array();
    let classes = classes.unwrap_or_else(|| panic!("no classes: {:#}", measured.report));
    let large = large(classes);
    assert_shares(classes);
    let directory = measured.outcome.directory();
    let reference = directory.join("reference");
    let counted = kernel_tests::reference::read(&reference).unwrap();
    assert_counts(classes, &exact(&counted));
    assert!(4 < large.len());
    for class in large {
        let residual = class["residual"].as_f64().unwrap();
        // The estimate goes as near to a count as its error deserves: that of a ring which hardly runs is known to 2 %
        // only, as what was executed while sets changed may be its own.
        let known_to = number(class, "counted_std_error") / number(class, "counted");
        assert!(residual.abs() <= known_to.max(0.003), "{class}");
        assert_eq!(class["ties"], true, "{class}");
    }
    // Totals and the times of instructions have a part of the information of the classes.
    let [untied, tied] = [&["classes", "totals", "times"][..], &["totals", "times"]]
        .map(|stages| measured.errors_without(stages).unwrap());
    let [before, after] = [&untied, &tied].map(|errors| errors.whole.average_weighted_error.hybrid.unwrap());
    let others = uncounted(&counted.blocks);
    let (harm, by_chance) = harm(&untied, &tied, &others);
    println!(
        "{series}: {:.3} % without classes, {:.3} % with them; mnemonics of no class are {harm:.0} executions farther off, +- {by_chance:.0}",
        100.0 * before,
        100.0 * after,
    );
    assert!(after < 0.8 * before, "{after} {before}");
    assert!(harm <= 2.0 * by_chance, "{harm} {by_chance}");
}

#[test]
#[ignore = "runs in --all"]
fn classes_constrain_the_mix_on_6_1() {
    classes_constrain_the_mix("6.1");
}

#[test]
#[ignore = "runs in --all"]
fn classes_constrain_the_mix_on_6_12() {
    classes_constrain_the_mix("6.12");
}
