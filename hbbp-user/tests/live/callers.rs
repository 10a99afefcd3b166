//! Callers by the clock: of a program with frame pointers each loop has the time of what it calls, and of one without,
//! only callers that the code proves are charged.

use serde_json::Value;

use super::load::built;
use super::{kernel, run};

/// Two loops of `main` that call `heavy`: the first through `light`, three times as much as the second, which recurses.
/// `heavy` calls nothing, so that no compiler gives it a frame. They take turns until the program has had the seconds of
/// its argument, so that a fast processor has as many samples as a slow one.
const SOURCE: &str = "#include <stdlib.h>
#include <time.h>
volatile unsigned long sink;
__attribute__((noinline)) void heavy(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        sink = sink * 3 + i;
}
__attribute__((noinline)) void light(unsigned long n)
{
    heavy(n);
    sink++;
}
__attribute__((noinline)) unsigned long down(unsigned n)
{
    heavy(1000);
    if (n)
        sink += down(n - 1);
    return sink;
}
int main(int argc, char **argv)
{
    clock_t end = strtoul(argv[1], NULL, 0) * CLOCKS_PER_SEC;
    while (clock() < end) {
        for (unsigned r = 0; r < 100; r++) {
            light(30000);
            sink++;
        }
        for (unsigned r = 0; r < 100; r++) {
            down(9);
            sink++;
        }
    }
    return sink == 1;
}
";

/// First lines of the two loops of `main` that call.
const LOOPS: [&str; 2] = ["25", "29"];

/// Records the program with this option of the compiler; what the report says of its loops and calls.
fn loops(option: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-g", "-static", "-fno-optimize-sibling-calls", option];
    let program = built(folder.path(), "calls", SOURCE, &options);
    let profile = folder.path().join("profile").to_str().unwrap().to_owned();
    let record = [
        "record",
        "-o",
        &profile,
        "--event",
        "cpu-clock",
        "--period",
        "200003",
    ];
    let words = [&record[..], &["--callers", "--", program.to_str().unwrap(), "1"]].concat();
    let recorded = run(&words);
    assert!(recorded.status.success(), "{recorded:?}");
    let report = [
        "report", &profile, "--view", "loops", "--format", "json", "--top", "all",
    ];
    let output = run(&report);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["loops"][0].clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// The part of the time of `heavy` that each loop of `main` has as inclusive time.
fn shares(loops: &Value) -> Vec<f64> {
    let all = loops["loops"].as_array().unwrap();
    let inclusive = |it: &Value| number(&it["inclusive_time"]["value"]);
    let heavy = all.iter().find(|it| it["function"] == "heavy");
    assert!(heavy.is_some(), "no loop of heavy: {loops:#}");
    let heavy = heavy.unwrap();
    LOOPS
        .map(|line| {
            let begins = |it: &&Value| {
                let lines = it["lines"].as_str().and_then(|lines| lines.rsplit_once(':'));
                it["function"] == "main" && lines.is_some_and(|(_, lines)| lines.starts_with(line))
            };
            all.iter().find(begins).map_or(0.0, inclusive) / inclusive(heavy)
        })
        .to_vec()
}

/// The part of all time that went through the calls of a function.
fn through(loops: &Value, function: &str) -> f64 {
    let sites = loops["calls"]["sites"].as_array().unwrap();
    let own = sites.iter().filter(|site| site["function"] == function);
    let most = own.map(|site| number(&site["time"]["value"])).fold(0.0, f64::max);
    most / number(&loops["calls"]["total"])
}

/// Loops have the time of what they call where frame pointers prove it.
#[test]
fn loops_include_called_time_with_frame_pointers() {
    let Some(_kernel) = kernel() else { return };

    let with = loops("-fno-omit-frame-pointer");
    let found = shares(&with);
    println!("with frame pointers: {found:?}, {}", with["calls"]);
    assert!(2000.0 < number(&with["calls"]["samples"]));
    assert!(
        (found[0] - 0.75).abs() < 0.05 && (found[1] - 0.25).abs() < 0.05,
        "{found:?}"
    );
    assert!(0.7 < through(&with, "light") && through(&with, "down") < 0.3);
    // Recursion once: no call has more than all of the loop that it is in.
    assert!(through(&with, "main") <= 1.0);

    let without = loops("-fomit-frame-pointer");
    let found = shares(&without);
    println!("without: {found:?}, {}", without["calls"]);
    // The caller of a function without a frame is still proved; of what calls that, nothing is, which is reported.
    assert!(0.6 < through(&without, "light") && through(&without, "down") < 0.35);
    assert!(
        through(&without, "main") < 0.01 && found.iter().all(|share| *share < 0.01),
        "{found:?}"
    );
    let unproved = number(&without["calls"]["cut_short"]) + number(&without["calls"]["without_caller"]);
    assert!(0.8 * number(&without["calls"]["samples"]) < unproved);
}
