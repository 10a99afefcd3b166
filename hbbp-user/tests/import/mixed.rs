//! Events of one recording with different fields, and samples of virtual machines.

use std::path::Path;

use hbbp_model::addr::Va;
use hbbp_model::snapshot::{Loss, Snapshot};
use hbbp_user::cmd::import::{ImportOptions, import};

use crate::elf::{LOOP, Program, elf, write_loop};
use crate::run::{Folder, hbbp, refused};
use crate::writer::{ADDRESSES, Attr, File, comm, mmap2, record, stack, taken, turns, words};

const BASE: u64 = 0x5500_0000_0000;
const CPU: u64 = 1 << 7;
const RAW: u64 = 1 << 10;
const SECOND: u64 = 1_000_000_000;

pub(crate) fn imported(recording: &Path, binaries: &[&str]) -> Snapshot {
    let mut options = ImportOptions {
        file: recording.to_owned(),
        ..ImportOptions::default()
    };
    options.places.binaries = binaries.iter().map(Into::into).collect();
    import(&options).unwrap()
}

/// A clock of id 77, and a tracepoint of id 78 whose records have a CPU and raw data too.
fn clock_and_tracepoint() -> Vec<Attr> {
    let clock = Attr {
        kind: 1,
        config: 0,
        sample_type: ADDRESSES,
        branch_sample_type: 0,
        ..taken()
    };
    let tracepoint = Attr {
        kind: 2,
        config: 300,
        sample_type: ADDRESSES | CPU | RAW,
        id: 78,
        ..clock
    };
    vec![clock, tracepoint]
}

fn of_clock(pid: u64, time: u64, ip: u64) -> Vec<u8> {
    record(9, 2, &words(&[77, ip, pid << 32 | pid, time, 1000]))
}

fn of_tracepoint(pid: u64, time: u64) -> Vec<u8> {
    let mut body = words(&[78, 0xffff_ffff_8100_0000, pid << 32 | pid, time, 3, 1]);
    body.extend(12_u32.to_le_bytes());
    body.extend([0; 12]);
    record(9, 1, &body)
}

/// A record that ends with tid, time and id, as one of the tracepoint ends: with tid, time, CPU and id.
fn ending_as_tracepoint(mut record: Vec<u8>) -> Vec<u8> {
    let id = record.len() - 8;
    record.truncate(id);
    record.extend(words(&[3, 78]));
    let len = u16::try_from(record.len()).unwrap();
    record[6..8].copy_from_slice(&len.to_le_bytes());
    record
}

/// One address is code of two programs, one after the other; the records are in the file as two CPUs wrote them.
#[test]
fn events_of_different_fields_have_their_own_times() {
    let folder = Folder::new();
    let first = write_loop(&folder, "first", 0x1000, &[]);
    let second = folder.write(
        "second",
        elf(&Program {
            code: LOOP,
            offset: 0x1000,
            address: 0x1000,
            build_id: &[],
        }),
    );
    let mut file = File::new(vec![
        of_clock(5, SECOND, BASE + 5),
        of_tracepoint(5, SECOND + 9),
        of_clock(5, 3 * SECOND, BASE + 5),
        of_clock(5, 4 * SECOND, BASE + 5),
        ending_as_tracepoint(comm(5, 1, "prog", 1 << 13)),
        ending_as_tracepoint(mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/first")),
        mmap2(5, 2 * SECOND, (BASE, 0x1000), 0x1000, "/bin/second"),
    ]);
    file.attrs = clock_and_tracepoint();
    let path = folder.write("perf.data", file.bytes());
    let snapshot = imported(&path, &[&first, second.to_str().unwrap()]);
    assert_eq!(snapshot.run.duration, 3 * SECOND);
    let report = hbbp(&[
        "report",
        path.to_str().unwrap(),
        "--binary",
        &first,
        "--binary",
        second.to_str().unwrap(),
        "--rows",
        "process,module",
        "--format",
        "json",
    ]);
    assert_eq!(report.code, Some(0), "{report:?}");
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    let amounts: Vec<_> = rows
        .map(|row| (row["key"].to_string(), row["total"]["amount"].as_f64().unwrap()))
        .collect();
    assert_eq!(
        amounts,
        [
            (r#"["prog (5)","/bin/second"]"#.to_owned(), 2.0),
            (r#"["prog (5)","/bin/first"]"#.to_owned(), 1.0)
        ]
    );
}

/// The record with another CPU mode.
fn in_mode(mut record: Vec<u8>, mode: u8) -> Vec<u8> {
    record[4] = record[4] & !7 | mode;
    record
}

const GUEST_KERNEL: u8 = 4;
const GUEST_USER: u8 = 5;

#[test]
fn samples_of_guests_are_counted_separately() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let sample = |time| stack(5, time, &turns(Va(BASE)));
    let host = vec![
        comm(5, 1, "qemu", 1 << 13),
        mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog"),
        sample(3),
    ];
    // What a guest maps lies at the addresses of the host's program, and is none of its files.
    let guest = vec![
        in_mode(
            mmap2(5, 2, (BASE, 0x1000), 0, "[guest.kernel.kallsyms]"),
            GUEST_KERNEL,
        ),
        in_mode(sample(4), GUEST_USER),
        in_mode(sample(5), GUEST_KERNEL),
        in_mode(sample(6), GUEST_USER),
    ];
    let alone = folder.write("alone", File::new(host.clone()).bytes());
    let both = folder.write("both", File::new([host, guest.clone()].concat()).bytes());
    let (alone, both) = (imported(&alone, &[&program]), imported(&both, &[&program]));
    assert_eq!(both.losses.get(Loss::GuestSample), 3);
    assert_eq!(alone.losses.get(Loss::GuestSample), 0);
    assert_eq!(both.intervals[0].streams, alone.intervals[0].streams);
    let path = folder.path().join("both");
    let report = hbbp(&["report", path.to_str().unwrap(), "--binary", &program]);
    let row = report.out.lines().find(|line| line.starts_with("guests"));
    assert!(
        row.is_some_and(|row| row.ends_with("3 of 4 samples (75.00 %), in no figure")),
        "{}",
        report.out
    );
    let guests = folder.write("guests", File::new(guest).bytes());
    let error = refused(&guests, &["--binary", &program]);
    assert!(error.contains("all 3 samples are of virtual machines"), "{error}");
}
