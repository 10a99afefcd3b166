//! No step from a profile to its reports needs more memory than in proportion to the profile, whoever made it.
//!
//! What is counted are the bytes that a step asks the allocator for, all in all, which no busy machine changes: eight times
//! the input may ask for twelve times as much, where the square of it would be 64 times. `cargo xtask bench` prints the
//! times.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod shapes;
#[expect(dead_code, reason = "the benchmark measures times")]
mod steps;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use shapes::SHAPES;
use steps::STEPS;

use hbbp_model::snapshot::Snapshot;

thread_local! {
    /// Bytes that this thread asked for.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of the system, which counts what is asked for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    // At the end of a thread there is nothing to count with.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + bytes as u64));
}

// SAFETY: all is left to the allocator of the system; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised; `at` is the system's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as the caller promised; `at` is the system's.
        unsafe { System.realloc(at, layout, size) }
    }
}

fn asked(step: fn(&Snapshot), snapshot: &Snapshot) -> f64 {
    let before = ASKED.get();
    step(snapshot);
    (ASKED.get() - before) as f64
}

#[test]
fn eight_times_the_input_needs_no_square_of_memory() {
    /// What every step needs, whatever its input: replicates, tables, buffers.
    const AT_LEAST: f64 = 4e6;

    for shape in SHAPES {
        // A build without optimisation gets less.
        let n = if cfg!(debug_assertions) {
            shape.n / 4
        } else {
            shape.n
        };
        let (small, large) = ((shape.make)(n), (shape.make)(8 * n));
        assert!(small.check().is_ok() && large.check().is_ok());
        for (name, step) in STEPS {
            let [small, large] = [&small, &large].map(|snapshot| asked(step, snapshot));
            println!(
                "{}, {name}: {:.2} MB, {:.2} MB",
                shape.name,
                small / 1e6,
                large / 1e6
            );
            assert!(
                large < 12.0 * small.max(AT_LEAST),
                "{}, {name}: {small} bytes, and {large} for eight times the input",
                shape.name
            );
        }
    }
}
