//! The messages inside the sections of a snapshot file, and their translation from and to the snapshot.
//!
//! Every message is protobuf, so that a field which a newer version adds is skipped by an older one.
//! Tables (modules, symbols, process images, text, counts) are rows of LEB128 numbers inside one `bytes` field, which
//! FORMAT.md specifies: neighbouring rows resemble each other, so differences are short, and a reader allocates
//! nothing but the rows themselves, each of which it checks against a [`Capacity`].
//! Values that no version has written are errors, never a guess.

mod classes;
mod counts;
mod images;
mod number;
mod run;

pub(super) use counts::CountsSection;
pub(super) use images::{
    ModulesSection, ProcessesSection, StaticBranchesSection, SymbolsSection, TextSection,
};
pub(super) use run::{LossesSection, RunSection};

/// Why the content of a section cannot be what a version of hbbp-sys wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    /// The bytes are not the protobuf message of this section.
    #[error("{0}")]
    Protobuf(#[from] prost::DecodeError),
    /// A table ends inside a row, or does not end with its last row.
    #[error("rows of {0} do not match their table")]
    Rows(&'static str),
    /// A field has no value that this version knows.
    #[error("unknown value {1} of {0}")]
    Value(&'static str, i64),
    /// A weight is infinite or NaN.
    #[error("weight is not finite")]
    Weight,
    /// A name is not UTF-8.
    #[error("name is not UTF-8")]
    Name(#[from] std::str::Utf8Error),
    /// The rows need more memory than any profile that this version writes.
    #[error("{0} need more memory than a profile may take")]
    Capacity(&'static str),
}

/// Memory in bytes that the rows still to be read may take.
#[derive(Debug)]
pub(super) struct Capacity(pub(super) usize);

impl Capacity {
    /// Takes `len` bytes for a row of the table `what`.
    #[inline]
    fn take(&mut self, what: &'static str, len: usize) -> Result<(), Malformed> {
        self.0 = self.0.checked_sub(len).ok_or(Malformed::Capacity(what))?;
        Ok(())
    }
}
