//! (to be written)
pub mod accuracy;
pub mod artifacts;
pub mod guest;
pub mod host;
pub mod initramfs;
pub mod kernel;
pub mod layout;
pub mod machine;
pub mod mark;
pub mod personality;
pub mod reference;
pub mod trace;
mod watchdog;
pub mod witness;
pub mod workload;
