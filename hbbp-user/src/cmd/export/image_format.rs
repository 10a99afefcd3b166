//! Formats that describe one image: what their counts are, what they need, and how their files are called.

use hbbp_model::snapshot::hex;
use hbbp_output::export::chosen::RanImage;
use hbbp_output::export::counted::Scale;

/// A format that describes one image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageFormat {
    /// BOLT's pre-aggregated profile.
    Bolt,
    /// llvm-profgen's unsymbolized profile.
    Profgen,
    /// The text profile of create_llvm_prof.
    Ranges,
    /// Branch stacks as perf prints them.
    PerfScript,
    /// LLVM's sample profile as text.
    Autofdo,
    /// The same in its extensible binary form.
    ExtBinary,
}

impl ImageFormat {
    const fn extension(self) -> &'static str {
        match self {
            Self::Bolt => "preagg",
            Self::Profgen => "unsymbolized",
            Self::Ranges => "ranges",
            Self::PerfScript => "perf-script",
            Self::Autofdo => "afdo.txt",
            Self::ExtBinary => "afdo",
        }
    }

    /// What its counts are. The number of stacks is that of the recording. BOLT takes executions, as its own
    /// instrumentation counts them: of numbers as small as those of samples, rounding drops the few branches that
    /// connect a function.
    pub(super) const fn scale(self) -> Scale {
        match self {
            Self::PerfScript => Scale::Recorded,
            Self::Bolt | Self::Profgen | Self::Ranges | Self::Autofdo | Self::ExtBinary => Scale::Executions,
        }
    }

    /// Whether its addresses are not those of the ELF file, so that a program's file has to be read too.
    pub(super) const fn needs_file(self) -> bool {
        matches!(self, Self::Profgen | Self::Ranges | Self::PerfScript)
    }

    /// Whether counts of addresses are enough, so that profiles without branch stacks serve too.
    pub(super) const fn takes_addresses(self) -> bool {
        matches!(self, Self::Autofdo | Self::ExtBinary)
    }

    /// `NAME-BUILDID.EXTENSION`, of the characters that file names are safe with; the number means an unknown build id.
    pub(super) fn file_name(self, image: &RanImage, n: usize) -> String {
        /// Digits of the build id: enough to distinguish two of one name.
        const DIGITS: usize = 8;

        let last = image.name().rsplit('/').next().unwrap_or_default();
        let safe: String = last
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-+".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let safe = safe.trim_matches(['_', '.']);
        let id = hex(&image.build_id);
        let id = id.get(..DIGITS).map_or_else(|| n.to_string(), str::to_owned);
        format!("{safe}-{id}.{}", self.extension())
    }
}
