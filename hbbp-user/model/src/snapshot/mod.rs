//! The snapshot: everything that one run measured, and everything that is needed to read it later.
//!
//! What touches the kernel or the disk ends here, and what comes after is a pure function of the snapshot.
//! It holds the text that was hit, because live kernel text and the text of dead processes cannot be read again.
//! A saved snapshot is the profile, the input of `report`, the fixture of the tests and the bug report. [`mod@file`] encodes
//! it, [`budget`] bounds it; [`crate::profile`] reads and writes files.
//!
//! The vectors refer to each other by index; [`Snapshot::check`] checks that all indexes and orders are valid.

pub mod budget;
mod class_count;
mod content;
mod counts;
pub mod file;
pub mod fold;
mod image_layout;
mod index;
mod join;
pub mod layout;
pub mod loss;
pub mod merge;
mod module;
mod process;
pub mod row;
pub mod run;
mod shares;
mod source_frames;
mod source_location;
pub mod taken_branches;
pub mod unite;
mod wire;

pub use class_count::{ClassCount, InstructionClass, Turns};
pub use content::{Inconsistent, Snapshot};
pub use counts::{BranchCount, ChainCount, Interval, IpCount, StreamCount};
pub use image_layout::{FilePart, ImageLayout, Linked};
pub use index::{CgroupIdx, EventIdx, ModuleIdx, ProcessIdx};
pub use loss::{Loss, Losses};
pub use module::{Module, ModuleKind, StaticBranch, Symbol, Text, hex};
pub use process::{Mapping, Process, Thread};
pub use run::{Event, EventUnit, HostFacts, KernelTextSource, Overhead, Period, Run};
pub use source_frames::{Frame, Frames, NameIdx, SourceFrames, StackIdx};
pub use source_location::{SourceLocation, SourceLocations};
