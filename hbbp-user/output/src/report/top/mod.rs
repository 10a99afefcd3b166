//! The screen of `hbbp-sys top`: what it shows of an interval, how it answers keys, and how it is drawn.
//!
//! Everything here is a function of an estimate, of keys and of the size of the screen; the terminal itself belongs to
//! `hbbp-sys top`.

mod bars;
mod draw;
mod figures;
mod lines;
mod plain;
mod row;
mod screen;
mod table;

pub use draw::draw;
pub use figures::{Facts, Figures};
pub use plain::write_plain;
pub use screen::{Asked, Rings, Screen, Tab};
pub use table::Table;
