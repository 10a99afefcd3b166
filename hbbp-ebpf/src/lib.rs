//! The contract between the kernel half and the user half of hbbp-sys.
#![no_std]
