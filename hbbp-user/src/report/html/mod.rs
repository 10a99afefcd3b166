//! The report as one HTML file that draws itself: nothing is loaded from elsewhere, and it is read without a network.
//!
//! The page holds a style, a script, and the table of [`data`], compressed. Its content security policy allows that style and
//! that script alone, by their hashes, so that no name can become markup that runs; the script sets all names as text.

mod data;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha2::{Digest as _, Sha256};

use super::Measured;
use super::header::facts;
use crate::printable::harmless;
use data::{Head, Page};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the page.
///
/// # Errors
/// Of `out`.
pub(super) fn write(run: &Measured<'_>, out: &mut dyn Write) -> io::Result<()> {
    let page = Page::new(run.snapshot, run.analysis, head(run));
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut packed, &page)?;
    let data = BASE64.encode(packed.finish()?);
    let mut rest = PAGE;
    for (mark, text) in [
        ("{script_hash}", hash(SCRIPT)),
        ("{style_hash}", hash(STYLE)),
        ("{style}", STYLE.to_owned()),
        ("{data}", data),
        ("{script}", SCRIPT.to_owned()),
    ] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// What a content security policy calls the inline script or style (W3C, CSP Level 3, section 2.3.1).
fn hash(text: &str) -> String {
    BASE64.encode(Sha256::digest(text))
}

/// What stands above the views.
fn head(run: &Measured<'_>) -> Head {
    let facts = facts(&run.snapshot.run, run.methods, &run.accounting, &run.residuals);
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
        warnings: run
            .warnings
            .iter()
            .map(|warning| harmless(&warning.to_string()))
            .collect(),
        made: format!("Made by hbbp-sys {}", env!("CARGO_PKG_VERSION")),
    }
}
