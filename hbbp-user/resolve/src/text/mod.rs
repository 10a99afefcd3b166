//! Which text ranges of a module go into the snapshot, and their bytes at each time.
//!
//! An address that was hit calls for its whole function, because blocks are found by decoding from a known start; where
//! no function is known, or a giant one, a window around the address has to do.
//! Ranges of one module never overlap, hold no part of two functions, and keep their extent for the whole run: text that
//! is patched becomes a new version of the same range ([`versions`]). `follow` is the door for all changes of text:
//! those that records notify of, and those that reading again finds.

mod copy;
mod emit;
mod follow;
mod keep;
mod module_text;
pub(crate) mod ranges;
pub(crate) mod reading;
pub(crate) mod versions;

pub(crate) use self::follow::{Change, Known, Live};
pub(crate) use self::module_text::{Covered, ModuleText};
