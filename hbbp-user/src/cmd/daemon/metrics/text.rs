//! Metrics as text: OpenMetrics, and the older format of Prometheus.

use std::collections::HashSet;

/// The text of OpenMetrics as Prometheus had it before: the lines on a counter name its samples (`.._total`), and there are
/// no units and no end.
pub(super) fn prometheus_text(text: &str) -> String {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: HashSet<&str> = kinds.filter_map(|kind| kind.strip_suffix(" counter")).collect();
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let line = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(said)) if counters.contains(name) => {
                format!("# {what} {name}_total {said}\n")
            }
            _ => format!("{line}\n"),
        };
        lines.push_str(&line);
    }
    lines
}
