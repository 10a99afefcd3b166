//! The specification of the format is enough to read a profile: a short program in another language does, and finds the
//! same totals.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use hbbp_model::snapshot::file::{Compression, encode, encode_runs};
use hbbp_model::snapshot::{Snapshot, Thread};

use super::{small, strategy};

/// What the program in Python prints.
fn read_by_python(runs: &[Snapshot]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.hbbp");
    std::fs::write(&path, encode_runs(runs, Compression::Small).unwrap()).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshot_file/read_profile.py");
    let output = Command::new("python3").arg(program).arg(&path).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same totals of the snapshots themselves.
fn totals(runs: &[Snapshot]) -> Value {
    let intervals = || runs.iter().flat_map(|run| &run.intervals);
    let ips = || intervals().flat_map(|interval| &interval.ips);
    let streams = || intervals().flat_map(|interval| &interval.streams);
    let branches = || intervals().flat_map(|interval| &interval.branches);
    let modules = || runs.iter().flat_map(|run| &run.modules);
    let text = || runs.iter().flat_map(|run| &run.text);
    let processes = || {
        runs.iter()
            .flat_map(|run| run.processes.iter().map(move |process| (run, process)))
    };
    let thread = |thread: &Thread| json!([thread.tid, thread.name]);
    let mut losses: BTreeMap<&str, u64> = BTreeMap::new();
    for (loss, n, _) in runs.iter().flat_map(|run| run.losses.iter()) {
        *losses.entry(loss).or_default() += n;
    }
    json!({
        "hosts": runs.iter().map(|run| &run.run.host.name).collect::<Vec<_>>(),
        "modules": modules().map(|module| &module.name).collect::<Vec<_>>(),
        "cgroups": processes().map(|(run, it)| it.cgroup.map(|at| &run.cgroups[at.0 as usize])).collect::<Vec<_>>(),
        "threads": processes().filter_map(|(_, it)| it.thread.as_ref()).map(thread).collect::<Vec<_>>(),
        "text_bytes": text().map(|text| text.bytes.len()).sum::<usize>(),
        "losses": losses,
        "ip_hits": ips().map(|count| count.hits).sum::<u64>(),
        "ip_weight": ips().map(|count| count.weight).sum::<u64>(),
        "stream_hits": streams().map(|count| count.hits).sum::<u64>(),
        "stream_weight": streams().fold(0.0, |sum, count| sum + count.weight),
        "branch_hits": branches().map(|count| count.hits).sum::<u64>(),
    })
}

/// Whether the program can run here; says so where it cannot.
fn has_python() -> bool {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let has_both = has("python3") && has("zstd");
    if !has_both {
        crate::skip::skip("reading a profile in Python needs python3 and zstd");
    }
    has_both
}

/// Counts small enough for sums of 64 bits and for exact doubles.
fn bounded(mut snapshot: Snapshot) -> Snapshot {
    for interval in &mut snapshot.intervals {
        for count in &mut interval.ips {
            count.hits >>= 36;
            count.weight >>= 36;
        }
        for count in &mut interval.streams {
            count.hits >>= 36;
            count.weight = f64::from(u32::try_from(count.hits).unwrap_or(7)) * 1.5;
        }
        for count in &mut interval.branches {
            count.hits >>= 36;
        }
    }
    let losses = snapshot.losses.iter();
    snapshot.losses = losses.map(|(id, n, _)| (id.to_owned(), n >> 3)).collect();
    snapshot
}

#[test]
fn python_finds_the_same_totals() {
    if !has_python() {
        return;
    }
    let mut compressed = small();
    compressed.text[0].bytes = include_str!("python.rs").as_bytes().to_vec();
    assert!(encode(&compressed).unwrap().len() < compressed.text[0].bytes.len());
    let mut runner = TestRunner::deterministic();
    let any = (0..20).map(|_| bounded(strategy::snapshot().new_tree(&mut runner).unwrap().current()));
    let all: Vec<Snapshot> = [small(), compressed].into_iter().chain(any).collect();
    for runs in all.chunks(1).chain(all.chunks(3)) {
        assert_eq!(read_by_python(runs), totals(runs));
    }
}
