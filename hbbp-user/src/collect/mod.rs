//! Collection: perf events, the programs on them, the banks they count in, and the sideband beside them.

pub mod bpf;
pub mod object;
pub mod perf;
pub mod sideband;
pub mod task_layout;
pub mod text;
