//! The metrics of a daemon are the sums of its segments, in a form that Prometheus takes; bad requests do no harm, and the
//! profile of the last seconds is served to the owner.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hbbp_model::names::Workload;
use hbbp_model::profile::read_runs;
use hbbp_model::snapshot::{Run, Snapshot};
use serde_json::Value;

use super::{Daemon, names, path_of};
use crate::load::Load;
use crate::tasks::Cgroup;
use crate::{kernel, number, report_of, run, skip_outside_ci};

/// What a server at a Unix socket answers to some bytes.
fn answer(socket: &Path, request: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It may close the connection before everything is written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The body of the answer to a GET.
pub(super) fn get(socket: &Path, path: &str, headers: &str) -> String {
    let (head, body) = got(socket, path, headers);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    String::from_utf8(body).unwrap()
}

/// Head and body of the answer to a GET.
pub(super) fn got(socket: &Path, path: &str, headers: &str) -> (String, Vec<u8>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    let answer = answer(socket, request.as_bytes());
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head, answer[end + 4..].to_vec())
}

/// The samples of a text, by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| line.rsplit_once(' ').unwrap());
    samples
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// The first segments, of the number that a scrape has counted.
fn counted(folder: &Path, measured: f64) -> Vec<(String, Snapshot)> {
    let mut counted = Vec::new();
    let mut seconds = 0.0;
    for name in names(folder) {
        if measured < seconds + 1e-6 {
            break;
        }
        let path = path_of(folder, &name);
        let run = read_runs(Path::new(&path)).unwrap().remove(0);
        seconds += run.run.duration as f64 / 1e9;
        counted.push((path, run));
    }
    assert!(
        (seconds - measured).abs() < 1e-6,
        "{seconds} s in segments, {measured} s in metrics"
    );
    counted
}

/// What the metrics of the counts of segments are, by name and labels.
fn sums(segments: &[(String, Snapshot)]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |name: String, amount: f64| *sums.entry(name).or_default() += amount;
    for (_, snapshot) in segments {
        for event in &snapshot.run.events {
            add(
                format!("hbbp_samples_total{{event=\"{}\"}}", event.name),
                event.runs as f64,
            );
            add(
                format!("hbbp_samples_due_total{{event=\"{}\"}}", event.name),
                event.due().unwrap() as f64,
            );
        }
        for (id, n, _) in snapshot.losses.iter() {
            add(format!("hbbp_losses_total{{loss=\"{id}\"}}"), n as f64);
        }
    }
    sums
}

/// What the metrics of the mix of segments are, by name and labels.
fn mixes(segments: &[(String, Snapshot)]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |name: String, amount: f64| *sums.entry(name).or_default() += amount;
    for (path, _) in segments {
        let by = |rows| {
            let by = ["--rows", rows, "--cols", "none", "-n", "all"];
            let output = run(&[&["report", path, "--format", "json"], by.as_slice()].concat());
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let report = by("ring,cgroup");
        for row in report["mix"]["rows"].as_array().unwrap() {
            let (unit, ring) = (&report["mix"]["unit"], row["key"][0].as_str().unwrap());
            let Workload {
                cgroup,
                pod,
                container,
            } = Workload::of(row["key"][1].as_str().unwrap());
            add(
                format!(
                    "hbbp_cgroup_mix_total{{unit={unit},ring=\"{ring}\",cgroup=\"{cgroup}\",pod=\"{pod}\",container=\"{container}\"}}"
                ),
                row["total"]["amount"].as_f64().unwrap(),
            );
        }
        let report = by("ring,category,extension");
        for row in report["mix"]["rows"].as_array().unwrap() {
            let key = |n: usize| row["key"][n].as_str().unwrap().to_owned();
            let (unit, ring, category, extension) = (&report["mix"]["unit"], key(0), key(1), key(2));
            add(
                format!(
                    "hbbp_mix_total{{unit={unit},ring=\"{ring}\",category=\"{category}\",extension=\"{extension}\"}}"
                ),
                row["total"]["amount"].as_f64().unwrap(),
            );
        }
    }
    sums
}

#[test]
fn metrics_are_the_sums_of_the_segments() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::spin()];
    let made = tempfile::tempdir().unwrap();
    let (folder, socket) = (made.path().join("segments"), made.path().join("socket"));
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&folder, &["--listen", &listen]);
    daemon.until_intervals(3);
    assert_eq!(get(&socket, "/healthz", ""), "ok\n");
    let text = get(&socket, "/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(text.ends_with("# EOF\n"), "{text}");
    daemon.stop();
    assert!(!socket.exists());

    let samples = samples(&text);
    let segments = counted(&folder, samples["hbbp_measured_seconds_total"]);
    assert!(3 <= segments.len());
    // The mix is that of the first segment, and of others a minute later.
    let mix_end = samples["hbbp_mix_end_time_seconds"];
    let end = |run: &Run| (run.started + run.duration) as f64 / 1e9;
    let estimated = segments.partition_point(|(_, snapshot)| end(&snapshot.run) <= mix_end + 0.1);
    assert_eq!(estimated, 1, "{mix_end}");
    let mut sums = sums(&segments);
    sums.extend(mixes(&segments[..estimated]));
    for (name, sum) in &sums {
        // Reports have whole samples by the largest remainder: a row is off by less than one, and nothing where the sum is whole.
        let found = samples.get(name.as_str()).copied();
        let most = if name.contains("mix_total") {
            estimated as f64
        } else {
            1e-6 * sum
        };
        assert!(
            found.is_some_and(|found| (found - sum).abs() <= most),
            "{name}: {found:?}, {sum}"
        );
    }
    // What rounding adds to one row it takes from others: the totals of segments are off by half a sample each.
    for prefix in ["hbbp_mix_total", "hbbp_cgroup_mix_total"] {
        let of = |(name, amount): (&str, f64)| if name.starts_with(prefix) { amount } else { 0.0 };
        let summed: f64 = sums.iter().map(|(name, sum)| of((name, *sum))).sum();
        let found: f64 = samples.iter().map(|(name, value)| of((name, *value))).sum();
        assert!(
            (found - summed).abs() <= 0.5 * estimated as f64,
            "{prefix}: {found}, {summed}"
        );
    }
    for prefix in ["hbbp_mix_total", "hbbp_cgroup_mix_total"] {
        let is_mix = |name: &&str| name.starts_with(prefix);
        let in_sums = sums.keys().map(String::as_str).filter(is_mix).count();
        let in_metrics = samples.keys().copied().filter(is_mix).count();
        assert_eq!(in_metrics, in_sums, "no other rows of {prefix}");
    }
    let total = |prefix| -> f64 {
        let some = samples.iter().filter(|(name, _)| name.starts_with(prefix));
        some.map(|(_, amount)| amount).sum()
    };
    let (mix, by_cgroup) = (total("hbbp_mix_total"), total("hbbp_cgroup_mix"));
    assert!((mix - by_cgroup).abs() < 1e-6 * mix, "{mix}, {by_cgroup}");
}

#[test]
fn containers_have_labels() {
    let Some(_kernel) = kernel() else { return };
    let id = "0123456789abcdef".repeat(4);
    let Some(cgroup) = Cgroup::named(&format!("docker-{id}.scope")) else {
        return skip_outside_ci("the unified hierarchy of cgroups is not mounted, or cannot be written");
    };
    let procs = cgroup.0.join("cgroup.procs");
    let load = Load::shell(&format!("echo $$ > {} && while :; do :; done", procs.display()));
    let made = tempfile::tempdir().unwrap();
    let socket = made.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&made.path().join("segments"), &["--listen", &listen]);
    daemon.until_intervals(2);
    let text = get(&socket, "/metrics", "");
    let labels = "/docker-0123456789ab.scope\",pod=\"\",container=\"0123456789ab\"}";
    let is_of_it = |line: &&str| line.contains("ring=\"user\"") && line.contains(labels);
    let line = text.lines().find(is_of_it);
    assert!(line.is_some_and(|line| !line.ends_with(" 0.0")), "{text}");
    daemon.stop();
    drop(load);
}

#[test]
fn profile_of_the_last_seconds_is_served_to_the_owner() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    let made = tempfile::tempdir().unwrap();
    let (folder, socket) = (made.path().join("segments"), made.path().join("socket"));
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&folder, &["--listen", &listen]);
    daemon.until_intervals(2);
    let (head, _) = got(&socket, "/profile?seconds=x", "");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let (head, bytes) = got(&socket, "/profile?seconds=3600", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (head, _) = got(&socket, "/profile?seconds=1", "");
    assert!(
        head.starts_with("HTTP/1.1 429 ") && head.contains("retry-after: 10"),
        "{head}"
    );
    let text = get(&socket, "/metrics", "");
    assert_eq!(samples(&text)["hbbp_daemon_profiles_refused_total"], 1.0);
    daemon.stop();
    let path = made.path().join("got.hbbp");
    std::fs::write(&path, bytes).unwrap();
    let profile = read_runs(&path).unwrap().remove(0);
    let segments = counted(&folder, profile.run.duration as f64 / 1e9);
    let runs = |snapshot: &Snapshot| -> u64 { snapshot.run.events.iter().map(|it| it.runs).sum() };
    assert!(2 <= segments.len());
    assert_eq!(
        runs(&profile),
        segments.iter().map(|(_, it)| runs(it)).sum::<u64>()
    );
    let report = report_of(path.to_str().unwrap());
    assert_eq!(number(&report["accounting"]["unexplained"]), 0);
}

#[test]
fn bad_requests_are_closed_and_others_are_answered() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let socket = made.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&made.path().join("segments"), &["--listen", &listen]);
    daemon.until_said("measuring");
    daemon.until("socket", |_| UnixStream::connect(&socket).is_ok());
    let text = |request: &[u8]| String::from_utf8_lossy(&answer(&socket, request)).into_owned();
    let status = |request: &[u8]| text(request).lines().next().unwrap_or_default().to_owned();
    assert!(status(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n").contains("404"));
    assert!(status(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").contains("405"));
    assert!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01").contains("400"));
    let long = [b"GET /", vec![b'a'; 1 << 20].as_slice(), b" HTTP/1.1\r\n\r\n"].concat();
    assert!(!status(&long).contains("200"));
    let many: String = (0..1000).map(|n| format!("X-{n}: x\r\n")).collect();
    assert!(!status(format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes()).contains("200"));
    // Connections that say nothing, or never finish a request, cannot block others.
    let mut held: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for slow in held.iter_mut().step_by(2) {
        // It may have been closed for another one.
        let _ = slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ");
    }
    for _ in 0..20 {
        let text = get(&socket, "/metrics", "");
        assert!(
            60.0 < samples(&text)["hbbp_daemon_connections_closed_total"],
            "{text}"
        );
        held.extend((0..10).map(|_| UnixStream::connect(&socket).unwrap()));
    }
    daemon.stop();
}

/// Scrapes, unless HBBP_SCRAPES says otherwise.
const SCRAPES: usize = 500;

/// Anonymous memory of a process in KiB, and its open sockets. Files of programs that start meanwhile are no matter of scrapes.
fn held(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let sockets = targets.filter(|target| target.to_string_lossy().starts_with("socket:"));
    let memory = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (memory, sockets.count())
}

#[test]
fn scrapes_leave_no_memory() {
    let Some(_kernel) = kernel() else { return };
    let scrapes = std::env::var("HBBP_SCRAPES").map_or(SCRAPES, |n| n.parse().unwrap());
    let made = tempfile::tempdir().unwrap();
    let socket = made.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    // Of a process that does nothing, so that intervals are small.
    let idle = Load::shell("sleep 3600");
    let pid = idle.0.id().to_string();
    let options = ["--listen", &listen, "--pid", &pid];
    let daemon = Daemon::with(&made.path().join("segments"), &options);
    daemon.until_intervals(2);
    // Intervals take memory for a moment: the least of some looks is what is held.
    let least = || {
        let looks = (0..20).map(|_| {
            let text = get(&socket, "/metrics", "");
            assert!(text.contains("hbbp_samples_total"), "{text}");
            std::thread::sleep(Duration::from_millis(100));
            held(daemon.child.id())
        });
        looks.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap()
    };
    let before = least();
    for _ in 0..scrapes {
        get(&socket, "/metrics", "");
    }
    let after = least();
    println!("{scrapes} scrapes: {before:?}, then {after:?} KiB and open sockets");
    // With 500 of them, 8 KiB each; with 10 000, less than half a KiB.
    assert!(after.0 < before.0 + 4096, "{before:?}, {after:?}");
    assert!(after.1 <= before.1, "{before:?}, {after:?}");
    daemon.stop();
}

#[test]
fn scraped_daemon_grows_like_one_that_is_not() {
    let Some(_kernel) = kernel() else { return };
    let scrapes = std::env::var("HBBP_SCRAPES").map_or(SCRAPES, |n| n.parse().unwrap());
    // What the whole system does decides what both hold: the executed text, and the processes.
    let _load = Load::syscalls();
    let made = tempfile::tempdir().unwrap();
    let daemons = ["scraped", "other"].map(|name| {
        let socket = made.path().join(format!("{name}.socket"));
        let listen = format!("unix:{}", socket.display());
        (
            Daemon::with(&made.path().join(name), &["--listen", &listen]),
            socket,
        )
    });
    daemons.iter().for_each(|(daemon, _)| daemon.until_intervals(2));
    for nth in 0..scrapes {
        get(&daemons[0].1, "/metrics", "");
        if nth % 100 == 99 {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    // Intervals take memory for a moment: the least of some looks is what is held.
    let least = |daemon: &Daemon| {
        let looks = (0..40).map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            held(daemon.child.id()).0
        });
        looks.min().unwrap()
    };
    let [scraped, other] = daemons.each_ref().map(|(daemon, _)| least(daemon));
    println!("{scrapes} scrapes: {scraped} KiB, the other daemon {other} KiB");
    // 16 KiB for each of 500 scrapes, and 0.8 KiB of 10 000: less than half of what one sends.
    assert!(scraped < other + 8192, "{scraped}, {other}");
    for (daemon, _) in daemons {
        daemon.stop();
    }
}

#[test]
fn address_in_use_is_refused_before_anything_is_measured() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = made.path().to_str().unwrap();
    let refused = run(&["daemon", "--dir", folder, "--listen", &address]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && why.contains("cannot listen at 127.0.0.1"),
        "{why}"
    );
    assert!(names(made.path()).is_empty());
}
