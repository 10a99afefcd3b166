//! Views: named pivots, each with a sentence on how to read it.

use std::sync::Arc;

use super::axis::Axis;
use super::filter::{Filter, FilterError};
use super::query::{Query, Sort, Value};
use super::taxonomy::Taxonomy;

/// One or more tables that answer a common question.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// What it was asked for by.
    pub name: String,
    /// How to read it.
    pub sentence: String,
    /// Its own filters, which the sentence puts into words.
    pub said: Vec<String>,
    /// Its tables.
    pub tables: Vec<ViewTable>,
    /// Tables that text shows after them. The other formats are for scripts, which read the first ones.
    pub beside: Vec<ViewTable>,
}

/// A table of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewTable {
    /// What it shows.
    pub query: Query,
    /// Most rows; `None` for all.
    pub top: Option<usize>,
}

/// Why there is no such view.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ViewError {
    /// No view has this name.
    #[error("unknown view `{0}`; expected one of {known}, module:NAME", known = names().join(", "))]
    Unknown(String),
    /// The view of a module lacks the name of the module.
    #[error("`module:` needs the name of a kernel module or mapped file, e.g. module:nvme")]
    NoModule,
    /// The name of the module cannot be a pattern.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// A view as text; the lists are separated by commas.
struct Named {
    name: &'static str,
    sentence: &'static str,
    rows: &'static str,
    columns: &'static str,
    filters: &'static [&'static str],
    values: &'static [Value],
}

/// The view whose tables are followed by the loops ([`crate::loops`]).
const LOOPS: &str = "loops";

/// The view whose second table has the levels of each module.
const ISA: &str = "isa";

/// Figures of tables of time; time itself where it was sampled.
const TIMED: &[Value] = &[Value::Executions, Value::Share, Value::TimeShare, Value::Cpi];

/// Figures of most tables.
const USUAL: &[Value] = &[Value::Executions, Value::Share];

/// All views but the page of a module.
const VIEWS: [Named; 11] = [
    Named {
        name: ISA,
        sentence: "Instruction set extensions that ran. A level is the lowest x86-64 level of the psABI that has the \
                   instruction; a binary for v3 that shows only v1 does not use what it was built for.",
        rows: "level,extension",
        columns: "ring",
        filters: &[],
        values: USUAL,
    },
    Named {
        name: "vectorization",
        sentence: "How vector instructions work on their data: scalar ones do one element at a time, so a hot extension \
                   with many scalar instructions is code that the compiler did not vectorize.",
        rows: "extension",
        columns: "packing",
        filters: &[],
        values: USUAL,
    },
    Named {
        name: "long-latency",
        sentence: "Instructions that take ten cycles or more. A few percent of them can take most of the time: look for \
                   divisions by constants, locks that are not contended, and state saves.",
        rows: "long-latency,mnemonic",
        columns: "ring",
        filters: &["long-latency!=(none)"],
        values: USUAL,
    },
    Named {
        name: "synchronization",
        sentence: "Instructions that lock or order memory between processors. Waits in the kernel are spinning locks or \
                   idle loops; atomics in user code are reference counts and locks.",
        rows: "synchronization,mnemonic",
        columns: "ring",
        filters: &["synchronization!=(none)"],
        values: USUAL,
    },
    Named {
        name: "flops",
        sentence: "Floating-point arithmetic by element type and vector width in bits. A fused multiply-add counts as two \
                   operations; elements that AVX-512 masks out count as well.",
        rows: "element,width,packing",
        columns: "ring",
        filters: &["element=*float*", "category=arithmetic"],
        values: &[Value::Executions, Value::Share, Value::Flops],
    },
    Named {
        name: "memory",
        sentence: "Instructions by what they do with memory, the stack included, and the width in bits of their widest \
                   operand.",
        rows: "memory,width",
        columns: "ring",
        filters: &[],
        values: USUAL,
    },
    Named {
        name: "functions",
        sentence: "Functions with the time that passed in them and the cycles of each instruction (CPI), where cycles were \
                   sampled. A low CPI with much of the time is much work; a high one is work that waits.",
        rows: "module,function",
        columns: "none",
        filters: &[],
        values: TIMED,
    },
    Named {
        name: LOOPS,
        sentence: "Loops of the code that ran, found on its flow graph. Functions come first; a loop counts with the loops \
                   inside it and without what it calls.",
        rows: "module,function",
        columns: "none",
        filters: &[],
        values: TIMED,
    },
    Named {
        name: "branches",
        sentence: "Control transfers by kind. Conditional branches count whether they are taken or not.",
        rows: "flow",
        columns: "ring",
        filters: &["flow!=next"],
        values: USUAL,
    },
    Named {
        name: "mitigations",
        sentence: "What the kernel executes because of CPU vulnerabilities, from its live text: thunks and helpers by their \
                   symbols, inline instructions by their effect. Branches to a thunk replace others and do not count. A \
                   disabled retpoline leaves NOPs, which do.",
        rows: "mitigation,mnemonic",
        columns: "ring",
        filters: &["mitigation!=none"],
        values: &[Value::Executions, Value::Share, Value::Rate],
    },
    Named {
        name: "patched",
        sentence: "What the kernel executes at sites that it patches: NOPs where a tracepoint, another static branch or ftrace \
                   is off, jumps and calls where it is on. Other NOPs are left by alternatives and by the alignment of the \
                   compiler. Static branches are known where the table of the running kernel could be read, and those of \
                   kernel modules count as other NOPs.",
        rows: "patch,mnemonic",
        columns: "ring",
        filters: &["patch!=none"],
        values: &[Value::Executions, Value::Share, Value::Rate],
    },
];

fn names() -> Vec<&'static str> {
    VIEWS.iter().map(|view| view.name).collect()
}

/// Rows of a table of a view.
const TOP: usize = 40;
/// Rows of each table on the page of a module.
const TOP_OF_MODULE: usize = 12;

impl View {
    /// The view of this name; `module:NAME` is the page of a module.
    pub fn named(name: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, ViewError> {
        if let Some(module) = name.strip_prefix("module:") {
            return Self::of_module(module, taxonomies);
        }
        let view = VIEWS.iter().find(|view| view.name == name);
        let view = view.ok_or_else(|| ViewError::Unknown(name.to_owned()))?;
        let of_view = query(view.rows, view.columns, view.filters, view.values, taxonomies)?;
        let beside = if name == ISA {
            // Which programs and libraries use what they were built for.
            let query = query("module", "level", &[], &[Value::Share], taxonomies)?;
            let top = Some(TOP_OF_MODULE);
            vec![ViewTable { query, top }]
        } else {
            Vec::new()
        };
        Ok(Self {
            name: name.to_owned(),
            sentence: view.sentence.to_owned(),
            said: said(&of_view),
            tables: vec![ViewTable {
                query: of_view,
                top: Some(if name == LOOPS { TOP_OF_MODULE } else { TOP }),
            }],
            beside,
        })
    }

    /// Whether the loops follow its tables.
    pub fn shows_loops(&self) -> bool {
        self.name == LOOPS
    }

    /// A module on a page: its functions, blocks, instructions, and what it calls elsewhere.
    fn of_module(module: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, ViewError> {
        if module.is_empty() {
            return Err(ViewError::NoModule);
        }
        let filter = format!("module={module}");
        let table = |rows: &str, filters: &[&str], values: &[Value]| {
            let filters = [&[filter.as_str()], filters].concat();
            let query = query(rows, "ring", &filters, values, taxonomies)?;
            Ok::<_, ViewError>(ViewTable {
                query,
                top: Some(TOP_OF_MODULE),
            })
        };
        let footprint = &[Value::Executions, Value::Share, Value::Blocks, Value::Bytes];
        let tables = vec![
            table("module,function", &[], footprint)?,
            table("block,function", &[], USUAL)?,
            table("mnemonic", &[], USUAL)?,
            table("callee", &["callee=* \\[*\\]"], USUAL)?,
        ];
        Ok(Self {
            name: format!("module:{module}"),
            sentence: format!(
                "The module {module}: its functions, basic blocks and instructions, and the functions of other modules \
                 that it calls (executions are calls)."
            ),
            said: tables.iter().flat_map(|table| said(&table.query)).collect(),
            tables,
            beside: Vec::new(),
        })
    }

    /// Names and sentences of all views, for the help text.
    #[cfg(test)]
    fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        VIEWS.iter().map(|view| (view.name, view.sentence))
    }
}

/// The filters of a query as text.
fn said(query: &Query) -> Vec<String> {
    query.filters.iter().map(Filter::to_string).collect()
}

fn query(
    rows: &str,
    columns: &str,
    filters: &[&str],
    values: &[Value],
    taxonomies: &[Arc<Taxonomy>],
) -> Result<Query, ViewError> {
    let axes = |names: &str| -> Result<Vec<Axis>, ViewError> {
        let names = names.split(',').filter(|name| *name != "none");
        let axes = names.map(|name| Axis::named(name, taxonomies));
        let axes: Result<_, FilterError> = axes.map(|axis| Ok(axis?)).collect();
        Ok(axes?)
    };
    let filters = filters.iter().map(|filter| Filter::parse(filter, taxonomies));
    Ok(Query {
        rows: axes(rows)?,
        columns: axes(columns)?,
        filters: filters.collect::<Result<_, _>>()?,
        values: values.to_vec(),
        sort: Sort::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_name_what_exists() {
        let taxonomies = Taxonomy::built_in();
        for (name, sentence) in View::all() {
            let view = View::named(name, &taxonomies).unwrap();
            assert!(sentence.ends_with('.') && view.tables.len() == 1, "{name}");
        }
        let module = View::named("module:nvme*", &taxonomies).unwrap();
        assert_eq!(module.tables.len(), 4);
        assert_eq!(View::named("module:", &taxonomies), Err(ViewError::NoModule));
        assert_eq!(View::named("isa", &taxonomies).unwrap().beside.len(), 1);
        let unknown = View::named("colours", &taxonomies).unwrap_err().to_string();
        assert!(
            unknown.contains("isa, vectorization") && unknown.ends_with("module:NAME"),
            "{unknown}"
        );
    }
}
