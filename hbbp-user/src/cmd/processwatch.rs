//! `hbbp-sys processwatch`: the instruction mix of each process at intervals, with the options and the CSV of Intel's
//! processwatch 1.3, so that scripts for it run unchanged.
//!
//! One measurement runs through all intervals; each of them is a profile of its own.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::closed_pipe::{Reader, reader_after};
use super::record::{Intervals, RecordOptions, Target};
use crate::advice::words;
use hbbp_analysis::mix::{Axis, Dimension, Estimated, Filter, Query, Sort, Value, processwatch_categories};
use hbbp_code::blocks::DecodedText;
use hbbp_collect::choice::Choice;
use hbbp_model::snapshot::SourceLocations;
use hbbp_model::snapshot::run::Period;
use hbbp_output::report::Look;
use hbbp_output::report::watch::{Layout, Watch};

/// What is said where an interval cannot be written.
const NOT_WRITTEN: &str = "failed to write an interval";

/// What to watch, and how to print it.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchOptions {
    /// Length of an interval.
    pub interval: Duration,
    /// Number of intervals; `None` until a signal.
    pub times: Option<u32>,
    /// Only this process and its descendants.
    pub pid: Option<u32>,
    /// Units of the event from sample to sample.
    pub period: Option<u64>,
    /// What the columns are.
    pub columns: Columns,
    /// Columns that are shown; `None` for all.
    pub shown: Option<Vec<String>>,
    /// Which code is counted.
    pub rings: Rings,
    /// The form of the output.
    pub layout: Layout,
    /// How text looks.
    pub look: Look,
}

/// What the columns of a watch are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Columns {
    /// Categories as Zydis names them.
    Categories,
    /// Mnemonics of the Intel manuals.
    Mnemonics,
    /// Instruction set extensions.
    Extensions,
}

/// Which code is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rings {
    /// User code, as processwatch does.
    User,
    /// The kernel on behalf of each process as well.
    Both,
}

impl Columns {
    /// The axis of the columns, and the names of all columns in their order.
    fn axis(self) -> anyhow::Result<(Axis, Vec<String>)> {
        let axis = match self {
            Self::Categories => Axis::Taxonomy(Arc::new(processwatch_categories()?)),
            Self::Mnemonics => Dimension::Mnemonic.into(),
            Self::Extensions => Dimension::Extension.into(),
        };
        let names = axis.known_values().unwrap_or_default();
        let names = names
            .into_iter()
            .filter(|name| name != hbbp_analysis::mix::NO_GROUP);
        Ok((axis, names.collect()))
    }
}

/// Prints the names of the columns.
pub(crate) fn list(columns: Columns, out: &mut dyn Write) -> anyhow::Result<()> {
    let (_, names) = columns.axis()?;
    for name in names {
        writeln!(out, "{name}").context("failed to write the names of the columns")?;
    }
    Ok(())
}

/// Measures interval after interval until their number is reached, a signal arrives, or the reader goes away.
pub(crate) fn watch(options: &WatchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let (axis, all) = options.columns.axis()?;
    let shown = shown(options.shown.as_deref(), all)?;
    let query = query(axis, options.rings)?;
    let watch = Watch {
        layout: options.layout,
        columns: &shown,
        look: options.look,
        wording: words,
    };
    let reader = reader_after(watch.begin(out)).context(NOT_WRITTEN)?;
    if reader == Reader::Gone {
        return Ok(());
    }
    let rule = super::rule::read_for_live("balanced")?;
    let mut decoded = DecodedText::default();
    let intervals = Intervals::open(&record_options(options), options.interval)?;
    for (number, snapshot) in (0..options.times.unwrap_or(u32::MAX)).zip(intervals) {
        let snapshot = snapshot?;
        let estimated = Estimated::next(&snapshot, &rule, &mut decoded);
        let mix = estimated.mix(&query, &SourceLocations::new());
        let written = watch.interval(number, &estimated, &mix, out);
        let reader = reader_after(written).context(NOT_WRITTEN)?;
        if reader == Reader::Gone {
            break;
        }
    }
    Ok(())
}

/// The columns that were requested, by their names without regard to case, in the order of all.
fn shown(asked: Option<&[String]>, all: Vec<String>) -> anyhow::Result<Vec<String>> {
    let Some(asked) = asked else {
        return Ok(all);
    };
    let known = |name: &String| all.iter().any(|it| it.eq_ignore_ascii_case(name));
    if let Some(unknown) = asked.iter().find(|name| !known(name)) {
        bail!("unknown column `{unknown}`; `hbbp-sys processwatch -l` lists them");
    }
    let is_asked = |name: &String| asked.iter().any(|it| it.eq_ignore_ascii_case(name));
    Ok(all.into_iter().filter(is_asked).collect())
}

fn query(columns: Axis, rings: Rings) -> anyhow::Result<Query> {
    let filters = match rings {
        Rings::User => vec![Filter::parse("ring=user", &[])?],
        Rings::Both => Vec::new(),
    };
    Ok(Query {
        rows: vec![Dimension::Pid.into(), Dimension::Command.into()],
        columns: vec![columns],
        filters,
        values: vec![Value::Share],
        sort: Sort::Total,
    })
}

fn record_options(options: &WatchOptions) -> RecordOptions {
    RecordOptions {
        target: options.pid.map_or(Target::System, Target::Process),
        choice: Choice {
            period: options.period.map(Period::Fixed),
            duration: Some(options.interval),
            ..Choice::default()
        },
        ..RecordOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_chosen_by_name() {
        let all = || vec!["AVX".to_owned(), "CALL".to_owned(), "SSE".to_owned()];
        assert_eq!(shown(None, all()).unwrap(), all());
        let asked = ["sse".to_owned(), "AVX".to_owned()];
        assert_eq!(shown(Some(&asked), all()).unwrap(), ["AVX", "SSE"]);
        assert!(shown(Some(&["MMX".to_owned()]), all()).is_err());
    }

    #[test]
    fn categories_are_those_of_zydis_in_its_order() {
        let (_, names) = Columns::Categories.axis().unwrap();
        assert_eq!(names[..4], ["INVALID", "ADOX_ADCX", "AES", "AMD3DNOW"]);
        assert_eq!(names.last().unwrap(), "XSAVEOPT");
        assert_eq!(names.len(), 115);
    }
}
