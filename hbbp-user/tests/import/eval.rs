//! `hbbp-sys eval` with references of other tools: the same counts in each format are the same reference.

use std::path::Path;

use hbbp_model::addr::Va;
use hbbp_model::profile;
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{Event, Period, Process, file};
use hbbp_reference::Reference;
use serde_json::Value;

use crate::elf::write_loop;
use crate::run::{Folder, hbbp};
use crate::writer::{Attr, File, mmap2, stack, stack_at, taken, turns};

pub(crate) const BASE: u64 = 0x55_0000_0000;

/// What five stacks of period 1000 with the five streams of [`turns`] represent, by address and by mnemonic.
const ADDRESSES: [(u64, &str, u64); 6] = [
    (0x1000, "MOV", 1000),
    (0x1005, "DEC", 3000),
    (0x1007, "JNE", 3000),
    (0x1009, "CALL", 1000),
    (0x100e, "JMP", 1000),
    (0x1010, "RET", 1000),
];

/// A profile of the loop.
fn profile(folder: &Folder) -> (String, String) {
    let program = write_loop(folder, "prog", 0x1000, &[]);
    let mut records = vec![mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog")];
    records.extend((0..5).map(|n| stack(5, 3 + n, &turns(Va(BASE)))));
    let recording = folder.write("perf.data", File::new(records).bytes());
    let target = folder.path().join("x.hbbp");
    let [recording, target] = [recording.as_path(), &target].map(|path| path.to_str().unwrap());
    let ran = hbbp(&["import", recording, "--binary", &program, "-o", target]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    (target.to_owned(), program)
}

pub(crate) fn eval(profile: &str, reference: &Path) -> Value {
    let reference = reference.to_str().unwrap();
    let ran = hbbp(&[
        "eval",
        profile,
        "--reference",
        reference,
        "--rule",
        "paper",
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// The errors of LBR of everything: absolute, of shares, and the distance.
fn errors(found: &Value) -> (f64, f64, Option<f64>) {
    let lbr = |name: &str| found["whole"][name]["lbr"].as_f64().unwrap();
    let distance = found["distance"]["lbr"].as_f64();
    (lbr("average_weighted_error"), lbr("share_error"), distance)
}

/// Lines of the counts, repeated `times` times.
pub(crate) fn lines(times: u64, line: impl Fn(u64, &str, u64) -> String) -> String {
    let each = ADDRESSES.iter().map(|(at, name, n)| line(*at, name, n * times));
    each.collect()
}

fn callgrind(object: &str, times: u64) -> String {
    let head = "# callgrind format\nversion: 1\npositions: instr line\nevents: Ir\n";
    let costs = lines(times, |at, _, n| format!("{at:#x} 0 {n}\n"));
    // What the call cost in all follows its line.
    format!("{head}\nob=(1) {object}\nfn=(1) f\n{costs}calls=1000 0x1010\n0x1009 0 1000\n")
}

pub(crate) fn mix(times: u64) -> String {
    let name = |name: &str| match name {
        "JNE" => "JNZ".to_owned(),
        "CALL" | "RET" => format!("{name}_NEAR"),
        name => name.to_owned(),
    };
    let rows = lines(times, |_, mnemonic, n| format!("{:<25}{n:>17}\n", name(mnemonic)));
    format!(
        "# EMIT_GLOBAL_DYNAMIC_STATS   EMIT# 1\n#\n# $global-dynamic-counts\n#\n{rows}*total {}\n# END_GLOBAL_DYNAMIC_STATS\n",
        10_000 * times
    )
}

fn opcodes(times: u64) -> String {
    let name = |name: &str| {
        if name == "JNE" {
            "jnz".to_owned()
        } else {
            name.to_lowercase()
        }
    };
    let rows = lines(times, |_, mnemonic, n| {
        format!("{n:>15} : {:>9}\n", name(mnemonic))
    });
    format!(
        "Opcode mix tool results:\n{:>15} : total executed instructions\n{rows}\n",
        10_000 * times
    )
}

#[test]
fn the_same_counts_in_any_format_are_the_same_reference() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    let plain = |times| lines(times, |at, _, n| format!("{at:x} {n}\n"));
    for times in [1, 2] {
        let references = [
            plain(times),
            format!("M {program} ab12\n{}", plain(times)),
            callgrind(&program, times),
            mix(times),
            opcodes(times),
        ];
        for (reference, n) in references.iter().zip(0..) {
            let found = eval(&profile, &folder.write("reference", reference));
            let (absolute, shares, distance) = errors(&found);
            // Twice the reference, half of it is missing; the shares are as before.
            let expected = 1.0 - 1.0 / times as f64;
            assert!((absolute - expected).abs() < 1e-9, "{n}: {found:#}");
            assert!(shares.abs() < 1e-9, "{n}: {found:#}");
            assert_eq!(distance.is_some(), n < 3, "{n}: {found:#}");
            assert!(distance.unwrap_or(0.0).abs() < 1e-9, "{n}: {found:#}");
        }
    }
}

#[test]
fn standard_errors_are_compared_with_the_reference() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    let calibration =
        |reference: &str| eval(&profile, &folder.write("reference", reference))["calibration"].clone();
    // There are fewer than a hundred samples, so that no function is judged.
    for (times, within) in [(1, 6), (100, 0)] {
        let counts = lines(times, |at, _, n| format!("{at:x} {n}\n"));
        let expected = serde_json::json!({
            "mnemonics": 6, "within": within, "functions": 0, "functions_within": 0
        });
        assert_eq!(calibration(&format!("M {program}\n{counts}")), expected);
    }
    // It counts iterations, so that nothing can be said of the errors.
    assert!(calibration(&mix(1)).is_null());
}

/// What only one side has is an error and code of other modules is left out.
#[test]
fn one_sided_code_is_an_error_and_other_modules_are_left_out() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    // The reference has one instruction more, in a module that the profile does not have, and one less.
    let costs = callgrind(&program, 1).replace("0x1000 0 1000\n", "");
    let costs = format!("{costs}ob=(2) /lib/other.so\n0x40 0 1000\n");
    let found = eval(&profile, &folder.write("reference", costs));
    let (absolute, shares, distance) = errors(&found);
    assert!(
        (absolute - 0.2).abs() < 1e-9 && (shares - 0.2).abs() < 1e-9,
        "{found:#}"
    );
    assert!((distance.unwrap() - 0.1).abs() < 1e-9, "{found:#}");
    // Lines count the modules that they name, and no other one.
    let found = eval(&profile, &folder.write("reference", "M /lib/other.so\n40 1000\n"));
    assert_eq!(found["left_out"], 10_000.0, "{found:#}");
}

#[test]
fn text_says_what_was_compared_and_unknown_files_are_refused() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    let reference = folder.write("reference", callgrind(&program, 1));
    let reference = reference.to_str().unwrap();
    let ran = hbbp(&["eval", &profile, "--reference", reference, "--rule", "paper"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for said in [
        "each iteration of a string instruction",
        "LBR 0.00 %",
        "wrong address",
        "Shares",
    ] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    folder.write("reference", "a b c\n");
    let ran = hbbp(&["eval", &profile, "--reference", reference]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("unknown format; expected"), "{}", ran.err);
}

/// A profile of retired instructions at a precise level, period 1000: the eventing instructions are two of the call and four of
/// the MOV, and the addresses those of the next one.
fn next_addresses(folder: &Folder, precise: u64) -> String {
    let program = write_loop(folder, "prog", 0x1000, &[]);
    let mut file = File::new(vec![mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog")]);
    file.attrs[0] = Attr {
        kind: 0,
        config: 1,
        precise,
        ..taken()
    };
    let jump = |from, to| (BASE + from, BASE + to, 2);
    let call = [jump(9, 0x10), jump(7, 5), jump(7, 5)];
    let mov = [jump(0xe, 0), jump(0x10, 0xe), jump(9, 0x10)];
    let at = |time, next, stack: &[_]| stack_at(5, time, BASE + next, stack);
    file.records.extend((0..2).map(|n| at(3 + n, 0x10, &call)));
    file.records.extend((0..4).map(|n| at(5 + n, 5, &mov)));
    let recording = folder.write("perf.data", file.bytes());
    let target = folder.path().join("late.hbbp");
    let [recording, target] = [recording.as_path(), &target].map(|path| path.to_str().unwrap());
    let ran = hbbp(&["import", recording, "--binary", &program, "-o", target]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    target.to_owned()
}

const NAMES: [&str; 9] = [
    "classic",
    "precise",
    "precise-prime",
    "randomised",
    "distributed",
    "ip+1",
    "ip+1-distributed",
    "lbr",
    "hybrid",
];

/// The methods by name: the error, or why there is none.
fn methods(profile: &str, reference: &Path) -> Vec<(String, Result<f64, String>)> {
    let reference = ["--reference", reference.to_str().unwrap()];
    let names = NAMES.join(",");
    let words = ["--methods", &names, "--format", "json"];
    let ran = hbbp(&[&["eval", profile], &reference[..], &words].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let of = |method: &Value| {
        let said = |name: &str| method[name].as_str().map(str::to_owned);
        let error = method["block_error"].as_f64();
        assert_eq!(said("recording").is_some(), error.is_some(), "{method:#}");
        let name = said("method").unwrap();
        (name, error.ok_or_else(|| said("reason").unwrap()))
    };
    found["methods"].as_array().unwrap().iter().map(of).collect()
}

/// Exact counts of each process are not those of processes that are counted together.
#[test]
fn joined_processes_are_refused_with_an_advice() {
    let folder = Folder::new();
    let (target, _) = self::profile(&folder);
    let reference = folder.write("reference", Reference::default().to_bytes());
    let words = ["eval", &target, "--reference", reference.to_str().unwrap()];
    assert_eq!(hbbp(&words).code, Some(0));
    let mut snapshot = profile::read(Path::new(&target)).unwrap();
    snapshot.processes[1].tgid = Process::JOINED;
    std::fs::write(&target, file::encode(&snapshot).unwrap()).unwrap();
    let ran = hbbp(&words);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("record with --each-process"), "{}", ran.err);
}

/// Sampling methods are shown side by side, and those without samples state why.
#[test]
fn sampling_methods_are_compared_or_have_a_reason() {
    let folder = Folder::new();
    let reference = folder.write("reference", "1000 4000\n1009 2000\n");
    let served = |found: &[(String, Result<f64, String>)]| -> Vec<String> {
        let served = found.iter().filter(|(_, error)| error.is_ok());
        served.map(|(name, _)| name.clone()).collect()
    };

    let of = |found: &[(String, Result<f64, String>)], name: &str| {
        found.iter().find(|(of, _)| of == name).unwrap().1.clone()
    };

    let late = methods(&next_addresses(&folder, 1), &reference);
    assert_eq!(served(&late), ["ip+1"], "{late:?}");
    // Few stacks that the event itself triggered are not used with its addresses.
    let why = of(&late, "lbr").unwrap_err();
    assert!(why.starts_with("its addresses serve alone"), "{why}");
    // Each address went back to the call and the MOV.
    let corrected = of(&late, "ip+1").unwrap();
    assert!(corrected.abs() < 1e-9, "{late:?}");
    assert_eq!(
        of(&late, "precise"),
        Err("its samples of instructions are those of ip+1".to_owned())
    );

    // At level 2 the same addresses are taken as they are: those of the RET and of the loop.
    let taken_as_they_are = methods(&next_addresses(&folder, 2), &reference);
    assert_eq!(served(&taken_as_they_are), ["precise"]);
    let error = of(&taken_as_they_are, "precise").unwrap();
    assert!(1.0 < error, "{taken_as_they_are:?}");

    let classic = methods(&next_addresses(&folder, 0), &reference);
    assert_eq!(served(&classic), ["classic"]);

    let (stacks, _) = profile(&folder);
    let stacks = methods(&stacks, &reference);
    assert_eq!(served(&stacks), ["lbr"], "{stacks:?}");
    let why = of(&stacks, "hybrid").unwrap_err();
    assert!(why.contains("no samples of retired instructions"), "{why}");
}

/// The event and what is known of its periods name the method: one profile is one of them, whatever else it could be.
#[test]
fn distributed_events_and_drawn_periods_are_methods() {
    let folder = Folder::new();
    let reference = folder.write("reference", "1000 4000\n1009 2000\n");
    let served = |precise: u64, change: &dyn Fn(&mut Event)| -> Vec<String> {
        let target = next_addresses(&folder, precise);
        let mut snapshot = profile::read(Path::new(&target)).unwrap();
        change(&mut snapshot.run.events[0]);
        std::fs::write(&target, file::encode(&snapshot).unwrap()).unwrap();
        let found = methods(&target, &reference);
        let found = found.into_iter().filter(|(_, error)| error.is_ok());
        found.map(|(name, _)| name).collect()
    };
    let named = |event: &mut Event| event.name = "inst_retired.prec_dist:p".to_owned();
    let prime = |event: &mut Event| event.period = Period::Fixed(1009);
    // Six samples were due at periods that were drawn.
    let drawn = |event: &mut Event| {
        prime(event);
        event.counters = vec![Counter {
            count: 6 * 1009,
            due: Some(6),
            enabled: 1,
            running: 1,
            ..Counter::default()
        }];
    };
    assert_eq!(served(2, &prime), ["precise-prime"]);
    assert_eq!(served(2, &drawn), ["randomised"]);
    assert_eq!(served(2, &named), ["distributed"]);
    assert_eq!(served(3, &prime), ["distributed"]);
    assert_eq!(served(1, &prime), ["ip+1"]);
    assert_eq!(served(1, &named), ["ip+1-distributed"]);
    // Imprecise samples of that event have the shadow of any other.
    assert_eq!(served(0, &named), ["classic"]);
}

/// Sampling methods name their recording in text and unknown ones are refused.
#[test]
fn sampling_methods_name_their_recording() {
    let folder = Folder::new();
    let profile = next_addresses(&folder, 1);
    let reference = folder.write("reference", "1000 4000\n1009 2000\n");
    let eval = ["eval", &profile, "--reference", reference.to_str().unwrap()];
    let ran = hbbp(&[&eval[..], &["--methods", "classic,ip+1"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for said in [
        "by sampling method",
        "every 1,000 instructions, precise level 1, with branch stacks",
        "not served: its samples of instructions are those of ip+1",
    ] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    let ran = hbbp(&[&eval[..], &["--methods", "exact"]].concat());
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("the methods are classic, precise"),
        "{}",
        ran.err
    );
}
