//! The tables of errors: by group, by mnemonic, and the order of the hottest functions.

use super::evaluated::Errors;
use crate::report::number::{percent, scaled};
use crate::report::table::{Line, Table};
use hbbp_analysis::eval::{Amounts, Group, Method, Order};
use hbbp_model::names::{Demangle, function};

/// Digits of amounts in text.
pub(super) const DIGITS: usize = 4;

/// What is shown where there is no figure.
const NONE: &str = "-";

/// A table under its heading.
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) table: Table,
}

/// A column of errors: its title, and the estimate that they are of.
type Column = (&'static str, Method);

impl Errors<'_> {
    /// The tables in their order; of sampling methods those that distinguish them.
    pub(super) fn sections(&self, demangle: Demangle) -> Vec<Section> {
        let by_sampling = !self.sampling.is_empty();
        let columns: Vec<Column> = if by_sampling {
            self.served().collect()
        } else {
            Method::ALL.map(|method| (method.name(), method)).to_vec()
        };
        if columns.is_empty() {
            return Vec::new();
        }
        let of_groups = |heading: &str, error: fn(&Group, Method) -> Option<f64>| Section {
            heading: heading.to_owned(),
            table: self.group_table(&columns, error, demangle),
        };
        let order = self.order_section(&columns, demangle);
        if by_sampling {
            let heading = "Accuracy error over blocks by sampling method, in % of the reference";
            let blocks = of_groups(heading, Group::block_error);
            return std::iter::once(blocks).chain(order).collect();
        }
        let of_groups = [
            of_groups(
                "Average weighted error over mnemonics, in % of the reference",
                Group::average_weighted,
            ),
            of_groups("The same of shares of all instructions, in %", Group::share_error),
            of_groups(
                "Accuracy error over blocks, in % of the reference",
                Group::block_error,
            ),
        ];
        let total = self.whole.total();
        let of_mnemonics = [
            Section {
                heading: "Executions by mnemonic, and their errors in %".to_owned(),
                table: self.mnemonic_table(|amounts| *amounts, |amount| scaled(amount, DIGITS)),
            },
            Section {
                heading: "Shares of all instructions by mnemonic in %, and their errors in % of the share"
                    .to_owned(),
                table: self.mnemonic_table(|amounts| amounts.shares(&total), percent),
            },
        ];
        of_groups.into_iter().chain(order).chain(of_mnemonics).collect()
    }

    fn shown<T>(&self, rows: &[T]) -> usize {
        self.top.map_or(rows.len(), |top| top.min(rows.len()))
    }

    fn group_table(
        &self,
        columns: &[Column],
        error_of: fn(&Group, Method) -> Option<f64>,
        demangle: Demangle,
    ) -> Table {
        let names = self.level.titles();
        let numbers = |group: &Group| {
            let instructions = scaled(group.total().reference, DIGITS);
            let errors = columns.iter().map(|(_, method)| error(error_of(group, *method)));
            std::iter::once(instructions).chain(errors).collect()
        };
        let shown = self.groups.iter().take(self.shown(&self.groups));
        // Names are of the same kinds in every row; only functions are ever mangled.
        let name = |name: &String| function(name, demangle);
        let rows = shown.map(|group| Line::Row(group.key.iter().map(name).collect(), numbers(group)));
        let total = [
            Line::Rule,
            Line::Row(labelled("all", names.len()), numbers(&self.whole)),
        ];
        table(names, columns, rows.chain(total))
    }

    /// The hottest functions with their ranks by each method; `None` if there are none.
    fn order_section(&self, columns: &[Column], demangle: Demangle) -> Option<Section> {
        const NAMES: [&str; 3] = ["ring", "module", "function"];

        let hottest = &self.evaluation.hottest;
        let orders: Vec<Option<Order>> = columns.iter().map(|(_, method)| hottest.order(*method)).collect();
        let numbers = |first: String, shown: &dyn Fn(&Order) -> Option<String>| {
            let shown = orders.iter().map(|order| order.as_ref().and_then(shown));
            let shown = shown.map(|shown| shown.unwrap_or_else(|| NONE.to_owned()));
            std::iter::once(first).chain(shown).collect()
        };
        let rows = hottest.functions.iter().enumerate().map(|(nth, (key, amounts))| {
            let names =
                [&key.ring.to_string(), &key.module, &key.function].map(|name| function(name, demangle));
            let place = |order: &Order| order.places.get(nth)?.map(|place| place.to_string());
            Line::Row(names.to_vec(), numbers(scaled(amounts.reference, DIGITS), &place))
        });
        let correlation = |order: &Order| order.rank_correlation.map(|it| format!("{it:.3}"));
        let is_right = |order: &Order| Some(if order.is_right { "yes" } else { "no" }.to_owned());
        let whole = [
            Line::Rule,
            Line::Row(
                labelled("rank correlation", NAMES.len()),
                numbers(String::new(), &correlation),
            ),
            Line::Row(
                labelled("right order", NAMES.len()),
                numbers(String::new(), &is_right),
            ),
        ];
        (!hottest.functions.is_empty()).then(|| Section {
            heading: "The hottest functions of the reference, and their ranks by each method".to_owned(),
            table: table(&NAMES, columns, rows.chain(whole)),
        })
    }

    /// The mnemonics that are shown, by falling reference.
    pub(super) fn mnemonics(&self) -> Vec<(&str, Amounts)> {
        let mnemonics = self.whole.mnemonics.iter();
        let mut rows: Vec<_> = mnemonics
            .map(|(name, amounts)| (name.as_str(), *amounts))
            .collect();
        rows.sort_by(|(_, a), (_, b)| b.reference.total_cmp(&a.reference));
        rows.truncate(self.shown(&rows));
        rows
    }

    /// What `of` makes of the executions by mnemonic, as `shown` shows it, and the errors.
    fn mnemonic_table(&self, of: impl Fn(&Amounts) -> Amounts, shown: fn(f64) -> String) -> Table {
        let numbers = |amounts: &Amounts| {
            let measured =
                Method::ALL.map(|method| [shown(amounts.by(method)), error(error_of(amounts, method))]);
            [&[shown(amounts.reference)][..], &measured.concat()].concat()
        };
        let titles = Method::ALL.map(|method| [method.name().to_owned(), "error".to_owned()]);
        let rows = self.mnemonics().into_iter();
        Table {
            names: vec!["mnemonic".to_owned()],
            numbers: [&["reference".to_owned()][..], &titles.concat()].concat(),
            lines: rows
                .map(|(mnemonic, amounts)| Line::Row(vec![mnemonic.to_owned()], numbers(&of(&amounts))))
                .collect(),
        }
    }
}

/// The error of a mnemonic by a method, as a fraction; `None` if the reference has none.
pub(super) fn error_of(amounts: &Amounts, method: Method) -> Option<f64> {
    let deviation = (amounts.by(method) - amounts.reference).abs();
    (0.0 < amounts.reference).then(|| deviation / amounts.reference)
}

fn error(error: Option<f64>) -> String {
    error.map_or_else(|| NONE.to_owned(), percent)
}

/// The names of a row that is about all rows.
fn labelled(label: &str, columns: usize) -> Vec<String> {
    let mut names = vec![String::new(); columns];
    if let Some(first) = names.first_mut() {
        label.clone_into(first);
    }
    names
}

/// A table of the instructions of the reference, and a figure of each method.
fn table(names: &[&str], columns: &[Column], lines: impl Iterator<Item = Line>) -> Table {
    let methods = columns.iter().map(|(title, _)| *title);
    Table {
        names: names.iter().map(|title| (*title).to_owned()).collect(),
        numbers: std::iter::once("instructions")
            .chain(methods)
            .map(str::to_owned)
            .collect(),
        lines: lines.collect(),
    }
}
