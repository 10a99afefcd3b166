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
