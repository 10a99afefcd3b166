#![doc = include_str!("../README.md")]

pub mod addr;
pub mod advice;
pub mod kinds;
pub mod leb128;
pub mod names;
pub mod printable;
pub mod profile;
pub mod record;
pub mod segments;
pub mod slices;
pub mod snapshot;
pub mod streams;
