//! `hbbp-sys eval --blocks`: the blocks that rules are learnt from, compared with what `eval` says of the same profile.

use hbbp_model::addr::Va;
use serde_json::Value;

use crate::elf::write_loop;
use crate::run::{Folder, Ran, hbbp};
use crate::writer::{ADDRESSES, Attr, File, mmap2, record, stack, taken, turns, words};

const BASE: u64 = 0x55_0000_0000;

/// A profile of the loop with both methods: five stacks, of period 1000, with the five streams of [`turns`]; and samples of
/// retired instructions, of the same period.
fn profile(folder: &Folder) -> (String, String) {
    let program = write_loop(folder, "prog", 0x1000, &[]);
    let mut file = File::new(vec![mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog")]);
    file.records
        .extend((0..5).map(|n| stack(5, 3 + n, &turns(Va(BASE)))));
    let sample = |time, at: u64| {
        let body = words(&[78, BASE + at, 5 << 32 | 5, time, 1000]);
        record(9, 2, &body)
    };
    let samples = [5, 5, 7, 7, 7, 7, 0, 0x10].iter().zip(20..);
    file.records.extend(samples.map(|(at, time)| sample(time, *at)));
    file.attrs.push(Attr {
        kind: 0,
        config: 1,
        sample_type: ADDRESSES,
        branch_sample_type: 0,
        precise: 2,
        id: 78,
        ..taken()
    });
    let recording = folder.write("perf.data", file.bytes());
    let target = folder.path().join("x.hbbp");
    let [recording, target] = [recording.as_path(), &target].map(|path| path.to_str().unwrap());
    let ran = hbbp(&["import", recording, "--binary", &program, "-o", target]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    (target.to_owned(), program)
}

fn eval(profile: &str, reference: &str, words: &[&str]) -> Ran {
    let eval = ["eval", profile, "--reference", reference, "--rule", "paper"];
    hbbp(&[&eval[..], words].concat())
}

/// The lines of a table by title.
fn lines(csv: &str) -> Vec<std::collections::HashMap<&str, &str>> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let titles: Vec<&str> = lines.next().unwrap().collect();
    lines
        .map(|line| titles.iter().copied().zip(line).collect())
        .collect()
}

#[test]
fn blocks_and_remainder_sum_up_to_the_totals() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    // Callgrind counts all user code: one instruction was executed in a module that the profile does not have.
    let head = "# callgrind format\nversion: 1\npositions: instr line\nevents: Ir\n\n";
    let costs = "0x1000 0 900\n0x1005 0 2900\n0x1007 0 2900\n0x1009 0 1100\n0x1010 0 1000\n";
    let others = "ob=(2) /lib/other.so\nfn=(2) g\n0x40 0 700\n";
    let text = format!("{head}ob=(1) {program}\nfn=(1) f\n{costs}{others}");
    let reference = folder.write("reference", text);
    let reference = reference.to_str().unwrap();
    let path = folder.path().join("blocks.csv");
    let blocks = ["--blocks", path.to_str().unwrap(), "--format", "json"];
    let ran = eval(&profile, reference, &blocks);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    let csv = std::fs::read_to_string(&path).unwrap();
    let rows = lines(&csv);
    for column in ["reference", "ebs", "lbr", "hybrid"] {
        let sum: f64 = rows.iter().map(|row| row[column].parse::<f64>().unwrap()).sum();
        let total = said["whole"]["instructions"][column].as_f64().unwrap();
        assert!(
            0.0 < total && (sum - total).abs() < 1e-6,
            "{column}: {sum}, not {total}\n{csv}"
        );
    }
    let at = |address: &str| rows.iter().find(|row| row["address"] == address).unwrap();
    let figures = [
        "instructions",
        "biased",
        "ebs_hits",
        "lbr_hits",
        "reference",
        "ebs",
        "lbr",
        "hybrid",
    ];
    assert_eq!(
        figures.map(|column| at("0x1005")[column]),
        ["2", "0", "6", "15", "5800", "6000", "6000", "6000"],
        "{csv}"
    );
    let remainder: Vec<_> = rows.iter().filter(|row| row["address"].is_empty()).collect();
    assert_eq!(remainder.len(), 1, "{csv}");
    assert_eq!(
        (remainder[0]["ring"], remainder[0]["reference"]),
        ("user", "700"),
        "{csv}"
    );
}

#[test]
fn blocks_go_to_standard_output_alone_and_need_addresses() {
    let folder = Folder::new();
    let (profile, program) = profile(&folder);
    let reference = folder.write("reference", format!("M {program}\n1005 3000\n"));
    let ran = eval(&profile, reference.to_str().unwrap(), &["--blocks", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.starts_with("ring,module,function,address,reference,"),
        "{}",
        ran.out
    );
    assert!(lines(&ran.out).iter().all(|row| row.len() == 12), "{}", ran.out);
    let mix = "# EMIT_GLOBAL_DYNAMIC_STATS   EMIT# 1\n#\n# $global-dynamic-counts\n#\nMOV   1000\n*total 1000\n\
               # END_GLOBAL_DYNAMIC_STATS\n";
    let reference = folder.write("mix", mix);
    let ran = eval(&profile, reference.to_str().unwrap(), &["--blocks", "-"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("it has no blocks"), "{}", ran.err);
}
