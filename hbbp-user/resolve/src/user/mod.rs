//! Ring 3: which program of which process ran, what was mapped into it, and the bytes of that.
//!
//! ```text
//! proc_scan, records -> process_index (process_image)                             --+
//! live: mapped_file, process_memory, map_file --+-> image -> image_set (by file)  --+-> space
//! recorded: recorded_files (find_file)        --+                recorded_time    --+
//! ```
//!
//! Live runs and recordings differ in where bytes come from ([`space::Origin`]) and in nothing else.

mod awaited;
mod cgroups;
mod file_opener;
mod file_table;
pub mod find_file;
pub mod haste;
mod held_names;
mod held_text;
mod hit_process;
pub mod image;
pub mod image_set;
pub mod known_mapping;
mod live;
mod map_file;
pub mod mapped_file;
mod mapped_identity;
mod mapping_table;
mod page_map;
mod patched_text;
mod patient;
pub mod proc_scan;
pub mod process_image;
pub mod process_index;
pub mod process_memory;
mod read_again;
pub mod recorded_files;
mod recorded_time;
pub mod space;
mod tasks;
mod threads;
mod vdso;
mod watch;
