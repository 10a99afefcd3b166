//! Texts that other tools made from recordings: perf script and BOLT.

use std::path::Path;

use crate::elf::{Program, elf, write_loop};
use crate::run::{Folder, assert_no_worse_than_linear, export, hbbp, lines, refused, usage};

const ENTRIES: &str = "0x401007/0x401005/P/-/-/0 0x401007/0x401005/M/-/-/0";

fn program(folder: &Folder) -> String {
    write_loop(folder, "prog", 0x40_1000, &[0xab; 20])
}

#[test]
fn addresses_of_the_program_itself() {
    let folder = Folder::new();
    let program = program(&folder);
    let text = folder.write(
        "brstack.txt",
        format!("          401005  {ENTRIES}\n          401005  {ENTRIES}\n"),
    );
    let streams = export(&text, &["--binary", &program, "--format", "streams"]);
    assert_eq!(lines(&streams, "S "), ["S 401005 401007 2"]);
    let branches = export(&text, &["--binary", &program, "--format", "branches"]);
    assert_eq!(lines(&branches, "B "), ["B 401007 401005 4 2"]);
}

#[test]
fn mappings_between_the_samples_locate_programs() {
    let folder = Folder::new();
    let program = program(&folder);
    let text = folder.write(
        "brstack.txt",
        "prog 5 1.1: PERF_RECORD_MMAP2 5/5: [0x5500000000(0x1000) @ 0x1000 fe:00 7 0]: r-xp /bin/prog\n\
         prog 6 1.2: PERF_RECORD_MMAP2 6/6: [0x6600000000(0x1000) @ 0x1000 fe:00 7 0]: r-xp /bin/prog\n\
         5  0x5500000007/0x5500000005/P/-/-/0/ 0x5500000007/0x5500000005/P/-/-/0/\n\
         6  0x6600000007/0x6600000005/P/-/-/0/ 0x6600000007/0x6600000005/P/-/-/0/\n\
         6  0x5500000007/0x5500000005/P/-/-/0/ 0x5500000007/0x5500000005/P/-/-/0/\n",
    );
    let streams = export(&text, &["--binary", &program, "--format", "streams"]);
    assert_eq!(lines(&streams, "S "), ["S 401005 401007 2"]);
    assert_eq!(lines(&streams, "# "), ["# discarded stream.no_mapping 1"]);
}

#[test]
fn build_ids_name_files() {
    let folder = Folder::new();
    let program = program(&folder);
    let id = "ab".repeat(20);
    let text = format!("{id}:0x401007/{id}:0x401005/P/-/-/0 {id}:0x401007/{id}:0x401005/P/-/-/0\n");
    let streams = export(
        &folder.write("a.txt", text),
        &["--binary", &program, "--format", "streams"],
    );
    assert_eq!(lines(&streams, "S "), ["S 401005 401007 1"]);
    let text = format!("F {id}:401005 {id}:401007 9\nB {id}:401007 {id}:401005 7 2\n");
    let text = folder.write("b.txt", text);
    let streams = export(&text, &["--binary", &program, "--format", "streams"]);
    assert_eq!(lines(&streams, "S "), ["S 401005 401007 9"]);
    let branches = export(&text, &["--binary", &program, "--format", "branches"]);
    assert_eq!(lines(&branches, "B "), ["B 401007 401005 7 2"]);
}

#[test]
fn entries_of_perf_data_are_read_back_from_their_text() {
    use crate::writer::{File, stack, turns};
    let folder = Folder::new();
    let program = program(&folder);
    let entries = turns(hbbp_model::addr::Va(0x40_1000));
    let samples = vec![stack(5, 3, &entries), stack(5, 4, &[])];
    let recording = folder.write("perf.data", File::new(samples).bytes());
    let text = export(&recording, &["--format", "entries"]);
    let (first, trailer) = text.split_once('\n').unwrap();
    assert_eq!(first.split_whitespace().count(), 1 + entries.len());
    assert_eq!(
        trailer, "# discarded sample.no_stack 1\n",
        "empty stacks are counted"
    );
    let streams = export(
        &folder.write("entries.txt", text),
        &["--binary", &program, "--format", "streams"],
    );
    assert_eq!(lines(&streams, "S ").len(), 5);
}

#[test]
fn wrong_lines_are_named() {
    let folder = Folder::new();
    assert!(refused(&folder.write("a.txt", "F 1 2 3\nF 1 2\n"), &[]).contains("line 2"));
    assert!(
        refused(
            &folder.write("b.txt", "5 0x1/0x2/P/-/-/0\nx main+0x1/f/P/-/-/0\n"),
            &[]
        )
        .contains("line 2")
    );
}

/// Counts of a large static program cost no more than their number.
#[test]
fn counts_of_a_large_program_cost_by_their_number() {
    let folder = Folder::new();
    // 13 MB of loops of 26 bytes: nops and a jump back.
    let mut block = [0x0f_u8, 0x1f, 0x84, 0, 0, 0, 0, 0].repeat(3);
    block.extend([0xeb, 0xe6]);
    let code = block.repeat(500_000);
    let program = elf(&Program {
        code: &code,
        offset: 0x1000,
        address: 0x40_1000,
        build_id: &[],
    });
    let program = folder.write("openssl", program);
    let write = |name: &str, n: u64, apart: u64| {
        let starts = (0..n).map(|n| 0x40_1000 + n * 26 * apart);
        let text: String = starts
            .map(|start| format!("F {start:x} {:x} 22080\n", start + 24))
            .collect();
        folder.write(name, text)
    };
    // Both are spread over the whole program.
    let (quarter, whole) = (write("quarter", 4_121, 120), write("whole", 16_484, 30));
    let options = ["--binary", program.to_str().unwrap(), "--format", "counts"];
    let counts = export(&whole, &options);
    let numbers = counts
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(
        (counts.lines().count(), numbers.sum::<u64>()),
        (1 + 16_484 * 4, 16_484 * 4 * 22_080)
    );
    let costs = |text: &Path| {
        let export = [&["export", text.to_str().unwrap()][..], &options].concat();
        [(); 3].map(|()| usage(&export))
    };
    assert_no_worse_than_linear(&costs(&quarter), &costs(&whole));
}

/// A loop of five instructions, three of which are of APX: `mov r25, rax; add r16, rcx; add rdx, rcx, rax; imul rax, rax;
/// jmp`.
#[test]
fn streams_through_apx_code_count() {
    let folder = Folder::new();
    let code = [
        &[0xd5, 0x19, 0x89, 0xc1][..],
        &[0xd5, 0x18, 0x01, 0xc8],
        &[0x62, 0xf4, 0xec, 0x18, 0x01, 0xc1],
        &[0x48, 0x0f, 0xaf, 0xc0],
        &[0xeb, 0xec],
    ]
    .concat();
    let bytes = elf(&Program {
        code: &code,
        offset: 0x1000,
        address: 0x40_1000,
        build_id: &[],
    });
    let program = folder.write("apx", bytes).to_str().unwrap().to_owned();
    let text = folder.write("apx.pre", "F 401000 401012 1000\nB 401012 401000 1000 0\n");
    let options = [
        "--binary",
        &program,
        "--format",
        "csv",
        "--rows",
        "extension,mnemonic",
    ];
    let ran = hbbp(&[&["report", text.to_str().unwrap()], &options[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let csv = ran.out;
    let rows: Vec<&str> = csv.lines().filter(|line| !line.starts_with('#')).collect();
    for row in [
        "APX_F,ADD,0,,0,2000,",
        "APX_F,MOV,0,,0,1000,",
        "BASE,IMUL,0,,0,1000,",
        "BASE,JMP,0,,0,1000,",
    ] {
        assert!(rows.iter().any(|line| line.starts_with(row)), "{row}: {csv}");
    }
    // Their text has the new registers and the new destination.
    let assembly = export(&text, &["--binary", &program, "--format", "mca"]);
    let written: Vec<&str> = lines(&assembly, "\t");
    let expected = [
        "mov %rax,%r25",
        "add %rcx,%r16",
        "add %rax,%rcx,%rdx",
        "imul %rax,%rax",
        "jmp 0x0000000000401000",
    ];
    assert_eq!(
        written.iter().map(|line| line.trim()).collect::<Vec<_>>(),
        expected
    );
    for (condition, code) in [
        ("extension=APX_F<61%", 0),
        ("extension=APX_F<59%", 3),
        ("extension=AVX10.2<1%", 0),
        ("mnemonic=CCMPNE<1%", 0),
    ] {
        let options = ["--binary", &program, "--require", condition];
        let ran = hbbp(&[&["report", text.to_str().unwrap()], &options[..]].concat());
        assert_eq!(ran.code, Some(code), "{condition}: {ran:?}");
    }
}
