//! The symbols of the kernel image in the kernel's own tables, from which it prints /proc/kallsyms: compressed names and 32-bit
//! addresses.
//!
//! To have 200,000 lines printed takes the kernel some 330 million instructions, and reading them 100 more; the tables are
//! copied and expanded for a twentieth of that.
//! Layout: scripts/kallsyms.c and kernel/kallsyms.c of Linux 6.1 to 6.18. A name is a length of one byte or, if its highest bit
//! is set, of two with seven bits each, and as many tokens; the first character of their texts is the type of the symbol.
//! Nothing is believed without a check: see [`SymbolTables::read`].

use super::kallsyms_line::Line;
use super::vmcoreinfo::Vmcoreinfo;
use hbbp_model::addr::Va;

/// More than any kernel has: a distribution's has 200,000.
const MAX_SYMBOLS: u32 = 1 << 20;
/// Names take 12 bytes each on average, with tables between them and the next one that is known; what a few may take more.
const MAX_NAME_BYTES: u64 = 64;
const MAX_MORE_BYTES: u64 = 64 << 10;
/// Tokens are a byte each.
const N_TOKENS: usize = 256;
/// Bytes for the text of a token; the longest ones of Debian's kernels have 20.
const TOKEN: usize = 32;
/// A type and four characters of a name say whether it is of use.
const BEGINNING: usize = 5;
/// A name with its type (include/linux/kallsyms.h, KSYM_NAME_LEN).
const MAX_NAME: usize = 512;
/// Where tokens have their texts is a number of 16 bits.
const MAX_TOKEN_TABLE: u64 = 1 << 16;
/// All names of a distribution's kernel have 5 MB.
const MAX_TEXT: usize = 64 << 20;

/// The tables of a kernel, checked as a whole.
#[derive(Debug)]
pub(super) struct SymbolTables {
    names: Vec<u8>,
    offsets: Vec<u8>,
    tokens: Vec<Token>,
    addresses: Addresses,
}

/// The text of a token, filled up, and in the last byte its length: all of it is copied at once to where the next one follows.
type Token = [u8; TOKEN];

/// What the 32 bits of an address mean (kernel/kallsyms.c, `kallsyms_sym_address`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Addresses {
    /// The distance from the base.
    Relative(u64),
    /// With `CONFIG_KALLSYMS_ABSOLUTE_PERCPU`: what is not negative is absolute, all other is the distance below -1 from the
    /// base.
    Signed(u64),
}

impl Addresses {
    fn of(self, offset: u32) -> u64 {
        match self {
            Self::Relative(base) => base.wrapping_add(offset.into()),
            Self::Signed(base) => match u32::try_from(offset.cast_signed()) {
                Ok(absolute) => absolute.into(),
                Err(_) => base.wrapping_add((!offset).into()),
            },
        }
    }
}

impl SymbolTables {
    /// Copies the tables. `read` fills a buffer with kernel memory from an address on and says whether it could; `release` is
    /// that of the running kernel.
    ///
    /// `None` unless all of this holds: the description is that of this release; the table has a `_stext`, which lies where
    /// the description has it, by one of the two meanings of addresses; there are as many names as symbols before the next
    /// table, each of visible characters and with a type; addresses ascend.
    pub(super) fn read(
        info: &Vmcoreinfo,
        release: &str,
        read: &mut dyn FnMut(Va, &mut [u8]) -> bool,
    ) -> Option<Self> {
        if info.release != release {
            return None;
        }
        let mut n = [0; 4];
        let mut base = [0; 8];
        let both = read(info.n_symbols, &mut n) && read(info.relative_base, &mut base);
        let n = Some(u32::from_le_bytes(n)).filter(|n| both && (1..=MAX_SYMBOLS).contains(n))?;
        let base = u64::from_le_bytes(base);
        let mut copy = |table: Va, most: u64| {
            let mut bytes = vec![0; usize::try_from(info.len_of(table, most)).ok()?];
            read(table, &mut bytes).then_some(bytes)
        };
        let offsets = copy(info.offsets, u64::from(n) * 4)?;
        let index = copy(info.token_index, N_TOKENS as u64 * 2)?;
        let texts = copy(info.token_table, MAX_TOKEN_TABLE)?;
        let names = copy(info.names, u64::from(n) * MAX_NAME_BYTES + MAX_MORE_BYTES)?;
        if offsets.len() != n as usize * 4 {
            return None;
        }
        let mut tables = Self {
            names,
            offsets,
            tokens: parse_tokens(&index, &texts)?,
            addresses: Addresses::Relative(base),
        };
        let stext = tables.offset_of("_stext")?;
        tables.addresses = [Addresses::Relative(base), Addresses::Signed(base)]
            .into_iter()
            .find(|addresses| addresses.of(stext) == info.stext.0)?;
        Some(tables)
    }

    /// Hands over all symbols in their order, those without a name whose type and first characters (four, if there are as many)
    /// are not `wanted`. `None` if the tables turn out to be damaged.
    pub(super) fn for_each(
        &self,
        wanted: impl Fn(u8, &[u8]) -> bool,
        mut take: impl FnMut(&Line<'_>),
    ) -> Option<()> {
        let mut last = 0;
        let mut n_bytes = 0;
        let wanted = |text: &[u8]| text.split_first().is_some_and(|(kind, name)| wanted(*kind, name));
        self.expand(wanted, |offset, text, is_whole| {
            let address = self.addresses.of(offset);
            let (kind, name) = text.split_at_checked(1)?;
            let kind = *kind.as_bytes().first()?;
            n_bytes += text.len();
            if !kind.is_ascii_alphabetic() || address < last || MAX_TEXT < n_bytes {
                return None;
            }
            last = address;
            // The kernel does not print symbols without a name either.
            if !name.is_empty() {
                take(&Line {
                    address,
                    size: None,
                    kind,
                    name: if is_whole { name } else { "" },
                    tag: None,
                });
            }
            Some(true)
        })
    }

    /// The 32 bits of the address of a symbol.
    fn offset_of(&self, wanted: &str) -> Option<u32> {
        let mut found = None;
        let begins = |text: &[u8]| text.iter().skip(1).zip(wanted.as_bytes()).all(|(a, b)| a == b);
        self.expand(begins, |offset, text, _| {
            if text.get(1..) == Some(wanted) {
                found = Some(offset);
            }
            Some(found.is_none())
        })?;
        found
    }

    /// Hands over the 32 bits of each address with the expanded name and its type before it, as long as `take` says so. A text
    /// that does not begin as `wanted` is not expanded as a whole.
    fn expand(
        &self,
        wanted: impl Fn(&[u8]) -> bool,
        mut take: impl FnMut(u32, &str, bool) -> Option<bool>,
    ) -> Option<()> {
        let tokens = self.tokens.first_chunk::<N_TOKENS>()?;
        let mut text = [0; MAX_NAME + TOKEN];
        let mut remainder = self.names.as_slice();
        for offset in self.offsets.as_chunks::<4>().0 {
            let (codes, next) = split_name(remainder)?;
            remainder = next;
            let mut codes = codes.iter();
            let mut len = 0;
            while len < BEGINNING
                && let Some(code) = codes.next()
            {
                len = append(&mut text, len, tokens, *code)?;
            }
            let is_whole = codes.as_slice().is_empty() || wanted(text.get(..len)?);
            if is_whole {
                for code in codes {
                    len = append(&mut text, len, tokens, *code)?;
                }
            }
            let text = str::from_utf8(text.get(..len)?).ok()?;
            if !take(u32::from_le_bytes(*offset), text, is_whole)? {
                break;
            }
        }
        Some(())
    }
}

/// Writes the text of a token after the first `len` bytes; where it ends.
fn append(text: &mut [u8], len: usize, tokens: &[Token; N_TOKENS], code: u8) -> Option<usize> {
    let token = tokens.get(usize::from(code))?;
    *text.get_mut(len..)?.first_chunk_mut()? = *token;
    Some(len + usize::from(*token.last()?))
}

/// The tokens of the first name, and the names after it.
fn split_name(names: &[u8]) -> Option<(&[u8], &[u8])> {
    const LONG: u8 = 0x80;

    let (len, names) = names.split_first()?;
    if len & LONG == 0 {
        return names.split_at_checked(usize::from(*len));
    }
    let (high, names) = names.split_first()?;
    names.split_at_checked(usize::from(len & !LONG) | usize::from(*high) << 7)
}

/// The texts of all tokens, each of visible characters up to a zero.
fn parse_tokens(index: &[u8], texts: &[u8]) -> Option<Vec<Token>> {
    let token = |at: &[u8; 2]| {
        let text = texts.get(usize::from(u16::from_le_bytes(*at))..)?;
        let text = text.get(..text.iter().take(TOKEN).position(|b| *b == 0)?)?;
        let mut token = [0; TOKEN];
        token.get_mut(..text.len())?.copy_from_slice(text);
        *token.last_mut()? = u8::try_from(text.len()).ok()?;
        text.iter().all(u8::is_ascii_graphic).then_some(token)
    };
    let tokens: Option<Vec<Token>> = index.as_chunks::<2>().0.iter().map(token).collect();
    tokens.filter(|tokens| tokens.len() == N_TOKENS)
}

#[cfg(test)]
pub(super) mod tests;
