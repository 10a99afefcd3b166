//! The instruction mix: executions of blocks, pivoted by properties and locations of their instructions.
//!
//! Paper sections I and V.B: an instruction mix follows from block execution counts and the text of the blocks.

mod accuracy;
mod analysis;
mod answer;
mod apportion;
mod attributes;
mod axis;
mod category;
mod class;
mod dimension;
mod error;
mod extension;
mod filter;
mod keys;
mod known_values;
mod level;
mod limit;
mod mitigation;
mod operands;
mod over_time;
mod patch;
mod pattern;
mod pivot;
mod processwatch;
mod query;
mod requirement;
mod sites;
mod sum;
mod symbols;
mod taxonomy;
mod view;

pub(crate) use accuracy::{Accuracy, block_error};
pub use analysis::{Analysis, Estimated, MethodShare, analyse};
pub use answer::{Cell, Column, Mix, Row};
pub use apportion::apportion;
pub use axis::{Axis, NO_GROUP, UnknownAxis};
pub use category::Category;
pub use class::{Class, Lock, Memory};
pub use dimension::{DependsOn, Dimension};
pub use filter::{Filter, FilterError};
pub use hbbp_estimate::{Method, Unit};
pub(crate) use keys::mnemonics;
pub(crate) use limit::{Limit, Side};
pub use mitigation::block_mitigations;
pub use over_time::{MixOverTime, OverTime};
pub use processwatch::processwatch_categories;
pub use query::{Query, Sort, UnknownValue, Value};
pub use requirement::{Confidence, ConfidenceError, Outcome, Requirement, RequirementError, Verdict};
pub use sum::sum;
pub use symbols::function;
pub use taxonomy::{Taxonomy, TaxonomyError};
pub use view::{View, ViewError, ViewTable};
