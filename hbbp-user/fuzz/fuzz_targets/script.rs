//! Fuzz target: the reader of texts of perf script.

#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::read_script(bytes));
