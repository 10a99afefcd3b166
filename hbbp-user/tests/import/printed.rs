//! What is printed of a recording: heads that say what is known, and names that forge nothing.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::elf::write_loop;
use crate::run::{Folder, details, export, hbbp, lines};
use crate::writer::{File, mmap2, stack, string, turns};
use hbbp_model::addr::Va;

fn program(folder: &Folder, name: &str) -> String {
    write_loop(folder, name, 0x40_1000, &[])
}

/// Words between single blanks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn preaggregated_heads_omit_unknown_numbers() {
    let folder = Folder::new();
    let program = program(&folder, "prog");
    let text = folder.write("text", "E cycles\nF 401005 401007 9\nF 401005 401007 4\n");
    let report = details(&text, &program);
    let head = flat(&report.out);
    assert!(
        head.contains("cycles, period unknown, with branch stacks"),
        "{head}"
    );
    assert!(head.contains("number of samples of cycles unknown"), "{head}");
    assert!(
        head.contains("the text does not state the sampling period"),
        "{head}"
    );
    for untrue in ["every 1 ", "0 kernel, 0 user", "CPU time"] {
        assert!(!head.contains(untrue), "{untrue}: {head}");
    }
}

#[test]
fn one_sentence_says_what_the_trigger_of_stacks_did() {
    let sentence = |text: &str| {
        let folder = Folder::new();
        let program = program(&folder, "prog");
        let text = folder.write("text", text);
        let report = flat(&details(&text, &program).out);
        let found = ["were weighted by what their events count", "overweight slow code"];
        found.map(|words| report.matches(words).count())
    };
    let sample = |event: &str| {
        format!("prog 5 1.5: 1009 {event}: 401005 0x401007/0x401005/P/-/-/0 0x401007/0x401005/P/-/-/0\n")
            .repeat(3)
    };
    assert_eq!(sentence(&sample("cycles")), [1, 0]);
    assert_eq!(sentence(&sample("br_inst_retired.near_taken")), [0, 0]);
    // Sums cannot be weighted.
    assert_eq!(sentence("E cycles\nF 401005 401007 9\n"), [0, 1]);
    assert_eq!(sentence("F 401005 401007 9\n"), [0, 0]);
}

#[test]
fn preaggregated_samples_are_counted_and_not_their_lines() {
    let folder = Folder::new();
    let program = program(&folder, "prog");
    let text = folder.write("text", "E instructions\nS 401005 3\nS 401007 4\n");
    let report = details(&text, &program);
    assert!(
        flat(&report.out).contains("7 samples of instructions received"),
        "{}",
        report.out
    );
}

#[test]
fn periods_of_a_text_are_taken_from_its_samples() {
    let folder = Folder::new();
    let program = program(&folder, "prog");
    let line = "prog 5 1.5: 1009 br_inst_retired.near_taken: 401005 0x401007/0x401005/P/-/-/0 0x401007/0x401005/P/-/-/0\n";
    let text = folder.write("text", line.repeat(3));
    let report = details(&text, &program);
    assert!(
        flat(&report.out).contains("every 1,009 taken branches"),
        "{}",
        report.out
    );
}

#[test]
fn report_and_export_read_recordings_from_standard_input() {
    let folder = Folder::new();
    let program = program(&folder, "prog");
    for args in [&["report", "-"][..], &["export", "-", "--format", "streams"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
        command.args(args).args(["--binary", &program]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"F 401005 401007 9\n")
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn neither_profile_nor_recording_is_refused() {
    let folder = Folder::new();
    let path = folder.write("text", "a letter\n");
    for args in [&["report"][..], &["export", "--format", "streams"]] {
        let ran = hbbp(&[args, &[path.to_str().unwrap()]].concat());
        assert_eq!(ran.code, Some(1));
        assert!(
            ran.err
                .contains("unknown format; expected a profile of hbbp-sys, perf.data"),
            "{ran:?}"
        );
    }
}

#[test]
fn names_forge_no_line_and_move_no_cursor() {
    const NAME: &str = "evil\n# discarded stream.of_mine 7\u{1b}[2J\u{9b}\u{202e}";
    let folder = Folder::new();
    let program = program(&folder, NAME);
    let recording = File::new(vec![
        mmap2(5, 1, (0x40_1000, 0x1000), 0x1000, &program),
        stack(5, 3, &turns(Va(0x40_1000))),
    ]);
    let path = folder.write("perf.data", recording.bytes());
    let streams = export(&path, &["--binary", &program, "--format", "streams"]);
    assert_eq!(
        lines(&streams, "# discarded stream.of_mine"),
        Vec::<&str>::new(),
        "{streams}"
    );
    let named = [
        "--binary",
        program.as_str(),
        "--by",
        "module,mnemonic",
        "--format",
    ];
    for format in ["text", "csv", "json"] {
        let args = [&["report", path.to_str().unwrap()][..], &named, &[format]].concat();
        let report = hbbp(&args).out;
        // Text shortens a long path in its middle.
        assert!(format == "text" || report.contains("evil"), "{report}");
        let controls = report.chars().filter(|c| c.is_control() && *c != '\n');
        assert_eq!(controls.count(), 0, "{report:?}");
        assert!(!report.contains('\u{202e}'), "{report:?}");
    }
}

/// Recordings of 32 bit kernels say that their kernel code is not known.
#[test]
fn kernel_code_of_32_bit_kernels_is_reported_unknown() {
    let folder = Folder::new();
    let program = program(&folder, "prog");
    let mut file = File::new(vec![
        mmap2(5, 2, (0x40_1000, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &turns(Va(0x40_1000))),
    ]);
    let note = "recorded on a 32-bit kernel";
    let mut report = |arch: &str| {
        file.features = vec![(6, string(arch))];
        let path = folder.write("perf.data", file.bytes());
        flat(&details(&path, &program).out)
    };
    assert!(report("i686").contains(note));
    assert!(!report("x86_64").contains(note));
}

#[test]
fn entries_say_how_many_stacks_are_empty() {
    let folder = Folder::new();
    let records = vec![
        stack(5, 3, &turns(Va(0x40_1000))),
        stack(5, 4, &[]),
        stack(5, 5, &[]),
    ];
    let path = folder.write("perf.data", File::new(records).bytes());
    let printed = export(&path, &["--format", "entries"]);
    assert!(
        printed.ends_with("\n# discarded sample.no_stack 2\n"),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 2);
}
