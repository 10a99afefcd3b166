//! The output of Callgrind (Valgrind's manual, "Callgrind Format Specification"), made with `--dump-instr=yes`.
//!
//! A cost line has one number for each of the `positions:`, then one for each of the `events:`. Positions may be relative to
//! those of the line before, names may be numbers that an earlier line defined. The line after `calls=` holds what the callee
//! cost, which the lines of the callee have, too.

use std::collections::HashMap;

use super::counts::{AddressCounts, NoCounts};

/// Object of code that is in no file.
const NO_OBJECT: &str = "???";

/// What the lines so far mean for the next ones.
#[derive(Default)]
struct Reader<'a> {
    /// Index of the address among the positions, and how many positions there are.
    address: Option<usize>,
    n_positions: usize,
    /// Index of the executions among the events.
    executions: Option<usize>,
    /// The positions of the line before.
    positions: Vec<u64>,
    /// Names of objects by their numbers.
    objects: HashMap<&'a str, &'a str>,
    object: &'a str,
    is_of_callee: bool,
}

pub(super) fn parse(text: &str) -> Result<AddressCounts, NoCounts> {
    let mut counts = AddressCounts {
        is_complete: true,
        iterates: true,
        ..AddressCounts::default()
    };
    let mut reader = Reader {
        object: NO_OBJECT,
        ..Reader::default()
    };
    for (line, number) in text.lines().zip(1..) {
        match line.bytes().next() {
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => {
                let (address, executions) = reader.cost(line).ok_or(NoCounts::Line(number))?;
                let is_of_callee = std::mem::take(&mut reader.is_of_callee);
                let (Some(address), Some(executions)) = (address, executions) else {
                    return Err(if address.is_none() {
                        NoCounts::NoAddresses
                    } else {
                        NoCounts::NoExecutions
                    });
                };
                if !is_of_callee && 0 < executions {
                    counts.add(reader.object, address, executions);
                }
            }
            _ => reader.other(line),
        }
    }
    Ok(counts)
}

impl<'a> Reader<'a> {
    /// Address and executions of a cost line, where the file has them; `None` if it cannot be read.
    fn cost(&mut self, line: &str) -> Option<(Option<u64>, Option<u64>)> {
        let mut words = line.split_ascii_whitespace();
        for at in 0..self.n_positions.max(1) {
            let word = words.next()?;
            let before = self.positions.get(at).copied().unwrap_or(0);
            let position = position(word, before)?;
            match self.positions.get_mut(at) {
                Some(known) => *known = position,
                None => self.positions.push(position),
            }
        }
        let address = self.address.and_then(|at| self.positions.get(at).copied());
        // Costs that are left out at the end are zero.
        let executions = match self.executions {
            Some(at) => Some(words.nth(at).map_or(Some(0), |word| word.parse().ok())?),
            None => None,
        };
        Some((address, executions))
    }

    fn other(&mut self, line: &'a str) {
        if let Some(positions) = line.strip_prefix("positions:") {
            self.n_positions = positions.split_ascii_whitespace().count();
            self.address = positions
                .split_ascii_whitespace()
                .position(|name| name == "instr");
        } else if let Some(events) = line.strip_prefix("events:") {
            self.executions = events.split_ascii_whitespace().position(|name| name == "Ir");
        } else if let Some(name) = line.strip_prefix("ob=") {
            self.object = self.named(name);
        } else if let Some(name) = line.strip_prefix("cob=") {
            // The object of a callee: its name may be defined here.
            self.named(name);
        } else if line.starts_with("calls=") {
            self.is_of_callee = true;
        }
    }

    /// `(NUMBER) NAME` defines a name, `(NUMBER)` repeats it, and without a number it is the name itself.
    fn named(&mut self, name: &'a str) -> &'a str {
        let Some((number, name)) = name.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return name.trim();
        };
        match name.trim() {
            "" => self.objects.get(number).copied().unwrap_or(NO_OBJECT),
            name => {
                self.objects.insert(number, name);
                name
            }
        }
    }
}

/// A position, which may be relative to that of the line before.
fn position(word: &str, before: u64) -> Option<u64> {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    match word.split_at_checked(1)? {
        ("*", _) => Some(before),
        ("+", by) => before.checked_add(number(by)?),
        ("-", by) => before.checked_sub(number(by)?),
        _ => number(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_positions_and_calls_are_read_as_the_format_says() {
        let text = "# callgrind format\npositions: instr line\nevents: Cycles Ir\n\nob=(1) /bin/a\nfl=(1) a.c\nfn=(1) main\n\
                    0x401000 7 9 3\n+3 8 4 2\ncob=(2) /lib/c.so\ncfn=(2) puts\ncalls=2 0x2000 1\n* * 90 80\n+0x5 +1 1 1\n\
                    jcnd=1/3 -4 8\n* *\nob=(2)\nfn=(2)\n0x2000 0 5 4\n-0x10 0 5 4\n\ntotals: 100 100\n";
        let counts = parse(text).unwrap();
        let expected = [
            (
                "/bin/a".to_owned(),
                [(0x40_1000, 3), (0x40_1003, 2), (0x40_1008, 1)].into(),
            ),
            ("/lib/c.so".to_owned(), [(0x1ff0, 4), (0x2000, 4)].into()),
        ];
        assert_eq!(counts.modules, expected.into());
    }

    #[test]
    fn files_without_addresses_or_executions_are_refused() {
        let parse = |head: &str| parse(&format!("{head}\n0x10 4 1\n")).err();
        assert_eq!(parse("events: Ir"), Some(NoCounts::NoAddresses));
        assert_eq!(
            parse("positions: instr\nevents: Dr"),
            Some(NoCounts::NoExecutions)
        );
        assert_eq!(
            parse("positions: instr line\nevents: Ir\n-1 1 1"),
            Some(NoCounts::Line(3))
        );
    }

    /// What callgrind 3.19 wrote of a program of three functions: a loop of ten rounds, and two calls deep.
    #[test]
    fn genuine_output_is_read() {
        let counts = parse(include_str!("fixtures/callgrind.out")).unwrap();
        let start = [(0x1000, 1), (0x1005, 10), (0x1007, 10), (0x1009, 1)];
        let f = [(0x1017, 1), (0x101c, 3), (0x1021, 3), (0x1023, 3), (0x1025, 1)];
        let all = start.into_iter().chain(f).chain([(0x1026, 3)]);
        let expected = [("/usr/local/bin/t".to_owned(), all.collect())].into();
        assert_eq!(counts.modules, expected);
    }
}
