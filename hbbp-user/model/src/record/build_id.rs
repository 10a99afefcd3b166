//! Build ids as records carry them: at most 20 bytes, stored inline.

use std::fmt;

/// `BUILD_ID_SIZE_MAX` in `include/linux/buildid.h`.
const MAX: usize = 20;

/// The GNU build id of a mapped file.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BuildId {
    len: u8,
    /// Zero after its end, so that equal ids are equal bytes.
    bytes: [u8; MAX],
}

impl BuildId {
    /// Of these bytes; `None` if the kernel records fewer.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let len = u8::try_from(id.len()).ok()?;
        Some(Self { len, bytes })
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_as_long_as_they_were() {
        let short = BuildId::new(&[1, 0]).unwrap();
        assert_eq!(short.as_slice(), [1, 0]);
        assert_ne!(Some(short), BuildId::new(&[1]));
        assert_eq!(BuildId::new(&[7; 20]).unwrap().as_slice(), [7; 20]);
        assert_eq!(BuildId::new(&[7; 21]), None);
        assert_eq!(format!("{short:?}"), "0100");
    }
}
