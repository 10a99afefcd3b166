//! Stacks with the faults of real processors: what cannot have run is gone, all else is exact.

use hbbp_model::addr::Va;

use crate::elf::{LOOP, Program, elf, write_loop};
use crate::run::{Folder, details, export, lines};
use crate::writer::{File, mmap2, stack, turns};

/// Stacks of three processes. On request, two of every five stacks repeat their newest entry.
fn recording(repeat_newest: impl Fn(usize) -> bool) -> File {
    let mut records = Vec::new();
    let bases = [0x5500_0000_0000_u64, 0x5600_1234_5000, 0x7f00_0000_0000];
    for (base, pid) in bases.into_iter().zip(5..) {
        records.push(mmap2(pid, 2, (base, 0x1000), 0, "/bin/prog"));
        for nth in 0..5 {
            let mut entries = turns(Va(base + 0x5c0));
            entries.rotate_left(nth);
            if repeat_newest(nth) {
                entries.insert(0, entries[0]);
            }
            records.push(stack(pid, 3, &entries));
        }
    }
    File::new(records)
}

#[test]
fn skylake_duplicates_in_three_processes_at_different_addresses() {
    let folder = Folder::new();
    // As lld lays it out: the address of the code differs from its offset in the file.
    let program = elf(&Program {
        code: LOOP,
        offset: 0x5c0,
        address: 0x15c0,
        build_id: &[],
    });
    let program = folder.write("prog", program);
    let sound = folder.write("sound.data", recording(|_| false).bytes());
    // A return and a call are repeated: the streams between them pass the jump at 15ce, or end before they start.
    let faulty = folder.write("faulty.data", recording(|nth| nth == 3 || nth == 4).bytes());
    let args = ["--binary", program.to_str().unwrap(), "--format", "streams"];
    let expected = export(&sound, &args);
    assert_eq!(
        lines(&expected, "S "),
        [
            "S 15c0 15c7 12",
            "S 15c5 15c7 24",
            "S 15c5 15c9 15",
            "S 15ce 15ce 12",
            "S 15d0 15d0 12"
        ]
    );
    let streams = export(&faulty, &args);
    assert_eq!(lines(&streams, "S "), lines(&expected, "S "));
    assert_eq!(
        lines(&streams, "# "),
        [
            "# discarded stream.backward 3",
            "# discarded stream.passes_branch 3"
        ]
    );
    let raw = export(&faulty, &[&args[..], &["--raw"]].concat());
    assert_eq!((lines(&raw, "S ").len(), lines(&raw, "# ").len()), (7, 0));
}

#[test]
fn repeats_of_a_loop_of_one_block_are_counted() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let base = 0x55_0000_0000;
    let mapped = mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog");
    let turns = stack(5, 3, &[(base + 7, base + 5, 0); 32]);
    let path = folder.write("perf.data", File::new(vec![mapped, turns]).bytes());
    let streams = export(&path, &["--binary", &program, "--format", "streams"]);
    assert_eq!(
        (lines(&streams, "S "), lines(&streams, "# ")),
        (vec!["S 1005 1007 31"], vec![])
    );
}

#[test]
fn haswell_loops_of_vector_instructions() {
    let folder = Folder::new();
    // vaddps ymm0,ymm0,ymm1; vmovups [rdi],ymm0; vfmadd231pd ymm2,ymm3,ymm4; dec ecx; jne
    let code = [
        0xc5, 0xfc, 0x58, 0xc1, 0xc5, 0xfc, 0x11, 0x07, 0xc4, 0xe2, 0xe5, 0xb8, 0xd4, 0xff, 0xc9, 0x75, 0xef,
    ];
    let program = folder.write(
        "prog",
        elf(&Program {
            code: &code,
            offset: 0x1000,
            address: 0x1000,
            build_id: &[],
        }),
    );
    let base = 0x55_0000_0000;
    let mapped = mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog");
    let turns = stack(5, 3, &[(base + 15, base, 0); 16]);
    let path = folder.write("perf.data", File::new(vec![mapped, turns]).bytes());
    let counts = export(
        &path,
        &["--binary", program.to_str().unwrap(), "--format", "counts"],
    );
    assert_eq!(
        lines(&counts, "10"),
        ["1000 15", "1004 15", "1008 15", "100d 15", "100f 15"]
    );
}

#[test]
fn wrong_paths_and_zero_entries_leave_sound_streams() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let base = 0x55_0000_0000;
    let mapped = mmap2(5, 2, (base, 0x1000), 0x1000, "/bin/prog");
    let mut entries = turns(Va(base));
    entries.insert(3, (base + 14, base, 1 << 24));
    entries.extend([(0, 0, 0), (base + 7, base + 5, 0)]);
    let path = folder.write(
        "perf.data",
        File::new(vec![mapped, stack(5, 3, &entries)]).bytes(),
    );
    let streams = export(&path, &["--binary", &program, "--format", "streams"]);
    assert_eq!((lines(&streams, "S ").len(), lines(&streams, "# ").len()), (5, 0));
    let report = details(&path, &program);
    assert!(report.out.contains("wrong path"), "{}", report.out);
}
