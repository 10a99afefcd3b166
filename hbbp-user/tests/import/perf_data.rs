//! What must be the same however a perf.data file is written.

use hbbp_model::addr::Va;

use crate::elf::{LOOP, Program, elf, write_loop};
use crate::run::{Folder, details, export, lines};
use crate::writer::{ADDRESSES, Attr, File, comm, mmap2, record, stack, string, taken, turns, words};

fn recording() -> File {
    File::new(vec![
        comm(5, 1, "prog", 1 << 13),
        mmap2(5, 2, (0x55_0000_0000, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &turns(Va(0x55_0000_0000))),
        stack(5, 4, &turns(Va(0x55_0000_0000))),
    ])
}

fn program(folder: &Folder) -> String {
    write_loop(folder, "prog", 0x1000, &[1; 20])
}

#[test]
fn file_pipe_and_compressed_give_the_same() {
    let folder = Folder::new();
    let program = program(&folder);
    let streams = |bytes: Vec<u8>| {
        let path = folder.write("perf.data", bytes);
        export(&path, &["--binary", &program, "--format", "streams"])
    };
    let plain = streams(recording().bytes());
    // One of the five streams of a stack passes the jump: the loop is left by falling through to the call.
    assert_eq!(
        lines(&plain, "S "),
        [
            "S 1000 1007 2",
            "S 1005 1007 2",
            "S 1005 1009 2",
            "S 100e 100e 2",
            "S 1010 1010 2"
        ]
    );
    assert_eq!(lines(&plain, "# "), [""; 0]);
    assert_eq!(streams(recording().pipe()), plain);
    assert_eq!(streams(recording().compressed().bytes()), plain);
    assert_eq!(streams(recording().compressed().pipe()), plain);
}

#[test]
fn attributes_of_all_sizes_give_the_same() {
    let folder = Folder::new();
    let program = program(&folder);
    let streams = |size| {
        let mut file = recording();
        file.attrs[0].size = size;
        let path = folder.write("perf.data", file.bytes());
        export(&path, &["--binary", &program, "--format", "streams"])
    };
    for size in [80, 96, 104, 112, 120, 128, 136, 144, 512] {
        assert_eq!(streams(size), streams(112), "{size}");
    }
}

#[test]
fn several_events_are_distinguished_by_their_ids() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    let address = |id: u64, ip: u64| record(9, 2, &words(&[id, ip, 5 << 32 | 5, 3, 600]));
    let other = |kind, config, id| Attr {
        kind,
        config,
        sample_type: ADDRESSES,
        id,
        ..taken()
    };
    file.attrs.extend([other(0, 1, 78), other(4, 0x20d1, 79)]);
    file.records.extend([
        address(78, 0x55_0000_0005),
        address(78, 0x55_0000_0007),
        address(79, 0x55_0000_0005),
    ]);
    let path = folder.write("perf.data", file.bytes());
    let ebs = export(
        &path,
        &["--binary", &program, "--format", "counts", "--source", "ebs"],
    );
    // Two samples of 600 instructions in a block of two.
    assert_eq!(lines(&ebs, "10"), ["1005 600", "1007 600"]);
    let target = folder.path().join("x.hbbp");
    let args = [
        "import",
        path.to_str().unwrap(),
        "--binary",
        &program,
        "-o",
        target.to_str().unwrap(),
    ];
    assert_eq!(crate::run::hbbp(&args).code, Some(0));
    let report = crate::run::hbbp(&["report", "--details", target.to_str().unwrap()]);
    assert!(
        report.out.contains("ignored 1 samples of r20d1"),
        "{}",
        report.out
    );
    assert_eq!(details(&path, &program).out, report.out);
}

/// Addresses that change their meaning are read as of their time.
#[test]
fn reused_addresses_are_resolved_at_their_time() {
    let folder = Folder::new();
    let program = program(&folder);
    let nops = elf(&Program {
        code: &[0x90, 0x90, 0xeb, 0xfc],
        offset: 0x1000,
        address: 0x1000,
        build_id: &[],
    });
    let nops = folder.write("nops", nops);
    let base = 0x55_0000_0000;
    let file = File::new(vec![
        mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &[(base + 7, base + 5, 0), (base + 7, base + 5, 0)]),
        // Written by another CPU, it comes later than it happened.
        stack(5, 9, &[(base + 2, base, 0), (base + 2, base, 0)]),
        mmap2(5, 6, (base, 0x1000), 0x1000, "/lib/nops"),
        stack(5, 4, &[(base + 7, base + 5, 0), (base + 7, base + 5, 0)]),
    ]);
    let path = folder.write("perf.data", file.bytes());
    let binaries = [
        "--binary",
        &program,
        "--binary",
        nops.to_str().unwrap(),
        "--format",
        "streams",
    ];
    let streams = export(&path, &binaries);
    let id = "01".repeat(20);
    assert_eq!(
        streams,
        format!("M /bin/prog {id}\nS 1005 1007 2\nM /lib/nops -\nS 1000 1002 1\n")
    );
}

#[test]
fn processes_can_be_chosen() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    file.records
        .push(mmap2(6, 2, (0x66_0000_0000, 0x1000), 0x1000, "/bin/prog"));
    file.records.push(stack(6, 5, &turns(Va(0x66_0000_0000))));
    let path = folder.write("perf.data", file.bytes());
    let streams = |more: &[&str]| {
        export(
            &path,
            &[&["--binary", &program, "--format", "streams"], more].concat(),
        )
    };
    assert!(streams(&[]).contains("S 1005 1009 3"));
    assert!(streams(&["--pid", "6"]).contains("S 1005 1009 1"));
    assert!(streams(&["--pid", "5"]).contains("S 1005 1009 2"));
}

#[test]
fn files_are_found_below_a_folder_of_files() {
    let folder = Folder::new();
    let bytes = elf(&Program {
        code: LOOP,
        offset: 0x1000,
        address: 0x1000,
        build_id: &[],
    });
    folder.write("root/bin/prog", bytes);
    let path = folder.write("perf.data", recording().bytes());
    let root = folder.path().join("root");
    let streams = export(&path, &["--symfs", root.to_str().unwrap(), "--format", "streams"]);
    assert_eq!(lines(&streams, "S ").len(), 5);
}

#[test]
fn standard_input_and_pipes_are_read() {
    let folder = Folder::new();
    let program = program(&folder);
    let path = folder.write("perf.data", recording().pipe());
    let target = folder.path().join("x.hbbp");
    let import = format!(
        "{} import - --binary {program} -o {}",
        env!("CARGO_BIN_EXE_hbbp-sys"),
        target.display()
    );
    let run = |command: &str| {
        std::process::Command::new("sh")
            .args(["-c", command])
            .status()
            .unwrap()
    };
    assert!(run(&format!("cat {} | {import}", path.display())).success());
    let from_input = export(&target, &["--format", "streams"]);
    let fifo = folder.path().join("fifo");
    assert!(
        run(&format!(
            "mkfifo {0} && cat {1} > {0} &",
            fifo.display(),
            path.display()
        ))
        .success()
    );
    while !fifo.exists() {
        std::thread::yield_now();
    }
    let import = import.replace(" - ", &format!(" {} ", fifo.display()));
    assert!(run(&import).success());
    assert_eq!(export(&target, &["--format", "streams"]), from_input);
    assert_eq!(lines(&from_input, "S ").len(), 5);
}

#[test]
fn perf_of_2012_writes_neither_ids_nor_times_nor_branches() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut body = words(&[5 << 32 | 5, 0x55_0000_0000, 0x1000, 0x1000]);
    body.extend(b"/bin/prog\0\0\0\0\0\0\0");
    let mut file = File::new(vec![
        record(1, 2, &body),
        record(9, 2, &words(&[0x55_0000_0005, 5 << 32 | 5])),
    ]);
    file.attrs[0] = Attr {
        kind: 0,
        config: 1,
        sample_type: 3,
        branch_sample_type: 0,
        precise: 0,
        size: 72,
        id: 0,
    };
    let path = folder.write("perf.data", file.bytes());
    let counts = export(
        &path,
        &["--binary", &program, "--format", "counts", "--source", "ebs"],
    );
    // The period of the event replaces that of the sample: 1000 over a block of two.
    assert_eq!(lines(&counts, "10"), ["1005 500", "1007 500"]);
}

#[test]
fn losses_of_the_recorder_are_reported() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    file.records.push(record(2, 0, &words(&[77, 4321, 0, 9, 77])));
    file.records.push(record(5, 0, &words(&[9, 77, 77, 0, 9, 77])));
    file.records.push(record(9, 2, &[0; 16]));
    let path = folder.write("perf.data", file.bytes());
    let report = details(&path, &program).out;
    assert!(
        report.contains("4,321 records (mostly samples) lost: the recorder could not keep up"),
        "{report}"
    );
    assert!(report.contains("throttled events 1 times"), "{report}");
    assert!(report.contains("1 recorded sample skipped: damaged"), "{report}");
}

#[test]
fn both_kinds_of_cores_of_a_hybrid_processor_count() {
    let folder = Folder::new();
    let program = program(&folder);
    let mut file = recording();
    let entries = turns(Va(0x55_0000_0000));
    let mut on_atom = stack(5, 6, &entries);
    on_atom[8..16].copy_from_slice(&78_u64.to_le_bytes());
    file.records.push(on_atom);
    file.attrs.push(Attr {
        kind: 10,
        config: 0xc0c4,
        id: 78,
        ..taken()
    });
    // Number of PMUs, then number and name of each.
    let pmus = [(4_u32, "cpu_core"), (10, "cpu_atom")]
        .map(|(number, name)| [&number.to_le_bytes(), &string(name)[..]].concat());
    file.features
        .push((16, [&2_u32.to_le_bytes(), &pmus.concat()[..]].concat()));
    let path = folder.write("perf.data", file.bytes());
    let streams = export(&path, &["--binary", &program, "--format", "streams"]);
    assert!(streams.contains("S 1005 1009 3"), "{streams}");
    let report = details(&path, &program).out;
    assert!(report.contains("in estimated executions"), "{report}");
    assert!(
        report.contains("r20c4, every") && report.contains("cpu_atom/0xc0c4/, every"),
        "{report}"
    );
}
