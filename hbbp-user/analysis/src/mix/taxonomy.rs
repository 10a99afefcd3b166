//! Taxonomies: named groups of instructions that users define (paper section V.B, "custom instruction taxonomies based on
//! instruction properties").
//!
//! A taxonomy is a TOML file:
//!
//! ```toml
//! name = "copying"
//! description = "Instructions that copy memory."
//!
//! [[group]]
//! name = "string"
//! match = [{ category = "string", memory = "read-write" }]
//!
//! [[group]]
//! name = "wide loads"
//! match = [{ mnemonic = ["MOV*", "VMOV*"], memory = "read", width = ["256", "512"] }]
//! ```
//!
//! A rule names dimensions that depend on the instruction alone, each with a pattern or a list of patterns; an instruction
//! matches a rule if it matches one pattern of each dimension, and belongs to a group if it matches one of its rules.
//! Groups may overlap. As rows or columns, an instruction in several groups has a row of its own, named after all of them
//! (`division + square root`). One in no group belongs to `(none)`. So rows add up to the same total as any others.
//! A filter on a group takes all its instructions, whatever other groups they are in.

mod read;

use std::sync::Arc;

use super::class::Class;
use super::dimension::Dimension;
use super::pattern::Pattern;

/// Named groups of instructions.
#[derive(Clone, Debug)]
pub struct Taxonomy {
    /// Its name as an axis.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its groups, in the order of the file.
    pub groups: Vec<Group>,
}

/// A group of instructions.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    rules: Vec<Rule>,
}

/// Conditions that all must hold, each with its alternatives.
#[derive(Clone, Debug)]
struct Rule(Vec<(Dimension, Vec<Pattern>)>);

/// What is wrong with a taxonomy file, and in which line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TaxonomyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// The taxonomies of the paper.
const BUILT_IN: [&str; 2] = [
    include_str!("taxonomy/long-latency.toml"),
    include_str!("taxonomy/synchronization.toml"),
];

impl Taxonomy {
    /// The taxonomies that are always there.
    pub fn built_in() -> Vec<Arc<Self>> {
        // A test parses each of them.
        let parsed = BUILT_IN.iter().filter_map(|text| Self::parse(text).ok());
        parsed.map(Arc::new).collect()
    }

    /// Names of the groups that an instruction belongs to.
    pub(super) fn groups_of(&self, class: &Class) -> Vec<String> {
        let groups = self.groups.iter();
        let matching = groups.filter(|group| group.rules.iter().any(|rule| rule.matches(class)));
        matching.map(|group| group.name.clone()).collect()
    }
}

impl Rule {
    fn matches(&self, class: &Class) -> bool {
        self.0.iter().all(|(dimension, patterns)| {
            let value = class.value(*dimension).unwrap_or_default();
            patterns.iter().any(|pattern| pattern.matches(&value))
        })
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;
    use hbbp_code::blocks::Flow;

    fn groups(taxonomy: &str, bytes: &[u8]) -> Vec<String> {
        let taxonomies = Taxonomy::built_in();
        let taxonomy = taxonomies.iter().find(|it| it.name == taxonomy).unwrap();
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        taxonomy.groups_of(&Class::new(&instruction, Flow::Next))
    }

    #[test]
    fn taxonomies_of_the_paper_are_built_in() {
        for text in BUILT_IN {
            Taxonomy::parse(text).unwrap();
        }
        let long = |bytes| groups("long-latency", bytes);
        assert_eq!(long(&[0x48, 0xf7, 0xf1]), ["division"]);
        assert_eq!(long(&[0x0f, 0x51, 0xc1]), ["square root"]);
        // xchg [rdi], eax; lock cmpxchg [rdi], rsi; xchg eax, ecx; mov rbp, rsp
        assert_eq!(long(&[0x87, 0x07]), ["locked"]);
        assert_eq!(long(&[0xf0, 0x48, 0x0f, 0xb1, 0x37]), ["locked"]);
        assert_eq!(long(&[0x87, 0xc8]), Vec::<String>::new());
        assert_eq!(long(&[0x48, 0x89, 0xe5]), Vec::<String>::new());
        // lock xadd [rdi], eax; mfence; pause
        assert_eq!(groups("synchronization", &[0xf0, 0x0f, 0xc1, 0x07]), ["atomic"]);
        assert_eq!(groups("synchronization", &[0x0f, 0xae, 0xf0]), ["fence"]);
        assert_eq!(groups("synchronization", &[0xf3, 0x90]), ["wait"]);
    }

    #[test]
    fn groups_may_overlap() {
        let text = "name = 'x'\n[[group]]\nname = 'a'\nmatch = [{ mnemonic = ['ADD*', 'XADD'] }]\n\
                    [[group]]\nname = 'b'\nmatch = [{ lock = 'locked*', memory = 'read-write' }, { width = '8' }]\n";
        let taxonomy = Taxonomy::parse(text).unwrap();
        let instruction = Decoder::new(64, &[0xf0, 0x0f, 0xc1, 0x07], DecoderOptions::NONE).decode();
        assert_eq!(
            taxonomy.groups_of(&Class::new(&instruction, Flow::Next)),
            ["a", "b"]
        );
    }
}
