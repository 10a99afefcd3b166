//! Addresses for files that a text names by their build ids, with addresses as the files state them.
//!
//! Counts hold addresses as executed. Such a text has none, so each file gets a range of its own, above all addresses
//! that a program can have. Addresses without a build id stay as they are.

use super::entry_text::TextAddress;
use hbbp_model::addr::Va;

/// First range: half of the canonical user half is beyond what Linux gives to programs with four levels of tables.
pub const FIRST: Va = Va(1 << 55);
/// 64 GiB for each file.
pub const ROOM: u64 = 1 << 36;
/// More files than any text names.
const MAX_MODULES: usize = 4096;

/// The files of a text.
#[derive(Clone, Debug, Default)]
pub struct TextModules(Vec<String>);

impl TextModules {
    /// The address that represents the one in the text; `None` where it is not an address in a file, or there are too many
    /// files.
    pub(super) fn place(&mut self, address: TextAddress<'_>) -> Option<Va> {
        let Some(id) = address.build_id else {
            return Some(Va(address.address));
        };
        // BOLT writes X for an object that it does not know.
        if id == "X" {
            return Some(Va(0));
        }
        let idx = match self.0.iter().position(|known| known == id) {
            Some(idx) => idx,
            None if MAX_MODULES <= self.0.len() => return None,
            None => {
                self.0.push(id.to_owned());
                self.0.len() - 1
            }
        };
        if ROOM <= address.address {
            return Some(Va(0));
        }
        base(idx).checked_add(address.address)
    }

    /// The build ids, in hexadecimal, with the location of address 0 of each file.
    pub fn bases(&self) -> impl Iterator<Item = (&str, Va)> {
        self.0
            .iter()
            .enumerate()
            .map(|(idx, id)| (id.as_str(), base(idx)))
    }
}

fn base(idx: usize) -> Va {
    Va(FIRST.0 + ROOM * u64::try_from(idx).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_do_not_share_addresses() {
        let mut modules = TextModules::default();
        let mut place = |build_id: Option<&str>, address| modules.place(TextAddress { build_id, address });
        assert_eq!(place(None, 5), Some(Va(5)));
        assert_eq!(place(Some("X"), 5), Some(Va(0)));
        let (a, b) = (place(Some("a"), 5).unwrap(), place(Some("b"), 5).unwrap());
        assert_eq!(b.since(a), Some(ROOM));
        assert_eq!(place(Some("a"), ROOM), Some(Va(0)));
        for n in 0..MAX_MODULES {
            place(Some(&format!("{n:x}z")), 1);
        }
        assert_eq!(place(Some("last"), 1), None);
    }
}
