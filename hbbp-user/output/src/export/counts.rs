//! `address executions`: how often each instruction was executed; a first line `# unit UNIT` where numbers are not executions.
//!
//! From branch stacks, the count is the number of recorded streams that cover the instruction, not scaled: at a constant
//! period, estimated executions are a constant multiple of it.
//! From eventing IPs, and from both (hybrid), the count is the estimate, to a millionth: the executions of a block of ten
//! instructions with one sample of unknown period are a tenth.

use std::io::{self, Write};

use super::Lines;
use hbbp_code::blocks::{BlockMap, blocks};
use hbbp_code::locate::{Located, locate};
use hbbp_estimate::{BlockCount, Method, Rule, Stream, Unit, estimate, execution_counts, judge};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ProcessIdx, Snapshot};

/// Source of the counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CountSource {
    /// Recorded streams of all events.
    #[default]
    Lbr,
    /// Estimated executions by eventing IPs.
    Ebs,
    /// Estimated executions, for each block by the method that the rule chooses.
    Hybrid,
}

/// Writes the count of each instruction that has one; `rule` chooses between the methods.
pub fn write_counts(
    snapshot: &Snapshot,
    source: CountSource,
    rule: &Rule,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut located = locate(snapshot);
    let map = blocks(snapshot, &located);
    let lines = match source {
        CountSource::Lbr => passed(&located, &map),
        CountSource::Ebs => {
            let ebs = |block: &BlockCount| block.of(Method::Ebs).map_or(0.0, |ebs| ebs.count);
            estimated(snapshot, &mut located, &map, rule, ebs)
        }
        CountSource::Hybrid => estimated(snapshot, &mut located, &map, rule, |block| block.chosen().count),
    };
    lines.write(snapshot, out, |_, at, count, out| {
        writeln!(out, "{:x} {}", at.0, decimal(*count))
    })
}

type CountLines = Lines<ImageAddr, f64>;

/// The number to a millionth, without zeros at its end.
fn decimal(number: f64) -> String {
    let digits = format!("{number:.6}");
    let digits = digits.trim_end_matches('0');
    digits.trim_end_matches('.').to_owned()
}

fn passed(located: &Located, map: &BlockMap) -> CountLines {
    let mut lines = Lines::new();
    let mut streams = Vec::new();
    for located in &located.streams {
        let Some(text) = map.text(located.start.text) else {
            continue;
        };
        match judge(text, located) {
            Ok(line) => streams.push(Stream {
                text: located.start.text,
                // All processes together: each instruction has one line.
                process: ProcessIdx::KERNEL,
                first: line.first,
                end: line.end,
                source: line.source,
                hits: located.hits,
                weight: located.weight,
            }),
            Err(why) => lines.discard(why.id(), located.hits),
        }
    }
    for ((_, why), counts) in &located.discarded.0 {
        lines.discard(why.id(), counts.total());
    }
    streams.sort_by_key(|stream| stream.text);
    for pass in execution_counts(&streams) {
        let Some(text) = map.text(pass.text) else {
            continue;
        };
        for instruction in text.instructions(pass.first..pass.end) {
            *lines.entry(text.module, text.addr(*instruction)) += pass.hits as f64;
        }
    }
    lines
}

fn estimated(
    snapshot: &Snapshot,
    located: &mut Located,
    map: &BlockMap,
    rule: &Rule,
    executions: impl Fn(&BlockCount) -> f64,
) -> CountLines {
    let mut lines = Lines::new();
    let counts = estimate(snapshot, located, map, rule);
    let unit = counts.assignment.unit;
    lines.unit = (unit != Unit::Executions).then(|| unit.id());
    for block in &counts.blocks {
        let count = executions(block);
        let Some(text) = map.text(block.block.text).filter(|_| 0.0 < count) else {
            continue;
        };
        for instruction in map.instructions(block.block) {
            *lines.entry(text.module, text.addr(*instruction)) += count;
        }
    }
    let unresolved = located.unresolved.0.iter().chain(&counts.outcome.unresolved.0);
    for ((_, why), n) in unresolved {
        lines.discard(why.id(), n.total());
    }
    let discarded = located.discarded.0.iter().chain(&counts.outcome.discarded.0);
    for ((_, why), n) in discarded {
        lines.discard(why.id(), n.total());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{snapshot, stream};
    use hbbp_estimate::rule::PAPER;
    use hbbp_model::addr::Va;
    use hbbp_model::snapshot::{EventIdx, EventUnit, IpCount};

    fn written(snapshot: &Snapshot, source: CountSource) -> String {
        let mut out = Vec::new();
        write_counts(snapshot, source, &PAPER.parse().unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lbr_counts_cover_each_instruction_of_a_stream() {
        let streams = [
            (0x1000, 0x1002, 3),
            (0x1001, 0x1002, 2),
            (0x1003, 0x1003, 1),
            (0x1000, 0x1003, 9),
        ];
        let streams = streams.map(|(start, end, hits)| stream(Va(start), Va(end), hits));
        let expected = "M /bin/a ab01\n1000 3\n1001 5\n1002 5\n1003 1\n# discarded stream.passes_branch 9\n";
        assert_eq!(written(&snapshot(&streams, &[]), CountSource::Lbr), expected);
    }

    #[test]
    fn ebs_counts_cover_the_whole_block() {
        let mut snapshot = snapshot(&[], &[]);
        snapshot.run.events[0].unit = EventUnit::Instructions;
        let ip = IpCount {
            event: EventIdx(0),
            process: ProcessIdx(1),
            ip: Va(0x1001),
            exact: true,
            hits: 2,
            weight: 600,
        };
        snapshot.intervals[0].ips.push(ip);
        let expected = "M /bin/a ab01\n1000 200\n1001 200\n1002 200\n";
        assert_eq!(written(&snapshot, CountSource::Ebs), expected);
        assert_eq!(written(&snapshot, CountSource::Hybrid), expected);
    }

    #[test]
    fn ebs_counts_of_few_samples_add_up_to_them() {
        let mut snapshot = snapshot(&[], &[]);
        snapshot.run.events[0].unit = EventUnit::Instructions;
        let ip = |ip, hits| IpCount {
            event: EventIdx(0),
            process: ProcessIdx(1),
            ip: Va(ip),
            exact: true,
            hits,
            weight: hits,
        };
        // One sample in a block of three instructions, and two outside of all text.
        snapshot.intervals[0].ips = vec![ip(0x1001, 1), ip(0x77_0000, 2)];
        let written = written(&snapshot, CountSource::Ebs);
        let counts = written.lines().filter(|line| !line.starts_with(['M', '#']));
        let total: f64 = counts
            .map(|line| line.split(' ').nth(1).unwrap().parse::<f64>().unwrap())
            .sum();
        assert!((total - 1.0).abs() < 1e-5, "{written}");
        let discarded = written.lines().filter(|line| line.starts_with("# discarded"));
        let discarded: u64 = discarded
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(discarded, 2, "{written}");
    }
}
