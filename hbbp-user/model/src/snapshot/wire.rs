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
mod malformed;
mod number;
mod run;
mod text;

pub(super) use counts::CountsSection;
pub(super) use images::{ModulesSection, ProcessesSection, StaticBranchesSection, SymbolsSection};
pub(super) use malformed::{Capacity, Malformed};
pub(super) use run::{LossesSection, RunSection};
pub(super) use text::TextSection;
