//! Why a section is refused, and the memory that its rows may take.

/// Why the content of a section cannot be what a version of hbbp-sys wrote.
#[derive(Debug, thiserror::Error)]
pub(in crate::snapshot) enum Malformed {
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
pub(in crate::snapshot) struct Capacity(pub(in crate::snapshot) usize);

impl Capacity {
    /// Takes `len` bytes for a row of the table `what`.
    #[inline]
    pub(super) fn take(&mut self, what: &'static str, len: usize) -> Result<(), Malformed> {
        self.0 = self.0.checked_sub(len).ok_or(Malformed::Capacity(what))?;
        Ok(())
    }
}
