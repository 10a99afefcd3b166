//! New instructions of AVX10.2, and the nearest ones of AVX-512: with the same operands in memory and the same width.

use crate::evex::Evex;
use crate::modern::{Extension, Modern};

/// What an instruction under EVEX is known by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Opcode {
    pub(crate) map: u8,
    /// The implied prefix: none, 0x66, 0xf3 or 0xf2.
    pub(crate) implied: u8,
    pub(crate) is_wide: bool,
    pub(crate) opcode: u8,
}

const fn op(map: u8, implied: u8, w: u8, opcode: u8) -> Opcode {
    Opcode {
        map,
        implied,
        is_wide: w != 0,
        opcode,
    }
}

/// Mnemonic, opcode, and the opcode of the nearest instruction of AVX-512 (AVX10.2 specification, chapters 7 to 13, and
/// MOVRS, which has vector forms with AVX10.2).
#[rustfmt::skip]
const INSTRUCTIONS: [(&str, Opcode, Opcode); 108] = [
    ("VUCOMXSS", op(1, 2, 0, 0x2e), op(1, 0, 0, 0x2e)),
    ("VCOMXSS", op(1, 2, 0, 0x2f), op(1, 0, 0, 0x2f)),
    ("VUCOMXSD", op(1, 3, 1, 0x2e), op(1, 1, 1, 0x2e)),
    ("VCOMXSD", op(1, 3, 1, 0x2f), op(1, 1, 1, 0x2f)),
    ("VMOVD", op(1, 2, 0, 0x7e), op(1, 1, 0, 0x6e)),
    ("VMOVD", op(1, 1, 0, 0xd6), op(1, 1, 0, 0x7e)),
    ("VPDPBUUD", op(2, 0, 0, 0x50), op(2, 1, 0, 0x50)),
    ("VPDPBSUD", op(2, 2, 0, 0x50), op(2, 1, 0, 0x50)),
    ("VPDPBSSD", op(2, 3, 0, 0x50), op(2, 1, 0, 0x50)),
    ("VPDPBUUDS", op(2, 0, 0, 0x51), op(2, 1, 0, 0x51)),
    ("VPDPBSUDS", op(2, 2, 0, 0x51), op(2, 1, 0, 0x51)),
    ("VPDPBSSDS", op(2, 3, 0, 0x51), op(2, 1, 0, 0x51)),
    ("VPDPWUUD", op(2, 0, 0, 0xd2), op(2, 1, 0, 0x52)),
    ("VPDPWUSD", op(2, 1, 0, 0xd2), op(2, 1, 0, 0x52)),
    ("VPDPWSUD", op(2, 2, 0, 0xd2), op(2, 1, 0, 0x52)),
    ("VPDPWUUDS", op(2, 0, 0, 0xd3), op(2, 1, 0, 0x53)),
    ("VPDPWUSDS", op(2, 1, 0, 0xd3), op(2, 1, 0, 0x53)),
    ("VPDPWSUDS", op(2, 2, 0, 0xd3), op(2, 1, 0, 0x53)),
    ("VDPPHPS", op(2, 0, 0, 0x52), op(2, 2, 0, 0x52)),
    ("VCVT2PS2PHX", op(2, 1, 0, 0x67), op(1, 0, 0, 0x58)),
    ("VCVTBIASPH2BF8", op(2, 0, 0, 0x74), op(5, 0, 0, 0x58)),
    ("VCVTPH2BF8", op(2, 2, 0, 0x74), op(5, 0, 0, 0x7d)),
    ("VCVT2PH2BF8", op(2, 3, 0, 0x74), op(5, 0, 0, 0x58)),
    ("VCVTBIASPH2BF8S", op(5, 0, 0, 0x74), op(5, 0, 0, 0x58)),
    ("VCVTPH2BF8S", op(5, 2, 0, 0x74), op(5, 0, 0, 0x7d)),
    ("VCVT2PH2BF8S", op(5, 3, 0, 0x74), op(5, 0, 0, 0x58)),
    ("VCVTBIASPH2HF8", op(5, 0, 0, 0x18), op(5, 0, 0, 0x58)),
    ("VCVTPH2HF8", op(5, 2, 0, 0x18), op(5, 0, 0, 0x7d)),
    ("VCVT2PH2HF8", op(5, 3, 0, 0x18), op(5, 0, 0, 0x58)),
    ("VCVTBIASPH2HF8S", op(5, 0, 0, 0x1b), op(5, 0, 0, 0x58)),
    ("VCVTPH2HF8S", op(5, 2, 0, 0x1b), op(5, 0, 0, 0x7d)),
    ("VCVT2PH2HF8S", op(5, 3, 0, 0x1b), op(5, 0, 0, 0x58)),
    ("VCVTHF82PH", op(5, 3, 0, 0x1e), op(6, 1, 0, 0x13)),
    ("VSM4KEY4", op(2, 2, 0, 0xda), op(1, 1, 0, 0xfe)),
    ("VSM4RNDS4", op(2, 3, 0, 0xda), op(1, 1, 0, 0xfe)),
    ("VRNDSCALEBF16", op(3, 3, 0, 0x08), op(3, 0, 0, 0x08)),
    ("VGETMANTBF16", op(3, 3, 0, 0x26), op(3, 0, 0, 0x26)),
    ("VREDUCEBF16", op(3, 3, 0, 0x56), op(3, 0, 0, 0x56)),
    ("VFPCLASSBF16", op(3, 3, 0, 0x66), op(3, 0, 0, 0x66)),
    ("VCMPBF16", op(3, 3, 0, 0xc2), op(3, 0, 0, 0xc2)),
    ("VMPSADBW", op(3, 2, 0, 0x42), op(3, 1, 0, 0x42)),
    ("VMINMAXPH", op(3, 0, 0, 0x52), op(3, 1, 0, 0x50)),
    ("VMINMAXPS", op(3, 1, 0, 0x52), op(3, 1, 0, 0x50)),
    ("VMINMAXPD", op(3, 1, 1, 0x52), op(3, 1, 1, 0x50)),
    ("VMINMAXBF16", op(3, 3, 0, 0x52), op(3, 1, 0, 0x50)),
    ("VMINMAXSH", op(3, 0, 0, 0x53), op(3, 0, 0, 0x27)),
    ("VMINMAXSS", op(3, 1, 0, 0x53), op(3, 1, 0, 0x51)),
    ("VMINMAXSD", op(3, 1, 1, 0x53), op(3, 1, 1, 0x51)),
    ("VUCOMXSH", op(5, 2, 0, 0x2e), op(5, 0, 0, 0x2e)),
    ("VCOMXSH", op(5, 2, 0, 0x2f), op(5, 0, 0, 0x2f)),
    ("VCOMISBF16", op(5, 1, 0, 0x2f), op(5, 0, 0, 0x2f)),
    ("VSQRTBF16", op(5, 1, 0, 0x51), op(5, 0, 0, 0x51)),
    ("VADDBF16", op(5, 1, 0, 0x58), op(5, 0, 0, 0x58)),
    ("VMULBF16", op(5, 1, 0, 0x59), op(5, 0, 0, 0x59)),
    ("VSUBBF16", op(5, 1, 0, 0x5c), op(5, 0, 0, 0x5c)),
    ("VMINBF16", op(5, 1, 0, 0x5d), op(5, 0, 0, 0x5d)),
    ("VDIVBF16", op(5, 1, 0, 0x5e), op(5, 0, 0, 0x5e)),
    ("VMAXBF16", op(5, 1, 0, 0x5f), op(5, 0, 0, 0x5f)),
    ("VCVTTPH2IBS", op(5, 0, 0, 0x68), op(5, 1, 0, 0x7c)),
    ("VCVTTPS2IBS", op(5, 1, 0, 0x68), op(1, 2, 0, 0x5b)),
    ("VCVTTBF162IBS", op(5, 3, 0, 0x68), op(5, 0, 0, 0x7d)),
    ("VCVTPH2IBS", op(5, 0, 0, 0x69), op(5, 0, 0, 0x7d)),
    ("VCVTPS2IBS", op(5, 1, 0, 0x69), op(1, 1, 0, 0x5b)),
    ("VCVTBF162IBS", op(5, 3, 0, 0x69), op(5, 0, 0, 0x7d)),
    ("VCVTTPH2IUBS", op(5, 0, 0, 0x6a), op(5, 1, 0, 0x7c)),
    ("VCVTTPS2IUBS", op(5, 1, 0, 0x6a), op(1, 2, 0, 0x5b)),
    ("VCVTTBF162IUBS", op(5, 3, 0, 0x6a), op(5, 0, 0, 0x7d)),
    ("VCVTPH2IUBS", op(5, 0, 0, 0x6b), op(5, 0, 0, 0x7d)),
    ("VCVTPS2IUBS", op(5, 1, 0, 0x6b), op(1, 1, 0, 0x5b)),
    ("VCVTBF162IUBS", op(5, 3, 0, 0x6b), op(5, 0, 0, 0x7d)),
    ("VCVTTPS2UDQS", op(5, 0, 0, 0x6c), op(1, 0, 0, 0x78)),
    ("VCVTTPD2UDQS", op(5, 0, 1, 0x6c), op(1, 0, 1, 0x78)),
    ("VCVTTPS2UQQS", op(5, 1, 0, 0x6c), op(1, 1, 0, 0x78)),
    ("VCVTTPD2UQQS", op(5, 1, 1, 0x6c), op(1, 1, 1, 0x78)),
    ("VCVTTSS2USIS", op(5, 2, 0, 0x6c), op(1, 2, 0, 0x78)),
    ("VCVTTSD2USIS", op(5, 3, 0, 0x6c), op(1, 3, 0, 0x78)),
    ("VCVTTSS2SIS", op(5, 2, 0, 0x6d), op(1, 2, 0, 0x2c)),
    ("VCVTTSD2SIS", op(5, 3, 0, 0x6d), op(1, 3, 0, 0x2c)),
    ("VCVTTSS2USIS", op(5, 2, 1, 0x6c), op(1, 2, 1, 0x78)),
    ("VCVTTSD2USIS", op(5, 3, 1, 0x6c), op(1, 3, 1, 0x78)),
    ("VCVTTSS2SIS", op(5, 2, 1, 0x6d), op(1, 2, 1, 0x2c)),
    ("VCVTTSD2SIS", op(5, 3, 1, 0x6d), op(1, 3, 1, 0x2c)),
    ("VCVTTPS2DQS", op(5, 0, 0, 0x6d), op(1, 2, 0, 0x5b)),
    ("VCVTTPD2DQS", op(5, 0, 1, 0x6d), op(1, 1, 1, 0xe6)),
    ("VCVTTPS2QQS", op(5, 1, 0, 0x6d), op(1, 1, 0, 0x7a)),
    ("VCVTTPD2QQS", op(5, 1, 1, 0x6d), op(1, 1, 1, 0x7a)),
    ("VMOVW", op(5, 2, 0, 0x6e), op(5, 1, 0, 0x6e)),
    ("VMOVW", op(5, 2, 0, 0x7e), op(5, 1, 0, 0x7e)),
    ("VMOVRSD", op(5, 2, 0, 0x6f), op(1, 2, 0, 0x6f)),
    ("VMOVRSQ", op(5, 2, 1, 0x6f), op(1, 2, 1, 0x6f)),
    ("VMOVRSB", op(5, 3, 0, 0x6f), op(1, 3, 0, 0x6f)),
    ("VMOVRSW", op(5, 3, 1, 0x6f), op(1, 3, 1, 0x6f)),
    ("VSCALEFBF16", op(6, 0, 0, 0x2c), op(6, 1, 0, 0x2c)),
    ("VGETEXPBF16", op(6, 0, 0, 0x42), op(6, 1, 0, 0x42)),
    ("VRCPBF16", op(6, 0, 0, 0x4c), op(6, 1, 0, 0x4c)),
    ("VRSQRTBF16", op(6, 0, 0, 0x4e), op(6, 1, 0, 0x4e)),
    ("VFMADD132BF16", op(6, 0, 0, 0x98), op(6, 1, 0, 0x98)),
    ("VFMSUB132BF16", op(6, 0, 0, 0x9a), op(6, 1, 0, 0x9a)),
    ("VFNMADD132BF16", op(6, 0, 0, 0x9c), op(6, 1, 0, 0x9c)),
    ("VFNMSUB132BF16", op(6, 0, 0, 0x9e), op(6, 1, 0, 0x9e)),
    ("VFMADD213BF16", op(6, 0, 0, 0xa8), op(6, 1, 0, 0xa8)),
    ("VFMSUB213BF16", op(6, 0, 0, 0xaa), op(6, 1, 0, 0xaa)),
    ("VFNMADD213BF16", op(6, 0, 0, 0xac), op(6, 1, 0, 0xac)),
    ("VFNMSUB213BF16", op(6, 0, 0, 0xae), op(6, 1, 0, 0xae)),
    ("VFMADD231BF16", op(6, 0, 0, 0xb8), op(6, 1, 0, 0xb8)),
    ("VFMSUB231BF16", op(6, 0, 0, 0xba), op(6, 1, 0, 0xba)),
    ("VFNMADD231BF16", op(6, 0, 0, 0xbc), op(6, 1, 0, 0xbc)),
    ("VFNMSUB231BF16", op(6, 0, 0, 0xbe), op(6, 1, 0, 0xbe)),
];

/// The mnemonics of all of them.
pub(crate) fn mnemonics() -> impl Iterator<Item = &'static str> {
    INSTRUCTIONS.iter().map(|(mnemonic, _, _)| *mnemonic)
}

/// Whether the result of an instruction has half of the width of its source, unlike that of the nearest one.
pub(crate) fn has_half_result(mnemonic: Option<&str>) -> bool {
    let from = mnemonic.and_then(|mnemonic| mnemonic.strip_prefix("VCVT"));
    from.is_some_and(|from| {
        from.starts_with("PH2BF8") || from.starts_with("PH2HF8") || from.starts_with("BIASPH2")
    })
}

/// The nearest instruction of AVX-512 to one of AVX10.2, and what differs.
pub(crate) fn nearest(evex: &Evex<'_>) -> Option<(Modern, Opcode)> {
    let wanted = Opcode {
        map: evex.map(),
        implied: evex.implied(),
        is_wide: evex.is_wide(),
        opcode: evex.opcode,
    };
    let (mnemonic, _, nearest) = INSTRUCTIONS.iter().find(|(_, opcode, _)| *opcode == wanted)?;
    let nearest = match *mnemonic {
        "VMOVD" | "VMOVW" if evex.has_register() => between_vectors(wanted),
        _ => *nearest,
    };
    let modern = Modern {
        mnemonic: Some(mnemonic),
        extension: Extension::Avx10_2,
        has_new_destination: false,
    };
    Some((modern, nearest))
}

/// Moves from vector to vector are VMOVQ, which has no general register either.
const fn between_vectors(of: Opcode) -> Opcode {
    match of.opcode {
        0xd6 => op(1, 1, 1, 0xd6),
        0x7e if of.map == 5 => op(1, 1, 1, 0xd6),
        _ => op(1, 2, 1, 0x7e),
    }
}
