//! Instructions and states by chance, from a seed.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Whether it happens, in `percent` of the cases.
    pub(crate) fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[0]
    }

    /// A value that is often at a border: small, with few ones, or with the sign alone.
    pub(crate) fn value(&mut self) -> u64 {
        let bits = self.bits();
        match self.below(10) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (bits % 64),
            3 => (1 << (bits % 64)) - 1,
            4 => (bits % 40).wrapping_sub(8),
            5 => bits % 256,
            6 => !(1 << (bits % 64)),
            7 => bits >> (bits % 64),
            _ => bits,
        }
    }
}

/// The bytes of an instruction; those after its end are by chance.
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    /// Where its displacement lies, if it is an address without registers.
    pub(crate) displacement: Option<usize>,
}

/// An instruction of any map.
pub(crate) fn instruction(chance: &mut Chance) -> Bytes {
    let mut bytes = Vec::new();
    let (is_vex, is_evex) = (chance.is(20), chance.is(12));
    let mut prefix = |chance: &mut Chance, percent, byte: u8| {
        if chance.is(percent) {
            bytes.push(byte);
        }
    };
    prefix(chance, if is_vex || is_evex { 0 } else { 20 }, 0x66);
    prefix(chance, 4, 0x67);
    let segment = if chance.is(50) { 0x64 } else { 0x65 };
    prefix(chance, 4, segment);
    if is_vex {
        vex(chance, &mut bytes);
    } else if is_evex {
        evex(chance, &mut bytes);
    } else {
        prefix(chance, 4, 0xf0);
        prefix(chance, 8, 0xf2);
        prefix(chance, 8, 0xf3);
        let rex = 0x40 | chance.byte() & 15;
        prefix(chance, 50, rex);
        match chance.below(10) {
            0..5 => {}
            5..8 => bytes.push(0x0f),
            8 => bytes.extend([0x0f, 0x38]),
            _ => bytes.extend([0x0f, 0x3a]),
        }
        bytes.push(chance.byte());
    }
    let mut modrm = chance.byte();
    if chance.is(25) {
        modrm |= 0xc0;
    }
    bytes.push(modrm);
    let sib = chance.byte();
    let mut displacement = None;
    if modrm & 0xc7 == 5 {
        displacement = Some(bytes.len());
    }
    if modrm & 0xc0 != 0xc0 && modrm & 7 == 4 {
        bytes.push(sib);
        if modrm & 0xc0 == 0 && sib & 0x3f == 0x25 {
            displacement = Some(bytes.len());
        }
    }
    bytes.extend(chance.bits().to_le_bytes());
    bytes.extend(chance.bits().to_le_bytes());
    Bytes { bytes, displacement }
}

/// A prefix VEX of three bytes, and the opcode.
fn vex(chance: &mut Chance, bytes: &mut Vec<u8>) {
    let map = 1 + chance.byte() % 3;
    let mut last = chance.byte();
    if chance.is(30) {
        // No second source.
        last |= 0x78;
    }
    let r_x_b = chance.byte() & 0xe0;
    if chance.is(25) {
        // BMI1 and BMI2, which are few among the vectors.
        let (map, opcode) = if chance.is(10) {
            (3, 0xf0)
        } else {
            (2, 0xf2 + chance.byte() % 6)
        };
        bytes.extend([0xc4, r_x_b | map, last & !4, opcode]);
    } else {
        bytes.extend([0xc4, r_x_b | map, last, chance.byte()]);
    }
}

/// A prefix EVEX, and the opcode.
fn evex(chance: &mut Chance, bytes: &mut Vec<u8>) {
    let map = 1 + chance.byte() % 3;
    // The last of its bytes has the mask, and whether others are zeroed, and a broadcast or rounding.
    let (mut second, mut last) = (chance.byte() | 4, chance.byte() & !0x10);
    if chance.is(50) {
        last &= !0x87;
    }
    if chance.is(40) {
        // No second source.
        (second, last) = (second | 0x78, last | 8);
    }
    bytes.extend([0x62, chance.byte() & 0xf0 | map, second, last, chance.byte()]);
}
