//! The snapshot file: a container of sections, each compressed and checksummed.
