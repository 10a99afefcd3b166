//! Ring 3: which program of which process ran, what was mapped into it, and the bytes of that.
//!
//! ```text
//! proc_scan, records -> process_index (process_image)           --+
//! mapped_file, process_memory, perf_map -> image -> image_set   --+-> space
//! ```

mod find_file;
pub mod image;
pub mod image_set;
pub mod mapped_file;
pub mod perf_map;
pub mod proc_scan;
pub mod process_image;
pub mod process_index;
pub mod process_memory;
pub mod recorded;
mod recorded_text;
mod remaps;
pub mod space;
