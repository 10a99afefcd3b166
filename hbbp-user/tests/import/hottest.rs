//! `hbbp-sys eval` of several functions: their order, and the page of errors.

use hbbp_model::addr::Va;

use crate::elf::write_loop;
use crate::eval::{BASE, eval, lines, mix};
use crate::genuine::recordings;
use crate::run::{Folder, hbbp};
use crate::writer::{File, mmap2, stack, turns};

/// Another address for a program of the same code.
const OTHER: u64 = 0x66_0000_0000;

/// A profile of two programs of one function each, of which the first has five stacks and the second, whose name is markup, has
/// two.
fn two_programs(folder: &Folder) -> (String, [String; 2]) {
    let names = ["prog", "<b>prog"];
    let programs = names.map(|name| write_loop(folder, name, 0x1000, &[]));
    let mut records = vec![
        mmap2(5, 2, (BASE, 0x1000), 0x1000, "/bin/prog"),
        mmap2(5, 2, (OTHER, 0x1000), 0x1000, "/bin/<b>prog"),
    ];
    records.extend((0..5).map(|n| stack(5, 3 + n, &turns(Va(BASE)))));
    records.extend((0..2).map(|n| stack(5, 8 + n, &turns(Va(OTHER)))));
    let recording = folder.write("perf.data", File::new(records).bytes());
    let target = folder.path().join("two.hbbp");
    let [recording, target] = [recording.as_path(), &target].map(|path| path.to_str().unwrap());
    let [first, second] = &programs;
    let binaries = ["--binary", first, "--binary", second];
    let ran = hbbp(&[&["import", recording, "-o", target][..], &binaries].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    (target.to_owned(), programs)
}

/// What each of the programs executed, `times` for each.
fn of_programs(programs: &[String; 2], times: [u64; 2]) -> String {
    let counts = programs.iter().zip(times).map(|(program, times)| {
        let counts = lines(times, |at, _, n| format!("{at:x} {n}\n"));
        format!("M {program}\n{counts}")
    });
    counts.collect()
}

/// By the streams the first program is hotter; no addresses were sampled.
#[test]
fn order_of_the_hottest_functions_is_compared() {
    let folder = Folder::new();
    let (profile, programs) = two_programs(&folder);
    let order = |reference: &str| eval(&profile, &folder.write("reference", reference))["order"].clone();
    for (times, correlation, is_right, places) in [
        ([5, 2], 1.0, true, [1, 2]),
        ([200, 100], 1.0, true, [1, 2]),
        ([1, 3], -1.0, false, [2, 1]),
    ] {
        let found = order(&of_programs(&programs, times));
        assert_eq!(found["rank_correlation"]["lbr"], correlation, "{found:#}");
        assert_eq!(found["is_right"]["lbr"], is_right, "{found:#}");
        let functions = found["functions"].as_array().unwrap();
        let of_lbr: Vec<_> = functions
            .iter()
            .map(|it| it["place"]["lbr"].as_u64().unwrap())
            .collect();
        assert_eq!(of_lbr, places, "{found:#}");
        let exact = functions
            .iter()
            .map(|it| it["instructions"]["reference"].as_f64().unwrap());
        let mut expected = times.map(|times| 10_000.0 * times as f64);
        expected.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(exact.collect::<Vec<_>>(), expected);
        assert!(found["is_right"]["ebs"].is_null(), "{found:#}");
        assert!(functions[0]["place"]["ebs"].is_null(), "{found:#}");
    }
    // Without addresses nothing is known of functions.
    assert!(order(&mix(1)).is_null());

    let reference = folder.write("reference", of_programs(&programs, [1, 3]));
    let words = ["eval", &profile, "--reference", reference.to_str().unwrap()];
    for methods in [&[][..], &["--methods", "lbr"]] {
        let ran = hbbp(&[&words[..], methods].concat());
        let row = |label: &str| {
            let row = ran.out.lines().find(|line| line.starts_with(label));
            row.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let correlation = row("rank correlation").unwrap_or_else(|| panic!("{ran:?}"));
        assert!(correlation.contains(&"-1.000".to_owned()), "{correlation:?}");
        assert!(row("right order").unwrap().contains(&"no".to_owned()), "{ran:?}");
    }
}

/// Two functions have all but 116 of 3.056 G instructions; those of start and end are in no stack.
#[test]
fn skylake_has_its_hottest_functions_in_the_right_order() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("skylake");
    let own = tempfile::tempdir().unwrap();
    let profile = own.path().join("x.hbbp");
    let [recording, binary, reference] = ["perfdata", "bin", "exact_counts"].map(|kind| {
        folder
            .join(format!("propeller_sample_1.{kind}"))
            .display()
            .to_string()
    });
    let profile = profile.to_str().unwrap();
    let imported = hbbp(&[
        "import", &recording, "--binary", &binary, "--force", "-o", profile,
    ]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let ran = hbbp(&["eval", profile, "--reference", &reference, "--format", "json"]);
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let order = &found["order"];
    let places = |method: &str| -> Vec<_> {
        let functions = order["functions"].as_array().unwrap().iter();
        let place = |it: &serde_json::Value| {
            let name = it["function"].as_str().unwrap().to_owned();
            (name, it["place"][method].as_u64())
        };
        functions.map(place).take(2).collect()
    };
    let hottest = [("main".to_owned(), Some(1)), ("compute_flag".to_owned(), Some(2))];
    for method in ["hybrid", "lbr"] {
        assert_eq!(places(method), hottest, "{order:#}");
        assert_eq!(order["is_right"][method], true, "{order:#}");
    }
    assert!(order["is_right"]["ebs"].is_null(), "{order:#}");
}

/// The page draws both figures of the paper, has the tables of the text, no script, and no markup of others.
#[test]
fn page_of_errors_draws_the_mnemonics_and_has_the_tables() {
    let folder = Folder::new();
    let (profile, programs) = two_programs(&folder);
    let reference = folder.write("reference", of_programs(&programs, [4, 2]));
    let words = [
        "eval",
        &profile,
        "--reference",
        reference.to_str().unwrap(),
        "--rule",
        "paper",
    ];
    let page = |more: &[&str]| {
        let ran = hbbp(&[&words[..], &["--by", "module", "--format", "html"], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let all = page(&[]);
    assert_eq!(all.matches("<svg class=\"chart\"").count(), 2, "{all}");
    // Six mnemonics: a bar and a dot of each, and an error by the methods that saw them.
    assert_eq!(all.matches("<rect class=\"executions\"").count(), 6, "{all}");
    assert_eq!(all.matches("<circle class=\"hybrid\"").count(), 6, "{all}");
    assert!(all.contains("<title>DEC: LBR 76.67 %</title>"), "{all}");
    // No addresses were sampled.
    assert!(!all.contains("class=\"ebs\""), "{all}");
    let text = hbbp(&words).out;
    for heading in [
        "Executions by mnemonic, and their errors in %",
        "The hottest functions of the reference",
    ] {
        assert!(
            text.contains(heading) && all.contains(&format!("<h2>{heading}")),
            "{heading}"
        );
    }
    assert!(all.contains("&lt;b&gt;prog") && !all.contains("<b>"), "{all}");
    assert!(
        !all.contains("<script") && !all.contains("style=") && !all.contains("http://"),
        "{all}"
    );

    let methods = page(&["--methods", "lbr,classic"]);
    assert_eq!(methods.matches("<svg").count(), 0, "{methods}");
    assert!(methods.contains("<dt>classic</dt><dd>not served: "), "{methods}");
}
