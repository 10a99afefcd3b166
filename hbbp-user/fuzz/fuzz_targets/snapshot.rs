//! Fuzz target: the reader of snapshot files.

#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::read_snapshot(bytes));
