//! Recordings in other containers: compressed by gzip, and the directories of `perf record --threads`.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use hbbp_model::addr::Va;

use crate::elf::write_loop;
use crate::run::{Folder, export, hbbp, lines, refused};
use crate::writer::{File, comm, mmap2, stack, turns};

const BASE: u64 = 0x5500_0000_0000;

fn recording() -> File {
    File::new(vec![
        comm(5, 1, "prog", 1 << 13),
        mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &turns(Va(BASE))),
        stack(5, 4, &turns(Va(BASE))),
    ])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn recordings_packed_by_gzip_are_read() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let streams = |name: &str, bytes: Vec<u8>| {
        let path = folder.write(name, bytes);
        export(&path, &["--binary", &program, "--format", "streams"])
    };
    let plain = streams("perf.data", recording().bytes());
    assert_eq!(lines(&plain, "S ").len(), 5);
    assert_eq!(streams("perf.data.gz", gzip(&recording().bytes())), plain);
    // Two members are one file (RFC 1952, 2.2).
    let bytes = recording().bytes();
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    assert_eq!(streams("members.gz", [gzip(head), gzip(tail)].concat()), plain);
    let text = "0x1007/0x1005/P/-/-/0/ 0x1007/0x1005/P/-/-/0/\n";
    assert_eq!(
        streams("text.gz", gzip(text.as_bytes())),
        streams("text", text.as_bytes().to_vec())
    );
}

#[test]
fn damaged_gzip_files_are_refused() {
    let folder = Folder::new();
    let packed = gzip(&recording().bytes());
    let cut = folder.write("cut.gz", &packed[..packed.len() / 2]);
    assert!(refused(&cut, &[]).contains("gzip"));
    let other = folder.write("other.gz", gzip(b"a letter\n"));
    assert!(refused(&other, &[]).contains("unknown format"));
}

/// The feature that says how the directory of a recording is laid out, and its version (`enum perf_dir_version`).
const DIR_FORMAT: u64 = 24;

#[test]
fn directories_of_several_threads_are_one_recording() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let whole = recording();
    let one = folder.write("perf.data", whole.bytes());
    let with = |records: Vec<Vec<u8>>| {
        let mut file = File::new(records);
        file.features.push((DIR_FORMAT, 1_u64.to_le_bytes().to_vec()));
        file
    };
    let (sideband, samples) = whole.records.split_at(2);
    folder.write("threads/data", with(sideband.to_vec()).bytes());
    folder.write("threads/data.0", []);
    folder.write("threads/data.1", samples[1].clone());
    folder.write(
        "threads/data.2",
        with(vec![samples[0].clone()]).compressed().records.concat(),
    );
    let args = ["--binary", &program, "--format", "streams"];
    let directory = folder.path().join("threads");
    assert_eq!(export(&directory, &args), export(&one, &args));
    let alone = hbbp(&[
        "report",
        folder.path().join("threads/data").to_str().unwrap(),
        "--binary",
        &program,
    ]);
    assert!(alone.err.contains("name the directory"), "{alone:?}");
}
