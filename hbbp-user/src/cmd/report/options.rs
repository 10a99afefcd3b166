//! What a report shows, and how.

use std::path::PathBuf;

use crate::cmd::import::ImportOptions;
use crate::cmd::pager::Paging;
use hbbp_analysis::mix::{Confidence, Dimension, Query, Requirement, View, ViewTable};
use hbbp_output::report::{Format, Look};

/// Content and format of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// What the table shows, unless there is a view.
    pub query: Query,
    /// Tables to print instead.
    pub view: Option<View>,
    /// What must hold of the mix.
    pub requirements: Vec<Requirement>,
    /// How sure a failed requirement must be.
    pub confidence: Confidence,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Most lines of each table; `None` for all.
    pub top: Option<usize>,
    /// The form of the report.
    pub format: Format,
    /// How much of the report text shows.
    pub extent: Extent,
    /// How text looks.
    pub look: Look,
    /// Whether the rows are also shown by period.
    pub over_time: bool,
    /// A profile that the page shows the changes against.
    pub compare: Option<ImportOptions>,
    /// Files with debug information, for the dimensions that need it; others are found by their build ids.
    pub debug_files: Vec<PathBuf>,
}

/// How much of a report text shows; the other formats hold all of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Header, warnings, tables, accounting; a pager may show them.
    Details(Paging),
    /// The tables alone. The most important warnings are in [`super::Quality::warnings`].
    Tables,
    /// One screen with what people ask first.
    Screen,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            query: Query::by([Dimension::Mnemonic]),
            view: None,
            requirements: Vec::new(),
            confidence: Confidence::default(),
            rule: "balanced".to_owned(),
            top: None,
            format: Format::default(),
            extent: Extent::Details(Paging::Never),
            look: Look::default(),
            over_time: false,
            compare: None,
            debug_files: Vec::new(),
        }
    }
}

impl ReportOptions {
    /// The queries of all tables, each with its limit of lines.
    pub(super) fn tables(&self) -> Vec<(&Query, Option<usize>)> {
        match &self.view {
            None => vec![(&self.query, self.top)],
            Some(view) => {
                let beside: &[ViewTable] = match self.format {
                    Format::Text => &view.beside,
                    Format::Json | Format::Csv | Format::Html => &[],
                };
                let tables = view.tables.iter().chain(beside);
                tables.map(|table| (&table.query, table.top)).collect()
            }
        }
    }

    /// Whether some table has threads in it.
    pub(crate) fn asks_thread(&self) -> bool {
        self.asks(|query| query.asks(Dimension::Thread))
    }

    pub(super) fn asks(&self, of: impl Fn(&Query) -> bool) -> bool {
        let required = self.requirements.iter().map(Requirement::query);
        self.tables().into_iter().any(|(query, _)| of(query)) || required.into_iter().any(|query| of(&query))
    }
}
