#![doc = include_str!("../README.md")]

mod core;
mod follow;
mod form;
mod predictor;
mod process;
mod wanted;

pub use follow::{Followed, Followers};
