//! A range of time, as the user says it.

use std::ops::Range;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A moment: a time, or how long ago.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// In ms before now.
    Ago(u64),
    /// In ms since 1970.
    At(u64),
}

/// A range of time; without a start or an end it is open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimeRange {
    /// Its start.
    pub since: Option<Moment>,
    /// Its end.
    pub until: Option<Moment>,
}

impl Moment {
    /// In ms since 1970, where it is `now`.
    const fn at(self, now: u64) -> u64 {
        match self {
            Self::Ago(ms) => now.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

impl TimeRange {
    /// In ms since 1970, where it is `now`; the whole of time where it is open on both sides.
    pub(crate) fn at(self, now: u64) -> Range<u64> {
        let since = self.since.map_or(0, |it| it.at(now));
        since..self.until.map_or(u64::MAX, |it| it.at(now))
    }

    /// Whether it is the whole of time.
    pub const fn is_open(self) -> bool {
        self.since.is_none() && self.until.is_none()
    }
}

impl FromStr for Moment {
    type Err = String;

    /// How long ago (`90s`, `2h`, `1h30m`, `3d`), or a time of UTC (`2026-11-22T15:00`, `2026-11-22`) or of another zone
    /// (`2026-11-22T15:00+01:00`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let days = || {
            text.strip_suffix('d')?
                .parse::<u64>()
                .ok()?
                .checked_mul(86_400_000)
        };
        let ago = || u64::try_from(text.parse::<SignedDuration>().ok()?.as_millis()).ok();
        if let Some(ms) = days().or_else(ago) {
            return Ok(Self::Ago(ms));
        }
        let utc = || {
            let time: DateTime = text.parse().ok()?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        };
        let at = text.parse::<Timestamp>().ok().or_else(utc);
        at.and_then(|at| u64::try_from(at.as_millisecond()).ok())
            .map(Self::At)
            .ok_or_else(|| {
                "expected how long ago (90s, 2h, 3d) or a time of UTC (2026-11-22T15:00)".to_owned()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_or_how_long_ago() {
        let moment = |text: &str| text.parse::<Moment>();
        assert_eq!(moment("90s"), Ok(Moment::Ago(90_000)));
        assert_eq!(moment("1h 30m"), Ok(Moment::Ago(5_400_000)));
        assert_eq!(moment("3d"), Ok(Moment::Ago(3 * 86_400_000)));
        let at = Ok(Moment::At(1_795_359_600_000));
        assert_eq!(moment("2026-11-22T15:00"), at);
        assert_eq!(moment("2026-11-22 15:00:00"), at);
        assert_eq!(moment("2026-11-22T15:00:00Z"), at);
        assert_eq!(moment("2026-11-22T16:00:00+01:00"), at);
        for wrong in ["", "yesterday", "-2h", "2026-13-22T15:00", "1969-01-01"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn open_ranges_reach_to_the_end_of_time() {
        let range = TimeRange {
            since: Some(Moment::Ago(10)),
            until: None,
        };
        assert_eq!(range.at(100), 90..u64::MAX);
        assert!(TimeRange::default().is_open() && !range.is_open());
        assert_eq!(TimeRange::default().at(100), 0..u64::MAX);
    }
}
