//! Files whose frame is made by hand: unknown, missing, damaged and hostile sections, other versions.

use hbbp_user::snapshot::Snapshot;
use hbbp_user::snapshot::file::{encode, parse};

use super::small;

/// The header of a file, and its sections cut apart; see the module `container` for the layout.
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

/// The place of a section among those of the small snapshot.
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
        // The section is small enough to be stored as it is, so that a field can be added behind: number 500, varint 1.
        let mut raw = sections[run][36..].to_vec();
        assert_eq!(sections[run][8], 0, "the section is compressed");
        raw.extend([0xa0, 0x1f, 1]);
        sections[run] = section("run", 0, raw.len().try_into().unwrap(), &raw);
    });
    assert_eq!(read, Ok(small()));
}

#[test]
fn a_newer_minor_version_is_read_and_a_newer_major_one_refused() {
    let mut file = encode(&small()).unwrap();
    file[10] = 200;
    assert_eq!(parse(&file).unwrap(), small());
    file[8] = 3;
    assert_eq!(
        parse(&file).unwrap_err().to_string(),
        "unsupported profile version 3 (this hbbp-sys reads version 2): \
         use the hbbp-sys version that wrote it, or a newer one"
    );
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
    expected[2].losses.0.clear();
    for (name, mut expected) in ["symbols", "text", "losses"].into_iter().zip(expected) {
        let mut damaged = read_changed(|sections| damage(sections, name)).unwrap();
        let note = damaged.run.notes.pop().unwrap();
        assert!(note.contains(name) && note.contains("checksum"), "{note}");
        assert_eq!(damaged, expected);
        let missing = read_changed(|s| drop(s.remove(place(s, name)))).unwrap();
        assert!(
            missing.run.notes[0].contains("found 0 of it"),
            "{:?}",
            missing.run.notes
        );
        expected.run.notes.clone_from(&missing.run.notes);
        assert_eq!(missing, expected);
    }
}

#[test]
fn what_cannot_be_spared_must_be_there_once() {
    let missing = read_changed(|s| drop(s.remove(place(s, "process"))));
    assert_eq!(missing, Err("expected one section `process`, found 0".to_owned()));
    let twice = read_changed(|s| s.insert(0, s[place(s, "run")].clone()));
    assert_eq!(twice, Err("expected one section `run`, found 2".to_owned()));
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
    let longer = claims(1, 3, &zstd::bulk::compress(&[0; 60], 3).unwrap());
    assert!(longer.contains("cannot be decompressed"), "{longer}");
    let shorter = claims(1, 61, &zstd::bulk::compress(&[0; 60], 3).unwrap());
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
fn columns_that_do_not_fit_are_malformed() {
    // Field 1 of `text` is the column of modules: one row, while all the other columns are empty.
    let read = read_changed(|s| {
        let text = place(s, "text");
        s[text] = section("text", 0, 3, &[0x0a, 1, 0]);
    });
    let note = read.unwrap().run.notes.concat();
    assert!(note.contains("columns of text differ in length"), "{note}");
}

/// Many sections, each within its own limit, are not read either.
#[test]
fn claimed_sizes_are_not_believed_in_sum() {
    let bomb = zstd::bulk::compress(&[0; 65_000], 3).unwrap();
    let error = read_changed(|s| {
        let counts = place(s, "counts");
        s[counts] = section("counts", 1, 65_000, &bomb).repeat(5_000);
    });
    assert!(error.unwrap_err().contains("profile is too large"));
}
