//! The rows of a table of the screen, and their names.
//!
//! An interval may have thousands of functions, of which some dozens are on the screen: only these are named, unless a
//! filter or the order asks for the names of all.

use super::super::named::shown_names;
use super::row::Row;
use super::screen::{Order, Screen};
use hbbp_analysis::mix::Dimension;
use hbbp_model::names::Demangle;

/// The rows of a table, largest share first.
#[derive(Clone, Debug)]
pub struct Table {
    /// The dimensions of its keys.
    pub by: &'static [Dimension],
    /// How functions are shown.
    pub demangle: Demangle,
    /// All rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// The rows that pass the filter of a screen, in its order.
    pub fn arranged(&self, screen: &Screen) -> Vec<&Row> {
        let all: Vec<&Row> = self.rows.iter().collect();
        let is_named = !screen.filter.is_empty() || screen.order == Order::Name;
        let mut rows = if is_named {
            self.filtered(&all, screen)
        } else {
            all
        };
        match screen.order {
            Order::Share => rows.sort_by(|a, b| b.share.total_cmp(&a.share)),
            Order::Kernel => rows.sort_by(|a, b| b.kernel.total_cmp(&a.kernel)),
            // They come by name.
            Order::Name => {}
        }
        rows
    }

    /// The rows with a name that contains the searched text, sorted by name.
    fn filtered<'a>(&self, rows: &[&'a Row], screen: &Screen) -> Vec<&'a Row> {
        let wanted = screen.filter.to_lowercase();
        let passes = |names: &[String]| names.iter().any(|name| name.to_lowercase().contains(&wanted));
        let named = rows.iter().zip(self.names(rows));
        let mut named: Vec<(&Row, Vec<String>)> = named
            .filter(|(_, names)| passes(names))
            .map(|(row, names)| (*row, names))
            .collect();
        named.sort_by(|(_, a), (_, b)| a.cmp(b));
        named.into_iter().map(|(row, _)| row).collect()
    }

    /// The names of some rows: safe to print, functions demangled, different ones shown differently.
    pub(super) fn names(&self, rows: &[&Row]) -> Vec<Vec<String>> {
        let by: Vec<&str> = self.by.iter().map(|dimension| dimension.name()).collect();
        let keys: Vec<&[String]> = rows.iter().map(|row| row.key.as_slice()).collect();
        shown_names(&by, &keys, self.demangle)
    }
}
