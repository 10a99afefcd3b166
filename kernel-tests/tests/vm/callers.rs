//! Callers in the kernel: a read through the page cache, whose loops are charged with what they call, beside exact counts.

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use serde_json::Value;

use crate::support;

/// Reads of 64 KiB.
const READS: u32 = 12_000;

/// Nanoseconds between two samples of the clock, which are instructions here.
const CALLERS: [&str; 2] = ["--callers", "--time=20011"];

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

#[test]
fn loops_of_a_read_through_the_page_cache_have_their_callers() {
    let Some(measured) = measured("6.12") else { return };
    let report = support::printed(&measured, "report", &["--view", "loops", "--top", "all"]);
    for group in &measured.functions.groups {
        if 1e6 < group.instructions.reference {
            println!("{:?} {}", group.key, group.instructions.reference);
        }
    }
    println!(
        "{}",
        serde_json::to_string_pretty(&report["loops"][0]["calls"]).unwrap()
    );
    let found = report["loops"][0]["loops"].as_array().unwrap();
    for it in found.iter().take(12) {
        println!("{}", serde_json::to_string(&it as &Value).unwrap());
    }
    panic!();
}
