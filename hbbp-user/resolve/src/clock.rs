//! The clocks of a run: that of the records, that of the calendar, and that of the work of a thread.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Now in ns of CLOCK_MONOTONIC, the clock of the records.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Now in ns since 1970.
pub fn since_epoch() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let before = (now(), thread_time());
        let after = (now(), thread_time());
        assert!(0 < before.0 && before.0 <= after.0 && before.1 <= after.1);
        let seconds_of_50_years = 50 * 365 * 86_400;
        assert!(seconds_of_50_years < since_epoch() / 1_000_000_000);
    }
}
