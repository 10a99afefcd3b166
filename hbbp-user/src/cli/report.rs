//! Options of reports.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::format::{FORMATS, one_of};
use crate::cmd::pager::Paging;
use crate::cmd::report::{Extent, ReportOptions, read_taxonomies};
use hbbp_analysis::mix::{
    Axis, Confidence, Dimension, Filter, Query, Requirement, Sort, Taxonomy, UnknownAxis, Value, View,
};
use hbbp_model::names::Demangle;
use hbbp_output::report::{Colours, Format, Letters, Look};

#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    /// Rule that chooses between EBS and LBR: `balanced`, `paper` (as published), `bias`, `late` (for stacks read in the interrupt), `time` (samples alone), or a rule file.
    #[arg(long, value_name = "RULE", default_value = "balanced", hide_short_help = true)]
    pub(super) rule: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Print a table by mnemonic, module, ..
    ///
    /// The table is alone, instead of the first screen. Dimensions of its rows are comma-separated: mnemonic (where another
    /// option asks for a table), module, function, process, extension, category, ..
    #[arg(
        short = 'b',
        long,
        visible_alias = "by",
        value_name = "DIMENSION",
        value_delimiter = ','
    )]
    rows: Vec<String>,
    /// Dimensions of the columns, or `none`; usually ring.
    #[arg(long, value_name = "DIMENSION", value_delimiter = ',')]
    cols: Vec<String>,
    /// Figures of each cell: executions, share, cpi, ..
    ///
    /// Any of executions, share, samples, bytes, blocks, rate (per second), time, time-share, cpi, ipc, flops.
    #[arg(long, value_name = "VALUE", value_delimiter = ',')]
    values: Vec<Value>,
    /// Only what matches, e.g. 'extension=AVX*'.
    ///
    /// Instructions whose dimension matches (or, with !=, does not match) a glob; may be repeated.
    #[arg(long, value_name = "DIM=GLOB")]
    filter: Vec<String>,
    /// Order of the rows: total, key, value or column.
    ///
    /// The default is total.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<Sort>,
    /// Print a prepared report: isa, loops, flops, ..
    ///
    /// One of isa, vectorization, long-latency, synchronization, flops, memory, branches, functions, loops, mitigations, patched,
    /// or module:NAME.
    #[arg(long, value_name = "NAME")]
    view: Option<String>,
    /// Groups of instructions as further dimensions, a TOML file; may be repeated.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    taxonomy: Vec<PathBuf>,
    /// Exit with status 3 if the share of some instructions contradicts this, e.g. 'extension=AVX512*>1%'; may be
    /// repeated.
    #[arg(long, value_name = "FILTER<SHARE%", hide_short_help = true)]
    require: Vec<String>,
    /// Level of confidence of --require, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "95", hide_short_help = true)]
    confidence: Confidence,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    look: LookArgs,
    /// Print the whole report, with all warnings.
    ///
    /// Facts and warnings of the measurement, the table, and the accounting of all samples.
    #[arg(long)]
    details: bool,
    /// Do not show --details in a pager.
    ///
    /// The pager is PAGER, or less.
    #[arg(long)]
    no_pager: bool,
    /// Show the top N rows, or `all`.
    ///
    /// The remainder is summed. Default: 40, or the number of the view; all in the text of --details.
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_top)]
    top: Option<Top>,
    /// Output format.
    #[arg(long, value_parser = one_of(&FORMATS), default_value = "text")]
    format: Format,
    /// Show the rows also by period of the run: sparklines in text, all figures with --format csv and json, a stacked
    /// area in a page.
    #[arg(long, hide_short_help = true)]
    over_time: bool,
    /// Exit with status 3 if the measurement misses a quality limit or has too few samples for a --require.
    #[arg(long, hide_short_help = true)]
    pub(super) strict: bool,
}

/// How many rows to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Top(pub(super) Option<usize>);

/// Rows of a table, unless the user says otherwise.
const TOP: usize = 40;

impl ReportArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<ReportOptions> {
        let extent = self.extent();
        let top = self.rows_shown().map_or(Some(TOP), |Top(top)| top);
        let taxonomies = read_taxonomies(&self.taxonomy)?;
        let query = self.query(&taxonomies)?;
        let view = self.view(&query, &taxonomies)?;
        let requirements = self
            .require
            .iter()
            .map(|text| Requirement::parse(text, &taxonomies));
        Ok(ReportOptions {
            query,
            view,
            requirements: requirements.collect::<Result<_, _>>()?,
            confidence: self.confidence,
            rule: self.rule.rule,
            top,
            format: self.format,
            extent,
            look: on_screen(self.look.into_look(), extent),
            over_time: self.over_time,
            compare: None,
            debug_files: Vec::new(),
        })
    }
}

impl ReportArgs {
    /// What the table shows, unless there is a view.
    fn query(&self, taxonomies: &[Arc<Taxonomy>]) -> anyhow::Result<Query> {
        let axes = |names: &[String]| -> Result<Vec<Axis>, UnknownAxis> {
            names.iter().map(|name| Axis::named(name, taxonomies)).collect()
        };
        let filters = self.filter.iter().map(|filter| Filter::parse(filter, taxonomies));
        let filters: Vec<Filter> = filters.collect::<Result<_, _>>()?;
        let usual = Query::by([Dimension::Mnemonic]);
        Ok(Query {
            rows: match self.rows.as_slice() {
                [] => usual.rows,
                rows => axes(rows)?,
            },
            columns: match self.cols.as_slice() {
                [] => usual.columns,
                [none] if none == "none" => Vec::new(),
                columns => axes(columns)?,
            },
            values: self.values_of(usual.values),
            filters,
            sort: self.sort.clone().unwrap_or_default(),
        })
    }

    /// The figures of a table that usually has these: whatever rows are sorted by is shown.
    fn values_of(&self, usual: Vec<Value>) -> Vec<Value> {
        let mut values = match self.values.as_slice() {
            [] => usual,
            asked => asked.to_vec(),
        };
        if let Some(Sort::Value(value)) = self.sort
            && !values.contains(&value)
        {
            values.push(value);
        }
        values
    }

    /// The view, with the requested changes.
    fn view(&self, query: &Query, taxonomies: &[Arc<Taxonomy>]) -> anyhow::Result<Option<View>> {
        let view = self
            .view
            .as_deref()
            .map(|name| View::named(name, taxonomies))
            .transpose()?;
        Ok(view.map(|mut view| {
            for table in view.tables.iter_mut().chain(&mut view.beside) {
                table.query.filters.extend(query.filters.iter().cloned());
                table.query.values = self.values_of(std::mem::take(&mut table.query.values));
                if let Some(sort) = &self.sort {
                    table.query.sort = sort.clone();
                }
                if let Some(Top(top)) = self.rows_shown() {
                    table.top = top;
                }
            }
            view
        }))
    }

    /// How many rows each table has, where that is not its usual number: the whole report is a text with all of them.
    fn rows_shown(&self) -> Option<Top> {
        let is_whole = self.details && self.format == Format::Text;
        self.top.or(is_whole.then_some(Top(None)))
    }

    /// What text shows: a table where anything about one is said.
    fn extent(&self) -> Extent {
        let lists = [&self.rows, &self.cols, &self.filter];
        let asks_table = lists.iter().any(|list| !list.is_empty())
            || !self.values.is_empty()
            || self.sort.is_some()
            || self.view.is_some()
            || self.top.is_some()
            || self.over_time;
        let paging = if self.no_pager {
            Paging::Never
        } else {
            Paging::Auto
        };
        match (self.details, asks_table) {
            (true, _) => Extent::Details(paging),
            (false, true) => Extent::Tables,
            (false, false) => Extent::Screen,
        }
    }
}

/// Options of text.
#[derive(Debug, Default, Args)]
pub(super) struct LookArgs {
    /// Show functions by the names of the symbol tables, not demangled.
    #[arg(long, hide_short_help = true)]
    no_demangle: bool,
}

impl LookArgs {
    /// How text looks on standard output: as wide as the terminal, with colours and bars unless NO_COLOR is set
    /// (no-color.org) or the terminal has none.
    pub(super) fn into_look(self) -> Look {
        let width = terminal_width();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let colours = if width.is_some() && !is_set("NO_COLOR") && !is_dumb {
            Colours::Shown
        } else {
            Colours::Plain
        };
        Look {
            width: width.unwrap_or(Look::default().width),
            demangle: if self.no_demangle {
                Demangle::Off
            } else {
                Demangle::On
            },
            colours,
            letters: letters(["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok())),
        }
    }
}

/// The letters of a locale, by the variables that set it, the first of which counts (locale(7)). Where none does, as in
/// many containers, terminals show all letters.
fn letters(variables: [Option<String>; 3]) -> Letters {
    let mut set = variables
        .into_iter()
        .flatten()
        .filter(|locale| !locale.is_empty());
    let Some(locale) = set.next() else {
        return Letters::Unicode;
    };
    let charset = locale.split_once('.').map(|(_, charset)| charset.to_lowercase());
    match charset.as_deref() {
        Some(charset) if charset.starts_with("utf8") || charset.starts_with("utf-8") => Letters::Unicode,
        None if locale != "C" && locale != "POSIX" => Letters::Unicode,
        _ => Letters::Ascii,
    }
}

/// How a text of this extent looks in a file or a pipe.
pub(super) fn plain_look(look: Look, extent: Extent) -> Look {
    /// Columns of the terminal that the first screen is made for.
    const SCREEN: usize = 80;

    Look {
        width: if extent == Extent::Screen {
            SCREEN
        } else {
            Look::default().width
        },
        colours: Colours::Plain,
        ..look
    }
}

/// The look of a text of this extent on standard output.
fn on_screen(look: Look, extent: Extent) -> Look {
    match terminal_width() {
        Some(_) => look,
        None => plain_look(look, extent),
    }
}

/// Columns of the terminal on standard output; `None` if it is not a terminal.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (0 < size.ws_col).then_some(usize::from(size.ws_col))
}

pub(super) fn parse_top(text: &str) -> Result<Top, String> {
    match text {
        "all" => Ok(Top(None)),
        _ => text
            .parse()
            .map(|n| Top(Some(n)))
            .map_err(|_| "expected a number of rows or `all`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_report_has_all_rows_as_text() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            report: ReportArgs,
        }
        let tops = |words: &str| {
            let words = std::iter::once("report").chain(words.split_whitespace());
            let words = <Words as clap::Parser>::try_parse_from(words).unwrap();
            let options = words.report.into_options().unwrap();
            (options.top, options.view.map(|view| view.tables[0].top))
        };
        for (words, top) in [
            ("", Some(TOP)),
            ("--by function", Some(TOP)),
            ("--details", None),
            ("--details --by function", None),
            ("--details --top 3", Some(3)),
            ("--details --format json", Some(TOP)),
        ] {
            assert_eq!(tops(words), (top, None), "{words}");
        }
        assert_eq!(tops("--details --view isa").1, Some(None));
        assert_ne!(tops("--view isa").1, Some(None));
    }

    #[test]
    fn letters_are_those_of_the_locale() {
        let of = |variables: [&str; 3]| letters(variables.map(|text| Some(text.to_owned())));
        for ascii in [
            ["C", "", ""],
            ["", "POSIX", "de_DE.UTF-8"],
            ["", "", "de_DE.ISO-8859-1"],
        ] {
            assert_eq!(of(ascii), Letters::Ascii, "{ascii:?}");
        }
        for unicode in [
            ["", "", ""],
            ["C.UTF-8", "C", "C"],
            ["", "", "en_US.utf8"],
            ["", "", "en_US"],
        ] {
            assert_eq!(of(unicode), Letters::Unicode, "{unicode:?}");
        }
        assert_eq!(letters([None, None, None]), Letters::Unicode);
    }
}
