//! The instruction set extension of an instruction, by the CPUID bits that announce it, named as in the Intel manuals.

use iced_x86::{Code, CpuidFeature};

/// The extension that a CPUID bit announces. What every x86-64 processor has is BASE, x87 is X87.
pub(super) fn extension(code: Code) -> String {
    let features = code.cpuid_features();
    let special = |feature: &&CpuidFeature| !is_base(**feature) && **feature != CpuidFeature::AVX512VL;
    // The last one is the most specific; AVX and AVX512F then only name the encoding.
    let named = |feature: &&CpuidFeature| {
        special(feature) && !matches!(**feature, CpuidFeature::AVX | CpuidFeature::AVX512F)
    };
    let is_x87 = features.iter().any(|f| format!("{f:?}").starts_with("FPU"));
    match features
        .iter()
        .rev()
        .find(named)
        .or_else(|| features.iter().rev().find(special))
    {
        _ if is_x87 => "X87".to_owned(),
        None => "BASE".to_owned(),
        Some(CpuidFeature::HLE_or_RTM) => "RTM".to_owned(),
        Some(feature) => format!("{feature:?}").replace("SSE4_", "SSE4.").to_uppercase(),
    }
}

/// Whether every x86-64 processor has what a CPUID bit announces, other than x87 and vectors.
pub(super) fn is_base(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    let name = format!("{feature:?}");
    let old = name.starts_with("INTEL") && name != "INTEL8086_ONLY";
    let base = matches!(
        feature,
        F::X64
            | F::CMOV
            | F::CPUID
            | F::CX8
            | F::MSR
            | F::MULTIBYTENOP
            | F::PAUSE
            | F::RDPMC
            | F::SEP
            | F::SYSCALL
            | F::TSC
    );
    old || base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_is_the_most_specific_cpuid_bit() {
        let cases = [
            (Code::Mov_r64_rm64, "BASE"),
            (Code::Cmovb_r64_rm64, "BASE"),
            (Code::Fsin, "X87"),
            (Code::Fisttp_m32int, "X87"),
            (Code::Pextrd_rm32_xmm_imm8, "SSE4.1"),
            (Code::VEX_Vaddps_ymm_ymm_ymmm256, "AVX"),
            (Code::VEX_Vaesenc_xmm_xmm_xmmm128, "AES"),
            (Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, "AVX512F"),
            (Code::EVEX_Vpaddb_xmm_k1z_xmm_xmmm128, "AVX512BW"),
            (Code::EVEX_Vgf2p8mulb_zmm_k1z_zmm_zmmm512, "GFNI"),
            (Code::VEX_Andn_r32_r32_rm32, "BMI1"),
            (Code::Xbegin_rel32, "RTM"),
        ];
        for (code, name) in cases {
            assert_eq!(extension(code), name, "{code:?}");
        }
    }
}
