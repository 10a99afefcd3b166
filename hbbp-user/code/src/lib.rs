#![doc = include_str!("../README.md")]

pub mod blocks;
pub mod locate;
