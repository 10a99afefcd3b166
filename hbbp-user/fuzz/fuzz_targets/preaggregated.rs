//! Fuzz target: the reader of BOLT's pre-aggregated texts.

#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::read_preaggregated_text(bytes));
