//! Times of a CPU that cannot be sampled: idle time, steal time and that of guests, from /proc/stat.
//!
//! The text is interpreted here and not by procfs, because that crate counts the lines, and a CPU that is offline has
//! none.

use std::collections::HashMap;

use hbbp_model::snapshot::run::Event;

/// The times of each CPU since boot, by its number; empty where the kernel does not report them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes(HashMap<u32, Times>);

/// Times in ns, in steps of the kernel's clock tick (10 ms).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Times {
    /// Idle, or waiting for the disk.
    idle: u64,
    /// The hypervisor used the CPU for something else although it had work to do; `None` before Linux 2.6.11.
    steal: Option<u64>,
    /// The CPU executed guests of this host, nice ones included; `None` before Linux 2.6.24.
    guest: Option<u64>,
}

impl CpuTimes {
    /// The times so far.
    pub fn read() -> Self {
        std::fs::read_to_string("/proc/stat")
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// Interprets the lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`.
    fn parse(text: &str) -> Self {
        let times = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
            // The first line is the sum of all, and has no number.
            let cpu = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
            let words: Vec<&str> = words.collect();
            let idle = ns(words.get(3)?)?.saturating_add(words.get(4).and_then(|word| ns(word)).unwrap_or(0));
            let steal = words.get(7).and_then(|word| ns(word));
            let nice = words.get(9).and_then(|word| ns(word)).unwrap_or(0);
            let guest = words.get(8).and_then(|word| ns(word)?.checked_add(nice));
            Some((cpu, Times { idle, steal, guest }))
        };
        Self(text.lines().filter_map(times).collect())
    }

    /// Gives the counters of these events what passed on their CPUs since `before`.
    pub fn add_since(&self, before: &Self, events: &mut [Event]) {
        for counter in events.iter_mut().flat_map(|event| &mut event.counters) {
            let of = |times: &Self| times.0.get(&counter.cpu?).copied();
            if let Some((before, after)) = of(before).zip(of(self)) {
                counter.idle = Some(after.idle.saturating_sub(before.idle));
                let passed = |after: Option<u64>, before| Some(after?.saturating_sub(before?));
                counter.steal = passed(after.steal, before.steal);
                counter.guest = passed(after.guest, before.guest);
            }
        }
    }
}

/// Clock ticks as ns: `USER_HZ` is 100 on x86, whatever the kernel's own tick.
fn ns(ticks: &str) -> Option<u64> {
    const NS_PER_TICK: u64 = 10_000_000;

    Some(ticks.parse::<u64>().ok()?.saturating_mul(NS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::run::Counter;

    #[test]
    fn a_cpu_that_is_offline_has_no_line() {
        let text = "cpu  9 9 9 900 90 0\ncpu0 1 2 3 400 50 7 0 6 0 0\ncpu2 1 2 3 7 0 7 0\nintr 5 0\nctxt 7\n";
        let first = Times {
            idle: 4_500_000_000,
            steal: Some(60_000_000),
            guest: Some(0),
        };
        let second = Times {
            idle: 70_000_000,
            steal: None,
            guest: None,
        };
        let expected = HashMap::from([(0, first), (2, second)]);
        assert_eq!(CpuTimes::parse(text), CpuTimes(expected));
        assert!(!CpuTimes::read().0.is_empty());
    }

    #[test]
    fn counters_get_what_passed_on_their_cpu() {
        let counter = |cpu| Counter {
            cpu,
            ..Counter::default()
        };
        let mut events = [Event {
            counters: vec![counter(Some(1)), counter(Some(2)), counter(None)],
            ..Event::default()
        }];
        let before = CpuTimes::parse("cpu1 1 2 3 400 50 7 0 6 0 0\n");
        let after = CpuTimes::parse("cpu1 1 2 3 410 51 7 0 9 0 0\ncpu2 1 2 3 410 51 7 0 9 0 0\n");
        after.add_since(&before, &mut events);
        let times: Vec<_> = events[0].counters.iter().map(|c| (c.idle, c.steal)).collect();
        assert_eq!(
            times,
            [(Some(110_000_000), Some(30_000_000)), (None, None), (None, None)]
        );
    }

    /// In the format of Linux 6.12; a guest runs on the first CPU.
    #[test]
    fn guests_have_their_time() {
        let counter = |cpu| Counter {
            cpu: Some(cpu),
            ..Counter::default()
        };
        let mut events = [Event {
            counters: vec![counter(0), counter(1)],
            ..Event::default()
        }];
        let before = CpuTimes::parse(
            "cpu  190 30 50 1540 10 0 5 0 120 20\ncpu0 150 30 30 700 10 0 5 0 120 20\ncpu1 40 0 20 840 0 0 0 0 0 0\n",
        );
        let after = CpuTimes::parse(
            "cpu  370 40 60 1740 10 0 5 0 290 30\ncpu0 330 40 35 705 10 0 5 0 290 30\ncpu1 40 0 25 1035 0 0 0 0 0 0\n",
        );
        after.add_since(&before, &mut events);
        let guests: Vec<_> = events[0].counters.iter().map(|c| c.guest).collect();
        // 170 ticks of 10 ms, and 10 of nice ones.
        assert_eq!(guests, [Some(1_800_000_000), Some(0)]);
    }
}
