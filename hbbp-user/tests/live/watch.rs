//! `hbbp-sys processwatch` prints what scripts for Intel's processwatch read.

use super::load::Load;
use super::{kernel, run};

#[test]
fn csv_of_all_columns_adds_up() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    // The words of a script: an option and its value in one, and an option that is not given.
    let output = run(&["processwatch", "-c", "-a", "", "-i 1", "-n 2"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let titles: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(titles[..5], ["interval", "pid", "name", "INVALID", "ADOX_ADCX"]);
    assert_eq!((titles.len(), titles[titles.len() - 1]), (3 + 115, "XSAVEOPT"));
    let intervals: Vec<Vec<&str>> = text
        .split("\n\n")
        .map(|interval| {
            interval
                .lines()
                .filter(|line| !line.starts_with("interval"))
                .collect()
        })
        .filter(|interval: &Vec<&str>| !interval.is_empty())
        .collect();
    assert_eq!(intervals.len(), 2, "{text}");
    for (number, interval) in intervals.iter().enumerate() {
        assert!(
            interval[0].starts_with(&format!("{number},ALL,ALL,")),
            "{}",
            interval[0]
        );
        assert!(1 < interval.len(), "no process in {interval:?}");
        for line in interval {
            let fields = line.rsplitn(titles.len() - 2, ',').take(titles.len() - 3);
            let sum: f64 = fields.map(|field| field.parse::<f64>().unwrap()).sum();
            assert!((sum - 100.0).abs() <= 0.1, "{sum}: {line}");
        }
    }
}

#[test]
fn columns_are_listed_and_chosen() {
    let Some(_kernel) = kernel() else { return };
    let output = run(&["processwatch", "-l"]);
    let names = String::from_utf8(output.stdout).unwrap();
    assert_eq!(names.lines().count(), 115);
    let output = run(&[
        "processwatch",
        "-c",
        "-f",
        "DATAXFER",
        "-f",
        "CALL",
        "-i",
        "1",
        "-n",
        "1",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("interval,pid,name,CALL,DATAXFER\n0,ALL,ALL,"),
        "{text}"
    );
    let unknown = run(&["processwatch", "-f", "COLOUR", "-n", "1"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        !unknown.status.success() && said.contains("unknown column `COLOUR`"),
        "{said}"
    );
}

#[test]
fn table_has_samples_and_no_rows_of_zeros() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    let output = run(&["processwatch", "-i", "1", "-n", "1", "-f", "AVX512"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("interval 0: "));
    assert!(lines.next().is_some(), "{text}");
    let titles: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(titles, ["PID", "NAME", "SAMPLES", "%AVX512"], "{text}");
    assert!(lines.next().unwrap().starts_with("ALL "), "{text}");
    assert!(lines.all(|line| !line.ends_with(" 0.00")), "{text}");
}
