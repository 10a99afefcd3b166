//! Collection: perf events, the programs on them, the count maps they count in, and the sideband records.
//!
//! Nothing here knows what an address means; that is the matter of `hbbp-resolve`, which in turn knows nothing of
//! perf events. The program calls, in this order: [`Collector::open`], [`Collector::enable`], then
//! [`Collector::records`] often and [`Collector::drain`] rarely, and [`Collector::stop`] before the last drain.

pub mod bpf;
pub mod btf;
pub mod bursts;
pub mod chains;
pub mod choice;
pub(crate) mod class_events;
mod class_pmu;
mod class_pmus;
mod class_turns;
pub mod classes;
mod collector;
mod counters;
mod cpu_group;
pub mod cpu_list;
pub mod cpu_times;
pub(crate) mod cpus;
pub(crate) mod drain;
pub mod event;
mod hotplug;
pub mod kernel_layout;
pub mod limits;
mod map_sizes;
pub(crate) mod mapped;
pub mod module_layout;
pub(crate) mod modules;
pub mod object;
pub(crate) mod ordered;
pub mod overhead;
pub(crate) mod perf;
pub mod periods;
pub(crate) mod pid_namespace;
mod plan;
pub mod pmu;
mod raw_event;
mod records;
mod ring;
pub(crate) mod scope;
pub mod sideband;
pub mod source;
pub(crate) mod stacks;
mod stream_counts;
pub(crate) mod stride;
pub mod text;
pub(crate) mod totals;
pub(crate) mod uarch;
pub(crate) mod wake;

pub use classes::ClassCounting;
pub use collector::Collector;
pub use counters::{StackEvents, StacksSeen};
pub use modules::ModuleWatch;
pub use ordered::Parts;
pub use plan::Plan;
pub use scope::Scope;
