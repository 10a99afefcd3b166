//! hbbp-sys: from perf events to an instruction mix.
