#![doc = include_str!("../README.md")]

mod core;
mod follow;
mod form;
mod predictor;
mod process;
mod wanted;
mod weights;

pub use self::{
    follow::{Followed, Followers},
    weights::{Weighed, weights},
};
