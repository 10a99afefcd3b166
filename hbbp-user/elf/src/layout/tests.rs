//! Segments of ELF files as linkers lay them out, and hostile headers.

use super::*;

fn layout(segments: Vec<Segment>) -> ElfLayout {
    ElfLayout {
        section_names: None,
        class: ElfClass::X86_64,
        build_id: Vec::new(),
        segments,
        sections: Vec::new(),
        eh_frame_hdr: None,
    }
}

fn text(offset: u64, start: u64, len: u64) -> Segment {
    Segment {
        offset: FileOff(offset),
        start: ImageAddr(start),
        len,
        executable: true,
    }
}

#[test]
fn lld_puts_segments_at_addresses_that_differ_from_offsets() {
    // readelf -l of a library linked by lld: text at offset 0x1a40 has the address 0x2a40.
    let data = Segment {
        offset: FileOff(0),
        start: ImageAddr(0),
        len: 0x1a3c,
        executable: false,
    };
    let image = layout(vec![data, text(0x1a40, 0x2a40, 0x600)]);
    assert_eq!(
        image.image_addr(FileOff(0x1000)),
        Some(ImageAddr(0x2000)),
        "the mapping starts on a page"
    );
    assert_eq!(image.file_off(ImageAddr(0x2a44)), Some(FileOff(0x1a44)));
    assert_eq!(image.file_off(ImageAddr(0x2a3c)), None);
    assert_eq!(image.file_off(ImageAddr(0x3040)), None);
    assert_eq!(image.image_addr(FileOff(0x5000)), None);
}

#[test]
fn programs_at_fixed_addresses() {
    let image = layout(vec![text(0x1000, 0x40_1000, 0x2345)]);
    assert_eq!(image.image_addr(FileOff(0x1000)), Some(ImageAddr(0x40_1000)));
    assert_eq!(
        image.image_addr(FileOff(0x2000)),
        Some(ImageAddr(0x40_2000)),
        "a split mapping"
    );
}

#[test]
fn own_program() {
    let file = std::fs::File::open("/proc/self/exe").expect("own program");
    let len = file.metadata().expect("its length").len();
    let layout = read_layout(&ByteSource::File(file, len)).expect("an ELF file");
    assert_eq!(layout.class, ElfClass::X86_64);
    assert!(layout.segments.iter().any(|s| s.executable));
    assert!(!layout.sections.is_empty());
}

#[test]
fn hostile_headers() {
    let own = std::fs::read("/proc/self/exe").expect("own program");
    let head: Vec<u8> = own.iter().copied().take(4096).collect();
    assert_eq!(
        read_layout(&ByteSource::Memory(b"MZ".to_vec())).err(),
        Some(ElfError::NotElf)
    );
    assert_eq!(
        read_layout(&ByteSource::Memory(vec![0; 99])).err(),
        Some(ElfError::NotElf)
    );
    assert_eq!(
        read_layout(&ByteSource::Memory(head[..40].to_vec())).err(),
        Some(ElfError::Broken)
    );
    let mut arm = head.clone();
    arm[18] = 183;
    assert_eq!(
        read_layout(&ByteSource::Memory(arm)).err(),
        Some(ElfError::Foreign)
    );
    // Each byte of the headers takes some odd values: nothing may panic, and nothing may take long.
    for at in 0..0x300 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = head.clone();
            bytes[at] = value;
            if let Ok(layout) = read_layout(&ByteSource::Memory(bytes)) {
                for probe in [0, 1, 0x1000, u64::MAX] {
                    let _ = layout.image_addr(FileOff(probe));
                    let _ = layout.file_off(ImageAddr(probe));
                }
            }
        }
    }
}

/// A program without segments that has this number of empty sections.
fn with_sections(n: u16) -> ByteSource {
    let mut bytes = vec![0; 64 + 64 * usize::from(n)];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[0x10] = 2;
    bytes[0x12] = 62;
    bytes[0x28] = 64;
    bytes[0x34] = 64;
    bytes[0x3a] = 64;
    bytes[0x3c..0x3e].copy_from_slice(&n.to_le_bytes());
    ByteSource::Memory(bytes)
}

#[test]
fn more_sections_than_any_program_has_are_not_read() {
    let n_sections = |n| read_layout(&with_sections(n)).map(|layout| layout.sections.len());
    assert_eq!(n_sections(4096).ok(), Some(4096));
    assert_eq!(n_sections(4097).ok(), Some(0));
    assert_eq!(n_sections(u16::MAX).ok(), Some(0));
    let segments_alone = read_segments(&with_sections(4096));
    assert_eq!(segments_alone.map(|layout| layout.sections.len()).ok(), Some(0));
}
