//! Requirements: false alarms over 500 resampled runs, the power to notice, exit codes and messages.

use std::fs;
use std::process::{Command, Output};

use hbbp_analysis::mix::{Confidence, Outcome, Requirement, Taxonomy};
use hbbp_model::snapshot::{Snapshot, file};
use hbbp_user::cmd::report::{ReportOptions, print};

use super::program;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        self.next() as f64 / 18_446_744_073_709_551_616.0
    }
}

/// A run of `n` samples of the small program, resampled: each is in `vector_copy` with this probability, and else in
/// `count_up`. Two of three instructions of `vector_copy` are VMOVUPS.
fn resampled(n: u32, share: f64, random: &mut Random) -> Snapshot {
    let mut snapshot = program::retired();
    let ips = &mut snapshot.intervals[0].ips;
    // The kernel's four instructions, the four of `count_up`, the three of `vector_copy`.
    for count in ips.iter_mut() {
        count.hits = 0;
    }
    for _ in 0..n {
        let (first, len) = if random.fraction() < share { (8, 3) } else { (4, 4) };
        let at = first + usize::try_from(random.next() % len).unwrap();
        ips[at].hits += 1;
    }
    for count in ips.iter_mut() {
        count.weight = count.hits * 1_000_003;
    }
    ips.retain(|count| 0 < count.hits);
    snapshot
}

/// How many of 500 runs end with each outcome: passed, undecided, failed.
fn outcomes(requirement: &str, n: u32, share: f64, confidence: &str) -> [u32; 3] {
    let mut random = Random(u64::from(n) + share.to_bits());
    let mut outcomes = [0; 3];
    let options = ReportOptions {
        requirements: vec![Requirement::parse(requirement, &Taxonomy::built_in()).unwrap()],
        confidence: confidence.parse::<Confidence>().unwrap(),
        ..ReportOptions::default()
    };
    for _ in 0..500 {
        let snapshot = resampled(n, share, &mut random);
        let quality = print(&snapshot, &options, &mut std::io::sink()).unwrap();
        outcomes[match quality.verdicts[0].outcome {
            Outcome::Passed => 0,
            Outcome::Undecided => 1,
            Outcome::Failed => 2,
        }] += 1;
    }
    outcomes
}

/// At most the stated part of 500 runs whose share equals the limit raises an alarm. 5 % of 500 are 25, and two standard
/// deviations of 5 are added.
#[test]
fn false_alarms_are_at_most_the_stated_level() {
    for share in [0.003, 0.015, 0.15] {
        let limit = 100.0 * share * 2.0 / 3.0;
        for side in ['<', '>'] {
            let requirement = format!("mnemonic=VMOVUPS{side}{limit}%");
            let [.., failed] = outcomes(&requirement, 1000, share, "95");
            assert!(failed <= 25 + 10, "{requirement}: {failed}");
            let [.., failed] = outcomes(&requirement, 1000, share, "99");
            assert!(failed <= 5 + 5, "{requirement}: {failed}");
        }
    }
}

/// A program that has the instruction, and one that has not.
#[test]
fn programs_that_differ_are_distinguished() {
    // 2 % are VMOVUPS.
    let [passed, _, failed] = outcomes("mnemonic=VMOVUPS>1%", 5000, 0.03, "95");
    assert!(450 <= passed && failed == 0);
    let [.., failed] = outcomes("mnemonic=VMOVUPS<1%", 5000, 0.03, "95");
    assert!(450 <= failed);
    assert_eq!(outcomes("mnemonic=VMOVUPS>1%", 5000, 0.0, "95"), [0, 0, 500]);
    assert_eq!(outcomes("mnemonic=VMOVUPS<0.1%", 5000, 0.0, "95"), [500, 0, 0]);
    // After 100 samples that show nothing, up to 3 % remain possible at 95 %.
    assert_eq!(outcomes("mnemonic=VMOVUPS>1%", 100, 0.0, "95"), [0, 500, 0]);
    assert_eq!(outcomes("mnemonic=VMOVUPS>4%", 100, 0.0, "95"), [0, 0, 500]);
}

/// `hbbp-sys report` of a saved snapshot.
fn report(snapshot: &Snapshot, options: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile");
    fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.arg("report").args(options).arg(path).output().unwrap()
}

#[track_caller]
fn check(options: &[&str], code: i32, stderr: &str) {
    let output = report(&program::retired(), options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
    assert!(said.contains(stderr), "{options:?}: {said}");
}

#[test]
fn failed_requirements_end_with_code_3() {
    check(
        &["--require", "mnemonic=VMOVUPS>1%", "--require", "lock=locked<10%"],
        0,
        "",
    );
    check(
        &["--require", "mnemonic=VMOVUPS>10%"],
        3,
        "requirement failed `mnemonic=VMOVUPS>10%`: 3.64 % ± ",
    );
    check(
        &["--require", "extension=AVX512_VNNI>1%"],
        3,
        "nothing seen in 550 samples, so at most 0.545 % at 95 % confidence",
    );
    check(&["--require", "extension=AVX512_VNNI>0.1%"], 0, "");
    check(
        &["--require", "extension=AVX512_VNNI>0.1%", "--strict"],
        3,
        "requirement undecided",
    );
}

#[test]
fn taxonomies_of_users_are_dimensions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    fs::write(
        &path,
        "name = 'mine'\n[[group]]\nname = 'adds'\nmatch = [{ mnemonic = '*ADD*' }]\n",
    )
    .unwrap();
    let path = path.to_str().unwrap();
    let output = report(
        &program::retired(),
        &["--taxonomy", path, "--rows", "mine", "--format", "csv"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("mine,kernel,kernel_std_error") && text.contains("\nadds,0,,0,"),
        "{text}"
    );
    fs::write(path, "name = 'mine'\n\n[[groups]]\n").unwrap();
    check(&["--taxonomy", path], 2, "line 3: unknown key `groups`");
    fs::write(path, "name = 'long-latency'\ngroup = []\n").unwrap();
    check(
        &["--taxonomy", path],
        2,
        "there is another taxonomy `long-latency`",
    );
}
