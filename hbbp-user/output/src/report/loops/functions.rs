//! Functions with what they call and without, as text.

use std::io;

use super::run_loops::RunLoops;
use crate::report::named::shown_names;
use crate::report::number::several;
use crate::report::page::Page;
use crate::report::table::{Line, Table};
use hbbp_analysis::loops::Region;

/// Functions that text lists.
const MOST: usize = 12;

impl RunLoops<'_> {
    /// Writes the functions with the most time with what they call; nothing if no call chains were sampled.
    pub(super) fn functions(&self, page: &mut Page<'_>) -> io::Result<()> {
        let all = self.loops.functions.as_slice();
        if all.is_empty() {
            return Ok(());
        }
        let shown = all.get(..self.top.unwrap_or(MOST).min(MOST)).unwrap_or(all);
        let key = |it: &Region| [self.module(it).to_owned(), it.function.clone()];
        let keys: Vec<[String; 2]> = shown.iter().map(key).collect();
        let keys: Vec<&[String]> = keys.iter().map(<[String; 2]>::as_slice).collect();
        let names = shown_names(&["module", "function"], &keys, page.look.demangle);
        let columns = self.of_regions();
        let row = |(it, names): (&Region, Vec<String>)| {
            Line::Row(names, columns.iter().map(|(_, text)| text(self, it)).collect())
        };
        let left = all.len() - shown.len();
        let more = (0 < left).then(|| {
            let title = format!("({})", several(left as u64, "more function"));
            Line::Row(vec![title, String::new()], vec![String::new(); columns.len()])
        });
        let table = Table {
            names: ["module", "function"].map(str::to_owned).to_vec(),
            numbers: columns.iter().map(|(title, _)| (*title).to_owned()).collect(),
            lines: shown.iter().zip(names).map(row).chain(more).collect(),
        };
        page.line("")?;
        page.entry("", "Functions by the time with what they call, recursion once")?;
        page.table(&table, |_| None)
    }
}
