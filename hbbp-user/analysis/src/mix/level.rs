//! The x86-64 level of an instruction: the lowest one that every processor of has it (System V ABI, AMD64 supplement 1.0,
//! table 3.1, "Micro-Architecture Levels").

use iced_x86::{Code, CpuidFeature, Mnemonic};

use super::extension::is_base;

/// Names of the levels; the last is that of instructions that no level has, such as AES or VNNI.
pub(super) const LEVELS: [&str; 5] = ["v1", "v2", "v3", "v4", NO_LEVEL];
/// That of an instruction that no level has.
pub(super) const NO_LEVEL: &str = "no level";

/// The name of the level of an instruction.
pub(super) fn level(code: Code) -> &'static str {
    // The CPUID bit of LAHF and SAHF is for 64-bit code only, and the decoder does not name it.
    let is_lahf = matches!(code.mnemonic(), Mnemonic::Lahf | Mnemonic::Sahf);
    let first = if is_lahf { 1 } else { 0 };
    let features = code.cpuid_features().iter();
    let level = features
        .map(|feature| of_feature(*feature))
        .fold(first, usize::max);
    LEVELS.get(level).copied().unwrap_or_default()
}

/// Index of the level that a CPUID bit belongs to.
fn of_feature(feature: CpuidFeature) -> usize {
    use CpuidFeature as F;
    match feature {
        _ if is_base(feature) || format!("{feature:?}").starts_with("FPU") => 0,
        F::MMX | F::SSE | F::SSE2 | F::FXSR | F::CLFSH => 0,
        F::SSE3 | F::SSSE3 | F::SSE4_1 | F::SSE4_2 | F::POPCNT | F::CMPXCHG16B => 1,
        F::AVX | F::AVX2 | F::BMI1 | F::BMI2 | F::F16C | F::FMA | F::LZCNT | F::MOVBE | F::XSAVE => 2,
        F::AVX512F | F::AVX512BW | F::AVX512CD | F::AVX512DQ | F::AVX512VL => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_the_lowest_that_has_the_instruction() {
        let cases = [
            (Code::Mov_r64_rm64, "v1"),
            (Code::Wrmsr, "v1"),
            (Code::Addps_xmm_xmmm128, "v1"),
            (Code::Fsin, "v1"),
            (Code::Lahf, "v2"),
            (Code::Popcnt_r64_rm64, "v2"),
            (Code::Pshufb_xmm_xmmm128, "v2"),
            (Code::VEX_Vaddps_ymm_ymm_ymmm256, "v3"),
            (Code::VEX_Andn_r32_r32_rm32, "v3"),
            (Code::EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32, "v4"),
            (Code::EVEX_Vpdpbusd_xmm_k1z_xmm_xmmm128b32, "no level"),
            (Code::Aesenc_xmm_xmmm128, "no level"),
            (Code::VEX_Vaesenc_xmm_xmm_xmmm128, "no level"),
        ];
        for (code, name) in cases {
            assert_eq!(level(code), name, "{code:?}");
        }
    }
}
