//! What precedes the entries of a sample in the text of `perf script`: command, ids, CPU, time, period, event, address.
//!
//! Which of them there are depends on the fields that were requested. Commands and event names may hold blanks, digits and
//! colons, so a command can look like the fields after it (`process_sample_event` in `tools/perf/builtin-script.c`).

use super::entry_text::parse_address;

/// Bytes of the longest command (`TASK_COMM_LEN` without its zero).
const LONGEST_COMMAND: usize = 15;

/// What was said on lines before the entries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Head {
    /// Process id, and thread id where that is next to it.
    pub(super) ids: Option<[u32; 2]>,
    pub(super) ip: Option<u64>,
    pub(super) period: Option<u64>,
    pub(super) event: String,
    pub(super) times: Option<u64>,
}

/// A word of a line, and where it begins after the blanks before the first one.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl Head {
    /// The head that a line begins: a command, and a time or at least a pid and an event. `None` for other lines.
    pub(super) fn of_line(line: &str, n_before: usize) -> Option<Self> {
        parse(&words(line, n_before))
    }

    /// Whether it says whose sample it is, and where that was: such a sample counts without a branch stack.
    pub(super) fn is_sample(&self) -> bool {
        self.ids.is_some() && self.ip.is_some()
    }

    /// Takes words that are no head with a command: a number of times, a pid, an address, or a line of a call chain.
    pub(super) fn take_bare(&mut self, line: &str, n_before: usize) {
        let has_entries = n_before < line.split_ascii_whitespace().count();
        let is_indented = line.starts_with([' ', '\t']);
        match words(line, n_before).as_slice() {
            [number] if !has_entries && !is_indented && is_decimal(number.text) => {
                self.times = number.text.parse().ok().filter(|times| 0 < *times);
            }
            [pid, ip, ..] if has_entries => {
                self.ids = parse_ids(pid.text);
                self.ip = parse_ip(ip.text);
            }
            // perf pads addresses to 16 digits and pids to 5, and no address in a program is so small.
            [pid]
                if has_entries && (pid.text.contains('/') || is_decimal(pid.text) && pid.text.len() < 6) =>
            {
                self.ids = parse_ids(pid.text);
            }
            [ip] if has_entries => self.ip = parse_ip(ip.text),
            // The lines of a call chain; its first one is where the sample was.
            [ip, ..] if is_indented && self.ip.is_none() => self.ip = parse_ip(ip.text),
            _ => {}
        }
    }
}

/// The first words of a line, up to the file of a symbol, whose name may hold anything.
fn words(line: &str, n: usize) -> Vec<Word<'_>> {
    let begin = line.trim_start();
    let place = |text: &str| text.as_ptr().addr() - begin.as_ptr().addr();
    begin
        .split_ascii_whitespace()
        .take(n)
        .take_while(|text| !text.starts_with('('))
        .map(|text| Word {
            text,
            at: place(text),
        })
        .collect()
}

/// The head that begins with a command, and has a time or at least a pid and an event.
fn parse(words: &[Word<'_>]) -> Option<Head> {
    let (before, after) = match place_of_time(words) {
        Some(at) => (words.get(..at)?, words.get(at + 1..)?),
        None => {
            let pid = place_of_pid(words)?;
            let event = words.get(pid + 1..)?.iter().any(|word| ends_name(word.text));
            let split = event.then_some(pid + 1)?;
            words.split_at_checked(split)?
        }
    };
    let ids = ids_at_end(before);
    let mut after: Vec<&str> = after.iter().map(|word| word.text).collect();
    if after.first().is_some_and(|word| is_cpu(word)) {
        after.remove(0);
    }
    let name_ends = after.iter().position(|word| ends_name(word));
    let (named, address) = after.split_at(name_ends.map_or(0, |at| at + 1));
    let (period, name) = match named {
        [period, name @ ..] if is_decimal(period) && !name.is_empty() => (period.parse().ok(), name),
        name => (None, name),
    };
    // Without an event two numbers are a period and an address, and one is an address.
    let (period, address) = match address {
        [number, ip, ..] if named.is_empty() && is_decimal(number) && parse_ip(ip).is_some() => {
            (number.parse().ok(), Some(ip))
        }
        address => (period, address.first()),
    };
    Some(Head {
        ids,
        ip: address.and_then(|ip| parse_ip(ip)),
        period,
        event: name.join(" ").trim_end_matches(':').to_owned(),
        times: None,
    })
}

/// The time of a head: the first one after ids, or the first one. What lies within the length of a command may be part of one,
/// so a later one counts where there is any.
fn place_of_time(words: &[Word<'_>]) -> Option<usize> {
    let times = || (0..words.len()).filter(|at| words.get(*at).is_some_and(|word| is_time(word.text)));
    let has_ids = |at: &usize| words.get(..*at).and_then(ids_at_end).is_some();
    let may_be_of_command = |at: usize| {
        words
            .get(at)
            .is_some_and(|word| word.at + word.text.len() <= LONGEST_COMMAND)
    };
    let with_ids: Vec<usize> = times().filter(has_ids).collect();
    let candidates = match with_ids.as_slice() {
        // Ids after it say that it was of the command.
        [] if words.iter().any(is_both_ids) => return None,
        [] => times().collect(),
        _ => with_ids,
    };
    let of_none = candidates.iter().find(|at| !may_be_of_command(**at));
    of_none.or(candidates.first()).copied()
}

/// The pid of a head without a time: two ids, or else the first number after the command, which has at least one word.
fn place_of_pid(words: &[Word<'_>]) -> Option<usize> {
    let lone = || {
        let numbers = words.iter().skip(1).position(|word| is_decimal(word.text))?;
        Some(1 + numbers)
    };
    words.iter().position(is_both_ids).or_else(lone)
}

fn is_both_ids(word: &Word<'_>) -> bool {
    let both = word.text.split_once('/');
    both.is_some_and(|(pid, tid)| is_decimal(pid) && is_decimal(tid))
}

/// `PID`, `PID/TID` or `PID/TID [CPU]` at the end of these words.
fn ids_at_end(words: &[Word<'_>]) -> Option<[u32; 2]> {
    let (last, others) = words.split_last()?;
    let ids = if is_cpu(last.text) { others.last()? } else { last };
    parse_ids(ids.text)
}

fn is_cpu(word: &str) -> bool {
    let number = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    number.is_some_and(is_decimal)
}

/// Whether the name of an event ends with this word.
fn ends_name(word: &str) -> bool {
    1 < word.len() && word.ends_with(':')
}

fn is_decimal(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Seconds with a fraction and a colon.
fn is_time(word: &str) -> bool {
    let seconds = word.strip_suffix(':').and_then(|time| time.split_once('.'));
    seconds.is_some_and(|(whole, fraction)| is_decimal(whole) && is_decimal(fraction))
}

/// `PID` or `PID/TID`; the thread id is 0 where it is left out.
fn parse_ids(word: &str) -> Option<[u32; 2]> {
    let (pid, tid) = word.split_once('/').unwrap_or((word, "0"));
    Some([pid.parse().ok()?, tid.parse().unwrap_or(0)])
}

fn parse_ip(word: &str) -> Option<u64> {
    parse_address(word)
        .filter(|ip| ip.build_id.is_none())
        .map(|ip| ip.address)
}
