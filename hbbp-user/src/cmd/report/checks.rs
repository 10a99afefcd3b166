//! Tables that answer nothing: refused with what can be asked of the profile.

use std::collections::BTreeSet;

use super::options::ReportOptions;
use super::profile::Profile;
use crate::advice::words;
use hbbp_analysis::mix::{Dimension, Filter, Mix, Query, Sort, View};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::names::file_name;

/// The request cannot be answered from this profile: a mistake in the command, not a failure.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(String);

impl WrongUse {
    pub(super) const fn new(why: String) -> Self {
        Self(why)
    }
}

/// Refuses tables that answer nothing; the sums are those of all runs, one for each table.
pub(super) fn check_tables(
    options: &ReportOptions,
    sums: &[Mix],
    profile: &Profile<'_>,
) -> anyhow::Result<()> {
    for ((query, _), mix) in options.tables().into_iter().zip(sums) {
        check_sort(query, mix)?;
        check_time(query, mix)?;
    }
    if let (Some(view), [first, ..]) = (&options.view, sums) {
        check_module(view, first, || profile.mixes(&Query::by([Dimension::Module])))?;
    }
    // The filters of a view find what there may not be, such as calls of other modules.
    sums.iter()
        .try_for_each(|mix| check_filters(&options.query.filters, mix, profile))
}

/// Refuses the page of a module of which nothing was executed, and one of several files with the name of one.
fn check_module(view: &View, first: &Mix, by_module: impl FnOnce() -> Vec<Mix>) -> anyhow::Result<()> {
    /// Modules that the message names.
    const SHOWN: usize = 12;

    let Some(module) = view.name.strip_prefix("module:") else {
        return Ok(());
    };
    let named: BTreeSet<&String> = first.rows.iter().filter_map(|row| row.key.first()).collect();
    if 1 < named.len() && named.iter().all(|name| is_file(name, module)) {
        let named: Vec<&str> = named.iter().take(SHOWN).map(|name| name.as_str()).collect();
        return Err(WrongUse(format!(
            "`{module}` is the name of several files; use a path, or a pattern (module:*/{module}) for all of them: {}",
            named.join(", ")
        ))
        .into());
    }
    if !first.rows.is_empty() {
        return Ok(());
    }
    let rows = by_module().into_iter().flat_map(|mix| mix.rows);
    let modules = rows.filter_map(|row| row.key.into_iter().next());
    let modules: Vec<String> = modules.take(SHOWN).collect();
    Err(WrongUse(format!(
        "no instruction of a module `{module}` ran; use a name or a pattern (module:*libc*) of one that did: {}",
        modules.join(", ")
    ))
    .into())
}

/// Whether the path is that of a file with this name.
fn is_file(path: &str, name: &str) -> bool {
    path != name && file_name(path).eq_ignore_ascii_case(name)
}

/// Refuses an order by a column that the table does not have.
fn check_sort(query: &Query, mix: &Mix) -> anyhow::Result<()> {
    let Sort::Column(name) = &query.sort else {
        return Ok(());
    };
    let columns: Vec<String> = mix.columns.iter().map(hbbp_analysis::mix::Column::name).collect();
    if !columns.contains(name) {
        return Err(WrongUse(format!(
            "no column `{name}` to sort by; expected total, key, a value, or one of {}",
            columns.join(", ")
        ))
        .into());
    }
    Ok(())
}

/// Refuses a table without figures: all requested figures need time, which was not sampled.
fn check_time(query: &Query, mix: &Mix) -> anyhow::Result<()> {
    let only_time = !query.values.is_empty() && query.values.iter().all(|value| value.is_of_time());
    if !only_time || mix.time_unit.is_some() {
        return Ok(());
    }
    let names: Vec<&str> = query.values.iter().map(|value| value.name()).collect();
    let names = names.join(", ");
    let error = if mix.unit.is_samples() {
        Advised::new(
            format!(
                "executions and time are needed for {names}, and this profile has one of them: use --values executions,share"
            ),
            Advice::RecordExecutions,
        )
    } else {
        Advised::new(format!("{names}: no time was sampled"), Advice::RecordTime)
    };
    Err(WrongUse(error.in_words(words)).into())
}

/// Refuses a filter that nothing in the profile passes, where its values are not known beforehand: a name that is wrong.
fn check_filters(filters: &[Filter], mix: &Mix, profile: &Profile<'_>) -> anyhow::Result<()> {
    /// Values that the message names.
    const SHOWN: usize = 12;

    if !mix.rows.is_empty() {
        return Ok(());
    }
    for filter in filters
        .iter()
        .filter(|filter| filter.axis.known_values().is_none())
    {
        let alone = Query::share_of(std::slice::from_ref(filter));
        if profile.mixes(&alone).iter().any(|mix| 0.0 < mix.total.amount) {
            continue;
        }
        let by_value = Query {
            columns: Vec::new(),
            ..Query::by([filter.axis.clone()])
        };
        let rows = profile.mixes(&by_value).into_iter().flat_map(|mix| mix.rows);
        let values: Vec<String> = rows
            .filter_map(|row| row.key.into_iter().next())
            .take(SHOWN)
            .collect();
        return Err(WrongUse(format!(
            "nothing that ran passes the filter `{filter}`; what ran by {} begins with {}",
            filter.axis,
            values.join(", ")
        ))
        .into());
    }
    Ok(())
}
