//! Pixels of a screenshot: PNG (W3C, third edition) with eight bits for each of three or four colours, not interlaced.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// How often each colour occurs.
pub(super) fn colours(png: &[u8]) -> HashMap<[u8; 3], usize> {
    let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").unwrap();
    let (mut width, mut channels, mut packed) = (0, 0, Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let (content, after) = after[4..].split_at(u32::from_be_bytes(*length) as usize);
        match &rest[4..8] {
            b"IHDR" => {
                width = u32::from_be_bytes(content[..4].try_into().unwrap()) as usize;
                channels = match content[8..] {
                    [8, 2, 0, 0, 0] => 3,
                    [8, 6, 0, 0, 0] => 4,
                    ref other => panic!("another kind of PNG: {other:?}"),
                };
            }
            b"IDAT" => packed.extend(content),
            _ => {}
        }
        rest = &after[4..];
    }
    let mut filtered = Vec::new();
    ZlibDecoder::new(packed.as_slice())
        .read_to_end(&mut filtered)
        .unwrap();
    let mut above = vec![0; width * channels];
    let mut counts = HashMap::new();
    for line in filtered.chunks_exact(1 + width * channels) {
        above = unfiltered(line[0], &line[1..], &above, channels);
        for pixel in above.chunks_exact(channels) {
            *counts.entry(pixel[..3].try_into().unwrap()).or_default() += 1;
        }
    }
    counts
}

/// A line without its filter (section 9).
fn unfiltered(filter: u8, line: &[u8], above: &[u8], channels: usize) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(line.len());
    for (at, byte) in line.iter().enumerate() {
        let before = at.checked_sub(channels);
        let a = before.map_or(0, |at| i16::from(plain[at]));
        let b = i16::from(above[at]);
        let c = before.map_or(0, |at| i16::from(above[at]));
        let nearest = [a, b, c]
            .into_iter()
            .min_by_key(|it| (a + b - c - it).abs())
            .unwrap();
        let predicted = [0, a, b, (a + b) / 2, nearest][usize::from(filter)];
        let [low, _] = predicted.to_le_bytes();
        plain.push(byte.wrapping_add(low));
    }
    plain
}
