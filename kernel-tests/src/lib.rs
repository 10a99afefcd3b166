//! (to be written)
pub mod layout;
pub mod personality;
pub mod reference;
pub mod trace;
