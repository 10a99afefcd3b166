//! The names of formats and tables on the command line.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use hbbp_output::report::top::Tab;
use hbbp_output::report::{DiffFormat, ErrorsFormat, Format, TextOrJson};

/// A value and its name on the command line.
type Named<T> = (&'static str, T);

pub(super) const FORMATS: [Named<Format>; 4] = [
    ("text", Format::Text),
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("html", Format::Html),
];

pub(super) const DIFF_FORMATS: [Named<DiffFormat>; 3] = [
    ("text", DiffFormat::Text),
    ("json", DiffFormat::Json),
    ("csv", DiffFormat::Csv),
];

pub(super) const ERRORS_FORMATS: [Named<ErrorsFormat>; 3] = [
    ("text", ErrorsFormat::Text),
    ("json", ErrorsFormat::Json),
    ("html", ErrorsFormat::Html),
];

pub(super) const TEXT_OR_JSON: [Named<TextOrJson>; 2] =
    [("text", TextOrJson::Text), ("json", TextOrJson::Json)];

pub(super) const TABS: [Named<Tab>; 6] = [
    ("functions", Tab::Functions),
    ("modules", Tab::Modules),
    ("processes", Tab::Processes),
    ("instructions", Tab::Instructions),
    ("categories", Tab::Categories),
    ("extensions", Tab::Extensions),
];

/// Parses one of these names.
pub(super) fn one_of<T>(names: &'static [Named<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let find = |name: String| {
        let found = names.iter().find(|(it, _)| *it == name);
        found.map(|(_, value)| *value).ok_or("not one of the names")
    };
    PossibleValuesParser::new(names.iter().map(|(name, _)| *name)).try_map(find)
}
