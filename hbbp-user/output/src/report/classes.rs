//! Classes of instructions: the counter value of each, compared with the estimate.

use std::io;

use serde::Serialize;

use super::number::{percent, scaled};
use super::page::Page;
use super::table::{Line, Table};
use hbbp_estimate::ClassEstimate;

/// Writes the classes of a run as a table; nothing if none was counted.
pub(super) fn text(of_run: &str, classes: &[ClassEstimate], page: &mut Page<'_>) -> io::Result<()> {
    if classes.is_empty() {
        return Ok(());
    }
    page.heading(&format!(
        "Classes of instructions, counted along with the samples{of_run}:"
    ))?;
    let titles = [
        "% of run",
        "counted",
        "±",
        "estimated",
        "residual %",
        "of samples alone %",
    ];
    let row = |class: &ClassEstimate| {
        let names = [class.class.id(), class.ring.name()];
        let numbers = [
            percent(class.share),
            scaled(class.counted.value, 4),
            scaled(class.counted.std_error, 2),
            scaled(class.estimated, 4),
            signed(class.residual()),
            signed(class.residual_of_samples()),
        ];
        Line::Row(names.map(str::to_owned).to_vec(), numbers.to_vec())
    };
    let table = Table {
        names: ["class", "ring"].map(str::to_owned).to_vec(),
        numbers: titles.map(str::to_owned).to_vec(),
        lines: classes.iter().map(row).collect(),
    };
    page.table(&table, |_| None)?;
    if classes.iter().any(|class| !class.ties) {
        let untied = classes.iter().filter(|class| !class.ties);
        let untied: Vec<String> = untied
            .map(|class| format!("{} ({})", class.class.id(), class.ring.name()))
            .collect();
        page.entry(
            "",
            &format!("counted, and not used for the estimate: {}", untied.join(", ")),
        )?;
    }
    Ok(())
}

/// A residual in percent with its sign.
fn signed(residual: f64) -> String {
    if residual.is_finite() {
        format!("{:+.2}", residual * 100.0)
    } else {
        "none counted".to_owned()
    }
}

/// A class of instructions in a ring.
#[derive(Serialize)]
pub(super) struct ClassJson {
    class: &'static str,
    ring: &'static str,
    /// The share of the run in which it was counted.
    share: f64,
    counted: f64,
    counted_std_error: f64,
    estimated: f64,
    /// Null where none was counted, and some were estimated.
    residual: Option<f64>,
    sampled: f64,
    sampled_std_error: f64,
    ties: bool,
}

impl ClassJson {
    pub(super) fn new(class: &ClassEstimate) -> Self {
        Self {
            class: class.class.id(),
            ring: class.ring.name(),
            share: class.share,
            counted: class.counted.value,
            counted_std_error: class.counted.std_error,
            estimated: class.estimated,
            residual: Some(class.residual()).filter(|residual| residual.is_finite()),
            sampled: class.sampled.value,
            sampled_std_error: class.sampled.std_error,
            ties: class.ties,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Look;
    use hbbp_estimate::Figure;
    use hbbp_model::addr::Ring;
    use hbbp_model::snapshot::InstructionClass;

    #[test]
    fn class_is_shown_with_its_count() {
        let figure = |value, std_error| Figure { value, std_error };
        let classes = [
            ClassEstimate {
                class: InstructionClass::Loads,
                ring: Ring::User,
                counted: figure(2.0e9, 3.0e6),
                share: 0.25,
                sampled: figure(1.9e9, 1.0e7),
                estimated: 1.999e9,
                ties: true,
            },
            ClassEstimate {
                class: InstructionClass::Locked,
                ring: Ring::Kernel,
                counted: figure(0.0, 0.0),
                share: 0.25,
                sampled: figure(5.0, 5.0),
                estimated: 5.0,
                ties: false,
            },
        ];
        let mut out = Vec::new();
        let look = Look::default();
        text("", &classes, &mut Page { look, out: &mut out }).unwrap();
        let shown = String::from_utf8(out).unwrap();
        for expected in [
            "25.00",
            "-0.05",
            "-5.00",
            "none counted",
            "not used for the estimate: locked (kernel)",
        ] {
            assert!(shown.contains(expected), "{shown}");
        }
        let json = serde_json::to_value(ClassJson::new(&classes[1])).unwrap();
        assert!(json["residual"].is_null() && json["ties"] == false, "{json}");
    }
}
