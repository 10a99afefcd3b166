//! Why a file cannot be read as a profile, or written as one.

use super::super::Inconsistent;

/// Why some bytes are no readable snapshot, or why a snapshot cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of something else.
    #[error("not an hbbp-sys profile")]
    NotASnapshot,
    /// The format has another major version.
    #[error(
        "unsupported profile version {found} (this hbbp-sys reads version {known}): use the hbbp-sys \
         version that wrote it"
    )]
    Version {
        /// Major version of the file.
        found: u16,
        /// Major version of this reader.
        known: u16,
    },
    /// The file ends too early.
    #[error("truncated profile: it ends {place}")]
    Truncated {
        /// Where it ends, in words.
        place: String,
    },
    /// The frame between sections is damaged, so that none after it can be found.
    #[error("damaged profile: wrong checksum of the section header after {before}")]
    Frame {
        /// What comes before the damage, in words.
        before: String,
    },
    /// Something follows the end of the snapshot.
    #[error("{n_bytes} trailing bytes: the profile is damaged, or two files were joined")]
    Trailing {
        /// How many bytes.
        n_bytes: usize,
    },
    /// A section that is needed is damaged.
    #[error("damaged section `{section}`: {why}")]
    Damaged {
        /// Name of the section.
        section: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A required section is missing, or a section occurs more than once.
    #[error("expected one section `{section}`, found {found}")]
    Count {
        /// Name of the section.
        section: &'static str,
        /// How many there are.
        found: usize,
    },
    /// There are several runs where one is needed.
    #[error("the profile holds {found} runs, and this needs one: use the profiles that were merged")]
    Runs {
        /// How many.
        found: usize,
    },
    /// The runs of a merged profile are more than a reader grants memory for.
    #[error("the runs together need more memory than a profile may take: merge fewer")]
    TooLarge,
    /// The data read or written is inconsistent.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
}
