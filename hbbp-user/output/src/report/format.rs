//! The forms of what is printed; each report has those that it can be written in.

/// The form of a report on a mix.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// For people: aligned text.
    #[default]
    Text,
    /// For programs: the whole report, format `hbbp-sys.mix/2`.
    Json,
    /// For spreadsheets: the table alone.
    Csv,
    /// For browsers: a page that draws the mix, its code and any pivot of it.
    Html,
}

/// The form of a difference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiffFormat {
    /// For people: aligned text.
    Text,
    /// For programs: the whole difference, format `hbbp-sys.diff/1`.
    Json,
    /// For spreadsheets: the changes alone.
    Csv,
}

/// The form of errors against exact counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorsFormat {
    /// For people: aligned text.
    Text,
    /// For programs: all groups, format `hbbp-sys.eval/1`.
    Json,
    /// For browsers: a page that draws the errors by mnemonic, as Figures 3 and 4 of the HBBP paper do.
    Html,
}

/// The form of what has no table for spreadsheets: annotated code, findings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TextOrJson {
    /// For people.
    Text,
    /// For programs: one JSON object that names its format and version.
    Json,
}
