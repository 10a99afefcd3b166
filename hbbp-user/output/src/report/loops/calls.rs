//! Who called the hottest loops, and which calls the time went through, as text.

use std::io;

use super::run_loops::{RunLoops, place, share};
use crate::report::number::{percent, scaled, several};
use crate::report::page::Page;
use crate::report::table::{Line, Table};
use hbbp_analysis::loops::{CallSite, Calls};
use hbbp_model::names::{Demangle, file_name};
use hbbp_model::printable::harmless;

/// Loops whose callers text names, and calls that it lists.
const MOST_LOOPS: usize = 8;
const MOST_SITES: usize = 12;

impl RunLoops<'_> {
    /// Writes the callers of the hottest loops, and the calls with the most time; nothing if no call chains were sampled.
    pub(super) fn calls(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Some(calls) = &self.loops.calls else {
            return Ok(());
        };
        let called = self.shown().iter().filter(|it| !it.callers.is_empty());
        let called: Vec<_> = called.take(MOST_LOOPS).collect();
        if !called.is_empty() {
            page.line("")?;
            page.entry(
                "",
                "Callers of the hottest loops, % of the inclusive time of each",
            )?;
        }
        for it in called {
            let all = it.region.inclusive.map_or(0.0, |all| all.time.value);
            let named: Vec<String> = it
                .callers
                .iter()
                .map(|site| {
                    let part = percent(share(site.called.time.value, all));
                    format!("{part} {}", self.site(site, page.look.demangle))
                })
                .collect();
            let function = hbbp_model::names::function(&it.region.function, page.look.demangle);
            let label = format!("{} {}", harmless(&function), place(it).trim_start_matches('›'));
            page.entry("  ", &format!("{label} <- {}", named.join(", ")))?;
        }
        page.line("")?;
        let has_instructions = calls.sites.iter().any(|site| site.called.instructions.is_some());
        let instructions = if has_instructions {
            "; instr: of executed instructions"
        } else {
            ""
        };
        page.entry(
            "",
            &format!(
                "Calls by the time of what they called, recursion once; % of all time with a call chain{instructions}"
            ),
        )?;
        page.table(&self.sites(calls, page.look.demangle), |_| None)?;
        let notes = notes(calls);
        notes.iter().try_for_each(|note| page.entry("  - ", note))
    }

    fn sites(&self, calls: &Calls, demangle: Demangle) -> Table {
        let row = |site: &CallSite| {
            let within = site.within.and_then(|n| self.loops.loops.get(n));
            let names = vec![
                self.site(site, demangle),
                within.map_or_else(String::new, |it| place(it).trim_start_matches('›').to_owned()),
            ];
            let time = percent(share(site.called.time.value, calls.total));
            let instructions = site
                .called
                .instructions
                .map(|part| percent(share(part.value, self.loops.total)));
            Line::Row(names, std::iter::once(time).chain(instructions).collect())
        };
        let numbers = match calls.sites.iter().any(|site| site.called.instructions.is_some()) {
            true => vec!["%".to_owned(), "instr %".to_owned()],
            false => vec!["%".to_owned()],
        };
        let shown = self.top.unwrap_or(MOST_SITES).min(MOST_SITES);
        let lines: Vec<Line> = calls.sites.iter().take(shown).map(row).collect();
        let left = calls.n_sites.saturating_sub(lines.len());
        let more = (0 < left).then(|| {
            let title = format!("({})", several(left as u64, "more call"));
            Line::Row(vec![title, String::new()], vec![String::new(); numbers.len()])
        });
        Table {
            names: ["call", "in loop"].map(str::to_owned).to_vec(),
            lines: lines.into_iter().chain(more).collect(),
            numbers,
        }
    }

    /// Function and module of a call, with its line or address.
    fn site(&self, site: &CallSite, demangle: Demangle) -> String {
        let module = self.snapshot.modules.get(site.module.0 as usize);
        let module = module.map_or("", |module| &module.name);
        let function = hbbp_model::names::function(&site.function, demangle);
        let at = match &site.line {
            Some(line) => harmless(line),
            None => format!("{:x}", site.addr.0),
        };
        let module = file_name(module).trim_matches(['[', ']']);
        format!("{} [{}] {at}", harmless(&function), harmless(module))
    }
}

/// What call chains do not show.
fn notes(calls: &Calls) -> Vec<String> {
    let ends = calls.ends;
    let told = [
        (
            ends.without_caller,
            "in user code without a caller: the function keeps no frame pointer there; they are charged to no caller (compile with \
             -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer)",
        ),
        (
            ends.cut_short,
            "with callers up to a function of user code that keeps no frame pointer, such as the start of the program",
        ),
        (
            ends.interrupted,
            "in interrupts and exceptions, which are not charged to what they struck",
        ),
        (
            ends.no_call,
            "with callers up to an address that no call precedes",
        ),
        (ends.unresolved, "without an instruction, not charged"),
    ];
    let all = scaled(ends.samples as f64, 4);
    let known = told.iter().filter(|(n, _)| 0 < *n);
    known
        .map(|(n, what)| format!("{} of {all} samples {what}", scaled(*n as f64, 4)))
        .collect()
}
