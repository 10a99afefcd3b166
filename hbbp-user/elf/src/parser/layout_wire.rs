//! The layout of an ELF file as a worker answers with it.

use prost::Message as _;
use prost::bytes::Bytes;

use super::parsed::{Layout, Parsed};
use crate::build_id::MAX_BUILD_ID;
use crate::byte_source::ByteSource;
use crate::debug_link::DebugLink;
use crate::layout::{ElfClass, ElfError, ElfLayout, MAX_SEGMENTS, Segment, read_layout};
use hbbp_model::addr::{FileOff, ImageAddr};

#[derive(Clone, PartialEq, prost::Message)]
struct LayoutMessage {
    /// A class, counted from 1, or 0 with an error.
    #[prost(uint32, tag = "1")]
    class: u32,
    /// An error, counted from 1.
    #[prost(uint32, tag = "2")]
    error: u32,
    #[prost(bytes = "vec", tag = "3")]
    build_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    segments: Vec<SegmentMessage>,
    /// Empty without one.
    #[prost(string, tag = "5")]
    debug_link: String,
    #[prost(uint32, tag = "6")]
    checksum: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SegmentMessage {
    #[prost(uint64, tag = "1")]
    offset: u64,
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(uint64, tag = "3")]
    len: u64,
    #[prost(bool, tag = "4")]
    executable: bool,
}

const CLASSES: [ElfClass; 3] = [ElfClass::X86_64, ElfClass::X32, ElfClass::X86];
const ERRORS: [ElfError; 4] = [
    ElfError::NotElf,
    ElfError::Foreign,
    ElfError::Broken,
    ElfError::GivenUp,
];

/// The number of a variant, counted from 1.
fn number_of<T: PartialEq>(all: &[T], one: &T) -> u32 {
    let nth = all.iter().position(|it| it == one);
    nth.and_then(|nth| u32::try_from(nth + 1).ok()).unwrap_or(0)
}

fn numbered<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get((number as usize).checked_sub(1)?).copied()
}

impl Parsed for Layout {
    const QUESTION: u8 = 1;

    fn parse(files: &[&ByteSource]) -> Self {
        let layout = read_layout(files.first().ok_or(ElfError::GivenUp)?)?;
        Ok(ElfLayout {
            sections: Vec::new(),
            section_names: None,
            eh_frame_hdr: None,
            ..layout
        })
    }

    fn encode(&self) -> Vec<u8> {
        let message = match self {
            Err(error) => LayoutMessage {
                error: number_of(&ERRORS, error),
                ..LayoutMessage::default()
            },
            Ok(layout) => LayoutMessage {
                class: number_of(&CLASSES, &layout.class),
                error: 0,
                build_id: layout.build_id.clone(),
                segments: layout.segments.iter().map(message_of).collect(),
                debug_link: layout
                    .debug_link
                    .as_ref()
                    .map_or_else(String::new, |link| link.name.clone()),
                checksum: layout.debug_link.as_ref().map_or(0, |link| link.checksum),
            },
        };
        message.encode_to_vec()
    }

    fn decode(bytes: Bytes) -> Option<Self> {
        let message = LayoutMessage::decode(bytes).ok()?;
        if let Some(error) = numbered(&ERRORS, message.error) {
            return Some(Err(error));
        }
        let fits = message.build_id.len() <= MAX_BUILD_ID && message.segments.len() <= MAX_SEGMENTS;
        fits.then_some(())?;
        Some(Ok(ElfLayout {
            class: numbered(&CLASSES, message.class)?,
            build_id: message.build_id,
            segments: message.segments.iter().map(segment_of).collect(),
            sections: Vec::new(),
            section_names: None,
            eh_frame_hdr: None,
            debug_link: DebugLink::new(&message.debug_link, message.checksum),
        }))
    }
}

const fn message_of(segment: &Segment) -> SegmentMessage {
    SegmentMessage {
        offset: segment.offset.0,
        start: segment.start.0,
        len: segment.len,
        executable: segment.executable,
    }
}

const fn segment_of(message: &SegmentMessage) -> Segment {
    Segment {
        offset: FileOff(message.offset),
        start: ImageAddr(message.start),
        len: message.len,
        executable: message.executable,
    }
}
