//! The README and the book against the program: commands parse, and the reference says what the program has.

#![cfg(test)]

mod commands;
mod reference;
