//! What is handed over of a module's text at the end: the ranges that were hit, joined where code runs on.

use super::module_text::{ModuleText, TextRange, Why};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Symbol, Text};

impl ModuleText {
    /// Hands the text that was hit over to `text`, sorted by (start, since), and returns its symbols, sorted by start.
    /// Ranges that touch become one, where the same versions are known of both or code runs from one into the other.
    pub(crate) fn emit(self, module: ModuleIdx, text: &mut Vec<Text>) -> Vec<Symbol> {
        let mut joined: Vec<(u64, TextRange)> = Vec::new();
        let entered = &self.entered;
        for (start, range) in self.ranges.into_each().filter(|(_, r)| r.why == Why::Hit) {
            match joined.last_mut() {
                Some((first, last))
                    if *first + last.len == start && last.joins(&range, || entered.contains(&start)) =>
                {
                    last.len += range.len;
                    last.versions.append(&range.versions);
                }
                _ => joined.push((start, range)),
            }
        }
        let was_hit = |symbol: &Symbol| {
            let n_before = joined.partition_point(|(start, _)| *start <= symbol.start.0);
            let end = symbol.start.0.saturating_add(symbol.len.max(1));
            let holding = n_before.checked_sub(1).and_then(|n| joined.get(n));
            let after = joined.get(n_before).is_some_and(|(start, _)| *start < end);
            after || holding.is_some_and(|(start, r)| symbol.start.0 < start + r.len)
        };
        let symbols: Vec<Symbol> = self.symbols.into_values().filter(was_hit).collect();
        for (start, range) in joined {
            text.extend(range.versions.into_each().map(|(since, bytes)| Text {
                module,
                start: ImageAddr(start),
                bytes,
                since,
            }));
        }
        symbols
    }
}

impl TextRange {
    fn joins(&self, next: &Self, entered: impl FnOnce() -> bool) -> bool {
        let both = !self.versions.is_empty() && !next.versions.is_empty();
        self.versions.same_times(&next.versions) || both && entered()
    }
}
