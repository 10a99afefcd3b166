//! BOLT's pre-aggregated text: branches, fall-throughs and traces, each line with its count.
//!
//! ```text
//! E event                      S address count
//! B from to count mispredicts  F|f|r start end count
//! T from to end count          R from to end count
//! ```
//!
//! Addresses are hexadecimal offsets in the program, or `BUILDID:OFFSET` in another file; counts are decimal. A
//! fall-through ends at the next taken branch, as a stream does. Some values represent what is not known (the reader's
//! `DataAggregator.h` in LLVM's bolt): 0 or `X:` for an address outside, and the largest numbers for a branch or an end
//! that was not recorded.

use std::io::BufRead;

use super::count::{Counter, Owner};
use super::entry_text::parse_address;
use super::error::ImportError;
use super::lines::Lines;
use super::text_modules::TextModules;
use hbbp_model::addr::Va;

/// The end of a trace or its branch was not recorded: `BR_ONLY`, `FT_ONLY`, `FT_EXTERNAL_ORIGIN`,
/// `FT_EXTERNAL_RETURN`.
const FIRST_SENTINEL: u64 = 0xffff_ffff_ffff_fffd;

/// What a pre-aggregated text holds in addition to its counts.
#[derive(Debug, Default)]
pub struct Preaggregated {
    /// Names of the events; empty if the text gives none.
    pub events: Vec<String>,
    /// Files that are named by their build ids.
    pub modules: TextModules,
    /// Samples of addresses: the sum of the counts of all `S` lines.
    pub n_samples: u64,
    /// Lines with branches or fall-throughs. How many branch stacks these are from is unknown.
    pub n_branches: u64,
}

/// Reads the text into `counter`; all counts belong to `owner`.
pub fn read_preaggregated(
    input: impl BufRead,
    counter: &mut Counter,
    owner: Owner,
    progress: &mut dyn FnMut(u64),
) -> Result<Preaggregated, ImportError> {
    let mut text = Preaggregated::default();
    let mut lines = Lines::new(input);
    while let Some((line, number)) = lines.next()? {
        let wrong = |what| ImportError::Line { line: number, what };
        if line.trim().is_empty() {
            continue;
        }
        let (kind, rest) = line
            .trim_start()
            .split_once(' ')
            .ok_or_else(|| wrong("no fields"))?;
        text.add(kind, rest, counter, owner).map_err(wrong)?;
        if number % 1024 == 0 {
            progress(lines.n_bytes());
        }
    }
    Ok(text)
}

impl Preaggregated {
    /// Adds a line of this kind, without the kind; says what is wrong with it.
    fn add(
        &mut self,
        kind: &str,
        rest: &str,
        counter: &mut Counter,
        owner: Owner,
    ) -> Result<(), &'static str> {
        if kind == "E" {
            self.events.push(rest.trim().to_owned());
            return Ok(());
        }
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let mut place = |word: &str| -> Result<Va, &'static str> {
            let address = parse_address(word).ok_or("address is not hexadecimal")?;
            self.modules.place(address).ok_or("too many files")
        };
        let count = |word: &str| word.parse::<u64>().map_err(|_| "count is not decimal");
        match (kind, fields.as_slice()) {
            ("S", [at, hits]) => {
                let hits = count(hits)?;
                counter.add_ip(owner, place(at)?, hits);
                self.n_samples = self.n_samples.saturating_add(hits);
                return Ok(());
            }
            ("B", [from, to, hits, mispredicted]) => {
                let (from, to) = (place(from)?, place(to)?);
                counter.add_branch(owner, from, to, count(hits)?, Some(count(mispredicted)?));
            }
            ("F" | "f" | "r", [start, end, hits]) => {
                counter.add_stream(owner, place(start)?, place(end)?, count(hits)?);
            }
            ("T" | "R", [from, to, end, hits]) => {
                let (from, to, end, hits) = (place(from)?, place(to)?, place(end)?, count(hits)?);
                if from.0 < FIRST_SENTINEL {
                    counter.add_branch(owner, from, to, hits, None);
                }
                if end.0 < FIRST_SENTINEL {
                    counter.add_stream(owner, to, end, hits);
                }
            }
            ("S" | "B" | "F" | "f" | "r" | "T" | "R", _) => return Err("wrong number of fields"),
            _ => return Err("unknown line type; expected one of T, R, B, F, f, r, S, E"),
        }
        self.n_branches += 1;
        Ok(())
    }
}

/// Whether a text looks like this form: its first line does.
pub(super) fn is_preaggregated(start: &str) -> bool {
    let first = start
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .and_then(|line| line.split_once(' '));
    first.is_some_and(|(kind, rest)| {
        let address = rest.split_ascii_whitespace().next().and_then(parse_address);
        kind == "E" || matches!(kind, "S" | "B" | "F" | "f" | "r" | "T" | "R") && address.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{EventIdx, Interval, ProcessIdx};

    const OWNER: Owner = Owner {
        event: EventIdx(0),
        process: ProcessIdx(1),
        kernel: ProcessIdx::KERNEL,
        interval: 0,
    };

    fn read(text: &str) -> Result<(Preaggregated, Interval), ImportError> {
        let mut counter = Counter::new(1);
        let text = read_preaggregated(text.as_bytes(), &mut counter, OWNER, &mut |_| {})?;
        Ok((text, counter.into_intervals(&[(0, 1)]).remove(0)))
    }

    #[test]
    fn all_kinds_of_lines() {
        let (text, counts) = read(
            "E cycles\nT 4b196f 4b19e0 4b19ef 2\nT 4b19ef 4b1a10 ffffffffffffffff 1\nR 0 4b1a20 4b1a22 5\n\
             B 4b1942 39b57f0 3 1\nF 41be50 41be50 3\nf 41be50 41be50 4\nr 41be60 41be61 1\n\
             T ffffffffffffffff 4b1a10 4b1a11 7\nS 41be50 3\n",
        )
        .unwrap();
        assert_eq!(
            (text.events, text.n_samples, text.n_branches),
            (vec!["cycles".to_owned()], 3, 8)
        );
        let streams: Vec<_> = counts
            .streams
            .iter()
            .map(|s| (s.start.0, s.end.0, s.hits))
            .collect();
        assert_eq!(
            streams,
            [
                (0x41_be50, 0x41_be50, 7),
                (0x41_be60, 0x41_be61, 1),
                (0x4b_19e0, 0x4b_19ef, 2),
                (0x4b_1a10, 0x4b_1a11, 7),
                (0x4b_1a20, 0x4b_1a22, 5)
            ]
        );
        let branches: Vec<_> = counts
            .branches
            .iter()
            .map(|b| (b.from.0, b.hits, b.mispredicted))
            .collect();
        assert_eq!(
            branches,
            [
                (0, 5, None),
                (0x4b_1942, 3, Some(1)),
                (0x4b_196f, 2, None),
                (0x4b_19ef, 1, None)
            ]
        );
        assert_eq!((counts.ips[0].ip.0, counts.ips[0].hits), (0x41_be50, 3));
    }

    #[test]
    fn wrong_lines_are_named() {
        for wrong in [
            "B 1 2 3\n",
            "F 1 g 3\n",
            "F 1 2 x\n",
            "Q 1 2 3\n",
            "B\n",
            "F 1 2 -3\n",
        ] {
            let error = read(&format!("F 1 2 3\n{wrong}")).err().unwrap().to_string();
            assert!(error.contains("line 2:"), "{error}");
        }
    }

    #[test]
    fn only_such_text_is_taken_for_it() {
        assert!(is_preaggregated("\nF 41be50 41be50 3\n") && is_preaggregated("E cycles\n"));
        assert!(!is_preaggregated(" 401000 0x1/0x2/P/-/-/0\n") && !is_preaggregated("B me\n"));
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text in "([TRBFfrSEX][ 0-9a-fX:]{0,30}\n){0,6}") {
            let _ = read(&text);
        }
    }
}
