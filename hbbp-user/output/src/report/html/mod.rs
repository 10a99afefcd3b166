//! The report as one HTML file that draws itself: nothing is loaded from elsewhere, and it is read without a network.
//!
//! The page holds a style, a script (`page/*.js`), and the table of [`data`], compressed. Its content security policy allows that style and
//! that script alone, by their hashes, so that no name can become markup that runs; the script sets all names as text.

mod changes;
mod columns;
mod data;
mod table;
mod template;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha2::{Digest as _, Sha256};

use super::header::facts;
use super::measured::{Measured, Report};
use changes::Changes;
use data::Head;
use hbbp_model::advice::Wording;
use hbbp_model::names::Demangle;
use hbbp_model::printable::harmless;
use table::Table;

const PAGE: &str = include_str!("page/page.html");
pub(super) const STYLE: &str = include_str!("page/page.css");
/// One function, so that its names stay local; it waits for the data.
const SCRIPT: &str = concat!(
    "'use strict';\n(async () => {\n",
    include_str!("page/data.js"),
    include_str!("page/figures.js"),
    include_str!("page/head.js"),
    include_str!("page/code.js"),
    include_str!("page/icicle.js"),
    include_str!("page/pivot.js"),
    include_str!("page/changes.js"),
    include_str!("page/time.js"),
    include_str!("page/ready.js"),
    include_str!("page/tabs.js"),
    "})();\n"
);

/// Writes the page of a report's first run.
///
/// # Errors
/// Of `out`; where the report has no run.
pub(super) fn write(report: &Report<'_>, demangle: Demangle, out: &mut dyn Write) -> io::Result<()> {
    let data = packed(report, demangle)?;
    let mut rest = PAGE;
    for (mark, text) in [
        ("{script_hash}", hash(SCRIPT)),
        ("{style_hash}", hash(STYLE)),
        ("{style}", STYLE.to_owned()),
        ("{data}", BASE64.encode(data)),
        ("{script}", SCRIPT.to_owned()),
    ] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// The table of the page, as `deflate` with the header of zlib: the length of a document of JSON (4 bytes, little-endian),
/// the document, and the columns that it lists.
fn packed(report: &Report<'_>, demangle: Demangle) -> io::Result<Vec<u8>> {
    let nothing = || io::Error::other("the report has no run");
    let run = report.runs.first().ok_or_else(nothing)?;
    let over_time = report.over_time.map(|(over_time, _)| over_time);
    let mut table = Table::new(run.snapshot, over_time, demangle);
    table.add_blocks(run.analysis);
    let comparison = report.comparison;
    let changes = comparison.map(|comparison| Changes::new(comparison, demangle));
    let (page, columns) = table.finish(run.analysis, head(run, report.wording), changes);
    let document = serde_json::to_vec(&page)?;
    let length = u32::try_from(document.len()).map_err(io::Error::other)?;
    // The best compression takes three times as long for one percent.
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&length.to_le_bytes())?;
    packed.write_all(&document)?;
    packed.write_all(&columns)?;
    packed.finish()
}

/// What a content security policy calls the inline script or style (W3C, CSP Level 3, section 2.3.1).
pub(super) fn hash(text: &str) -> String {
    BASE64.encode(Sha256::digest(text))
}

/// What is shown above the views.
fn head(run: &Measured<'_>, wording: Wording) -> Head {
    let facts = facts(&run.snapshot.run, run.analysis, &run.accounting, &run.residuals);
    let noun = run.analysis.counts.assignment.unit.noun();
    let find = |name| facts.iter().find(|(label, _)| *label == name);
    let words = |name| find(name).map_or("", |(_, value)| value.as_str());
    Head {
        run: harmless(&[words("measured"), words("host"), words("kernel")].join(" · ")),
        unit: format!("In {noun}."),
        unit_words: noun,
        facts: facts
            .iter()
            .map(|(label, value)| (*label, harmless(value)))
            .collect(),
        without_executions: run
            .without_executions()
            .map(|warning| harmless(&warning.in_words(wording))),
        warnings: run
            .other_warnings()
            .map(|warning| harmless(&warning.in_words(wording)))
            .collect(),
        made: format!("Made by hbbp-sys {}", env!("CARGO_PKG_VERSION")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::SCRIPT;
    use hbbp_analysis::mix::Category;

    /// Pages are compared by their colours, so each category needs one of its own.
    #[test]
    fn each_category_has_a_colour_of_its_own() {
        let colours = Category::ALL.map(|category| {
            let entry = format!("'{}': '#", category.name());
            let (_, after) = SCRIPT
                .split_once(&entry)
                .unwrap_or_else(|| panic!("{entry} is missing"));
            after.get(..6).unwrap()
        });
        let distinct: BTreeSet<&str> = colours.into_iter().collect();
        assert_eq!(distinct.len(), Category::ALL.len(), "{colours:?}");
    }
}
