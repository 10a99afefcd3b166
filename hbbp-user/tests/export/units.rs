//! Every output names the unit of its numbers, and time is nowhere called executions; what is not of one unit has no sum.

use std::path::Path;

use clap::{CommandFactory as _, Parser as _};
use hbbp_model::snapshot::{EventUnit, Snapshot, file};
use hbbp_testing::program;
use hbbp_user::cli::Cli;
use hbbp_user::cmd::run;

/// What a command prints; the error where it fails.
fn said(words: &[&str]) -> Result<Vec<u8>, String> {
    let cli = Cli::try_parse_from(["hbbp-sys"].iter().chain(words)).unwrap();
    let mut out = Vec::new();
    match run(&cli.into_job().unwrap(), &mut out) {
        Ok(_) => Ok(out),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn saved(folder: &Path, name: &str, snapshot: &Snapshot) -> String {
    let path = folder.join(name);
    std::fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
    path.display().to_string()
}

/// Formats without room for a unit: of branch stacks, which a clock does not have, and sample profiles of one image, whose
/// unit is said on standard error.
const OF_STACKS: [&str; 8] = [
    "streams",
    "branches",
    "entries",
    "bolt",
    "profgen",
    "ranges",
    "perf-script",
    "autofdo",
];

/// All formats of `export`, as the command line has them.
fn formats() -> Vec<String> {
    let mut command = Cli::command();
    command.build();
    let export = command.find_subcommand("export").unwrap();
    let format = export.get_arguments().find(|it| it.get_id() == "format").unwrap();
    let values = format.get_possible_values();
    values.iter().map(|value| value.get_name().to_owned()).collect()
}

/// The bytes as text; those of compressed formats are unpacked.
fn plain(format: &str, bytes: &[u8]) -> String {
    use std::io::Read as _;
    if format != "pprof" {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut text)
        .unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn every_export_names_time() {
    let folder = tempfile::tempdir().unwrap();
    let clock = saved(folder.path(), "clock.hbbp", &program::clocked());
    let retired = saved(folder.path(), "retired.hbbp", &program::retired());
    let mut n_named = 0;
    for format in formats() {
        if OF_STACKS.contains(&format.as_str()) || format == "extbinary" {
            continue;
        }
        let of_time = plain(&format, &said(&["export", &clock, "--format", &format]).unwrap());
        let is_named = ["time_weighted_samples", "time-weighted samples"]
            .iter()
            .any(|unit| of_time.contains(unit));
        assert!(is_named, "{format}: {of_time}");
        assert!(
            !of_time.to_lowercase().contains("executions"),
            "{format}: {of_time}"
        );
        let of_executions = plain(
            &format,
            &said(&["export", &retired, "--format", &format]).unwrap(),
        );
        let is_time = of_executions.contains("time_weighted") || of_executions.contains("time-weighted");
        assert!(!is_time, "{format}: {of_executions}");
        n_named += 1;
    }
    assert_eq!(n_named, 9, "{:?}", formats());
}

#[test]
fn callgrind_has_an_event_of_time() {
    let folder = tempfile::tempdir().unwrap();
    for (snapshot, events) in [
        (program::clocked(), "events: Time Smp\n"),
        (program::retired(), "events: Ir Smp\n"),
    ] {
        let file = saved(folder.path(), "callgrind.hbbp", &snapshot);
        let text = String::from_utf8(said(&["export", &file, "--format", "callgrind"]).unwrap()).unwrap();
        assert!(text.contains(events), "{text}");
    }
}

#[test]
fn every_report_names_time() {
    let folder = tempfile::tempdir().unwrap();
    let clock = saved(folder.path(), "clock.hbbp", &program::clocked());
    let mut half = program::clocked();
    half.intervals[0].ips.retain(|ip| ip.process.0 != 0);
    let half = saved(folder.path(), "half.hbbp", &half);
    for words in [
        &["report", &clock, "--format", "json"][..],
        &["report", &clock, "--format", "csv", "--by", "mnemonic"],
        &["report", &clock, "--format", "csv", "--view", "loops"],
        &["report", &clock, "--by", "mnemonic"],
        &["report", &clock, "--details"],
        &["diff", &clock, &half, "--top", "all", "--format", "csv"],
        &["diff", &clock, &half, "--format", "json"],
        &["annotate", &clock, "spin_wait", "--format", "json"],
    ] {
        let text = String::from_utf8(said(words).unwrap()).unwrap();
        let is_named = ["time_weighted_samples", "time-weighted samples"]
            .iter()
            .any(|unit| text.contains(unit));
        assert!(is_named, "{words:?}: {text}");
    }
}

#[test]
fn runs_of_two_units_are_neither_merged_nor_summed() {
    let folder = tempfile::tempdir().unwrap();
    let mut of_cycles = program::clocked();
    of_cycles.run.events[0].unit = EventUnit::Cycles;
    of_cycles.run.events[0].name = "cycles".to_owned();
    let profiles = [
        ("clock.hbbp", program::clocked()),
        ("retired.hbbp", program::retired()),
        ("cycles.hbbp", of_cycles),
    ];
    let files = profiles
        .each_ref()
        .map(|(name, snapshot)| saved(folder.path(), name, snapshot));
    let merged = folder.path().join("merged.hbbp").display().to_string();
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let error = said(&["merge", &files[a], &files[b], "-o", &merged]).unwrap_err();
        assert!(error.contains("runs of different units have no sum"), "{error}");
        // A file that another version merged, or a folder of segments, is not summed either.
        let runs = [profiles[a].1.clone(), profiles[b].1.clone()];
        let both = folder.path().join("both.hbbp");
        std::fs::write(&both, file::encode_runs(&runs, file::Compression::Fast).unwrap()).unwrap();
        let both = both.display().to_string();
        for words in [
            &["report", &both][..],
            &["report", &both, "--format", "csv", "--by", "mnemonic"],
            &["export", &both, "--format", "collapsed"],
            &["diff", &both, &files[a]],
        ] {
            let error = said(words).unwrap_err();
            assert!(
                error.contains("runs of different units have no sum"),
                "{words:?}: {error}"
            );
        }
    }
    said(&["merge", &files[0], &files[0], "-o", &merged]).unwrap();
    said(&["report", &merged]).unwrap();
}
