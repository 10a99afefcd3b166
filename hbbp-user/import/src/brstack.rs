//! The text of `perf script -F ..,brstack`, in the forms that occur.
//!
//! A line that holds branch entries is a sample; so is a head with an address that no entries follow. What precedes
//! the entries depends on the fields that were requested:
//! nothing, an address, a pid, both, or a whole head with command, pid, CPU, time, period and event. Where a call
//! chain was asked for too, the head and the chain are on lines before the entries. An unindented decimal number on
//! a line of its own says how often the next sample occurred (llvm-profgen's aggregated form).
//! Records about mappings and processes (`--show-mmap-events --show-task-events`) are understood; without them the
//! addresses are taken for those of the program that is named with `--binary`.
//! The order of the lines represents the time.

use std::io::BufRead;

use super::entry_text::{looks_like_entry, parse_entry};
use super::error::ImportError;
use super::lines::Lines;
use super::sample::Sample;
use super::script_head::Head;
use super::script_record::parse_script_record;
use super::text_modules::TextModules;
use hbbp_model::addr::Va;
use hbbp_model::record::{Record, Timed};

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
    /// Whether any sample has a branch stack, by event.
    pub has_stacks: Vec<bool>,
    /// Periods by event.
    pub periods: Vec<Periods>,
    /// Files that are named by their build ids.
    pub modules: TextModules,
    /// Number of lines.
    pub n_lines: u64,
}

/// The periods of an event's samples; `None` if no sample has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Periods {
    /// Shortest, in units of the event.
    pub shortest: Option<u64>,
    /// Longest, in units of the event.
    pub longest: Option<u64>,
}

/// The first pass. `progress` is called with the number of bytes read.
pub fn read_script_records(
    input: impl BufRead,
    progress: &mut dyn FnMut(u64),
) -> Result<ScriptText, ImportError> {
    let mut text = ScriptText::default();
    let mut records = Vec::new();
    text.n_lines = read_lines(input, progress, &mut |time, found| match found {
        Found::Record(record) => {
            records.push(Timed { time, record });
            Ok(())
        }
        Found::Sample(head, entries) => {
            check_entries(entries, time, &mut text.modules)?;
            text.add(head, !entries.is_empty(), time)
        }
    })?;
    text.modules.are_mapped = !records.is_empty();
    text.records = records;
    Ok(text)
}

/// The second pass: hands over each sample with the index of its event.
pub fn read_script_samples(
    input: impl BufRead,
    text: &mut ScriptText,
    progress: &mut dyn FnMut(u64),
    take: &mut dyn FnMut(usize, Sample<'_>),
) -> Result<(), ImportError> {
    let mut stack = Vec::new();
    read_lines(input, progress, &mut |time, found| {
        let Found::Sample(head, entries) = found else {
            return Ok(());
        };
        stack.clear();
        let entries = entries.split_ascii_whitespace().filter_map(parse_entry);
        for entry in entries.take(MAX_ENTRIES) {
            let from = text.modules.place(entry.from).unwrap_or(Va(0));
            let to = text.modules.place(entry.to).unwrap_or(Va(0));
            stack.extend([from.0, to.0, entry.flags].into_iter().flat_map(u64::to_le_bytes));
        }
        let [tgid, tid] = head.ids.unwrap_or([0, 0]);
        let sample = Sample {
            tgid,
            tid,
            time,
            ip: head.ip.map(Va),
            period: head.period,
            stack: &stack,
            times: head.times.unwrap_or(1),
        };
        take(text.event_idx(&head.event, time)?, sample);
        Ok(())
    })?;
    Ok(())
}

/// What a line completes.
enum Found<'a> {
    Record(Record),
    /// A sample, and the line with its entries: empty where it has none.
    Sample(&'a Head, &'a str),
}

/// Hands over what the lines say, with the numbers of the lines. Returns how many lines there are.
fn read_lines(
    input: impl BufRead,
    progress: &mut dyn FnMut(u64),
    take: &mut dyn FnMut(u64, Found<'_>) -> Result<(), ImportError>,
) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut head = Head::default();
    let mut n_lines = 0;
    while let Some((line, number)) = lines.next()? {
        n_lines = number;
        if let Some(record) = parse_script_record(line) {
            take(number, Found::Record(record))?;
            continue;
        }
        let n_before = words_before_entries(line);
        let begun = Head::of_line(line, n_before);
        // A sample without entries ends where the next one begins, or with an empty line.
        if head.is_sample() && (begun.is_some() || line.trim().is_empty()) {
            take(number, Found::Sample(&head, ""))?;
            head = Head::default();
        }
        match begun {
            Some(begun) => {
                head = Head {
                    times: head.times,
                    ..begun
                }
            }
            None => head.take_bare(line, n_before),
        }
        if n_before < line.split_ascii_whitespace().count() {
            take(number, Found::Sample(&head, line))?;
            head = Head::default();
        }
        if number % 1024 == 0 {
            progress(lines.n_bytes());
        }
    }
    if head.is_sample() {
        take(n_lines, Found::Sample(&head, ""))?;
    }
    Ok(n_lines)
}

fn words_before_entries(line: &str) -> usize {
    let words = line.split_ascii_whitespace();
    words.take_while(|word| !looks_like_entry(word)).count()
}

/// Whether all entries of a line have addresses, and their files can be distinguished.
fn check_entries(line: &str, number: u64, modules: &mut TextModules) -> Result<(), ImportError> {
    let wrong = |what| ImportError::Line { line: number, what };
    for word in line.split_ascii_whitespace().skip(words_before_entries(line)) {
        let Some(entry) = parse_entry(word) else {
            if looks_like_entry(word) {
                return Err(wrong(
                    "branches have symbols but no addresses: use field brstack instead of brstacksym",
                ));
            }
            continue;
        };
        if modules.meet(entry.from).is_none() || modules.meet(entry.to).is_none() {
            return Err(wrong("too many files with build ids"));
        }
    }
    Ok(())
}

impl ScriptText {
    /// Counts a sample of the first pass.
    fn add(&mut self, head: &Head, has_stack: bool, line: u64) -> Result<(), ImportError> {
        let event = self.event_idx(&head.event, line)?;
        let times = head.times.unwrap_or(1);
        if let Some(n) = self.n_samples.get_mut(event) {
            *n = n.saturating_add(times);
        }
        if let Some(has_stacks) = self.has_stacks.get_mut(event) {
            *has_stacks |= has_stack;
        }
        if let (Some(period @ 1..), Some(periods)) = (head.period, self.periods.get_mut(event)) {
            periods.shortest = Some(periods.shortest.map_or(period, |p| p.min(period)));
            periods.longest = periods.longest.max(Some(period));
        }
        Ok(())
    }

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
        self.has_stacks.push(false);
        self.periods.push(Periods::default());
        Ok(self.events.len() - 1)
    }
}

/// Whether a text looks like this form: some line of its start holds an entry, a record, or the head of a sample whose address
/// is there or begins the next line.
pub(super) fn is_script(start: &str) -> bool {
    let mut lines = start.lines().peekable();
    std::iter::from_fn(|| Some((lines.next()?, lines.peek().copied()))).any(|(line, next)| {
        let n_before = words_before_entries(line);
        let has_entry = n_before < line.split_ascii_whitespace().count();
        has_entry || parse_script_record(line).is_some() || begins_sample(line, n_before, next)
    })
}

fn begins_sample(line: &str, n_before: usize, next: Option<&str>) -> bool {
    let head = Head::of_line(line, n_before).filter(|head| head.ids.is_some() && !head.event.is_empty());
    head.is_some_and(|mut head| {
        if let (None, Some(next)) = (head.ip, next) {
            head.take_bare(next, words_before_entries(next));
        }
        head.is_sample()
    })
}

#[cfg(test)]
mod tests;
