//! Callers in the kernel: a read through the page cache, whose loops are charged with what they call, beside exact counts.
//!
//! The clock of the guest counts instructions, each round of a repeated string instruction by itself, so that time is known
//! from exact executions. In mm/filemap.c of Linux 6.12, `filemap_read` takes the folios of the file in one call of
//! `filemap_get_pages` (line 2649) and goes round its inner loop once for each (2680 to 2710), where it marks the folio
//! (2691) and copies it (2700); `generic_file_read_iter` calls it last and jumps there, so that the call is that of `vfs_read`.

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use serde_json::Value;

use crate::support;

/// Reads of 64 KiB, the folios of each, and the words that are copied.
const READS: f64 = 30_000.0;
const FOLIOS: f64 = 16.0;
const WORDS: f64 = 8192.0;

/// Nanoseconds between two samples of the clock.
const CALLERS: [&str; 2] = ["--callers", "--time=50021"];

fn measured(series: &str) -> Option<Measured> {
    let machine = support::machine(series)?;
    let mut setup = Setup::new(support::hardware_profile("ideal"));
    setup.options = CALLERS.map(str::to_owned).to_vec();
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "reads.c");
    let command = format!(
        "busybox mkdir /cached; busybox mount -t ramfs none /cached; \
         busybox dd if=/dev/zero of=/cached/file bs=65536 count=1; reads /cached/file {READS}"
    );
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", &command], &setup).unwrap())
}

/// Exact instructions of functions of the kernel.
fn exact(measured: &Measured, functions: &[&str]) -> f64 {
    let groups = measured.functions.groups.iter();
    let of = groups.filter(|group| matches!(&group.key[..], [ring, _, name] if ring == "kernel" && functions.contains(&name.as_str())));
    of.map(|group| group.instructions.reference).sum()
}

fn time(of: &Value) -> f64 {
    of["value"].as_f64().unwrap()
}

/// The largest time of what the calls of a function called.
fn most(calls: &[Value], function: &str, among: impl Fn(&Value) -> bool) -> f64 {
    let own = calls.iter().filter(|it| it["function"] == function && among(it));
    own.map(|it| time(&it["time"])).fold(0.0, f64::max)
}

/// Exact parts of the time below the call in `vfs_read`: copying, finding the folios, and the inner loop of `filemap_read`, whose
/// own instructions are `own`, with what it calls.
fn exact_parts(measured: &Measured, own: f64) -> [f64; 3] {
    // What is copied, round by round, what finds the folios, and what marks them.
    let copied = exact(
        measured,
        &["copy_page_to_iter", "_copy_to_iter", "rep_movs_alternative"],
    );
    let copied = copied + READS * (WORDS - FOLIOS);
    // Each folio is taken within a section of RCU (`page_ref_add_unless` in include/linux/page_ref.h).
    let finding = [
        "filemap_get_pages",
        "filemap_get_read_batch",
        "__rcu_read_lock",
        "__rcu_read_unlock",
    ];
    let found = exact(measured, &finding);
    let marked = exact(measured, &["folio_mark_accessed"]);
    let reading = exact(
        measured,
        &[
            "filemap_read",
            "generic_file_read_iter",
            "touch_atime",
            "atime_needs_update",
        ],
    );
    let whole = copied + found + marked + reading;
    let looped = copied + marked * (FOLIOS - 1.0) / FOLIOS + own;
    [copied / whole, found / whole, looped / whole]
}

#[test]
fn loops_of_a_read_through_the_page_cache_have_their_callers() {
    let Some(measured) = measured("6.12") else { return };
    let report = support::printed(&measured, "report", &["--view", "loops", "--top", "all"]);
    let report = &report["loops"][0];
    let (all, calls) = (
        report["loops"].as_array().unwrap(),
        report["calls"]["sites"].as_array().unwrap(),
    );
    let hottest = |function: &str| all.iter().find(|it| it["function"] == function).unwrap();
    let (inner, user) = (hottest("filemap_read"), hottest("read_all"));
    let inside = all.iter().position(|it| it == inner);

    let [copied, found, looped] = exact_parts(&measured, time(&inner["amount"]));
    let called = most(calls, "vfs_read", |_| true);
    let copying = most(calls, "filemap_read", |it| {
        it["loop"].as_u64() == inside.map(|n| n as u64)
    });
    let finding = most(calls, "filemap_read", |it| it["loop"].is_null());
    let looping = time(&inner["inclusive_time"]);
    let samples = called / 50_021.0;
    println!(
        "{} samples below vfs_read; part of it, exact, standard error",
        samples.round()
    );
    for (name, part, exact) in [
        ("copy", copying / called, copied),
        ("find", finding / called, found),
        ("loop", looping / called, looped),
    ] {
        let error = (exact * (1.0 - exact) / samples).sqrt();
        println!("{name} {part:.4} {exact:.4} {error:.4}");
        assert!(
            (part - exact).abs() <= 4.0 * error + 0.01,
            "{name}: {part} of {exact}"
        );
    }

    // The loop has one caller, and is a part of what the loop of the program called.
    let callers = inner["callers"].as_array().unwrap();
    println!(
        "loop of filemap_read: {} of {READS} times, callers {callers:#?}",
        inner["invocations"]["value"]
    );
    assert!(0.99 * looping <= most(callers, "vfs_read", |_| true));
    assert!(called <= time(&user["inclusive_time"]));
    assert_eq!(
        (user["ring"].as_str(), user["parent"].as_u64()),
        (Some("user"), None)
    );
}
