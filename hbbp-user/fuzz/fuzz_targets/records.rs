//! Fuzz target: the reader of sideband records.

#![no_main]

#[path = "../readers.rs"]
#[expect(dead_code, reason = "each target fuzzes one of them")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::read_records(bytes));
