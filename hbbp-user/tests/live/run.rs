//! The main job under load: the sums close, the samples are resolved, the report comes soon and costs little.

use std::os::unix::process::CommandExt as _;

use hbbp_model::snapshot::loss::LossUnit;
use hbbp_model::snapshot::{EventUnit, Loss, Period, Snapshot};

use super::load::{Datagrams, Load, SYSCALLS, compiling};
use super::{kernel, number, report, resolved, run};

#[test]
fn ten_seconds_under_load_close_every_sum() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _loads = [Load::syscalls(), Load::compiler(folder.path())];
    let _datagrams = Datagrams::start();
    let file = folder.path().join("run.hbbp");
    let file = file.to_str().unwrap();
    let report = report(&["--duration", "10", "--top", "all", "-o", file]);

    let accounting = &report["accounting"];
    let sum = |list: &serde_json::Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(|loss| number(&loss["count"]))
            .sum::<u64>()
    };
    let both = |value: &serde_json::Value| number(&value["kernel"]) + number(&value["user"]);
    let rows = report["mix"]["rows"].as_array().unwrap();
    let in_rows = |ring: &str| rows.iter().map(|row| number(&row[ring]["amount"])).sum::<u64>();
    let in_mix = |ring: &str| number(&accounting["in_mix"][ring]).cast_signed();
    let of_user_code = accounting["of_user_code"].as_i64().unwrap();
    assert_eq!(in_rows("kernel").cast_signed(), in_mix("kernel") - of_user_code);
    assert_eq!(in_rows("user").cast_signed(), in_mix("user") + of_user_code);
    let unresolved: u64 = accounting["unresolved"]
        .as_array()
        .unwrap()
        .iter()
        .map(both)
        .sum();
    assert_eq!(
        in_rows("kernel") + in_rows("user") + unresolved,
        both(&accounting["counted"])
    );
    let reached = number(&accounting["reached"]);
    assert_eq!(
        both(&accounting["counted"]) + sum(&accounting["refused"]),
        reached
    );
    assert_eq!(number(&accounting["unexplained"]), 0);
    assert_accounts_for(&hbbp_model::profile::read(file.as_ref()).unwrap(), accounting);

    for (ring, limit) in [("kernel", 0.995), ("user", 0.98)] {
        let (in_mix, counted) = resolved(&report, ring);
        let share = in_mix as f64 / counted as f64;
        println!(
            "{ring}: {in_mix} of {counted} samples land on a decoded instruction, {:.3} %",
            100.0 * share
        );
        assert!(limit <= share, "{ring}: {share}");
        assert!(1000 < counted, "{ring} was under load: {counted}");
    }
}

/// What a user of each role asks first is on the screen of a run of any load: how it was measured, where the time went, the
/// level, the vectors, the hottest functions with their module and process.
#[test]
fn first_screen_of_a_run_answers_what_people_ask() {
    let Some(_kernel) = kernel() else { return };
    // A command alone, so that what else the machine does is not on its screen.
    let output = run(&[
        "--",
        "dd",
        "if=/dev/urandom",
        "of=/dev/null",
        "bs=4k",
        "count=60000",
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in [
        "the command dd",
        "rings      kernel ",
        "ISA level  v1 ",
        "vectors ",
        "mnemonic ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let is_time = text.contains("time, not executions");
    assert!(is_time || text.contains("estimated executions"), "{text}");
    // It reads random numbers, in the kernel.
    let hot = text.lines().find(|line| line.starts_with("chacha"));
    assert!(hot.is_some_and(|line| line.contains("[kernel]")), "{text}");
    assert_eq!(is_time, text.contains("explains how to get executions"), "{text}");
}

/// The kernel stops the clock of a CPU that has many samples without a clock tick, as an idle one has. Its time counts.
#[test]
fn samples_that_an_idle_cpu_misses_are_due() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.hbbp");
    let report = report(&[
        "--duration",
        "4",
        "--period",
        "500009",
        "-o",
        file.to_str().unwrap(),
    ]);
    let accounting = &report["accounting"];
    let snapshot = hbbp_model::profile::read(&file).unwrap();
    assert_accounts_for(&snapshot, accounting);
    println!(
        "of {} samples, {} are missing on idle CPUs, {} stolen, {} in all",
        accounting["due"], accounting["idle"], accounting["stolen"], accounting["skipped"]
    );
}

/// The accounting says of the samples what the rows and the counters of the profile say.
pub(crate) fn assert_accounts_for(snapshot: &Snapshot, accounting: &serde_json::Value) {
    let events = &snapshot.run.events;
    let rows = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
    let refused = Loss::ALL.iter().filter(|loss| loss.unit() == LossUnit::Sample);
    let refused: u64 = refused.map(|loss| snapshot.losses.get(*loss)).sum();
    let received = rows.map(|row| row.hits).sum::<u64>() + refused;
    assert_eq!(events.iter().map(|event| event.runs).sum::<u64>(), received);
    assert_eq!(number(&accounting["reached"]), received);

    let (mut due, mut missing, mut beyond) = (0, 0, 0);
    for event in events {
        // A budget makes them longer where neighbours take the CPUs; each counter knows what was due then.
        assert!(!matches!(event.period, Period::Frequency(_)), "{event:?}");
        let (Period::Fixed(period) | Period::Between(period, _)) = event.period else {
            continue;
        };
        let expected: u64 = event
            .counters
            .iter()
            .map(|c| c.due.unwrap_or(c.count / period))
            .sum();
        due += expected;
        missing += expected.saturating_sub(event.runs);
        beyond += event.runs.saturating_sub(expected);
        for counter in &event.counters {
            // Periods stay within a hundredth of the nominal one, and one is lost at each of some ten changes. Of a short interval
            // the last period is not over.
            let by_count = counter.count as f64 / period as f64;
            let expected = counter.due.unwrap_or(counter.count / period) as f64;
            let most = 1.0 + 0.02 * by_count;
            assert!((expected - by_count).abs() < most, "{counter:?}");
            let of_run = counter.count as f64 / snapshot.run.duration as f64;
            let is_clock = event.unit == EventUnit::Nanoseconds;
            assert!(
                !is_clock || (of_run - 1.0).abs() < 0.05,
                "a clock counts the time of the run: {counter:?}"
            );
        }
    }
    let said = |name: &str| number(&accounting[name]);
    assert_eq!((said("due"), said("beyond")), (due, beyond));
    assert_eq!(said("idle") + said("skipped"), missing);
    assert!(said("stolen") <= said("skipped"));
}

/// What it costs in time is a matter of `cargo xtask bench`: that is another figure on a busy machine. Memory is not, but for what
/// others run meanwhile: only the load is measured.
#[test]
fn memory_under_load_is_bounded() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let load = format!("{SYSCALLS} & {}", compiling(folder.path()));
    let load = format!("timeout 5 sh -c '{load}'; true");
    let report = report(&["--top", "all", "--", "sh", "-c", &load]);
    let memory = number(&report["run"]["own_memory"]) >> 20;
    println!("peak memory {memory} MiB");
    assert!(memory < 80, "{memory} MiB");
}

#[test]
fn saved_profile_gives_the_report_of_the_direct_run() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _load = Load::syscalls();
    let file = folder.path().join("run.hbbp");
    let file = file.to_str().unwrap();
    for format in ["text", "json", "csv"] {
        for by in [
            "mnemonic",
            "module,function",
            "process,category",
            "extension,packing,width",
        ] {
            let options = ["--format", format, "--by", by, "--top", "25"];
            let direct = run(&[&["--duration", "500ms", "-o", file][..], &options].concat());
            assert!(direct.status.success(), "{direct:?}");
            let saved = run(&[&["report", file][..], &options].concat());
            assert!(saved.status.success(), "{saved:?}");
            assert_eq!(
                String::from_utf8(direct.stdout).unwrap(),
                String::from_utf8(saved.stdout).unwrap(),
                "{format} by {by}"
            );
        }
    }
}

#[test]
fn scope_excludes_everything_else() {
    let Some(_kernel) = kernel() else { return };
    let spin = Load::spin();
    let _other = Load::syscalls();
    let pid = spin.0.id().to_string();
    let report = report(&[
        "--duration",
        "1",
        "--pid",
        &pid,
        "--by",
        "process",
        "--top",
        "all",
    ]);
    let rows = report["mix"]["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["key"][0].as_str().unwrap().contains(&pid), "{row}");
    }
}

#[test]
fn short_lived_threads_do_not_end_the_measurement() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let load = Load::threads(folder.path());
    let pid = load.0.id().to_string();
    for _ in 0..10 {
        let report = report(&["--duration", "100ms", "--pid", &pid]);
        let accounting = &report["accounting"];
        assert_eq!(number(&accounting["idle"]), 0, "{accounting}");
        assert_eq!(number(&accounting["unexplained"]), 0, "{accounting}");
    }
}

#[test]
fn short_processes_without_samples_are_not_blamed_on_the_kernel() {
    let Some(_kernel) = kernel() else { return };
    let script = "for i in $(seq 200); do /bin/true; done";
    let report = report(&["--", "sh", "-c", script]);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("less than one period"), "{warnings}");
}

#[test]
fn container_with_a_pid_namespace_resolves_user_code() {
    let Some(_kernel) = kernel() else { return };
    let unshare = |args: &[&str]| {
        std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .args(args)
            .output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        super::skip::skip("no pid namespace can be made here");
        return;
    }
    let _outside = Load::spin();
    let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let binary = env!("CARGO_BIN_EXE_hbbp-sys");
    for scope in [&["--by", "process"][..], &["--all", "--by", "process"]] {
        let args = [
            &[binary, "--format", "json"][..],
            scope,
            &["--", "sh", "-c", spin],
        ]
        .concat();
        let output = unshare(&args).unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let (in_mix, counted) = resolved(&report, "user");
        let accounting = &report["accounting"];
        assert!(50 < in_mix, "{accounting}");
        if scope.len() == 2 {
            assert!(0.98 * counted as f64 <= in_mix as f64, "{accounting}");
        }
        for row in report["mix"]["rows"].as_array().unwrap() {
            let is_own = row["key"][0].as_str().unwrap().contains("sh");
            assert!(is_own || number(&row["user"]["amount"]) < 20, "{row}");
        }
    }
}

#[test]
fn file_limit_is_raised() {
    let Some(_kernel) = kernel() else { return };
    let binary = env!("CARGO_BIN_EXE_hbbp-sys");
    // Three events, two maps and the libraries of the loader do not fit into 16, and the command keeps the limit.
    let script = format!("ulimit -Sn 16; exec {binary} --format csv -- sh -c 'ulimit -Sn >&2'");
    let output = std::process::Command::new("sh").args(["-c", &script]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap().trim(), "16");
}

#[test]
fn cgroup_is_measured_alone() {
    let Some(_kernel) = kernel() else { return };
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts
        .lines()
        .find_map(|line| line.split(' ').nth(1).filter(|_| line.contains(" cgroup2 ")));
    let folder = mount.map(|mount| std::path::Path::new(mount).join("hbbp-sys-test"));
    let Some(folder) = folder.filter(|folder| std::fs::create_dir(folder).is_ok()) else {
        super::skip::skip("this machine has no cgroup2 hierarchy that may be written to");
        return;
    };
    let script = format!("echo $$ > {}/cgroup.procs; while :; do :; done", folder.display());
    let spin = Load::shell(&script);
    let report = report(&[
        "--duration",
        "1",
        "--cgroup",
        "/hbbp-sys-test",
        "--by",
        "process",
        "--top",
        "all",
    ]);
    let pid = spin.0.id().to_string();
    drop(spin);
    std::fs::remove_dir(&folder).unwrap();
    assert!(
        0 < number(&report["accounting"]["counted"]["user"]),
        "{}",
        report["accounting"]
    );
    assert_eq!(
        number(&report["accounting"]["idle"]),
        0,
        "a cgroup is not there while its CPU idles"
    );
    for row in report["mix"]["rows"].as_array().unwrap() {
        let process = row["key"][0].as_str().unwrap();
        assert!(
            process.contains(&pid) || number(&row["user"]["amount"]) == 0,
            "{row}"
        );
    }
}

#[test]
fn cpu_is_measured_alone() {
    let Some(_kernel) = kernel() else { return };
    let _loads = [Load::spin(), Load::spin(), Load::spin(), Load::spin()];
    let report = report(&["--duration", "1", "--cpu", "0"]);
    let due = number(&report["accounting"]["due"]) as f64;
    let milliseconds = number(&report["run"]["duration"]) as f64 / 1e6;
    assert!(
        0.9 * milliseconds < due && due < 1.1 * milliseconds,
        "a thousand samples a second on one CPU: {due} in {milliseconds} ms"
    );
}

/// Command and descendants are measured and its exit code passed on.
#[test]
fn command_is_measured_and_its_exit_code_passed_on() {
    let Some(_kernel) = kernel() else { return };
    let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let script = format!("sh -c '{spin}'; exit 7");
    let output = run(&["--by", "process", "--format", "json", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(100 < number(&report["accounting"]["counted"]["user"]), "{report}");
}

#[test]
fn signal_ends_the_measurement_early_and_still_reports() {
    let Some(_kernel) = kernel() else { return };
    signal_ends(libc::SIGTERM);
    // As of a terminal that is closed.
    signal_ends(libc::SIGHUP);
}

#[track_caller]
fn signal_ends(signal: i32) {
    // Longer than any host is busy.
    const LENGTH: u64 = 3600;
    let mut child = super::program(&["--duration", &LENGTH.to_string(), "--format", "json"]);
    let restore = move || {
        // The tests may run under nohup, which has SIGHUP ignored by all that it starts.
        // SAFETY: takes numbers only.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe { child.pre_exec(restore) };
    let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    super::wait_until_it_listens(child.id(), signal);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = number(&report["run"]["duration"]) / 1_000_000_000;
    assert!(seconds < LENGTH, "{seconds} s");
}
