//! Files whose frame is made by hand: unknown, missing, damaged and hostile sections, other versions.

use hbbp_model::snapshot::file::{encode, parse};
use hbbp_model::snapshot::{Losses, Snapshot};

use super::{random_below, small};

/// Splits a file into its header and its sections; the module `container` has the layout.
fn cut_apart(file: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (header, mut rest) = file.split_at(12);
    let mut sections = Vec::new();
    while !rest.is_empty() {
        let stored = u64::from_le_bytes(rest[12..20].try_into().unwrap());
        let (section, behind) = rest.split_at(36 + usize::try_from(stored).unwrap());
        sections.push(section.to_vec());
        rest = behind;
    }
    (header.to_vec(), sections)
}

/// A section as a writer of any version could make it.
fn section(name: &str, encoding: u32, raw_len: u64, stored: &[u8]) -> Vec<u8> {
    let mut header = name.as_bytes().to_vec();
    header.resize(8, 0);
    header.extend(encoding.to_le_bytes());
    header.extend(u64::try_from(stored.len()).unwrap().to_le_bytes());
    header.extend(raw_len.to_le_bytes());
    header.extend(crc32fast::hash(stored).to_le_bytes());
    let check = crc32fast::hash(&header);
    header.extend(check.to_le_bytes());
    [&header, stored].concat()
}

/// The small snapshot, with its sections changed by `change` before they are read again.
fn read_changed(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Result<Snapshot, String> {
    let (header, mut sections) = cut_apart(&encode(&small()).unwrap());
    change(&mut sections);
    parse(&[header, sections.concat()].concat()).map_err(|e| e.to_string())
}

/// Flips a bit in the content of a section.
fn damage(sections: &mut [Vec<u8>], name: &str) {
    let place = place(sections, name);
    *sections[place].last_mut().unwrap() ^= 1;
}

/// The position of a section among those of the small snapshot.
fn place(sections: &[Vec<u8>], name: &str) -> usize {
    sections
        .iter()
        .position(|s| s.starts_with(name.as_bytes()))
        .unwrap()
}

#[test]
fn unknown_sections_are_skipped() {
    let read = read_changed(|sections| sections.insert(2, section("stacks", 9, 1 << 60, b"of the future")));
    assert_eq!(read, Ok(small()));
}

#[test]
fn unknown_fields_are_skipped() {
    let read = read_changed(|sections| {
        let run = place(sections, "run");
        // The section is small enough to be stored as it is, so that a field can be appended: number 500, varint 1.
        let mut raw = sections[run][36..].to_vec();
        assert_eq!(sections[run][8], 0, "the section is compressed");
        raw.extend([0xa0, 0x1f, 1]);
        sections[run] = section("run", 0, raw.len().try_into().unwrap(), &raw);
    });
    assert_eq!(read, Ok(small()));
}

#[test]
fn a_newer_minor_version_is_read_and_another_major_one_refused() {
    let mut file = encode(&small()).unwrap();
    file[10] = 200;
    assert_eq!(parse(&file).unwrap(), small());
    for other in [1, 2, 4] {
        file[8] = other;
        assert_eq!(
            parse(&file).unwrap_err().to_string(),
            format!(
                "unsupported profile version {other} (this hbbp-sys reads version 3): \
                 use the hbbp-sys version that wrote it"
            )
        );
    }
}

#[test]
fn a_damaged_section_is_named() {
    for name in ["run", "modules", "process", "counts"] {
        let read = read_changed(|sections| damage(sections, name));
        let named = format!("damaged section `{name}`: wrong checksum");
        assert_eq!(read, Err(named));
    }
}

#[test]
fn what_can_be_spared_becomes_a_note() {
    let mut expected = [small(), small(), small()];
    expected[0].modules[0].symbols.clear();
    expected[1].text.clear();
    expected[2].losses = Losses::default();
    for (name, mut expected) in ["symbols", "text", "losses"].into_iter().zip(expected) {
        let mut damaged = read_changed(|sections| damage(sections, name)).unwrap();
        let note = damaged.run.notes.pop().unwrap();
        assert!(note.contains(name) && note.contains("checksum"), "{note}");
        assert!(1.0 <= damaged.run.share_unmeasured(&note), "{note}");
        damaged.run.unmeasured.clear();
        assert_eq!(damaged, expected);
        let missing = read_changed(|s| drop(s.remove(place(s, name)))).unwrap();
        assert!(
            missing.run.notes[0].contains("(missing)"),
            "{:?}",
            missing.run.notes
        );
        expected.run.notes.clone_from(&missing.run.notes);
        expected.run.unmeasured.clone_from(&missing.run.unmeasured);
        assert_eq!(missing, expected);
    }
}

#[test]
fn needed_sections_must_be_there() {
    let missing = read_changed(|s| drop(s.remove(place(s, "process"))));
    assert_eq!(missing, Err("expected one section `process`, found 0".to_owned()));
}

#[test]
fn duplicated_sections_are_refused() {
    for name in ["modules", "symbols", "process", "text", "losses"] {
        let twice = read_changed(|s| s.insert(0, s[place(s, name)].clone()));
        assert_eq!(twice, Err(format!("expected one section `{name}`, found 2")));
    }
    // A second section `run` begins a second run, which lacks the others.
    let twice = read_changed(|s| s.insert(0, s[place(s, "run")].clone()));
    assert_eq!(twice, Err("expected one section `modules`, found 0".to_owned()));
}

#[test]
fn two_files_in_a_row_are_noticed() {
    let file = encode(&small()).unwrap();
    let error = parse(&[file.clone(), file].concat()).unwrap_err().to_string();
    assert!(error.contains("trailing bytes"), "{error}");
}

#[test]
fn claimed_sizes_are_not_believed() {
    let claims = |encoding, raw_len, stored: &[u8]| {
        read_changed(|s| {
            let text = place(s, "text");
            s[text] = section("text", encoding, raw_len, stored);
        })
        .unwrap()
        .run
        .notes
        .concat()
    };
    let huge = claims(1, 1 << 40, b"x");
    assert!(huge.contains("exceeds the limit"), "{huge}");
    // 200 MB of zero bytes in a few kB, with a true length.
    let bomb = zstd::bulk::compress(&vec![0; 200_000_000], 3).unwrap();
    assert!(bomb.len() < 20_000);
    let bomb = claims(1, 200_000_000, &bomb);
    assert!(bomb.contains("exceeds the limit"), "{bomb}");
    let zeros = zstd::bulk::compress(&[0; 60], 3).unwrap();
    let longer = claims(1, 3, &zeros);
    assert!(longer.contains("cannot be decompressed"), "{longer}");
    let shorter = claims(1, 61, &zeros);
    assert!(shorter.contains("cannot be decompressed"), "{shorter}");
    let stored = claims(0, 4, b"abc");
    assert!(stored.contains("exceeds the limit"), "{stored}");
    let unknown = claims(7, 3, b"abc");
    assert!(unknown.contains("newer hbbp-sys"), "{unknown}");
}

/// What compresses better than a reader believes is stored as it is, and read again.
#[test]
fn the_limit_of_expansion_does_not_hit_our_own_files() {
    let mut snapshot = small();
    snapshot.text[0].bytes = vec![0x90; 5_000_000];
    let file = encode(&snapshot).unwrap();
    assert_eq!(parse(&file).unwrap(), snapshot);
}

#[test]
fn rows_that_end_early_are_malformed() {
    // Field 1 is the table: one row of `text`, which ends after the module.
    let read = read_changed(|s| {
        let text = place(s, "text");
        s[text] = section("text", 0, 3, &[0x0a, 1, 0]);
    });
    let note = read.unwrap().run.notes.concat();
    assert!(note.contains("rows of text ranges do not match"), "{note}");
}

/// Sections of small messages grow a hundredfold when they are decoded, so they are never compressed.
#[test]
fn compressed_messages_are_refused() {
    let events = [0x52, 0].repeat(400);
    let packed = zstd::bulk::compress(&events, 3).unwrap();
    let error = read_changed(|s| {
        let run = place(s, "run");
        s[run] = section("run", 1, 800, &packed);
    });
    assert!(error.unwrap_err().contains("exceeds the limit"));
}

/// A profile of 1.3 MB, most of which are rows that compress as well as a reader believes. Reading it took 1.33 GB when
/// a section could expand 32 times.
#[test]
fn small_profiles_are_read_in_little_memory() {
    const LIMIT_KIB: u32 = 640 << 10;
    let mut random = random_below();
    let mut file = Vec::new();
    let mut n_rows = 3_400_000_usize;
    while file.is_empty() || 1_300_000 < file.len() {
        // One group of branches in the oldest slot: a difference of one byte, and hits.
        let mut rows = vec![0x80 | (n_rows & 0x7f) as u8];
        rows.push(0x80 | (n_rows >> 7 & 0x7f) as u8);
        rows.push(0x80 | (n_rows >> 14 & 0x7f) as u8);
        rows.extend([(n_rows >> 21) as u8, 99, 0, 0]);
        rows.extend((0..n_rows).flat_map(|_| [2, 1 + random(3) as u8]));
        let mut raw = vec![0x32];
        let mut len = rows.len();
        while 0x80 <= len {
            raw.push(0x80 | (len & 0x7f) as u8);
            len >>= 7;
        }
        raw.push(len as u8);
        raw.extend(rows);
        let packed = zstd::bulk::compress(&raw, 3).unwrap();
        let (header, mut sections) = cut_apart(&encode(&small()).unwrap());
        let counts = place(&sections, "counts");
        sections[counts] = section("counts", 1, raw.len().try_into().unwrap(), &packed);
        file = [header, sections.concat()].concat();
        n_rows -= 100_000;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.hbbp");
    std::fs::write(&path, &file).unwrap();
    let limited = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" report \"$1\"");
    let output = std::process::Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_hbbp-sys")])
        .arg(&path)
        .output()
        .unwrap();
    // All rows are read, and then the event is one that the run does not have.
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{} bytes: {said}", file.len());
    assert!(said.contains("a missing event or process image"), "{said}");
}
