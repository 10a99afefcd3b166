//! Time by loop and by source line where the clock is all that is sampled, and what the report says of it.

use serde_json::Value;

use super::load::built;
use super::{kernel, number, run};

/// A loop around two inner loops, the second of which divides; each is on lines of its own.
const SOURCE: &str = "#include <stdlib.h>
#define KEPT(x) __asm__ volatile(\"\" : \"+r\"(x))
__attribute__((noinline)) unsigned long work(unsigned long rounds)
{
    unsigned long x = 1, i, j;
    for (i = 0; i < rounds; i++) {
        for (j = 0; j < 1000; j++) {
            x += j;
            KEPT(x);
        }
        for (j = 1; j < 1000; j++) {
            x += (x | 1ul << 63) / j;
            KEPT(x);
        }
    }
    return x;
}
int main(int argc, char **argv)
{
    return work(strtoul(argv[1], NULL, 0)) == 3;
}
";

/// Lines of the loop around the others, of the one that adds, and of the one that divides.
const OUTER: (u32, u32) = (6, 15);
const ADDING: (u32, u32) = (7, 10);
const DIVIDING: (u32, u32) = (11, 14);

/// The loops of `work`, as the JSON report has them, outer ones first.
fn loops(report: &Value) -> Vec<&Value> {
    let all = report["loops"][0]["loops"].as_array().unwrap().iter();
    let mut own: Vec<&Value> = all.filter(|it| it["function"] == "work").collect();
    own.sort_by_key(|it| (it["depth"].as_u64(), it["header"].as_u64()));
    own
}

/// Samples of a loop.
fn amount(it: &Value) -> f64 {
    it["amount"]["value"].as_f64().unwrap()
}

/// First and last line of a loop: `/folder/time.c:FIRST-LAST`.
fn lines(it: &Value) -> (u32, u32) {
    let (_, lines) = it["lines"].as_str().unwrap().rsplit_once(':').unwrap();
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    (first.parse().unwrap(), last.parse().unwrap())
}

#[track_caller]
fn assert_within(it: &Value, (first, last): (u32, u32)) {
    let lines = lines(it);
    assert!(first <= lines.0 && lines.1 <= last, "{lines:?}");
}

/// Samples of `work` by line.
fn by_line(report: &Value) -> Vec<(u32, f64)> {
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.filter_map(|row| {
        let (file, line) = row["key"][0].as_str()?.rsplit_once(':')?;
        let amount = number(&row["user"]["amount"]) as f64;
        file.ends_with("time.c").then(|| (line.parse().unwrap(), amount))
    })
    .collect()
}

/// Records the program, and returns its profile in a folder.
fn recorded(folder: &tempfile::TempDir) -> String {
    let program = built(folder.path(), "time", SOURCE, &["-g"]);
    let profile = folder.path().join("profile").to_str().unwrap().to_owned();
    let words = [
        "record",
        "-o",
        &profile,
        "--event",
        "cpu-clock",
        "--period",
        "200003",
        "--time",
    ];
    let recorded = run(&[&words[..], &["--", program.to_str().unwrap(), "200000"]].concat());
    assert!(recorded.status.success(), "{recorded:?}");
    profile
}

#[test]
fn clock_alone_gives_only_time_by_loop_and_line() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let profile = recorded(&folder);
    let json = |words: &[&str]| -> Value {
        let all = [&["report", &profile, "--format", "json", "--top", "all"], words].concat();
        let output = run(&all);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };

    // Loops of the code, each with the samples of its own lines.
    let report = json(&["--view", "loops"]);
    assert_eq!(report["loops"][0]["unit"], "time_weighted_samples");
    let loops = loops(&report);
    let [outer, adding, dividing] = loops[..] else {
        panic!("{} loops: {loops:#?}", loops.len())
    };
    assert_within(outer, OUTER);
    assert_within(adding, ADDING);
    assert_within(dividing, DIVIDING);
    println!(
        "samples: {} in all, {} adding, {} dividing",
        amount(outer),
        amount(adding),
        amount(dividing)
    );
    assert!(1000.0 < amount(outer), "{}", amount(outer));
    assert!(2.0 * amount(adding) < amount(dividing) && amount(adding) + amount(dividing) <= amount(outer));

    // Lines sum up to their loop.
    let of_lines = by_line(&json(&["--rows", "line"]));
    let within = |(first, last): (u32, u32)| {
        let inside = of_lines.iter().filter(|(line, _)| (first..=last).contains(line));
        inside.map(|(_, amount)| amount).sum::<f64>()
    };
    println!("by line: {of_lines:?}");
    assert!((within(DIVIDING) / amount(dividing) - 1.0).abs() < 0.02);
    assert!((within(OUTER) / amount(outer) - 1.0).abs() < 0.02);

    // Figures without a counted event are not reported, and the text says so.
    for it in &loops {
        for name in ["iterations", "invocations", "trips", "cpi", "time"] {
            assert!(it[name].is_null(), "{name}: {it}");
        }
    }
    let text = String::from_utf8(run(&["report", &profile, "--view", "loops", "--details"]).stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("figures are samples of cpu-clock"), "{text}");
    let unknown = "no event counts executions: iterations, invocations, trip counts and CPI are not known";
    assert!(text.contains(unknown), "{text}");
}
