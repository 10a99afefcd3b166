//! The rule that the user chose: built in, or a file.

use std::path::Path;

use anyhow::Context as _;

use super::text_file::read_text;
use hbbp_estimate::Rule;
use hbbp_estimate::rule::NAMED;
use hbbp_estimate::stages::Stage;

/// As [`read`], for figures that are due every second: what takes seconds is left out. Samples count at their reported address, and streams are
/// balanced only where they are biased.
pub(super) fn read_for_live(rule: &str) -> anyhow::Result<Rule> {
    let mut rule = read(rule)?;
    for stage in [Stage::Landing, Stage::Times, Stage::Chance] {
        rule.stages = rule.stages.without(stage);
    }
    Ok(rule)
}

/// The built-in rule with this name, else the rule in this file.
pub(super) fn read(rule: &str) -> anyhow::Result<Rule> {
    let known = NAMED.iter().find(|(name, _)| *name == rule);
    let text = match known {
        Some((_, text)) => (*text).to_owned(),
        None => read_text(Path::new(rule)).with_context(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            format!(
                "unknown rule `{rule}`; expected one of {}, or a rule file",
                names.join(", ")
            )
        })?,
    };
    text.parse()
        .with_context(|| format!("failed to parse rule {rule}"))
}
