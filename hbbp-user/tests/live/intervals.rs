//! One profile after the other, of one measurement: `processwatch` and `top` are made of them.

use std::time::Duration;

use hbbp_collect::ClassCounting;
use hbbp_model::profile::Output;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::Compression;
use hbbp_user::cmd::record::{Intervals, RecordOptions};

use super::load::Load;
use super::run::assert_accounts_for;
use super::{kernel, number, report_of, resolved, run};

/// Three intervals of two seconds, and one that is ended in its middle.
fn profiles() -> Vec<Snapshot> {
    let options = RecordOptions {
        classes: ClassCounting::On,
        ..RecordOptions::default()
    };
    let mut intervals = Intervals::open(&options, Duration::from_secs(2)).unwrap();
    let mut profiles: Vec<Snapshot> = intervals.by_ref().take(3).map(Result::unwrap).collect();
    // The last one, which a signal or the end of time cuts short.
    let ender = intervals.ender();
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        ender.end();
    });
    profiles.push(intervals.next().unwrap().unwrap());
    late.join().unwrap();
    assert!(intervals.next().is_none());
    profiles
}

/// The sums of each profile close, and nothing is resolved less well later on.
#[test]
fn profiles_of_intervals_close_every_sum() {
    let Some(_kernel) = kernel() else { return };
    let loads = [Load::syscalls(), Load::spin()];
    let profiles = profiles();
    let mut times = Vec::new();
    for snapshot in &profiles {
        snapshot.check().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("part.hbbp");
        let saved = Output::open(&file).unwrap();
        saved
            .save(
                std::slice::from_ref(snapshot),
                Compression::Fast,
                &mut std::io::sink(),
            )
            .unwrap();
        let report = report_of(file.to_str().unwrap());
        assert_eq!(number(&report["accounting"]["unexplained"]), 0);
        assert_accounts_for(snapshot, &report["accounting"]);
        let (in_mix, counted) = resolved(&report, "kernel");
        assert!(
            0 < in_mix && 98 * counted <= 100 * in_mix,
            "{in_mix} of {counted}"
        );
        // Other programs that run meanwhile may end too soon; ours does not.
        let spinning = format!("pid={}", loads[1].0.id());
        let arguments = [
            "report",
            file.to_str().unwrap(),
            "--filter",
            &spinning,
            "--format",
            "json",
        ];
        let of_load: serde_json::Value = serde_json::from_slice(&run(&arguments).stdout).unwrap();
        assert!(
            !of_load["mix"]["rows"].as_array().unwrap().is_empty(),
            "{of_load}"
        );
        let rows = snapshot.intervals.iter();
        times.extend(rows.map(|interval| (interval.start, interval.end)));
    }
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    // From the stop of one interval to the start of the next.
    let pauses = profiles.windows(2).map(|pair| {
        let [before, after] = [&pair[0].run, &pair[1].run];
        after.started.saturating_sub(before.started + before.duration)
    });
    println!(
        "longest pause between two intervals: {} ns",
        pauses.max().unwrap()
    );
}
