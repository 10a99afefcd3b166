//! The text of perf script in its forms: samples without branch stacks, heads whose fields hold blanks, offsets in files.

use hbbp_model::snapshot::Loss;
use serde_json::Value;

use crate::elf::{LOOP, Program, elf, write_loop};
use crate::mixed::imported;
use crate::run::{Folder, details, export, hbbp, lines, refused};

const ENTRIES: &str = "0x401007/0x401005/P/-/-/0 0x401007/0x401005/M/-/-/0";

fn program(folder: &Folder) -> String {
    write_loop(folder, "prog", 0x40_1000, &[])
}

/// Amounts of a report in JSON by the first of its keys.
fn amounts(file: &str, program: &str, args: &[&str]) -> Vec<(String, f64)> {
    let common = ["report", file, "--binary", program, "--format", "json"];
    let ran = hbbp(&[&common[..], args].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let key = row["key"][0].as_str().unwrap().to_owned();
        (key, row["total"]["amount"].as_f64().unwrap())
    })
    .collect()
}

#[test]
fn addresses_serve_where_a_text_has_no_branch_stacks() {
    let folder = Folder::new();
    let program = program(&folder);
    let line = "            prog     5 [000]    17.500000:     300000 cpu-clock:            401005 main+0x5 (/bin/prog)\n";
    let chain = "prog     5 [000]    17.600000:     300000 cpu-clock: \n\t          401005 main+0x5 (/bin/prog)\n\t          \
                 40100e start (/bin/prog)\n\n";
    for (name, text) in [("lines", line.repeat(3)), ("chains", chain.repeat(3))] {
        let text = folder.write(name, text);
        let report = details(&text, &program);
        assert!(
            report.out.contains("3 samples of cpu-clock received"),
            "{}",
            report.out
        );
        assert!(report.out.contains("time-weighted samples"), "{}", report.out);
        let mix = amounts(text.to_str().unwrap(), &program, &["--rows", "module"]);
        assert_eq!(mix, [(program.clone(), 3.0)], "{name}");
    }
}

#[test]
fn samples_with_empty_stacks_among_others_are_lost() {
    let folder = Folder::new();
    let program = program(&folder);
    let head = "prog     5 [000]    17.500000:          1 br_inst_retired.near_taken:            401005";
    let text = folder.write(
        "text",
        format!("{head}  {ENTRIES}\n{head} \n{head}  {ENTRIES}\n{head} \n"),
    );
    let streams = export(&text, &["--binary", &program, "--format", "streams"]);
    assert_eq!(lines(&streams, "S "), ["S 401005 401007 2"]);
    assert_eq!(imported(&text, &[&program]).losses.get(Loss::NoStack), 2);
}

/// `perf script -F brstackoff` prints offsets in files; here code lies at another address than its offset.
#[test]
fn offsets_in_files_are_those_of_their_code() {
    let folder = Folder::new();
    let bytes = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x3000,
        build_id: &[],
    });
    let program = folder.write("prog", bytes);
    let program = program.to_str().unwrap();
    let streams = |name: &str, text: &str| {
        let text = folder.write(name, text);
        let streams = export(&text, &["--binary", program, "--format", "streams"]);
        lines(&streams, "S ").join("\n")
    };
    let plain = streams("plain", "0x3007/0x3005/P/-/-/0/ 0x3007/0x3005/P/-/-/0/\n");
    let offsets = streams("offsets", "0x1007/0x1005/P/-/-/0/ 0x1007/0x1005/P/-/-/0/\n");
    let with_files = streams(
        "files",
        "0x1007(/bin/prog)/0x1005(/bin/prog)/P/-/-/0/ 0x1007(/bin/prog)/0x1005(/bin/prog)/P/-/-/0/ \
         0x1007(/lib/other.so)/0x1005(/lib/other.so)/P/-/-/0/ 0x1007(/lib/other.so)/0x1005(/lib/other.so)/P/-/-/0/\n",
    );
    assert_eq!(plain, "S 3005 3007 1");
    assert_eq!(
        (offsets.as_str(), with_files.as_str()),
        (plain.as_str(), plain.as_str())
    );
}

/// No mix at all is an error, not an empty one.
#[test]
fn text_whose_addresses_are_nowhere_is_refused() {
    let folder = Folder::new();
    let program = program(&folder);
    let text = folder.write("text", "0x7f07/0x7f05/P/-/-/0/ 0x7f07/0x7f05/P/-/-/0/\n");
    let report = hbbp(&["report", text.to_str().unwrap(), "--binary", &program]);
    assert_eq!(report.code, Some(1), "{report:?}");
    assert!(report.err.contains("is one of known code"), "{report:?}");
    refused(&text, &["--binary", &program]);
}
