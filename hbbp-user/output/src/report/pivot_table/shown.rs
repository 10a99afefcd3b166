//! The part of a table that text shows: columns that fit, and no names or figures that say nothing.

use crate::report::body::{Body, BodyRow, Figure};

impl Body {
    /// The same table with only its first columns; the others are summed in one, or, if there are no first ones, in the
    /// total.
    pub(super) fn narrowed(&self, n_columns: usize) -> Self {
        let mut body = self.clone();
        let n_more = self.columns.len().saturating_sub(n_columns);
        if n_columns == 0 {
            body.keep_columns(0);
            return body;
        }
        if n_more < 2 {
            return body;
        }
        for figures in body.lines_mut() {
            let rest = figures.cells.split_off(n_columns);
            let rest = rest.into_iter().reduce(Figure::plus);
            figures.cells.extend(rest);
        }
        body.columns.truncate(n_columns);
        body.columns.push(vec![format!("({n_more} more)")]);
        body
    }

    /// The same table without columns that are empty in every row; where one is left, it is the total, under its name.
    pub(super) fn without_empty_columns(&self) -> Self {
        let is_empty = |nth: usize| {
            let cell = self.total.cells.get(nth);
            cell.is_some_and(|cell| cell.amount.value() == 0.0 && cell.exact_share == 0.0)
        };
        let kept: Vec<usize> = (0..self.columns.len()).filter(|nth| !is_empty(*nth)).collect();
        let mut body = self.clone();
        body.columns = kept
            .iter()
            .filter_map(|nth| self.columns.get(*nth).cloned())
            .collect();
        for figures in body.lines_mut() {
            figures.cells = kept
                .iter()
                .filter_map(|nth| figures.cells.get(*nth).copied())
                .collect();
        }
        if let [only] = body.columns.as_slice() {
            body.total_name = only.join(", ");
            body.keep_columns(0);
        }
        body
    }

    /// The same table with its rows in the order of the amounts that are shown, where they are in that of the estimates.
    pub(super) fn in_shown_order(mut self) -> Self {
        let estimates = self.rows.iter().map(|row| row.figures.total.exact_share);
        if estimates.is_sorted_by(|a, b| b <= a) {
            let shown = |row: &BodyRow| row.figures.total.amount.value();
            self.rows.sort_by(|a, b| shown(b).total_cmp(&shown(a)));
        }
        self
    }

    /// The same table without names that a filter says already; one column of names stays.
    pub(super) fn without_filtered_names(mut self) -> Self {
        for nth in (0..self.by.len()).rev() {
            if 1 < self.by.len() && self.is_filtered(nth) {
                self.by.remove(nth);
                for row in &mut self.rows {
                    row.key.remove(nth);
                }
            }
        }
        self
    }

    /// Whether a filter lets only one value of an axis of the rows pass.
    fn is_filtered(&self, nth: usize) -> bool {
        let values = self.rows.iter().map(|row| row.key.get(nth));
        let mut values = values.map(|value| value.map_or("", String::as_str));
        let (Some(axis), Some(first)) = (self.by.get(nth), values.next()) else {
            return false;
        };
        // `module=kernel` is `module=[kernel]`.
        let inside = first.trim_start_matches('[').trim_end_matches(']');
        let said = [first, inside].map(|value| format!("{axis}={value}"));
        values.all(|value| value == first) && self.filters.iter().any(|filter| said.contains(filter))
    }
}
