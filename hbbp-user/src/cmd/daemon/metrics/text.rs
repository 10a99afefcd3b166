//! Metrics as text: OpenMetrics, and the older format of Prometheus.

/// The text of OpenMetrics as Prometheus had it before: the lines on a counter name its samples (`.._total`), and there are
/// no units and no end.
pub(super) fn prometheus_text(text: &str) -> String {
    let is_counter = |name: &str| {
        let kind = format!("# TYPE {name} counter");
        text.lines().any(|line| line == kind)
    };
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let line = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(said)) if is_counter(name) => {
                format!("# {what} {name}_total {said}\n")
            }
            _ => format!("{line}\n"),
        };
        lines.push_str(&line);
    }
    lines
}
