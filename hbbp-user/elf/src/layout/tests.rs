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
        debug_link: None,
    }
}

/// No other mapping of the file.
const ALONE: &dyn Fn(u64, FileOff) -> bool = &|_, _| false;

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
        image.image_addr(FileOff(0x1000), ALONE),
        Some(ImageAddr(0x2000)),
        "the mapping starts on a page"
    );
    assert_eq!(image.file_off(ImageAddr(0x2a44)), Some(FileOff(0x1a44)));
    assert_eq!(image.file_off(ImageAddr(0x2a3c)), None);
    assert_eq!(image.file_off(ImageAddr(0x3040)), None);
    assert_eq!(image.image_addr(FileOff(0x5000), ALONE), None);
}

#[test]
fn programs_at_fixed_addresses() {
    let image = layout(vec![text(0x1000, 0x40_1000, 0x2345)]);
    assert_eq!(
        image.image_addr(FileOff(0x1000), ALONE),
        Some(ImageAddr(0x40_1000))
    );
    assert_eq!(
        image.image_addr(FileOff(0x2000), ALONE),
        Some(ImageAddr(0x40_2000)),
        "a split mapping"
    );
}

/// Both are mapped from the same page of the file; a loader puts them as far from each other as their addresses are.
#[test]
fn segments_that_share_a_page_are_distinguished_by_each_other() {
    let (first, second) = (text(0x1000, 0x40_1000, 0x139), text(0x1139, 0x60_2139, 0x80));
    let data = Segment {
        executable: false,
        ..text(0x1000, 0x50_0000, 0x1000)
    };
    let apart = 0x60_2000 - 0x40_1000_u64;
    for segments in [vec![first, data, second], vec![second, first]] {
        let image = layout(segments);
        let at = |other: u64| {
            let shows = |distance, offset| offset == FileOff(0x1000) && [0, other].contains(&distance);
            image.image_addr(FileOff(0x1000), &shows)
        };
        assert_eq!(at(apart), Some(ImageAddr(0x40_1000)));
        assert_eq!(at(apart.wrapping_neg()), Some(ImageAddr(0x60_2000)));
    }
}

/// What perf writes for a function of a JIT compiler.
#[test]
fn sections_are_segments_where_there_are_none() {
    let ByteSource::Memory(mut bytes) = with_sections(2) else {
        panic!("it is in memory");
    };
    // The second section: PROGBITS, ALLOC and EXECINSTR, at 0x80 of the file and in memory, 0x30 bytes.
    for (at, value) in [(4, 1), (8, 6), (16, 0x80), (24, 0x80), (32, 0x30)] {
        bytes[64 + 64 + at] = value;
    }
    let image = read_layout(&ByteSource::Memory(bytes)).expect("an ELF file");
    assert_eq!(image.segments, [text(0x80, 0x80, 0x30)]);
    assert_eq!(image.image_addr(FileOff(0x80), ALONE), Some(ImageAddr(0x80)));
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
                    let _ = layout.image_addr(FileOff(probe), ALONE);
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
}
