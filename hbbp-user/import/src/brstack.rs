//! The text of `perf script -F ..,brstack`, in the forms that occur.
//!
//! A line that holds branch entries is a sample. What precedes them depends on the fields that were asked for: nothing,
//! an address, a pid, both, or a whole head with command, pid, CPU, time, period and event. Where a call chain was
//! asked for too, the head and the chain are on lines before the entries. An unindented decimal number on a line of its
//! own says how often the next sample occurred (llvm-profgen's aggregated form). Records about mappings and processes
//! (`--show-mmap-events --show-task-events`) are understood; without them the addresses are assumed to be those of the
//! program that is named with `--binary`. The order of the lines represents the time.

use std::io::BufRead;

use super::entry_text::{TextAddress, looks_like_entry, parse_address, parse_entry};
use super::error::ImportError;
use super::lines::Lines;
use super::sample::Sample;
use super::script_record::parse_script_record;
use super::text_modules::TextModules;
use hbbp_model::addr::Va;
use hbbp_model::record::Timed;

/// More events than this are no events.
const MAX_EVENTS: usize = 256;
/// More entries than any processor records; perf and BOLT have the same limit.
const MAX_ENTRIES: usize = 1024;

/// What the first pass over a text finds.
#[derive(Debug, Default)]
pub struct ScriptText {
    /// What happened to processes; the time is the number of the line.
    pub records: Vec<Timed>,
    /// Names of the events, in the order of their first samples; one empty name where the text gives none.
    pub events: Vec<String>,
    /// Samples by event.
    pub n_samples: Vec<u64>,
    /// Periods by event.
    pub periods: Vec<Periods>,
    /// Files that are named by their build ids.
    pub modules: TextModules,
    /// Number of lines.
    pub n_lines: u64,
}

/// The periods of an event's samples; `None` where no sample has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Periods {
    /// Shortest, in units of the event.
    pub shortest: Option<u64>,
    /// Longest, in units of the event.
    pub longest: Option<u64>,
}

/// What was said on lines before the entries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Head {
    /// Process id, and thread id where that is next to it.
    ids: Option<[u32; 2]>,
    ip: Option<u64>,
    period: Option<u64>,
    event: String,
    times: Option<u64>,
}

/// The first pass. `progress` is called with the number of bytes read.
pub fn read_script_records(
    input: impl BufRead,
    progress: &mut dyn FnMut(u64),
) -> Result<ScriptText, ImportError> {
    let mut text = ScriptText::default();
    let mut lines = Lines::new(input);
    let mut head = Head::default();
    let mut n_bytes = 0;
    while let Some((line, number)) = lines.next()? {
        text.n_lines = number;
        n_bytes += line.len();
        if let Some(record) = parse_script_record(line) {
            text.records.push(Timed { time: number, record });
            continue;
        }
        let is_sample = take_line(line, number, &mut head, |address| {
            text.modules.place(address).is_some()
        })?;
        if is_sample {
            let event = text.event_idx(&head.event, number)?;
            text.n_samples
                .get_mut(event)
                .into_iter()
                .for_each(|n| *n += head.times.unwrap_or(1));
            if let (Some(period @ 1..), Some(periods)) = (head.period, text.periods.get_mut(event)) {
                periods.shortest = Some(periods.shortest.map_or(period, |p| p.min(period)));
                periods.longest = periods.longest.max(Some(period));
            }
            head = Head::default();
        }
        if number % 1024 == 0 {
            progress(u64::try_from(n_bytes).unwrap_or(u64::MAX));
        }
    }
    Ok(text)
}

/// The second pass: hands over each sample with the index of its event.
pub fn read_script_samples(
    input: impl BufRead,
    text: &mut ScriptText,
    progress: &mut dyn FnMut(u64),
    take: &mut dyn FnMut(usize, Sample<'_>),
) -> Result<(), ImportError> {
    let mut lines = Lines::new(input);
    let mut head = Head::default();
    let mut stack = Vec::new();
    while let Some((line, number)) = lines.next()? {
        if parse_script_record(line).is_some() {
            continue;
        }
        if take_line(line, number, &mut head, |_| true)? {
            stack.clear();
            for entry in line
                .split_ascii_whitespace()
                .filter_map(parse_entry)
                .take(MAX_ENTRIES)
            {
                let from = text.modules.place(entry.from).unwrap_or(Va(0));
                let to = text.modules.place(entry.to).unwrap_or(Va(0));
                stack.extend([from.0, to.0, entry.flags].into_iter().flat_map(u64::to_le_bytes));
            }
            let [tgid, tid] = head.ids.unwrap_or([0, 0]);
            let sample = Sample {
                tgid,
                tid,
                time: number,
                ip: head.ip.map(Va),
                period: head.period,
                stack: &stack,
                times: head.times.unwrap_or(1),
            };
            take(text.event_idx(&head.event, number)?, sample);
            head = Head::default();
        }
        if number % 1024 == 0 {
            progress(lines.n_bytes());
        }
    }
    Ok(())
}

impl ScriptText {
    fn event_idx(&mut self, name: &str, line: u64) -> Result<usize, ImportError> {
        if let Some(idx) = self.events.iter().position(|event| event == name) {
            return Ok(idx);
        }
        if MAX_EVENTS <= self.events.len() {
            return Err(ImportError::Line {
                line,
                what: "too many events",
            });
        }
        self.events.push(name.to_owned());
        self.n_samples.push(0);
        self.periods.push(Periods::default());
        Ok(self.events.len() - 1)
    }
}

/// Adds what the line says to the head, and says whether it holds the entries that belong to it.
fn take_line(
    line: &str,
    number: u64,
    head: &mut Head,
    mut known: impl FnMut(TextAddress<'_>) -> bool,
) -> Result<bool, ImportError> {
    let wrong = |what| ImportError::Line { line: number, what };
    let words = || line.split_ascii_whitespace();
    let n_before = words().take_while(|word| !looks_like_entry(word)).count();
    head.take_words(line, n_before);
    let mut is_sample = false;
    for word in words().skip(n_before) {
        let Some(entry) = parse_entry(word) else {
            if looks_like_entry(word) {
                return Err(wrong(
                    "branches have symbols but no addresses: use field brstack instead of brstacksym",
                ));
            }
            continue;
        };
        is_sample = true;
        if !(known(entry.from) && known(entry.to)) {
            return Err(wrong("too many files with build ids"));
        }
    }
    Ok(is_sample)
}

impl Head {
    /// Takes the words before the entries of a line, or of a line without entries.
    fn take_words(&mut self, line: &str, n_before: usize) {
        let words = || line.split_ascii_whitespace().take(n_before);
        if let Some(at) = words().position(is_time) {
            *self = Self {
                times: self.times,
                ..Self::default()
            };
            // command (which may hold blanks), pid or pid/tid, [cpu], time
            let before: Vec<&str> = words().take(at).collect();
            self.ids = before
                .iter()
                .rev()
                .find(|word| !word.starts_with('['))
                .and_then(|word| parse_ids(word));
            let mut after = words().skip(at + 1).peekable();
            self.period = after
                .next_if(|word| is_decimal(word))
                .and_then(|word| word.parse().ok());
            if let Some(name) = after.next_if(|word| word.ends_with(':')) {
                self.event = name.trim_end_matches(':').to_owned();
            }
            self.ip = after.next().and_then(parse_ip);
            return;
        }
        if self.take_untimed(&words().collect::<Vec<_>>()) {
            return;
        }
        let alone = words().count() == 1;
        let has_entries = n_before < line.split_ascii_whitespace().count();
        let indented = line.starts_with([' ', '\t']);
        match (words().next(), words().nth(1)) {
            (Some(number), None) if alone && !has_entries && !indented && is_decimal(number) => {
                self.times = number.parse().ok().filter(|times| 0 < *times);
            }
            (Some(pid), Some(ip)) if has_entries => {
                self.ids = parse_ids(pid);
                self.ip = parse_ip(ip);
            }
            // perf pads addresses to 16 digits and pids to 5, and no address in a program is so small.
            (Some(pid), None) if has_entries && (pid.contains('/') || is_decimal(pid) && pid.len() < 6) => {
                self.ids = parse_ids(pid);
            }
            (Some(ip), None) if has_entries => self.ip = parse_ip(ip),
            // The lines of a call chain; its first one is where the sample was.
            (Some(ip), _) if indented && self.ip.is_none() => self.ip = parse_ip(ip),
            _ => {}
        }
    }
}

impl Head {
    /// Takes the words of a head without a time: command, pid or pid/tid, perhaps [cpu] and period, event, perhaps an address.
    /// Returns whether they are such a head.
    fn take_untimed(&mut self, words: &[&str]) -> bool {
        let Some(at) = words
            .iter()
            .position(|word| 1 < word.len() && word.ends_with(':'))
        else {
            return false;
        };
        let (before, after) = words.split_at(at);
        let is_ids = |word: &&str| {
            let both = word.split_once('/');
            both.is_some_and(|(pid, tid)| is_decimal(pid) && is_decimal(tid))
        };
        // A lone pid is the first number after the command, and a command has at least one word.
        let pid_at = before
            .iter()
            .rposition(is_ids)
            .or_else(|| Some(1 + before.iter().skip(1).position(|word| is_decimal(word))?));
        let Some((pid, between)) = pid_at.and_then(|pid_at| before.get(pid_at..)?.split_first()) else {
            return false;
        };
        let (event, address) = after.split_first().unwrap_or((&"", &[]));
        *self = Self {
            times: self.times,
            ids: parse_ids(pid),
            period: between
                .iter()
                .find(|word| is_decimal(word))
                .and_then(|word| word.parse().ok()),
            event: event.trim_end_matches(':').to_owned(),
            ip: address.first().and_then(|ip| parse_ip(ip)),
        };
        true
    }
}

fn is_decimal(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Seconds with a fraction and a colon.
fn is_time(word: &str) -> bool {
    let seconds = word.strip_suffix(':').and_then(|time| time.split_once('.'));
    seconds.is_some_and(|(whole, fraction)| is_decimal(whole) && is_decimal(fraction))
}

/// `PID` or `PID/TID`; the thread id is 0 where it is absent.
fn parse_ids(word: &str) -> Option<[u32; 2]> {
    let (pid, tid) = word.split_once('/').unwrap_or((word, "0"));
    Some([pid.parse().ok()?, tid.parse().unwrap_or(0)])
}

fn parse_ip(word: &str) -> Option<u64> {
    parse_address(word)
        .filter(|ip| ip.build_id.is_none())
        .map(|ip| ip.address)
}

/// Whether a text looks like this form: some line of its start holds an entry or a record.
pub(super) fn is_script(start: &str) -> bool {
    start.lines().any(|line| {
        parse_script_record(line).is_some() || line.split_ascii_whitespace().any(looks_like_entry)
    })
}

#[cfg(test)]
mod tests;
