//! Memory of a program that runs for ever: what was freed goes back to the kernel, where commands that end soon keep it
//! (`main`). An interval of a busy machine takes ten times the memory of a quiet one.

/// The memory budget in bytes that a machine which compiles all day needs to merge an hour into one segment, by measurement.
const LARGEST_BUDGET: u64 = 384 << 20;

/// The part of a machine's memory that is not exceeded: half of the budget is for merging, at the end of each hour.
const SHARE: u64 = 8;

/// The memory budget where none is asked for, in bytes.
pub(crate) fn default_budget() -> u64 {
    let known = rustix::system::sysinfo();
    budget_of(known.totalram.saturating_mul(known.mem_unit.into()))
}

/// The budget of a machine with this memory in bytes.
fn budget_of(memory: u64) -> u64 {
    LARGEST_BUDGET.min(memory / SHARE)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_have_small_budgets() {
        assert_eq!(budget_of(512 << 20), 64 << 20);
        assert_eq!(budget_of(3 << 30), LARGEST_BUDGET);
        assert_eq!(budget_of(u64::MAX), LARGEST_BUDGET);
        assert!((1..=LARGEST_BUDGET).contains(&default_budget()));
    }
}
