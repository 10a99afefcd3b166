#![doc = include_str!("../README.md")]

pub mod export;
pub mod report;
