#![doc = include_str!("../README.md")]

mod end;
mod execute;
mod flags;
mod integer;
mod machine;
mod memory;
mod opaque;
mod operands;
mod value;
mod vector;
mod vectors;

pub use end::End;
pub use machine::{Branch, Limits, Machine};
pub use value::Value;
pub use vector::Vector;
