//! The columns of numbers that text has of loops and functions.

use super::run_loops::{RunLoops, entered, share};
use crate::report::number::{percent, scaled};
use crate::report::pivot_table::per;
use hbbp_analysis::loops::{Loop, Loops, Region};
use hbbp_estimate::Figure;

/// A title, and the lines below it.
pub(super) type Column<T> = (&'static str, fn(&RunLoops<'_>, &T) -> String);

const SHARE: Column<Region> = ("%", |run, it| percent(share(it.amount.value, run.loops.total)));
const TIME: Column<Region> = ("time %", |run, it| {
    let part = it.time.zip(run.loops.time);
    part.map_or_else(String::new, |(part, (_, all))| percent(share(part.value, all)))
});
const CPI: Column<Region> = ("CPI", |_, it| cpi(it.cpi()));
const INCLUSIVE_TIME: Column<Region> = ("incl %", |run, it| {
    let part = it.inclusive.zip(run.loops.calls.as_ref());
    part.map_or_else(String::new, |(part, calls)| {
        percent(share(part.time.value, calls.total))
    })
});
// Its error is left to the other formats, so that names of loops have room.
const INCLUSIVE_CPI: Column<Region> = ("incl CPI", |_, it| {
    let cpi = it.inclusive.and_then(|inclusive| inclusive.cpi);
    known(cpi.map(|cpi| per(cpi.value, None)))
});
const INCLUSIVE_SHARE: Column<Region> = (INCLUSIVE_INSTRUCTIONS, |run, it| {
    let part = it.inclusive.and_then(|inclusive| inclusive.instructions);
    part.map_or_else(String::new, |part| percent(share(part.value, run.loops.total)))
});
const INCLUSIVE_INSTRUCTIONS: &str = "incl instr %";

const ROUNDS: [Column<Loop>; 4] = [
    ("iterations", |_, it| {
        known(it.rounds.map(|rounds| scaled(rounds.iterations.value, 4)))
    }),
    ("invocations", |_, it| {
        known(entered(it).map(|entered| scaled(entered.invocations.value, 4)))
    }),
    ("trips", |_, it| {
        let at_least = it.rounds.and_then(|rounds| rounds.trips_at_least);
        let at_least = at_least.map(|trips| format!(">{}", scaled(trips, 2)));
        known(match entered(it) {
            Some(entered) => trips(entered.trips),
            None => at_least,
        })
    }),
    ("instr/iter", |_, it| {
        let length = it
            .rounds
            .and_then(|rounds| it.region.amount.over(rounds.iterations));
        known(length.map(|length| format!("{:.1}", length.value)))
    }),
];

/// What a table of loops goes without, one after the other, where its page is too narrow.
pub(super) const LEFT_OUT: [&str; 3] = ["instr/iter", INCLUSIVE_INSTRUCTIONS, "invocations"];

impl RunLoops<'_> {
    /// Those of regions, with what they called and without.
    pub(super) fn of_regions(&self) -> Vec<Column<Region>> {
        let mut columns = Vec::new();
        if self.loops.calls.is_some() {
            columns.push(INCLUSIVE_TIME);
            if self.has_executions() {
                columns.push(INCLUSIVE_SHARE);
            }
        }
        let units = self.loops.calls.as_ref().zip(self.loops.time);
        if units.is_some_and(|(calls, (unit, _))| calls.unit == unit) {
            columns.push(INCLUSIVE_CPI);
        }
        if self.loops.time.is_some() {
            columns.extend([TIME, CPI]);
        }
        columns.push(SHARE);
        columns
    }

    /// Those that only loops have.
    pub(super) fn of_rounds(&self) -> &'static [Column<Loop>] {
        if self.has_executions() { &ROUNDS } else { &[] }
    }

    fn has_executions(&self) -> bool {
        self.loops.unit.is_some_and(Loops::has_executions)
    }
}

fn cpi(figure: Option<Figure>) -> String {
    known(figure.map(|cpi| per(cpi.value, Some(cpi.std_error))))
}

/// A trip count with its error; `None` if the error leaves nothing of it. Hundredths of hundreds are not significant.
fn trips(Figure { value, std_error }: Figure) -> Option<String> {
    /// For figures so uncertain that not even the first digit is known.
    const MEANINGLESS: f64 = 0.5;
    const MANY: f64 = 100.0;

    let decimals = if value < MANY { 2 } else { 0 };
    (std_error < MEANINGLESS * value).then(|| format!("{value:.decimals$} ±{std_error:.decimals$}"))
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trip_counts_without_a_known_digit_are_omitted() {
        let trips = |value, std_error| trips(Figure { value, std_error });
        assert_eq!(trips(3.25, 0.017).as_deref(), Some("3.25 ±0.02"));
        assert_eq!(trips(10_123.44, 48.65).as_deref(), Some("10123 ±49"));
        assert_eq!(trips(10_123.44, 10_148.65), None);
    }
}
