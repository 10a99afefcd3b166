//! Ranges of one module: extents, windows, versions, and what makes room.

use super::super::follow::{Change, Known};
use super::*;
use hbbp_model::snapshot::ModuleIdx;

fn symbol(start: u64, len: u64) -> Option<Symbol> {
    Some(Symbol {
        start: ImageAddr(start),
        len,
        name: format!("f{start:x}"),
    })
}

fn memory(at: ImageAddr, bytes: &mut [u8]) -> bool {
    // 0x3000..0x4000 is a hole, as the kernel shows it; 0x5000.. faults.
    for (byte, address) in bytes.iter_mut().zip(at.0..) {
        *byte = if (0x3000..0x4000).contains(&address) {
            0
        } else {
            0x90
        };
    }
    at.0 + u64::try_from(bytes.len()).expect("short") <= 0x5000
}

fn reread(text: &mut ModuleText, interval: u32, read: &mut ReadText<'_>) -> u64 {
    let live = text.read_live(None, read);
    let known = Known {
        interval,
        ..Known::default()
    };
    text.change(Change::Observed(live, known))
}

const ALL: Range<ImageAddr> = ImageAddr(0x1000)..ImageAddr(0x10_0000);

#[test]
fn a_function_is_read_once_and_whole() {
    let mut text = ModuleText::default();
    assert_eq!(
        text.cover(ImageAddr(0x1234), ALL, symbol(0x1200, 0x80), &mut memory),
        Covered::Yes
    );
    assert_eq!(
        text.cover(ImageAddr(0x127f), ALL, None, &mut |_, _| false),
        Covered::Yes
    );
    let mut out = Vec::new();
    let symbols = text.emit(ModuleIdx(3), &mut out);
    assert_eq!(
        (symbols.len(), out.len(), out[0].start, out[0].bytes.len()),
        (1, 1, ImageAddr(0x1200), 0x80)
    );
}

#[test]
fn windows_keep_off_their_neighbours_and_bounds() {
    let mut text = ModuleText::default();
    text.cover(ImageAddr(0x1810), ALL, symbol(0x1800, 0x20), &mut memory);
    assert_eq!(
        text.cover(ImageAddr(0x1700), ALL, None, &mut memory),
        Covered::Yes
    );
    assert_eq!(
        text.cover(ImageAddr(0x1830), ALL, None, &mut memory),
        Covered::Yes
    );
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    let extents: Vec<_> = out
        .iter()
        .map(|t| (t.start.0, t.start.0 + t.bytes.len() as u64))
        .collect();
    assert_eq!(extents, [(0x1300, 0x1c30)], "they touch, so they are one");
}

#[test]
fn windows_hold_their_last_instructions_to_the_end() {
    let mut text = ModuleText::default();
    let giant = || symbol(0x10000, 0x1_0000);
    text.cover(ImageAddr(0x18000), ALL, giant(), &mut memory_of_nops);
    let end = 0x18000 + WINDOW;
    assert_eq!(text.hit(ImageAddr(end - 15)).map(|r| r.end.0), Some(end - 14));
    assert_eq!(text.hit(ImageAddr(end - 14)), None, "15 bytes do not fit");
    text.cover(ImageAddr(end - 1), ALL, giant(), &mut memory_of_nops);
    assert_eq!(text.hit(ImageAddr(end - 1)).map(|r| r.end.0), Some(end));
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    let found: Vec<_> = out.iter().map(|t| (t.start.0, t.bytes.len() as u64)).collect();
    assert_eq!(found, [(0x18000 - WINDOW, 3 * WINDOW)]);
}

#[test]
fn the_end_of_a_window_leaves_the_next_one_whole() {
    let mut text = ModuleText::default();
    let giant = || symbol(0x10000, 0x1_0000);
    text.cover(ImageAddr(0x18000), ALL, giant(), &mut memory_of_nops);
    let end = 0x18000 + WINDOW;
    text.cover(ImageAddr(end + 0x100), ALL, giant(), &mut memory_of_nops);
    text.cover(ImageAddr(end - 1), ALL, giant(), &mut memory_of_nops);
    assert_eq!(text.hit(ImageAddr(end + 0x100)).map(|r| r.start.0), Some(end));
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    let found: Vec<_> = out.iter().map(|t| (t.start.0, t.bytes.len() as u64)).collect();
    assert_eq!(found, [(0x18000 - WINDOW, 3 * WINDOW + 0x100)]);
}

fn memory_of_nops(_: ImageAddr, bytes: &mut [u8]) -> bool {
    bytes.fill(0x90);
    true
}

#[test]
fn holes_and_faults_cost_only_their_own_pages() {
    let mut text = ModuleText::default();
    let function = || symbol(0x2f00, 0x2400);
    assert_eq!(
        text.cover(ImageAddr(0x4800), ALL, function(), &mut memory),
        Covered::Yes
    );
    assert_eq!(
        text.cover(ImageAddr(0x2f00), ALL, function(), &mut memory),
        Covered::Yes
    );
    assert_eq!(
        text.cover(ImageAddr(0x3004), ALL, function(), &mut memory),
        Covered::Unreadable
    );
    assert_eq!(
        text.cover(ImageAddr(0x5004), ALL, function(), &mut memory),
        Covered::Unreadable
    );
    assert_eq!(
        text.cover(ImageAddr(0x9000), ALL, symbol(0x9000, 8), &mut memory),
        Covered::UnreadableNow
    );
}

#[test]
fn patched_text_is_a_new_version_of_the_same_extent() {
    let mut text = ModuleText::default();
    text.cover(ImageAddr(0x1200), ALL, symbol(0x1200, 5), &mut memory);
    assert_eq!(reread(&mut text, 1, &mut memory), 0);
    let mut patched = |_: ImageAddr, bytes: &mut [u8]| {
        bytes.copy_from_slice(&[0xe9, 1, 2, 3, 4]);
        true
    };
    assert_eq!(reread(&mut text, 2, &mut patched), 1);
    assert_eq!(
        reread(&mut text, 3, &mut |_, _| false),
        0,
        "gone text stays as it was"
    );
    assert_eq!(reread(&mut text, 4, &mut memory), 1, "and back again");
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    let since: Vec<_> = out.iter().map(|t| (t.since, t.bytes[0])).collect();
    assert_eq!(since, [(0, 0x90), (2, 0xe9), (4, 0x90)]);
}

#[test]
fn patched_text_is_separate_from_its_neighbours() {
    let mut text = ModuleText::default();
    for start in [0x1200, 0x1210, 0x1220, 0x1240] {
        text.cover(ImageAddr(start), ALL, symbol(start, 0x10), &mut memory);
    }
    let mut patched = |at: ImageAddr, bytes: &mut [u8]| {
        for (byte, address) in bytes.iter_mut().zip(at.0..) {
            *byte = if (0x1220..0x1230).contains(&address) {
                0xc3
            } else {
                0x90
            };
        }
        true
    };
    reread(&mut text, 1, &mut patched);
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    let found: Vec<_> = out.iter().map(|t| (t.start.0, t.bytes.len(), t.since)).collect();
    assert_eq!(
        found,
        [
            (0x1200, 0x20, 0),
            (0x1220, 0x10, 0),
            (0x1220, 0x10, 1),
            (0x1240, 0x10, 0)
        ]
    );
}

#[test]
fn ranges_that_changed_make_room() {
    let mut text = ModuleText::default();
    let starts = [0x1200, 0x1220, 0x1240];
    for start in starts {
        text.cover(ImageAddr(start), ALL, symbol(start, 0x10), &mut memory);
    }
    let mut patched = |at: ImageAddr, bytes: &mut [u8]| {
        for (byte, address) in bytes.iter_mut().zip(at.0..) {
            *byte = if (0x1220..0x1230).contains(&address) {
                0xc3
            } else {
                0x90
            };
        }
        true
    };
    assert_eq!(text.n_bytes(), 0x30);
    reread(&mut text, 1, &mut patched);
    assert_eq!(text.n_bytes(), 0x40, "another version of one");
    assert_eq!(text.drop_changed(), 1);
    assert_eq!(text.n_bytes(), 0x20);
    assert_eq!(text.known(ImageAddr(0x1220)), Some(Covered::Unreadable));
    reread(&mut text, 2, &mut memory);
    assert_eq!((text.n_bytes(), text.drop_changed()), (0x20, 0));
    let mut out = Vec::new();
    text.emit(ModuleIdx(0), &mut out);
    assert_eq!(
        out.iter().map(|t| t.start.0).collect::<Vec<_>>(),
        [0x1200, 0x1240]
    );
}

#[test]
fn odd_extents() {
    let mut text = ModuleText::default();
    let top = ImageAddr(u64::MAX - 1);
    let bounds = ImageAddr(u64::MAX - 0x10)..ImageAddr(u64::MAX);
    assert_eq!(
        text.cover(top, bounds, symbol(u64::MAX - 8, 100), &mut |_, b| {
            b.fill(1);
            true
        }),
        Covered::Yes
    );
    let beside = text.cover(ImageAddr(0x2000), ALL, symbol(0x1f00, 0x10), &mut memory);
    assert_eq!(
        beside,
        Covered::Yes,
        "a function that does not hold the address counts for nothing"
    );
    let outside = ImageAddr(u64::MAX)..ImageAddr(5);
    for at in [0, 7, u64::MAX] {
        assert_eq!(
            text.cover(ImageAddr(at), outside.clone(), None, &mut memory),
            Covered::UnreadableNow
        );
    }
}

/// Names of memory: a function that another one replaced, in part or as a whole, has no name, and nor has the other one.
#[test]
fn functions_that_replaced_each_other_have_no_name() {
    let symbol = |start: u64, len: u64, name: &str| Symbol {
        start: ImageAddr(start),
        len,
        name: name.to_owned(),
    };
    let mut text = ModuleText::default();
    let names =
        |text: &ModuleText| -> Vec<String> { text.symbols.values().map(|it| it.name.clone()).collect() };
    text.name(symbol(0x1000, 0x40, "a"));
    text.name(symbol(0x1040, 0x40, "b"));
    text.name(symbol(0x1000, 0x40, "a"));
    assert_eq!(names(&text), ["a", "b"], "neighbours, and the same once more");
    text.name(symbol(0x1030, 0x20, "c"));
    assert!(names(&text).is_empty(), "it reaches into both");
    text.name(symbol(0x1030, 0x20, "c"));
    assert!(names(&text).is_empty(), "and has none later");
    text.name(symbol(0x2000, 0x10, "d"));
    text.take_name(ImageAddr(0x2010));
    assert_eq!(names(&text), ["d"]);
    text.take_name(ImageAddr(0x200f));
    text.name(symbol(0x2000, 0x10, "e"));
    assert!(names(&text).is_empty());
}
