//! From raw counts and records to a [`Snapshot`](hbbp_model::snapshot::Snapshot): modules, processes, mappings, symbols
//! and the executed text.
//!
//! The kernel shows addresses; here they get their process image, their module and their bytes, while these can still
//! be read. One [`Resolver`] serves live runs and recordings: they differ in who owns a count and in where bytes come
//! from, never in how text is looked up, stored and handed over.
//!
//! ```text
//! counts.rs, chains.rs   each count and call chain becomes a row (lookup.rs finds its process image and its text)
//!   resolver.rs          Resolver: what is known, and the snapshot of it
//!   user/                ring 3: processes, mappings, files, memory; user::space is its door
//!   kernel/              ring 0: symbols, modules, live or static text; kernel::space is its door
//!     text/              the text ranges of one module, and the versions of each as they change
//! source/                source lines of the addresses of a finished snapshot
//! ```
//!
//! Files of others are parsed by [`hbbp_elf`].
//!
//! Functions that interpret bytes (`parse_..`) are pure; those that read the machine are thin and start with `read_`
//! or `open_`.

mod chains;
pub mod clock;
mod counts;
mod debug_places;
pub mod debuginfod;
pub mod kernel;
mod lookup;
pub(crate) mod lookup_cache;
mod lookups;
pub mod raw;
pub(crate) mod regular_file;
mod resolver;
pub mod source;
pub(crate) mod text;
pub mod user;

pub use resolver::Resolver;
