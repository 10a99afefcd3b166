//! Memory of a program that runs for ever: what was freed goes back to the kernel, where commands that end soon keep it
//! (`main`). An interval of a busy machine takes ten times the memory of a quiet one.

/// Has the allocator keep little of what is freed from now on.
pub(super) fn keep_little() {
    #[cfg(target_env = "gnu")]
    {
        /// Larger pieces are mapped, and unmapped when they are freed.
        const LARGEST_KEPT: libc::c_int = 256 << 10;
        /// Freed memory at the end of the heap that is kept.
        const KEPT: libc::c_int = 1 << 20;
        // SAFETY: takes numbers only, and changes those of the allocator under its own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_KEPT) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT) };
    }
}

/// Gives back what was freed between pieces that are in use.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: works on the allocator under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
