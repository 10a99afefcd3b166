//! Aligned text: names on the left, numbers on the right, and no line longer than the terminal is wide.
//!
//! Names are shortened first, the widest, until the line fits: paths lose folders, other names their middle.
//! Numbers are never shortened; a caller with too many columns of numbers asks [`Table::fits`] and drops some.

use super::number::{columns, shortened};
use hbbp_model::names::fitted;

/// Blanks between two columns.
const GAP: usize = 2;

/// A table fits if names keep this width: below it, functions of one library look alike.
const NARROWEST_NAME: usize = 24;

/// A table of texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Titles of the columns of names.
    pub(super) names: Vec<String>,
    /// Titles of the columns of numbers.
    pub(super) numbers: Vec<String>,
    /// The lines.
    pub(super) lines: Vec<Line>,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// One text for each column of names and of numbers.
    Row(Vec<String>, Vec<String>),
    /// A line across all columns.
    Rule,
}

impl Table {
    /// Without the columns of names that say nothing in any row.
    pub(super) fn drop_empty_names(&mut self) {
        let says = |nth: usize, rows: &Self| {
            let mut names = rows.rows().map(|(names, _)| names.get(nth));
            names.any(|name| name.is_some_and(|name| !name.is_empty()))
        };
        let kept: Vec<usize> = (0..self.names.len()).filter(|nth| says(*nth, self)).collect();
        let keep = |names: &[String]| kept.iter().filter_map(|nth| names.get(*nth).cloned()).collect();
        self.names = keep(&self.names);
        for line in &mut self.lines {
            if let Line::Row(names, _) = line {
                *names = keep(names);
            }
        }
    }

    /// Without the columns of numbers that are `nothing` in every row.
    pub(super) fn drop_numbers(&mut self, nothing: &str) {
        let says = |nth: usize, rows: &Self| {
            let mut numbers = rows.rows().map(|(_, numbers)| numbers.get(nth));
            numbers.any(|number| number.is_some_and(|number| number != nothing))
        };
        let kept: Vec<usize> = (0..self.numbers.len()).filter(|nth| says(*nth, self)).collect();
        let keep = |numbers: &[String]| kept.iter().filter_map(|nth| numbers.get(*nth).cloned()).collect();
        self.numbers = keep(&self.numbers);
        for line in &mut self.lines {
            if let Line::Row(_, numbers) = line {
                *numbers = keep(numbers);
            }
        }
    }

    /// Whether all numbers fit into `width` columns next to names of the narrowest useful width.
    pub(super) fn fits(&self, width: usize) -> bool {
        let names: usize = self
            .name_widths()
            .iter()
            .map(|natural| natural.min(&NARROWEST_NAME) + GAP)
            .sum();
        let numbers: usize = self.number_widths().iter().map(|width| width + GAP).sum();
        (names + numbers).saturating_sub(GAP) <= width
    }

    /// The lines of the table, the titles first; none is longer than `width` columns.
    pub(super) fn render(&self, width: usize) -> Vec<String> {
        let number_widths = self.number_widths();
        let numbers: usize = number_widths.iter().map(|width| width + GAP).sum();
        let gaps = GAP * self.names.len().saturating_sub(1);
        let for_names = width.saturating_sub(numbers + gaps);
        let name_widths = shrink(self.name_widths(), for_names);
        let full = name_widths.iter().sum::<usize>() + gaps + numbers;
        let line = |names: &[String], numbers: &[String]| {
            let names = names.iter().zip(&name_widths).map(|(text, width)| {
                let text = shortened(text, *width);
                let blanks = " ".repeat(width.saturating_sub(columns(&text)));
                text + &blanks
            });
            let numbers = numbers
                .iter()
                .zip(&number_widths)
                .map(|(text, width)| " ".repeat(width.saturating_sub(columns(text))) + text);
            let cells: Vec<String> = names.chain(numbers).collect();
            shortened(cells.join(&" ".repeat(GAP)).trim_end(), width)
        };
        let titles = line(&self.names, &self.numbers);
        let mut names = self.fitted_names(&name_widths).into_iter();
        let lines = self.lines.iter().map(|l| match l {
            Line::Row(_, numbers) => line(&names.next().unwrap_or_default(), numbers),
            Line::Rule => "-".repeat(full.min(width)),
        });
        std::iter::once(titles).chain(lines).collect()
    }

    /// The names of each row, where paths have lost folders until they fit into their columns.
    fn fitted_names(&self, widths: &[usize]) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = self.rows().map(|(names, _)| names.to_vec()).collect();
        for (nth, width) in widths.iter().enumerate() {
            let column = self
                .rows()
                .map(|(names, _)| names.get(nth).map_or("", String::as_str));
            let shown = fitted(&column.collect::<Vec<_>>(), *width);
            for (name, shown) in rows.iter_mut().filter_map(|row| row.get_mut(nth)).zip(shown) {
                *name = shown;
            }
        }
        rows
    }

    /// Width of the widest text of each column of names.
    fn name_widths(&self) -> Vec<usize> {
        widths(&self.names, self.rows().map(|(names, _)| names))
    }

    /// Width of the widest text of each column of numbers.
    fn number_widths(&self) -> Vec<usize> {
        widths(&self.numbers, self.rows().map(|(_, numbers)| numbers))
    }

    fn rows(&self) -> impl Iterator<Item = (&[String], &[String])> {
        self.lines.iter().filter_map(|line| match line {
            Line::Row(names, numbers) => Some((names.as_slice(), numbers.as_slice())),
            Line::Rule => None,
        })
    }
}

/// Width of the widest text of each column.
fn widths<'a>(titles: &[String], rows: impl Iterator<Item = &'a [String]>) -> Vec<usize> {
    let mut widths: Vec<usize> = titles.iter().map(|title| columns(title)).collect();
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(text));
        }
    }
    widths
}

/// Narrows the widest columns until the sum is at most `limit`.
fn shrink(mut widths: Vec<usize>, limit: usize) -> Vec<usize> {
    while limit < widths.iter().sum() {
        let Some(widest) = widths.iter_mut().max() else {
            break;
        };
        *widest -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str, &str)]) -> Table {
        let row = |(a, b, n): &(&str, &str, &str)| {
            Line::Row(vec![(*a).to_owned(), (*b).to_owned()], vec![(*n).to_owned()])
        };
        Table {
            names: vec!["module".to_owned(), "function".to_owned()],
            numbers: vec!["n".to_owned()],
            lines: rows.iter().map(row).chain([Line::Rule]).collect(),
        }
    }

    #[test]
    fn table_aligns_names_left_and_numbers_right() {
        let lines = table(&[("a", "main", "1"), ("libc.so", "read", "1,234")]).render(80);
        let expected = [
            "module   function      n",
            "a        main          1",
            "libc.so  read      1,234",
            "------------------------",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn table_fits_any_width() {
        let long = "a_very_long_name_that_nobody_would_want_to_read_in_full";
        let table = table(&[(long, "short", "1,234,567"), ("x", long, "2")]);
        assert!(table.fits(61) && !table.fits(60));
        for width in 0..200 {
            for line in table.render(width) {
                assert!(columns(&line) <= width, "{width}: {line}");
            }
        }
        assert!(table.render(60)[1].starts_with("a_very_long_"));
        assert!(table.render(60)[1].ends_with("1,234,567"));
    }
}
