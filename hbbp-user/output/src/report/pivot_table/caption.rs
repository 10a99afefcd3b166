//! The sentence above a table: what its rows are, and what its figures are.

use crate::report::body::Body;
use hbbp_analysis::mix::{Value, View};
use hbbp_model::advice::{Advice, Wording};
use hbbp_model::snapshot::EventUnit;

/// A caption, in parts.
pub(super) struct Caption {
    /// `Instruction mix by module, columns by level`.
    what: String,
    /// What the figures are.
    unit: String,
    /// What else is to be known of them.
    facts: Vec<String>,
}

impl Caption {
    /// The caption of a table; the filters of its view are what the sentence of the view says.
    pub(super) fn new(body: &Body, view: Option<&View>, wording: Wording) -> Self {
        Self {
            what: what(body),
            unit: body.unit.noun().to_owned(),
            facts: [share(body), time(body, wording), filters(body, view)]
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// The sentence, without what the captions of other tables say.
    pub(super) fn beyond(&self, others: &[Self]) -> String {
        let unit = if others.iter().any(|other| other.unit == self.unit) {
            String::new()
        } else {
            format!(", in {}", self.unit)
        };
        let is_new = |fact: &&String| others.iter().all(|other| !other.facts.contains(fact));
        let facts = self.facts.iter().filter(is_new).map(|fact| format!("; {fact}"));
        format!("{}{unit}{}", self.what, facts.collect::<String>())
    }
}

fn what(body: &Body) -> String {
    let by = if body.by.is_empty() {
        String::new()
    } else {
        format!(" by {}", body.by.join(", "))
    };
    let columns = match body.columns_by.as_slice() {
        [] => String::new(),
        [ring] if ring == "ring" => String::new(),
        columns => format!(", columns by {}", columns.join(", ")),
    };
    format!("Instruction mix{by}{columns}")
}

fn share(body: &Body) -> Option<String> {
    let whole = if body.filters.is_empty() {
        "% of each column"
    } else {
        "% of everything in the column"
    };
    let asks_share = body.values.contains(&Value::Share);
    asks_share.then(|| whole.to_owned())
}

fn time(body: &Body, wording: Wording) -> Option<String> {
    let asks_time = body.values.iter().any(|value| value.is_of_time());
    match body.time_unit {
        // Where samples are those of time, the amounts say it.
        None if !asks_time || body.unit.is_samples() => None,
        None => Some(format!("no time was sampled ({})", wording(Advice::RecordTime))),
        Some(EventUnit::Cycles) => Some("time in core cycles".to_owned()),
        Some(_) => Some("time in ns of a clock, CPI in ns for each instruction".to_owned()),
    }
}

fn filters(body: &Body, view: Option<&View>) -> Option<String> {
    let is_said = |filter: &&String| !view.is_some_and(|view| view.said.contains(*filter));
    let filters: Vec<&str> = body.filters.iter().filter(is_said).map(String::as_str).collect();
    (!filters.is_empty()).then(|| format!("filters: {}", filters.join(", ")))
}
