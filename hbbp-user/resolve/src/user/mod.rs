//! Ring 3: processes and their programs, their mappings, and the bytes of these.
//!
//! ```text
//! proc_scan, records -> process_index (process_image)                             --+
//! live: mapped_file, process_memory, map_file --+-> image -> image_set (by file)  --+-> space
//! recorded: recorded_files (find_file)        --+                recorded_time    --+
//! space -> tasks, thread_entries, read_again -> live (what follows a run) -> hits (the text at an address)
//! ```
//!
//! Live runs and recordings differ in where bytes come from ([`space::Origin`]) and in nothing else.

mod awaited;
mod cgroups;
mod comparison;
mod cover_file;
mod file_opener;
mod file_table;
pub mod find_file;
mod fresh_mappings;
mod function_or_gap;
pub mod haste;
mod held_names;
mod held_text;
mod hit_mappings;
mod hit_process;
pub mod hits;
pub mod image;
pub(crate) mod image_set;
pub(crate) mod known_mapping;
mod linked_files;
mod live;
pub(crate) mod live_processes;
mod map_file;
pub(crate) mod mapped_file;
mod mapped_identity;
pub(crate) mod mapping;
mod mapping_table;
pub mod page_map;
mod patched_text;
mod patient;
pub mod proc_scan;
pub(crate) mod process_image;
pub(crate) mod process_index;
pub(crate) mod process_memory;
mod read_again;
mod recorded_dumps;
pub mod recorded_files;
mod recorded_time;
mod replaced_text;
pub(crate) mod space;
mod tasks;
mod thread_entries;
mod threads;
mod unknown_processes;
mod vdso;
mod watch;
