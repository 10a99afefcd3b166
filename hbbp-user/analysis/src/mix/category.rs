//! What an instruction does, by its mnemonic: the groups of SDM vol. 1, chapter 5 ("Instruction Set Summary"), cut across
//! the extensions, so that an AVX addition and an x87 addition are both arithmetic.

use std::collections::HashMap;
use std::sync::LazyLock;

macro_rules! categories {
    ($($variant:ident, $name:literal;)*) => {
        /// What an instruction does.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Category {
            $(#[doc = $name] $variant,)*
        }

        impl Category {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

categories! {
    Transfer, "data transfer";
    Stack, "stack";
    Arithmetic, "arithmetic";
    Logic, "logic";
    Shift, "shift and rotate";
    Bit, "bit and byte";
    Compare, "compare";
    Convert, "convert";
    Shuffle, "shuffle and pack";
    String, "string";
    Exchange, "exchange";
    ConditionalBranch, "branch, conditional";
    Jump, "branch, unconditional";
    Call, "call";
    Return, "return";
    SystemCall, "system call";
    Trap, "trap";
    Flags, "flags";
    Crypto, "cryptography";
    Random, "random number";
    Cache, "cache and prefetch";
    Sync, "synchronisation";
    State, "state save and restore";
    Matrix, "matrix";
    Io, "input and output";
    System, "system";
    Nop, "nop";
    Other, "other";
}

use Category as C;

/// Prefixes of mnemonics; the longest match wins. A `=` at the end requires the whole mnemonic.
/// Mnemonics of VEX and EVEX encodings are looked up without their V.
const BEGINNINGS: &[(C, &str)] = &[
    (
        C::Transfer,
        "MOV CMOV FCMOV LEA= LDDQU LDS= LES= LFS= LGS= LSS= XLAT LAHF SAHF FLD FILD FST FIST FBLD FBSTP FXCH",
    ),
    (
        C::Transfer,
        "MASKMOV GATHER PGATHER SCATTER PSCATTER PMASKMOV PMOV2M BROADCAST KMOV UMOV BNDMOV BNDLDX BNDSTX",
    ),
    (
        C::Transfer,
        "EXTRACTPS PEXTR PINSR FFREE FINCSTP FDECSTP PMOVMSKB BCSTNE KEXTRACT KMERGE STMXCSR LDMXCSR FNSTCW",
    ),
    (
        C::Transfer,
        "FLDCW FSTCW FNSTSW FSTSW LOADUNPACK PACKSTORE ENQCMD FNSTDW FNSTSG PMV",
    ),
    (C::Stack, "PUSH POP ENTER LEAVE"),
    (
        C::Arithmetic,
        "ADD ADC ADCX ADOX SUB SBB MUL IMUL DIV IDIV INC= DEC= NEG AAA AAD AAM AAS DAA DAS MAX MIN SQRT",
    ),
    (
        C::Arithmetic,
        "RCP RSQRT ROUND HADD HSUB DPPD DPPS FMA FMS FNMA FNMS FMUL FADD FSUB FDIV FIADD FISUB FIMUL FIDIV",
    ),
    (
        C::Arithmetic,
        "FABS FCHS FSQRT FPREM FRNDINT FSCALE FXTRACT F2XM1 FYL2X FPATAN FPTAN FSIN FCOS FCMADD FCMUL",
    ),
    (
        C::Arithmetic,
        "PADD PSUB PMUL PMADD PAVG PABS PSIGN PMAX PMIN PSAD PHADD PHSUB PHMINPOS MPSADBW DBPSADBW PMAC",
    ),
    (
        C::Arithmetic,
        "PFACC PFADD PFSUB PFMUL PFMAX PFMIN PFRCP PFRSQ PFNACC PFPNACC PAVEB PMAGW PDISTIB PDPB PDPW P4DP 4FMA 4FNMA KADD",
    ),
    (
        C::Arithmetic,
        "EXP2 SCALEF GETEXP GETMANT FIXUP RANGE REDUCE RNDSCALE FRCZ MULX DPBF16 GMAX GMIN EXP223 LOG2 SCALEPS",
    ),
    (
        C::Arithmetic,
        "PADC PADDSET PSBB RNDFXPNT ADDN ADDSET SUBR PSUBR CRC32 PFMADD BNDMK FRINT FRINEAR FRICHOP PMADC",
    ),
    (
        C::Logic,
        "AND OR XOR NOT PAND POR PXOR PTERNLOG ANDN KAND KOR KXOR KXNOR KNOT PCMOV KUNPCK",
    ),
    (
        C::Shift,
        "SHL SHR SAL SAR ROL ROR RCL RCR RORX SARX SHLX SHRX PSLL PSRL PSRA PROL PROR PROT PSHA PSHL PSHR KSHIFT",
    ),
    (C::Shift, "PMULTISHIFT"),
    (
        C::Bit,
        "BT BSF BSR BSWAP= SET POPCNT PPOPCNT POPCNTB POPCNTD POPCNTQ POPCNTW LZCNT PLZCNT TZCNT BLS BLC BZHI BEXTR",
    ),
    (
        C::Bit,
        "PDEP PEXT= T1MSKC TZMSK PCONFLICT EXTRQ INSERTQ SALC PSHUFBITQMB",
    ),
    (
        C::Compare,
        "CMP= CMPB CMPP CMPS CMPU TEST COMI UCOMI PCMP PTEST FCOM FICOM FUCOM FTST FXAM PCOM KTEST KORTEST PFCMP",
    ),
    (C::Compare, "FPCLASS P2INTERSECT BNDCL BNDCN BNDCU BOUND"),
    (
        C::Convert,
        "CVT CBW CWD CDQ CQO PMOVSX PMOVZX PMOVS PMOVU PMOVD PMOVQ PMOVW PMOVB PMOVM PF2I PI2F",
    ),
    (
        C::Shuffle,
        "SHUF PSHUF UNPCK PUNPCK PACK PERM PPERM PALIGN ALIGN BLEND PBLEND INSERT EXTRACT PBROADCAST",
    ),
    (C::Shuffle, "COMPRESS PCOMPRESS EXPAND PEXPAND PSWAPD KCONCAT"),
    (
        C::String,
        "MOVSB= MOVSW= MOVSQ= STOS LODS SCAS CMPSB= CMPSW= CMPSQ=",
    ),
    (
        C::Exchange,
        "XCHG XADD CMPXCHG AADD AAND AOR AXOR CMPBEXADD CMPBXADD CMPLEXADD CMPLXADD CMPNBEXADD CMPNBXADD",
    ),
    (
        C::Exchange,
        "CMPNLEXADD CMPNLXADD CMPNOXADD CMPNPXADD CMPNSXADD CMPNZXADD CMPOXADD CMPPXADD CMPSXADD CMPZXADD",
    ),
    (
        C::Flags,
        "CLC= STC= CMC= CLD= STD= CLI= STI= CLAC STAC CLUI STUI TESTUI CLGI STGI",
    ),
    (
        C::Crypto,
        "AES SHA PCLMUL GF2P8 XCRYPT XSHA MONTMUL CCS_ ENCODEKEY LOADIWKEY SM3 SM4",
    ),
    (C::Random, "RDRAND RDSEED XSTORE"),
    (
        C::Cache,
        "PREFETCH CLFLUSH CLWB CLDEMOTE CLZERO WBINVD WBNOINVD INVD= PCOMMIT GATHERPF SCATTERPF CLEVICT CL1INVMB",
    ),
    (
        C::Sync,
        "MFENCE LFENCE SFENCE PAUSE MONITOR MWAIT UMONITOR UMWAIT TPAUSE SERIALIZE XBEGIN XEND XABORT XTEST",
    ),
    (C::Sync, "XSUSLDTRK XRESLDTRK MCOMMIT DELAY SPFLT"),
    (
        C::State,
        "XSAVE XRSTOR FXSAVE FXRSTOR FSAVE FNSAVE FRSTOR FLDENV FSTENV FNSTENV ZEROALL ZEROUPPER EMMS FEMMS FINIT",
    ),
    (
        C::State,
        "FNINIT FCLEX FNCLEX XGETBV XSETBV WAIT FENI FNENI FDISI FNDISI FSETPM FNSETPM FRSTPM",
    ),
    (C::Matrix, "TDP TILE LDTILE STTILE TCMM TCVTROW TMMUL"),
    (C::Io, "IN= OUT= INS OUTS"),
    (
        C::System,
        "HLT LGDT LIDT LLDT LTR LMSW SGDT SIDT SLDT STR= SMSW CLTS INVLPG INVPCID INVEPT INVVPID RDMSR WRMSR RDPMC",
    ),
    (
        C::System,
        "URDMSR UWRMSR RDTSC RDPID RDPRU CPUID SWAPGS RDFSBASE RDGSBASE WRFSBASE WRGSBASE RDPKRU WRPKRU LAR LSL VERR VERW ARPL",
    ),
    (
        C::System,
        "VM RDSSP INCSSP WRSS WRUSS RSTORSSP SAVEPREVSSP SETSSBSY CLRSSBSY ENCL PCONFIG PTWRITE GETSEC SEAM TDCALL",
    ),
    (
        C::System,
        "HRESET LKGS SENDUIPI RMP PSMASH PVALIDATE TLBSYNC RSM SKINIT LWP LLWP SLWP PBNDKB RDUDBG WRUDBG RDM ERET",
    ),
    (
        C::System,
        "STOREALL LOADALL XBTS IBTS RDSHR WRSHR SVDC RSDC SVLDT RSLDT SVTS RSTS BB0_ BB1_ CPU_ ALTINST",
    ),
    (C::Trap, "INT INT1 INT3 INTO UD"),
    (C::Nop, "NOP FNOP RESERVEDNOP ENDBR"),
];

/// The category of an instruction without control flow, by its mnemonic in upper case.
///
/// `coding` is the mnemonic without what only names the encoding; see [`strip_encoding`].
pub(super) fn category(coding: &str) -> Category {
    let Known { whole, beginnings } = &*KNOWN;
    if let Some(category) = whole.get(coding) {
        return *category;
    }
    let longest = (1..=coding.len())
        .rev()
        .find_map(|len| beginnings.get(coding.get(..len)?));
    longest.copied().unwrap_or(Category::Other)
}

/// [`BEGINNINGS`], to be looked up.
struct Known {
    whole: HashMap<&'static str, Category>,
    beginnings: HashMap<&'static str, Category>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let words = BEGINNINGS
        .iter()
        .flat_map(|(category, words)| words.split(' ').map(move |word| (word, *category)));
    let (whole, beginnings): (Vec<_>, Vec<_>) = words.partition(|(word, _)| word.ends_with('='));
    let whole = whole
        .into_iter()
        .map(|(word, category)| (word.trim_end_matches('='), category));
    Known {
        whole: whole.collect(),
        beginnings: beginnings.into_iter().collect(),
    }
});

/// The mnemonic without the V of VEX and EVEX encodings: `VADDPS` is coded as `ADDPS`.
pub(super) fn strip_encoding(mnemonic: &str, legacy: Legacy) -> &str {
    match (legacy, mnemonic.strip_prefix('V')) {
        (Legacy::No, Some(rest)) => rest,
        _ => mnemonic,
    }
}

/// Whether an instruction has the legacy encoding, in which a V belongs to the name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Legacy {
    /// Legacy prefixes only.
    Yes,
    /// VEX, EVEX, XOP or the like.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_of_the_longest_prefix_wins() {
        let cases = [
            ("MOV", C::Transfer),
            ("MOVSB", C::String),
            ("MOVSS", C::Transfer),
            ("PMOVZXBW", C::Convert),
            ("PMOVMSKB", C::Transfer),
            ("PEXT", C::Bit),
            ("PEXTRB", C::Transfer),
            ("POP", C::Stack),
            ("POPCNT", C::Bit),
            ("INC", C::Arithmetic),
            ("IN", C::Io),
            ("INT3", C::Trap),
            ("INSERTPS", C::Shuffle),
            ("CMPXCHG8B", C::Exchange),
            ("PCMPEQB", C::Compare),
            ("PSHLDQ", C::Shift),
            ("PSHUFB", C::Shuffle),
            ("ORPS", C::Logic),
            ("VERW", C::System),
        ];
        for (mnemonic, expected) in cases {
            assert_eq!(category(mnemonic), expected, "{mnemonic}");
        }
    }

    #[test]
    fn category_ignores_the_v_of_vex_encodings() {
        assert_eq!(category(strip_encoding("VPADDD", Legacy::No)), C::Arithmetic);
        assert_eq!(category(strip_encoding("VMCALL", Legacy::Yes)), C::System);
    }
}
