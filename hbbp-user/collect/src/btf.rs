//! The kernel's description of its own types (BTF, Documentation/bpf/btf.rst): the members of its structures.
//!
//! It is read in one pass, which takes some ten instructions for each of 140,000 types; a reader that makes a value of
//! each, or searches all of them for each name, takes ten times that number: this is a part of what a recording costs
//! at its start.

use std::fs;

/// Where the kernel shows it.
pub(crate) const PATH: &str = "/sys/kernel/btf/vmlinux";

/// Structures without a name that are nested in each other, and modifiers of a type.
const MAX_DEPTH: u32 = 8;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
/// Volatile, const, restrict.
const MODIFIERS: std::ops::RangeInclusive<u32> = 9..=11;

/// All types.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Where the names start and end.
    names: (usize, usize),
    /// Where each type starts, by its number less one.
    types: Vec<u32>,
    /// The structures among them, by number.
    structures: Vec<u32>,
}

/// A structure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Structure {
    /// Length in bytes.
    pub size: u32,
    members: Vec<Member>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Member {
    name: String,
    type_id: u32,
    bit_offset: u32,
}

/// `struct btf_type`: the name, the kind with the number of members, and the size or another type.
#[derive(Clone, Copy, Debug)]
struct Head {
    name: u32,
    info: u32,
    size_or_type: u32,
}

impl Head {
    const LEN: usize = 12;

    const fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    const fn n_members(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Bytes that follow, by the kind.
    const fn tail(self) -> Option<usize> {
        Some(match self.kind() {
            // Integers, variables, tags of declarations.
            1 | 14 | 17 => 4,
            // Arrays.
            3 => 12,
            // Structures, unions, sections, enumerations of 64 bits.
            STRUCT | UNION | 15 | 19 => 12 * self.n_members(),
            // Enumerations, prototypes of functions.
            6 | 13 => 8 * self.n_members(),
            // Pointers, forward declarations, typedefs, modifiers, functions, floats, tags of types.
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

impl Btf {
    /// The kernel's own, or the reason why there is none.
    pub fn open() -> Result<Self, String> {
        let bytes = fs::read(PATH).map_err(|error| format!("{PATH} cannot be read: {error}"))?;
        Self::parse(bytes).ok_or_else(|| format!("{PATH} is malformed"))
    }

    /// Finds all types.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Self> {
        /// `struct btf_header` begins with it, its version, flags, and its own length.
        const MAGIC: [u8; 2] = [0x9f, 0xeb];

        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        let header = word(4).filter(|_| bytes.starts_with(&MAGIC))?;
        let section = |at: usize| {
            let start = header.checked_add(word(at)?)?;
            let end = start.checked_add(word(at + 4)?)?;
            (end <= bytes.len()).then_some((start, end))
        };
        let (mut at, end) = section(8)?;
        let names = section(16)?;
        let (mut types, mut structures) = (Vec::new(), Vec::new());
        while at < end {
            let head = head_at(&bytes, at)?;
            types.push(u32::try_from(at).ok()?);
            if head.kind() == STRUCT {
                structures.push(u32::try_from(types.len()).ok()?);
            }
            at = at.checked_add(Head::LEN + head.tail()?)?;
        }
        (at == end).then_some(Self {
            bytes,
            names,
            types,
            structures,
        })
    }

    /// The structure of this name, or the reason why it is not known.
    pub(crate) fn structure(&self, name: &str) -> Result<Structure, String> {
        let found = self.structures.iter().find(|id| {
            let head = self.head(**id);
            head.is_some_and(|(_, head)| self.has_name(head.name, name))
        });
        let found = found.and_then(|id| self.members(*id));
        found.ok_or_else(|| format!("{PATH} has no struct {name}"))
    }

    /// The offset of a member of `structure` in bytes, also of one in a structure or union without a name.
    pub(crate) fn offset_of(&self, structure: &Structure, member: &str) -> Option<u32> {
        self.bit_offset(structure, member, MAX_DEPTH).map(|bits| bits / 8)
    }

    fn bit_offset(&self, structure: &Structure, wanted: &str, depth: u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        structure.members.iter().find_map(|member| {
            if member.name == wanted {
                return Some(member.bit_offset);
            }
            if !member.name.is_empty() {
                return None;
            }
            let inside = self.members(self.unmodified(member.type_id, MAX_DEPTH)?)?;
            let inside = self.bit_offset(&inside, wanted, depth)?;
            inside.checked_add(member.bit_offset)
        })
    }

    /// The type after modifiers and names.
    fn unmodified(&self, id: u32, depth: u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        let (_, head) = self.head(id)?;
        if head.kind() == TYPEDEF || MODIFIERS.contains(&head.kind()) {
            return self.unmodified(head.size_or_type, depth);
        }
        Some(id)
    }

    /// Where the members of a structure or union are.
    fn members(&self, id: u32) -> Option<Structure> {
        let (at, head) = self
            .head(id)
            .filter(|(_, head)| matches!(head.kind(), STRUCT | UNION))?;
        let members = self.bytes.get(at + Head::LEN..)?.get(..12 * head.n_members())?;
        // With this flag the highest bits of an offset are the length of a bit field.
        let mask = if head.info >> 31 == 0 { u32::MAX } else { 0xff_ffff };
        let member = |at| {
            let member = head_at(members, at)?;
            Some(Member {
                name: self.name(member.name)?.to_owned(),
                type_id: member.info,
                bit_offset: member.size_or_type & mask,
            })
        };
        let members: Option<Vec<Member>> = (0..members.len()).step_by(12).map(member).collect();
        Some(Structure {
            size: head.size_or_type,
            members: members?,
        })
    }

    fn head(&self, id: u32) -> Option<(usize, Head)> {
        let at = *self.types.get(usize::try_from(id.checked_sub(1)?).ok()?)? as usize;
        Some((at, head_at(&self.bytes, at)?))
    }

    /// The bytes from the start of a name on.
    fn name_bytes(&self, at: u32) -> Option<&[u8]> {
        let (start, end) = self.names;
        self.bytes.get(start..end)?.get(usize::try_from(at).ok()?..)
    }

    fn has_name(&self, at: u32, name: &str) -> bool {
        let found = self
            .name_bytes(at)
            .and_then(|bytes| bytes.strip_prefix(name.as_bytes()));
        found.is_some_and(|bytes| bytes.first() == Some(&0))
    }

    fn name(&self, at: u32) -> Option<&str> {
        let bytes = self.name_bytes(at)?;
        str::from_utf8(bytes.get(..bytes.iter().position(|b| *b == 0)?)?).ok()
    }
}

/// Three words.
fn head_at(bytes: &[u8], at: usize) -> Option<Head> {
    let words: &[u8; Head::LEN] = bytes.get(at..)?.first_chunk()?;
    let [n0, n1, n2, n3, i0, i1, i2, i3, s0, s1, s2, s3] = *words;
    Some(Head {
        name: u32::from_le_bytes([n0, n1, n2, n3]),
        info: u32::from_le_bytes([i0, i1, i2, i3]),
        size_or_type: u32::from_le_bytes([s0, s1, s2, s3]),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An integer and a structure, by their kinds.
    pub(crate) const INT: u32 = 1 << 24;
    pub(crate) const STRUCT: u32 = 4 << 24;

    fn bytes(types: &[u32], names: &[&str]) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let names = [&[""], names].concat().join("\0") + "\0";
        let (n_types, n_names) = (types.len() as u32, names.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(
            [24, 0, n_types, n_types, n_names]
                .map(u32::to_le_bytes)
                .as_flattened(),
        );
        bytes.extend(types);
        bytes.extend(names.into_bytes());
        bytes
    }

    /// BTF of these types and names.
    pub(crate) fn btf(types: &[u32], names: &[&str]) -> Btf {
        Btf::parse(bytes(types, names)).unwrap()
    }

    /// A structure with a bit field at bit 35 and a pointer after it, by a constant typedef in another one without a name.
    fn nested() -> Vec<u8> {
        // Offsets of the names: 1 u32, 5 module, 12 state, 18 list.
        let int = [1, INT, 4, 32];
        let inner = [0, 1 << 31 | STRUCT | 2, 16, 12, 1, 5 << 24 | 35, 18, 1, 64];
        let named = [5, TYPEDEF << 24, 2, 0, 10 << 24, 3];
        let outer = [5, STRUCT | 1, 24, 0, 4, 64];
        bytes(
            &[&int[..], &inner, &named, &outer].concat(),
            &["u32", "module", "state", "list"],
        )
    }

    #[test]
    fn members_of_structures_without_a_name() {
        let btf = Btf::parse(nested()).unwrap();
        let module = btf.structure("module").unwrap();
        assert_eq!(module.size, 24);
        assert_eq!(
            btf.offset_of(&module, "state"),
            Some(8 + 4),
            "the byte of a bit field"
        );
        assert_eq!(btf.offset_of(&module, "list"), Some(8 + 8));
        assert_eq!(btf.offset_of(&module, "u32"), None, "a type, not a member");
        assert!(btf.structure("mod").is_err());
    }

    #[test]
    fn the_kernel_of_this_machine() {
        match Btf::open() {
            Ok(btf) => {
                let task = btf.structure("task_struct").unwrap();
                assert!(
                    btf.offset_of(&task, "self_exec_id")
                        .is_some_and(|at| at < task.size)
                );
            }
            Err(why) => assert!(why.contains(PATH)),
        }
    }

    proptest! {
        #[test]
        fn damaged_types(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9), cut in any::<prop::sample::Index>()) {
            let mut bytes = nested();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            for bytes in [bytes.clone(), bytes[..cut.index(bytes.len())].to_vec()] {
                if let Some(btf) = Btf::parse(bytes)
                    && let Ok(module) = btf.structure("module")
                {
                    let _ = btf.offset_of(&module, "list");
                }
            }
        }
    }
}
