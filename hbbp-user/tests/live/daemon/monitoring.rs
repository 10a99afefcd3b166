//! What Prometheus makes of the metrics: their form, the alerts, and the queries of the dashboard.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::Daemon;
use super::metrics::get;
use crate::load::{Load, built};
use crate::{kernel, skip_outside_ci};

const DASHBOARD: &str = include_str!("../../../package/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../../../package/monitoring/alerts.yaml");

/// Vector code that has no end.
const VECTORS: &str = "int main(void) { volatile double x = 1; for (;;) x = x * 1.000001 + 1; }\n";

/// The program of Prometheus that checks and evaluates; `None` where it is not there.
fn promtool(args: &[&str]) -> Option<Command> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("promtool/usr/bin/promtool");
    if !program.is_file() {
        skip_outside_ci("promtool is not there; `cargo xtask setup` unpacks it");
        return None;
    }
    let mut command = Command::new(program);
    command.args(args);
    Some(command)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("package/monitoring")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The metrics of a daemon that has measured vector code and system calls.
fn scraped() -> String {
    let made = tempfile::tempdir().unwrap();
    let vectors = built(made.path(), "vectors", VECTORS, &[]);
    let _loads = [Load::syscalls(), Load(Command::new(vectors).spawn().unwrap())];
    let socket = made.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&made.path().join("segments"), &["--listen", &listen]);
    daemon.until("mix", |_| {
        socket.exists() && get(&socket, "/metrics", "").contains("hbbp_mix_total{")
    });
    let text = get(&socket, "/metrics", "");
    daemon.stop();
    text
}

/// The names of metrics that a text has: words that begin as ours do.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("hbbp_")).collect()
}

/// The queries of the dashboard, with their variables replaced.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    expressions
        .map(|expression| expression.replace("$instance", "host").replace("$window", "1h"))
        .collect()
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn prometheus_takes_the_metrics() {
    let Some(_kernel) = kernel() else { return };
    let Some(mut promtool) = promtool(&["check", "metrics"]) else {
        return;
    };
    let promtool = promtool.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut checking = promtool.stderr(Stdio::piped()).spawn().unwrap();
    let text = scraped();
    checking.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = checking.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn alerts_fire_for_a_daemon_that_is_ill() {
    for args in [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ] {
        let Some(mut promtool) = promtool(&args) else {
            return;
        };
        let checked = promtool.current_dir(folder()).output().unwrap();
        assert!(checked.status.success(), "{}", said(&checked));
    }
}

/// Each metric that alerts and dashboard name is there, and Prometheus answers each query with figures.
#[test]
#[ignore = "needs a program that only --all installs"]
fn dashboard_is_answered_by_the_metrics() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    let file = made.path().join("queries.yaml");
    let Some(mut promtool) = promtool(&["test", "rules", file.to_str().unwrap()]) else {
        return;
    };
    let text = scraped();
    let known = names(&text);
    for asked in [DASHBOARD, ALERTS] {
        let missing: Vec<_> = names(asked).difference(&known).copied().collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    let mut test = "evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n".to_owned();
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = sample.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let (name, labels) = series.split_once('{').map_or((series, ""), |(name, labels)| {
            (name, labels.trim_end_matches('}'))
        });
        // Counters grow by what they have each minute; the others stay.
        let values = match name.ends_with("_total") {
            true => format!("0+{value:.9}x120"),
            false => format!("{value:.9}x120"),
        };
        let series = format!(
            "{name}{{{labels}{}instance=\"host\"}}",
            if labels.is_empty() { "" } else { "," }
        );
        writeln!(
            test,
            "  - series: '{}'\n    values: '{values}'",
            series.replace('\'', "''")
        )
        .unwrap();
    }
    test += "  promql_expr_test:\n";
    let queries = queries();
    for query in &queries {
        let answered = format!("count({query}) > bool 0").replace('\'', "''");
        writeln!(
            test,
            "  - expr: '{answered}'\n    eval_time: 2h\n    exp_samples:\n    - {{labels: '{{}}', value: 1}}"
        )
        .unwrap();
    }
    std::fs::write(&file, test).unwrap();
    let evaluated = promtool.output().unwrap();
    assert!(evaluated.status.success(), "{}", said(&evaluated));
    assert!(15 <= queries.len(), "{queries:?}");
}
