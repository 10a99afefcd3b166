//! The loops of a run as CSV.

use std::io::{self, Write};

use super::super::json::unit_id;
use super::run_loops::{RunLoops, entered, share};
use hbbp_analysis::mix::Unit;
use hbbp_estimate::Figure;
use hbbp_model::printable::csv_name;

/// The first line.
const TITLES: [&str; 30] = [
    "module",
    "function",
    "ring",
    "header",
    "tail",
    "lines",
    "depth",
    "amount",
    "amount_std_error",
    "share",
    "time",
    "time_std_error",
    "time_share",
    "cpi",
    "cpi_std_error",
    "iterations",
    "iterations_std_error",
    "invocations",
    "invocations_std_error",
    "trips",
    "trips_std_error",
    "inclusive_time",
    "inclusive_time_std_error",
    "inclusive_share",
    "inclusive_amount",
    "inclusive_amount_std_error",
    "inclusive_cpi",
    "inclusive_cpi_std_error",
    "unit",
    "time_unit",
];

impl RunLoops<'_> {
    /// Writes one line for each loop, RFC 4180 with line feeds; what is not known is empty.
    pub(in crate::report) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = csv::Writer::from_writer(out);
        lines.write_record(TITLES)?;
        let both = |figure: Option<Figure>| {
            let text = |of: fn(Figure) -> f64| figure.map(|it| of(it).to_string()).unwrap_or_default();
            [text(|it| it.value), text(|it| it.std_error)]
        };
        for it in self.shown() {
            let region = &it.region;
            let [amount, amount_error] = both(Some(region.amount));
            let [time, time_error] = both(region.time);
            let time_share = region.time.zip(self.loops.time);
            let time_share = time_share.map(|(part, (_, all))| share(part.value, all).to_string());
            let figures = [
                region.cpi(),
                it.rounds.map(|rounds| rounds.iterations),
                entered(it).map(|entered| entered.invocations),
                entered(it).map(|entered| entered.trips),
            ];
            let first = [
                csv_name(self.module(region)),
                csv_name(&region.function),
                region.ring.to_string(),
                format!("{:x}", it.header.0),
                format!("{:x}", it.tail.0),
                region.lines.as_deref().map(csv_name).unwrap_or_default(),
                it.depth.to_string(),
                amount,
                amount_error,
                share(region.amount.value, self.loops.total).to_string(),
                time,
                time_error,
                time_share.unwrap_or_default(),
            ];
            let inclusive = region.inclusive;
            let all = self.loops.calls.as_ref().map(|calls| calls.total);
            let inclusive_share = inclusive.zip(all);
            let inclusive_share = inclusive_share.map(|(part, all)| share(part.time.value, all).to_string());
            let instructions = both(inclusive.and_then(|inclusive| inclusive.instructions));
            let inclusive_cpi = both(inclusive.and_then(|inclusive| inclusive.cpi));
            let inclusive = both(inclusive.map(|inclusive| inclusive.time));
            let unit = self.loops.unit.map_or("", Unit::id);
            let time_unit = self.loops.time.map_or("", |(unit, _)| unit_id(unit));
            let last = inclusive.into_iter().chain([inclusive_share.unwrap_or_default()]);
            let last = last.chain(instructions).chain(inclusive_cpi);
            let last = last.chain([unit, time_unit].map(str::to_owned));
            lines.write_record(
                first
                    .into_iter()
                    .chain(figures.into_iter().flat_map(both))
                    .chain(last),
            )?;
        }
        lines.flush()
    }
}
