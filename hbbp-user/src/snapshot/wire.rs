//! The messages inside the sections of a snapshot file.
