//! Sweeps over code with known leaders, and over bytes that are no code.

use super::super::flow::flow;
use super::*;
use object::{Object as _, ObjectSection as _};
use proptest::prelude::*;

fn swept(bytes: &[u8], known: &[u32]) -> Vec<(u32, u8, Flow)> {
    let sweep = sweep(bytes, 64, ImageAddr(0x1000), known, &mut Forms::default());
    sweep
        .instructions
        .iter()
        .map(|i| (i.offset, i.len, i.flow))
        .collect()
}

#[test]
fn flow_follows_the_opcode() {
    let cases: [(&[u8], Flow); 14] = [
        (&[0x90], Flow::Next),
        (&[0xf3, 0xa4], Flow::Next),
        (&[0xf4], Flow::Idle),
        (&[0x0f, 0x01, 0xc9], Flow::Idle),
        (&[0x74, 0x10], Flow::Conditional),
        (&[0xe2, 0x10], Flow::Conditional),
        (&[0xeb, 0x10], Flow::Jump),
        (&[0xff, 0xe0], Flow::IndirectJump),
        (&[0xe8, 0, 1, 0, 0], Flow::Call),
        (&[0xe8, 0, 0, 0, 0], Flow::CallNext),
        (&[0xff, 0xd0], Flow::IndirectCall),
        (&[0xc3], Flow::Return),
        (&[0x48, 0xcf], Flow::InterruptReturn),
        (&[0x0f, 0x05], Flow::SystemCall),
    ];
    for (bytes, flow) in cases {
        let len = u8::try_from(bytes.len()).unwrap();
        assert_eq!(swept(bytes, &[]), [(0, len, flow)], "{bytes:x?}");
    }
}

#[test]
fn sweep_resyncs_at_observed_addresses() {
    // A stray 0xe8 before `nop; ret` swallows both unless the address of `nop` is known.
    let bytes = [0xe8, 0x90, 0xc3, 0, 0, 0];
    assert_eq!(swept(&bytes, &[])[0], (0, 5, Flow::Call));
    let corrected = swept(&bytes, &[1]);
    assert_eq!(
        corrected[..3],
        [(0, 1, Flow::Invalid), (1, 1, Flow::Next), (2, 1, Flow::Return)]
    );
    assert_eq!(swept(&bytes, &[0, 1])[0], (0, 5, Flow::Call));
}

#[test]
fn jump_past_the_lock_prefix_is_the_same_instruction() {
    // lock cmpxchg [rdi], esi
    let bytes = [0xf0, 0x0f, 0xb1, 0x37, 0xc3];
    let sweep = sweep(&bytes, 64, ImageAddr(0), &[0, 1], &mut Forms::default());
    assert_eq!(sweep.instructions.len(), 2);
    assert_eq!(sweep.aliases, [(1, 0)]);
}

#[test]
fn sweep_resyncs_if_text_starts_inside_an_instruction() {
    // The text was cut in the immediate value of an instruction: its last two bytes read like `mov rax, imm64`.
    let bytes = [0x48, 0xb8, 0x90, 0x90, 0xc3];
    assert_eq!(
        swept(&bytes, &[2])[..2],
        [(0, 2, Flow::Invalid), (2, 1, Flow::Next)]
    );
}

/// Each instruction of some code, its flow, and the targets of its direct branches, by nothing but the decoder.
fn one_by_one(bytes: &[u8], start: u64) -> (Vec<(u32, u8, Flow)>, Vec<u64>) {
    let mut decoder = Decoder::try_with_ip(64, bytes, start).unwrap();
    let (mut all, mut targets) = (Vec::new(), Vec::new());
    while decoder.position() < bytes.len() {
        let at = u32::try_from(decoder.position()).unwrap();
        let decoded = decoder.decode();
        if decoded.is_invalid() {
            decoder.go_to(at as usize + 1, start + u64::from(at) + 1).unwrap();
            all.push((at, 1, Flow::Invalid));
            continue;
        }
        let target = target(&decoded).map(|target| target.0);
        let to_next = target == Some(decoded.next_ip());
        let flow = match flow(&decoded) {
            Flow::Call if to_next => Flow::CallNext,
            flow => flow,
        };
        targets.extend(target);
        all.push((at, u8::try_from(decoded.len()).unwrap(), flow));
    }
    (all, targets)
}

fn agrees(bytes: &[u8]) {
    let start = 0x4000;
    let sweep = sweep(bytes, 64, ImageAddr(start), &[], &mut Forms::default());
    let (all, mut targets) = one_by_one(bytes, start);
    let found = sweep.instructions.iter().map(|i| (i.offset, i.len, i.flow));
    assert!(found.eq(all), "{bytes:x?}");
    let inside = sweep.inside.iter().map(|offset| start + u64::from(*offset));
    let mut found: Vec<u64> = inside
        .chain(sweep.outside.iter().map(|target| target.0))
        .collect();
    found.sort_unstable();
    found.dedup();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(found, targets);
}

#[test]
fn own_code_is_decoded_as_by_the_decoder() {
    let own = std::fs::read("/proc/self/exe").unwrap();
    let file = object::File::parse(own.as_slice()).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let code = text.data().unwrap();
    assert!(256 << 10 <= code.len(), "{} bytes", code.len());
    agrees(code.get(..4 << 20).unwrap_or(code));
}

#[test]
fn text_of_32_bit_modules_is_decoded_as_32_bit() {
    // 0x40 is INC EAX in 32-bit code and a REX prefix in 64-bit code.
    let sweep = sweep(&[0x40, 0x90], 32, ImageAddr(0), &[], &mut Forms::default());
    assert_eq!(sweep.instructions.len(), 2);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_as_by_the_decoder(
        once in prop::collection::vec(any::<u8>(), 8..64),
    ) {
        // What was seen before has a layout the second time.
        agrees(&[once.as_slice(), &once].concat());
    }

    #[test]
    fn instructions_cover_any_bytes_without_gaps(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        known in prop::collection::btree_set(0u32..200, 0..8),
    ) {
        let known: Vec<u32> = known.into_iter().filter(|k| (*k as usize) < bytes.len()).collect();
        let mut next = 0;
        for (offset, len, _) in swept(&bytes, &known) {
            prop_assert_eq!(offset, next);
            prop_assert!(0 < len);
            next += u32::from(len);
        }
        prop_assert_eq!(next as usize, bytes.len());
    }
}
