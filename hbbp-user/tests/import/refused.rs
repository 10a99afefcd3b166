//! Files that cannot be read, or say nothing: one clear line each, and no file is left.

use hbbp_model::addr::Va;

use crate::elf::write_loop;
use crate::run::{Folder, details, export, hbbp, lines, refused};
use crate::writer::{File, mmap2, record, stack, string, taken, turns};

const BASE: u64 = 0x55_0000_0000;

fn recording() -> File {
    File::new(vec![
        mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog"),
        stack(5, 3, &turns(Va(BASE))),
    ])
}

#[test]
fn other_machines_versions_and_modes() {
    let folder = Folder::new();
    let refusal = |bytes: Vec<u8>| refused(&folder.write("perf.data", bytes), &[]);
    let mut arm = recording();
    arm.features = vec![(6, string("aarch64"))];
    assert!(refusal(arm.bytes()).contains("aarch64"));
    assert!(refusal(arm.pipe()).contains("aarch64"));

    let mut call_stack = recording();
    call_stack.attrs[0].branch_sample_type = 1 << 11;
    assert!(refusal(call_stack.bytes()).contains("call-stack mode"));

    let mut version_1 = recording().bytes();
    version_1[..8].copy_from_slice(b"PERFFILE");
    assert!(refusal(version_1).contains("version 1"));
    let mut swapped = recording().bytes();
    swapped[..8].copy_from_slice(b"2ELIFREP");
    assert!(refusal(swapped).contains("big-endian"));

    let mut folder_of_threads = recording();
    folder_of_threads.features = vec![(24, 1_u64.to_le_bytes().to_vec())];
    assert!(refusal(folder_of_threads.bytes()).contains("--threads"));

    assert!(refusal(b"no recording at all".to_vec()).contains("unknown format"));
    assert!(refusal(Vec::new()).contains("empty"));
    let mut ambiguous = recording();
    let mut other = taken();
    other.sample_type = 1;
    ambiguous.attrs.push(other);
    assert!(refusal(ambiguous.bytes()).contains("several events"));
    let mut silent = recording();
    silent.records.pop();
    assert!(refusal(silent.bytes()).contains("no samples"));
}

#[test]
fn damaged_records_are_named_by_their_offset() {
    let folder = Folder::new();
    let mut zero = recording();
    zero.records.push(vec![0; 64]);
    zero.records.push(stack(5, 9, &turns(Va(BASE))));
    let bytes = zero.bytes();
    let error = refused(&folder.write("perf.data", &bytes), &[]);
    let place = bytes.windows(64).position(|window| window == [0; 64]).unwrap();
    assert!(
        error.contains("damaged") && error.contains("record at byte "),
        "{error}"
    );
    let stated: usize = error
        .split("byte ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(place <= stated && stated < place + 64, "{error}");
    let packed = record(81, 0, &[0x5a; 99]);
    let error = refused(&folder.write("perf.data", File::new(vec![packed]).bytes()), &[]);
    assert!(error.contains("cannot decompress"), "{error}");
}

#[test]
fn files_that_end_early_give_what_they_have() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[]);
    let program = program.as_str();
    let mut file = recording();
    file.features.clear();
    let whole = file.bytes();
    let cut = folder.write("cut.data", &whole[..whole.len() - 5]);
    file.records.insert(1, stack(5, 3, &turns(Va(BASE))));
    let longer = file.bytes();
    let longer = folder.write("longer.data", &longer[..longer.len() - 5]);
    assert!(refused(&cut, &[]).contains("no samples"));
    let streams = export(&longer, &["--binary", program, "--format", "streams"]);
    assert_eq!(lines(&streams, "S ").len(), 5);
    let report = details(&longer, program);
    assert!(report.out.contains("the recording is truncated"), "{report:?}");
}

#[test]
fn another_build_id_is_refused_unless_forced() {
    let folder = Folder::new();
    let program = write_loop(&folder, "prog", 0x1000, &[0xab; 20]);
    let program = program.as_str();
    let mut file = recording();
    let mut build_id = record(
        67,
        1 << 15,
        &[&[0; 4], &[0xcd; 20][..], &[20, 0, 0, 0], b"/bin/prog\0\0\0"].concat(),
    );
    build_id[..4].fill(0);
    file.features.insert(0, (2, build_id));
    let path = folder.write("perf.data", file.bytes());
    let report = hbbp(&["report", path.to_str().unwrap(), "--binary", program]);
    let shown = |text: &str| {
        text.contains(&"ab".repeat(20)) && text.contains(&"cd".repeat(20)) && text.contains("--force")
    };
    assert!(report.code == Some(1) && shown(&report.err), "{report:?}");
    let forced = export(&path, &["--binary", program, "--force", "--format", "streams"]);
    assert_eq!(lines(&forced, "S ").len(), 5);
}
