//! Reads the segments of a range of time as one profile, while a daemon may write, merge and remove others.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::iter::once;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use super::folder::{Listing, path_of};
use super::name::Name;
use super::plan::{Nest, gaps};
use super::range::TimeRange;
use crate::profile::read_runs;
use crate::snapshot::Snapshot;
use crate::snapshot::unite::{GAP, united};

/// How often reading is retried if segments disappear before they are opened: a daemon merges some every hour.
const ATTEMPTS: usize = 8;

/// Gaps that a note names one by one.
const NAMED: usize = 5;

/// The runs of a range of time, where it is `now` (in ms since 1970): one run, unless the machine was booted or suspended, or
/// the daemon was started with other events. A segment is read as a whole. The first run has notes on gaps in the range, on
/// damaged segments, and on time that is read beyond the range.
pub fn read_range(folder: &Path, range: TimeRange, now: u64) -> anyhow::Result<Vec<Snapshot>> {
    let asked = range.at(now);
    for _ in 0..ATTEMPTS {
        let listing = Listing::read(folder)?;
        let all = listing.names();
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            bail!("there are no segments yet: the first one is written after an interval");
        };
        let overlaps = |name: &&Name| name.start < asked.end && asked.start < name.end();
        let names: BTreeSet<Name> = all.iter().filter(overlaps).copied().collect();
        if names.is_empty() {
            bail!(
                "no segment of that time: the first one begins at {}, the last one ends at {}",
                utc(first.start),
                utc(last.end())
            );
        }
        if let Some(read) = read_once(folder, &names) {
            return read.finish(range, now);
        }
    }
    bail!("its segments are removed faster than they are read")
}

/// What was read of segments, each interval once.
#[derive(Debug, Default)]
pub struct Read {
    /// What was measured, as few runs.
    pub runs: Vec<Snapshot>,
    /// Segments that others hold as well: they were merged, and not removed yet.
    pub held: Vec<Name>,
    /// Segments that cannot be read, and what is wrong with them.
    pub damaged: Vec<(Name, String)>,
}

/// Reads segments; `None` if one is gone. One that a merged segment holds is not counted again. The names suggest it
/// and the contents decide, as a name can be that of a damaged file or of another host's.
fn read_once(folder: &Path, names: &BTreeSet<Name>) -> Option<Read> {
    let mut read = Read::default();
    let mut names: Vec<Name> = names.iter().copied().collect();
    names.sort_by_key(|name| (name.first, Reverse(name.last)));
    let mut wider: Vec<(Name, Vec<Snapshot>)> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let runs = match read_runs(&path_of(folder, name)) {
            Ok(runs) => runs,
            Err(error) if is_gone(&error) => return None,
            Err(error) => {
                read.damaged.push((*name, format!("{error:#}")));
                continue;
            }
        };
        wider.retain(|(other, _)| name.first <= other.last);
        if wider
            .iter()
            .any(|(other, whole)| other.supersedes(name) && is_held(&runs, whole))
        {
            read.held.push(*name);
            continue;
        }
        let mut later = names
            .iter()
            .skip(index + 1)
            .take_while(|later| later.first <= name.last);
        if later.any(|later| name.supersedes(later)) {
            wider.push((*name, runs.clone()));
        }
        read.runs = united(std::mem::take(&mut read.runs).into_iter().chain(runs));
    }
    Some(read)
}

/// What becomes of the inner segments of a nest, by what is in both: they are read one after the other, and the outer one stays in
/// memory without its text. `None` if one is gone.
pub fn compare(folder: &Path, nest: &Nest) -> Option<Read> {
    let mut read = Read::default();
    let mut wider = Vec::new();
    for name in once(&nest.outer).chain(&nest.inner) {
        match read_runs(&path_of(folder, name)) {
            Err(error) if is_gone(&error) => return None,
            Err(error) => read.damaged.push((*name, format!("{error:#}"))),
            Ok(runs) if *name == nest.outer => wider = runs,
            Ok(runs) if is_held(&runs, &wider) => read.held.push(*name),
            Ok(_) => {}
        }
        wider.iter_mut().for_each(|run| run.text = Vec::new());
    }
    Some(read)
}

/// Whether each of the runs of a segment is in one of those of another.
fn is_held(part: &[Snapshot], whole: &[Snapshot]) -> bool {
    !part.is_empty() && part.iter().all(|part| whole.iter().any(|run| run.holds(part)))
}

fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Read {
    /// The runs with the notes on them.
    fn finish(mut self, range: TimeRange, now: u64) -> anyhow::Result<Vec<Snapshot>> {
        let covered: Vec<Range<u64>> = self.runs.iter().flat_map(Snapshot::covered).collect();
        let damaged = self.damaged.first().map(|(_, first)| {
            let n = self.damaged.len();
            format!("damaged segments were left out, {n} in all, such as: {first}")
        });
        let lost: u64 = self.damaged.iter().map(|(name, _)| name.length).sum();
        let run = self.runs.first_mut();
        let run = &mut run.with_context(|| damaged.clone().unwrap_or_default())?.run;
        if let Some(damaged) = damaged {
            run.note_unmeasured(damaged, in_ns(lost));
        }
        let start = covered.iter().map(|it| it.start).min().unwrap_or(now);
        let end = covered.iter().map(|it| it.end).max().unwrap_or(now);
        let asked = range.at(now);
        let since = if range.since.is_some() { asked.start } else { start };
        let until = if range.until.is_some() {
            asked.end.min(now)
        } else {
            end
        };
        let gaps = gaps(covered, since..until, GAP / 1_000_000);
        if let Some(note) = gap_note(&gaps) {
            run.note_unmeasured(note, in_ns(total(&gaps)));
        }
        if start < asked.start || asked.end < end {
            run.notes.push(format!(
                "segments are read as a whole: this is the time from {} to {}",
                utc(start),
                utc(end)
            ));
        }
        Ok(self.runs)
    }
}

/// The time of all gaps, in ms.
fn total(gaps: &[Range<u64>]) -> u64 {
    gaps.iter().map(|gap| gap.end - gap.start).sum()
}

/// A time in ms in ns; names of segments may say any.
const fn in_ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

/// The sentence on the parts of a range that were not measured.
fn gap_note(gaps: &[Range<u64>]) -> Option<String> {
    let seconds = |ms: u64| format!("{}.{:03} s", ms / 1000, ms % 1000);
    let total = total(gaps);
    let named = gaps.iter().take(NAMED);
    let mut named: Vec<String> = named
        .map(|gap| format!("{} from {}", seconds(gap.end - gap.start), utc(gap.start)))
        .collect();
    if NAMED < gaps.len() {
        named.push(format!("and {} more", gaps.len() - NAMED));
    }
    (!gaps.is_empty()).then(|| {
        format!(
            "{} of that time were not measured: {}",
            seconds(total),
            named.join(", ")
        )
    })
}

/// A time in ms since 1970, to the second.
fn utc(ms: u64) -> String {
    let time = i64::try_from(ms).ok();
    let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.unwrap_or(Timestamp::MAX)
        .strftime("%Y-%m-%d %H:%M:%S UTC")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::range::Moment;
    use crate::snapshot::file::encode;
    use crate::snapshot::{Interval, Process};

    /// A second of the clock of the intervals, and in ms.
    const S: u64 = 1_000_000_000;
    const MS: u64 = 1000;

    /// Writes a segment of 60 s that begins at a second.
    fn write(folder: &Path, number: u64, second: u64) -> Name {
        let mut snapshot = Snapshot {
            processes: vec![Process::default()],
            intervals: vec![Interval {
                start: second * S,
                end: (second + 60) * S,
                ..Interval::default()
            }],
            ..Snapshot::default()
        };
        snapshot.run.started = (1_000_000 + second) * S;
        snapshot.run.duration = 60 * S;
        let name = Name {
            first: number,
            last: number,
            start: (1_000_000 + second) * MS,
            length: 60 * MS,
        };
        std::fs::write(path_of(folder, &name), encode(&snapshot).unwrap()).unwrap();
        name
    }

    /// The runs of a range in seconds, and what the first one notes.
    fn range(folder: &Path, since: u64, until: u64) -> (Vec<Snapshot>, String) {
        let at = |second| Some(Moment::At((1_000_000 + second) * MS));
        let range = TimeRange {
            since: at(since),
            until: at(until),
        };
        let runs = read_range(folder, range, 2_000_000 * MS).unwrap();
        let notes = runs[0].run.notes.join("; ");
        (runs, notes)
    }

    #[test]
    fn range_is_one_run_with_its_gaps() {
        let made = tempfile::tempdir().unwrap();
        for (number, second) in [(0, 100), (1, 160), (2, 250), (3, 310)] {
            write(made.path(), number, second);
        }
        let (runs, notes) = range(made.path(), 160, 370);
        assert_eq!((runs.len(), runs[0].run.duration), (1, 180 * S));
        assert_eq!(
            notes,
            "30.000 s of that time were not measured: 30.000 s from 1970-01-12 13:50:20 UTC"
        );
        // 30 of 210 s.
        assert!((runs[0].run.share_unmeasured(&notes) - 1.0 / 7.0).abs() < 1e-9);
        let (runs, notes) = range(made.path(), 165, 200);
        assert_eq!(runs[0].intervals.len(), 1);
        assert!(
            notes.starts_with("segments are read as a whole: this is the time from"),
            "{notes}"
        );
        let (_, notes) = range(made.path(), 90, 400);
        assert!(
            notes.starts_with("70.000 s of that time"),
            "before, between and after: {notes}"
        );
        let whole = read_range(made.path(), TimeRange::default(), 2_000_000 * MS).unwrap();
        assert_eq!(whole[0].run.duration, 240 * S);
        let never = TimeRange {
            since: Some(Moment::Ago(1)),
            until: None,
        };
        let refused = read_range(made.path(), never, 2_000_000 * MS).unwrap_err();
        assert!(
            refused.to_string().contains("no segment of that time"),
            "{refused}"
        );
    }

    #[test]
    fn damaged_segments_are_left_out_and_named() {
        let made = tempfile::tempdir().unwrap();
        let torn = write(made.path(), 0, 100);
        write(made.path(), 1, 160);
        let path = path_of(made.path(), &torn);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        let (runs, notes) = range(made.path(), 100, 220);
        assert_eq!(runs[0].run.duration, 60 * S);
        assert!(
            notes.starts_with("damaged segments were left out, 1 in all, such as: failed to read profile"),
            "{notes}"
        );
        assert!(
            notes.contains("60.000 s of that time were not measured"),
            "{notes}"
        );
        std::fs::write(&path, b"").unwrap();
        assert!(range(made.path(), 100, 220).1.contains("not an hbbp-sys profile"));
    }

    #[test]
    fn name_of_a_merged_segment_hides_nothing() {
        let made = tempfile::tempdir().unwrap();
        let names = [write(made.path(), 0, 100), write(made.path(), 1, 160)];
        let seconds = |n_runs| {
            let (runs, notes) = range(made.path(), 100, 220);
            assert_eq!(runs.len(), n_runs);
            (runs.iter().map(|run| run.run.duration / S).sum::<u64>(), notes)
        };
        let wider = Name {
            last: 9,
            ..Name::of_all(&names).unwrap()
        };
        let path = path_of(made.path(), &wider);
        std::fs::write(&path, "").unwrap();
        let (measured, notes) = seconds(1);
        assert_eq!(measured, 120);
        assert!(
            notes.starts_with("damaged segments were left out, 1 in all"),
            "{notes}"
        );
        // Segments of another host, another boot, another time, and of a part of the time.
        let whole = read_range(made.path(), TimeRange::default(), 0)
            .unwrap()
            .remove(0);
        let mut host = whole.clone();
        host.run.host.name = "another".to_owned();
        let mut boot = whole.clone();
        boot.run.started += 3_600 * S;
        let mut time = whole.clone();
        for interval in &mut time.intervals {
            interval.start += 3_600 * S;
            interval.end += 3_600 * S;
        }
        for other in [host, boot, time] {
            std::fs::write(&path, encode(&other).unwrap()).unwrap();
            assert_eq!(seconds(2).0, 240, "{:?}", other.run);
        }
        let mut part = whole;
        part.intervals.truncate(1);
        std::fs::write(&path, encode(&part).unwrap()).unwrap();
        let read = read_once(made.path(), &Listing::read(made.path()).unwrap().names()).unwrap();
        assert_eq!(read.held, [names[0]]);
    }

    #[test]
    fn merged_segments_count_once() {
        let made = tempfile::tempdir().unwrap();
        let names = [write(made.path(), 0, 100), write(made.path(), 1, 160)];
        let runs = read_range(made.path(), TimeRange::default(), 0).unwrap();
        let merged = path_of(made.path(), &Name::of_all(&names).unwrap());
        std::fs::write(merged, encode(&runs[0]).unwrap()).unwrap();
        let (runs, notes) = range(made.path(), 100, 220);
        assert_eq!((runs[0].run.duration, notes.as_str()), (120 * S, ""));
    }
}
