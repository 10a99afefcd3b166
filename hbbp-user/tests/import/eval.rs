//! `hbbp-sys eval` with references of other tools: the same counts in each format are the same reference.

use std::path::Path;

use hbbp_user::addr::Va;
use serde_json::Value;

use crate::elf::write_loop;
use crate::run::{Folder, hbbp};
use crate::writer::{File, mmap2, stack, turns};

const BASE: u64 = 0x55_0000_0000;

/// What five stacks of period 1000 with the five streams of [`turns`] stand for, by address and by mnemonic.
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

fn eval(profile: &str, reference: &Path) -> Value {
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

/// Lines of the counts, `times` as many as there were.
fn lines(times: u64, line: impl Fn(u64, &str, u64) -> String) -> String {
    let each = ADDRESSES.iter().map(|(at, name, n)| line(*at, name, n * times));
    each.collect()
}

fn callgrind(object: &str, times: u64) -> String {
    let head = "# callgrind format\nversion: 1\npositions: instr line\nevents: Ir\n";
    let costs = lines(times, |at, _, n| format!("{at:#x} 0 {n}\n"));
    // What the call cost in all stands behind its line.
    format!("{head}\nob=(1) {object}\nfn=(1) f\n{costs}calls=1000 0x1010\n0x1009 0 1000\n")
}

fn mix(times: u64) -> String {
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
fn what_only_one_side_has_is_an_error_and_code_of_other_modules_is_left_out() {
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
