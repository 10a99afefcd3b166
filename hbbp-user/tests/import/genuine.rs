//! Recordings of real processors with known answers. They are next to the project, not in it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use crate::run::{export, hbbp, lines};
use crate::skip::skip;

/// The recordings; without them a test skips itself.
pub(crate) fn recordings() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    if folder.is_dir() {
        return Some(folder);
    }
    skip(&format!(
        "there are no genuine recordings in {}",
        folder.display()
    ));
    None
}

#[test]
fn westmere_gives_exactly_the_known_streams_branches_and_counts() {
    let Some(folder) = recordings() else { return };
    let known = std::fs::read_to_string(folder.join("test.lbr.plain.streams")).unwrap();
    let recording = folder.join("test.lbr");
    let binary = folder.join("test.binary");
    let binary = ["--binary", binary.to_str().unwrap()];
    for raw in [&[][..], &["--raw"]] {
        let streams = export(&recording, &[&binary, &["--format", "streams"], raw].concat());
        assert_eq!(lines(&streams, "S "), lines(&known, "S "));
    }
    let branches = export(&recording, &[&binary[..], &["--format", "branches"]].concat());
    assert_eq!(lines(&branches, "B "), lines(&known, "B "));

    let known = std::fs::read_to_string(folder.join("test.lbr.perf_insn_counts")).unwrap();
    let known: Vec<_> = known
        .lines()
        .map(|line| line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let counts = export(
        &recording,
        &[&binary[..], &["--format", "counts", "--source", "lbr"]].concat(),
    );
    let counts: Vec<_> = counts
        .lines()
        .filter(|line| !line.starts_with(['M', '#']))
        .collect();
    assert_eq!(counts, known);
    assert_eq!(counts.len(), 1685);
    let sum: u64 = counts
        .iter()
        .filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, 1_360_061);
}

/// Tiger lake gives one stream of a position independent program.
#[test]
fn tiger_lake_recording_has_one_stream() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("gematria");
    let binary = folder.join("simple_x86_elf_object");
    let recording = folder.join("simple_x86_elf_object.perf.data");
    let streams = export(
        &recording,
        &["--binary", binary.to_str().unwrap(), "--format", "streams"],
    );
    assert_eq!(lines(&streams, "S "), ["S 16cb 16d4 62"]);
    assert_eq!(lines(&streams, "M ").len(), 1);
    assert!(lines(&streams, "M ")[0].ends_with(" 8e55075c9a84f4bf"));
}

/// The recording of a Tiger Lake; `None`, with the reason printed, where there are no recordings.
fn tiger_lake() -> Option<hbbp_model::snapshot::Snapshot> {
    let folder = recordings()?.join("gematria");
    let mut options = hbbp_user::cmd::import::ImportOptions {
        file: folder.join("simple_x86_elf_object.perf.data"),
        ..Default::default()
    };
    options.places.binaries.push(folder.join("simple_x86_elf_object"));
    Some(hbbp_user::cmd::import::import(&options).unwrap())
}

#[test]
fn tiger_lake_keeps_the_cycles_of_its_stream() {
    let Some(snapshot) = tiger_lake() else { return };
    let ours = snapshot.intervals.iter().flat_map(|interval| &interval.streams);
    let ours: Vec<_> = ours.filter(|stream| stream.start.0 & 0xfff == 0x6cb).collect();
    assert_eq!(
        ours.iter()
            .map(|stream| (stream.hits, stream.cycles.map_or(0, NonZeroU64::get)))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (62, 95)
    );
}

/// No time was sampled, only executions: the cycles in the branch records show it.
#[test]
fn tiger_lake_has_the_cycles_for_each_instruction_of_its_loop() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("gematria");
    let recording = folder.join("simple_x86_elf_object.perf.data");
    let binary = folder.join("simple_x86_elf_object");
    let ran = hbbp(&[
        "report",
        recording.to_str().unwrap(),
        "--binary",
        binary.to_str().unwrap(),
        "--values",
        "time,cpi",
        "--view",
        "loops",
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let it = &report["loops"][0]["loops"][0];
    // 95 cycles over 62 iterations of five instructions.
    let cpi = it["cpi"]["value"].as_f64().unwrap();
    assert!((cpi * 5.0 / (95.0 / 62.0) - 1.0).abs() < 0.02, "{cpi} {it}");
}

/// Of 15,024 rounds none was the first one.
#[test]
fn skylake_has_fewest_trips_of_its_loop() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("skylake");
    let recording = folder.join("propeller_sample_1.perfdata");
    let binary = folder.join("propeller_sample_1.bin");
    let ran = hbbp(&[
        "report",
        recording.to_str().unwrap(),
        "--binary",
        binary.to_str().unwrap(),
        "--view",
        "loops",
    ]);
    let row = ran.out.lines().find(|line| line.contains("1957..1a6e"));
    assert!(row.is_some_and(|row| row.contains(" >")), "{}", ran.out);
}

/// Without debug information there is no profile, and no empty file of it.
#[test]
fn skylake_has_no_sample_profile() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("skylake");
    let own = tempfile::tempdir().unwrap();
    let target = own.path().join("afdo");
    let ran = hbbp(&[
        "export",
        folder.join("propeller_sample_1.perfdata").to_str().unwrap(),
        "--binary",
        folder.join("propeller_sample_1.bin").to_str().unwrap(),
        "--format",
        "autofdo",
        "-o",
        target.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("no debug information"), "{ran:?}");
    assert!(!target.exists());
}

#[test]
fn each_entry_of_amd_lbrv2_is_as_in_its_dump() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("amd-lbrv2");
    let entries = export(
        &folder.join("perf.data.branch_stack_spec"),
        &["--format", "entries"],
    );
    let entries: Vec<_> = entries
        .split_ascii_whitespace()
        .filter(|word| word.contains('/'))
        .collect();
    let dump = std::fs::read_to_string(folder.join("perf.data.branch_stack_spec.pb_text")).unwrap();
    let known: Vec<_> = dump.split("branch_stack {").skip(1).map(dumped_entry).collect();
    assert_eq!(known.len(), 128);
    assert_eq!(entries, known);
}

/// An entry of the dump, as perf script would print it.
fn dumped_entry(text: &str) -> String {
    let text = text.split('}').next().unwrap();
    let fields: BTreeMap<_, _> = text
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .collect();
    let number = |name: &str| fields[name].parse::<u64>().unwrap();
    let flag = |name: &str, set, clear| if fields[name] == "true" { set } else { clear };
    let prediction = flag("mispredicted", 'M', flag("predicted", 'P', '-'));
    assert_eq!(number("type"), 0);
    let spec = [
        "-",
        "SPEC_WRONG_PATH",
        "NON_SPEC_CORRECT_PATH",
        "SPEC_CORRECT_PATH",
    ][usize::try_from(number("spec")).unwrap()];
    format!(
        "{:#x}/{:#x}/{prediction}/{}/{}/{}/-/{spec}",
        number("from_ip"),
        number("to_ip"),
        flag("in_transaction", 'X', '-'),
        flag("abort", 'A', '-'),
        number("cycles")
    )
}

/// Tiger Lake streams are used for the mix in addition to one sample of instructions.
#[test]
fn tiger_lake_mix_uses_streams_with_one_sample() {
    let Some(snapshot) = tiger_lake() else { return };
    let rule = hbbp_estimate::rule::DEFAULT.parse().unwrap();
    let analysis = hbbp_analysis::mix::analyse(&snapshot, &hbbp_analysis::mix::Query::whole(), &rule);
    assert_eq!(analysis.mix.unit, hbbp_analysis::mix::Unit::RelativeExecutions);
    // The stream has five instructions.
    let amount = analysis.mix.total.amount;
    assert!((amount / (62.0 * 5.0) - 1.0).abs() < 0.01, "{amount}");
}

/// Shares of executions by address: a line of each is an address and its executions.
fn shares(counts: &str) -> BTreeMap<u64, f64> {
    let line = |line: &str| {
        let (address, executions) = line.split_once(' ')?;
        let executions: f64 = executions.trim().parse().ok()?;
        Some((u64::from_str_radix(address, 16).ok()?, executions))
    };
    let counts: BTreeMap<u64, f64> = counts.lines().filter_map(line).collect();
    let all: f64 = counts.values().sum();
    counts
        .into_iter()
        .map(|(address, n)| (address, n / all))
        .collect()
}

/// Half the sum of the absolute differences of the shares.
fn distance(a: &BTreeMap<u64, f64>, b: &BTreeMap<u64, f64>) -> f64 {
    let of = |shares: &BTreeMap<u64, f64>, address| shares.get(address).copied().unwrap_or(0.0);
    let addresses: std::collections::BTreeSet<&u64> = a.keys().chain(b.keys()).collect();
    let off = addresses
        .into_iter()
        .map(|address| (of(a, address) - of(b, address)).abs());
    off.sum::<f64>() / 2.0
}

/// The distance from exact counts of the Skylake recording, and of others like it: as recorded, and reweighted.
fn skylake_distances(recording: &Path, folder: &Path) -> [f64; 2] {
    let binary = folder.join("propeller_sample_1.bin");
    let exact = shares(&std::fs::read_to_string(folder.join("propeller_sample_1.exact_counts")).unwrap());
    ["lbr", "hybrid"].map(|source| {
        let options = [
            "--binary",
            binary.to_str().unwrap(),
            "--force",
            "--format",
            "counts",
            "--source",
            source,
        ];
        distance(&exact, &shares(&export(recording, &options)))
    })
}

/// Skylake is near exact counts where stacks are reweighted by their slots.
#[test]
fn skylake_reweighted_by_slots_is_near_exact_counts() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("skylake");
    let [recorded, weighed] = skylake_distances(&folder.join("propeller_sample_1.perfdata"), &folder);
    println!("distance {recorded:.4} as recorded, {weighed:.4} weighed");
    assert!((0.027..0.029).contains(&recorded), "{recorded}");
    assert!(weighed < 0.01, "{weighed} weighed, {recorded} as recorded");
}

/// A recording with as many of its samples, drawn with replacement.
fn drawn(recording: &[u8], seed: u64) -> Vec<u8> {
    const SAMPLE: u32 = 9;
    // `struct perf_file_header`: magic, size, attr_size, attrs, data, event_types, adds_features.
    const DATA: usize = 40;
    const FEATURES: std::ops::Range<usize> = 72..104;
    let number = |at: usize| u64::from_le_bytes(recording[at..at + 8].try_into().unwrap()) as usize;
    let (start, len) = (number(DATA), number(DATA + 8));
    let mut records = Vec::new();
    let mut rest = &recording[start..start + len];
    while let Some(size) = rest.get(6..8) {
        let (record, after) = rest.split_at(usize::from(u16::from_le_bytes([size[0], size[1]])));
        records.push(record);
        rest = after;
    }
    let (samples, others): (Vec<&[u8]>, Vec<&[u8]>) = records
        .into_iter()
        .partition(|record| record[..4] == SAMPLE.to_le_bytes());
    // Constants of Knuth's MMIX.
    let mut state = seed;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        samples[(state >> 33) as usize % samples.len()]
    };
    let drawn: Vec<&[u8]> = samples.iter().map(|_| draw()).collect();
    let data = [others, drawn].concat().concat();
    let mut file = recording[..start].to_vec();
    file[DATA + 8..DATA + 16].copy_from_slice(&(data.len() as u64).to_le_bytes());
    file.extend(&data);
    // The table of features follows the data: offset and size of each.
    let n_features: u32 = recording[FEATURES].iter().map(|set| set.count_ones()).sum();
    let (features, contents) = recording[start + len..].split_at(16 * n_features as usize);
    for feature in features.as_chunks::<16>().0 {
        let at = u64::from_le_bytes(feature[..8].try_into().unwrap());
        let moved = at - len as u64 + data.len() as u64;
        file.extend(moved.to_le_bytes());
        file.extend(&feature[8..]);
    }
    file.extend(contents);
    file
}

/// The weights do not owe their figure to these stacks: those of twenty replicates of the recording, each with the chance of
/// a second recording on top, bring the mix nearer in every one.
#[test]
fn skylake_is_as_near_in_replicates_of_its_stacks() {
    let Some(folder) = recordings() else { return };
    let folder = folder.join("skylake");
    let recording = std::fs::read(folder.join("propeller_sample_1.perfdata")).unwrap();
    let own = tempfile::tempdir().unwrap();
    let replicate = own.path().join("perf.data");
    let distances: Vec<[f64; 2]> = (1..=20)
        .map(|seed| {
            std::fs::write(&replicate, drawn(&recording, seed)).unwrap();
            skylake_distances(&replicate, &folder)
        })
        .collect();
    let mean = |which: usize| distances.iter().map(|it| it[which]).sum::<f64>() / 20.0;
    let worst = distances.iter().map(|it| it[1]).fold(0.0, f64::max);
    println!(
        "mean {:.4} as recorded, {:.4} weighed; worst {worst:.4}: {distances:.4?}",
        mean(0),
        mean(1)
    );
    for [recorded, weighed] in &distances {
        assert!(
            2.0 * weighed < *recorded,
            "{weighed} weighed, {recorded} as recorded"
        );
    }
}
