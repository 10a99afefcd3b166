//! Finds the code that a user names: by function, by address or by source line.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use super::code::{Code, code_at};
use super::hottest::Heat;
use hbbp_code::locate::{TextIdx, sites};
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::names::{self, Demangle, file_name};
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{Module, ModuleIdx, ProcessIdx, Snapshot, SourceLocations, hex};

/// What a user asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Query {
    /// A function: its name as in the symbol table, or as it is shown.
    Function(String),
    /// An address: of the kernel, or of user code in a process or in its file.
    Address(u64),
    /// An address in a module (`gzip+0x4290`), named by its path, file name or the start of its build id.
    InModule(String, u64),
    /// A line of the source (`file.c:123`); the end of the path is enough.
    Line(String),
}

/// Code that was found, and its part of all executed instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The code.
    pub code: Code,
    /// Its share, 0 to 1.
    pub share: f64,
    /// What names it and nothing else.
    pub write: String,
}

/// Why no single function was found.
#[derive(Clone, Debug, PartialEq)]
pub enum NotFound {
    /// Nothing has that name or address.
    Unknown {
        /// What was asked for.
        query: Query,
        /// Functions with similar names.
        close: Vec<String>,
    },
    /// Several functions have it, hottest first.
    Ambiguous {
        /// What was asked for.
        query: Query,
        /// The functions.
        found: Vec<Found>,
    },
}

impl FromStr for Query {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        if let Some(address) = hex(text) {
            return Ok(Self::Address(address));
        }
        let in_module = text.rsplit_once('+');
        if let Some((module, address)) = in_module.and_then(|(module, at)| Some((module, hex(at)?))) {
            return Ok(Self::InModule(module.to_owned(), address));
        }
        let is_line = |number: &str| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        match text.rsplit_once(':') {
            Some((file, number)) if is_line(number) && !file.is_empty() => Ok(Self::Line(text.to_owned())),
            _ => Ok(Self::Function(text.to_owned())),
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) | Self::Line(name) => f.write_str(&harmless(name)),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::InModule(module, address) => write!(f, "{}+{address:#x}", harmless(module)),
        }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { query, close } => {
                let what = match query {
                    Query::Function(_) => "no function that ran is named",
                    Query::Address(_) | Query::InModule(..) => "no code that ran is at",
                    Query::Line(_) => "no code that ran has the source line",
                };
                write!(f, "{what} `{query}`")?;
                if !close.is_empty() {
                    write!(f, "; did you mean {}?", close.join(", "))?;
                }
                Ok(())
            }
            Self::Ambiguous { query, found } => {
                write!(
                    f,
                    "`{query}` is in {} functions; write one of these instead:",
                    found.len()
                )?;
                found.iter().try_for_each(|found| {
                    let name = names::function(&found.code.name, Demangle::On);
                    write!(
                        f,
                        "\n  {}  {name}, {:.2} % of all",
                        found.write,
                        100.0 * found.share
                    )
                })
            }
        }
    }
}

impl std::error::Error for NotFound {}

impl From<NotFound> for Advised {
    fn from(why: NotFound) -> Self {
        let is_line = matches!(
            &why,
            NotFound::Unknown {
                query: Query::Line(_),
                ..
            }
        );
        Self::new(why.to_string(), is_line.then_some(Advice::NameDebugFileForLines))
    }
}

/// Finds the one function that is requested among the executed code; `locations` are needed for lines of the source.
pub fn find(
    snapshot: &Snapshot,
    heat: &[Heat],
    query: &Query,
    locations: &SourceLocations,
) -> Result<Found, NotFound> {
    let codes: Vec<Code> = match query {
        Query::Function(name) => named(heat, name),
        Query::Address(address) => at_address(snapshot, *address),
        Query::InModule(module, address) => in_module(snapshot, module, ImageAddr(*address)),
        Query::Line(line) => on_line(heat, line, locations),
    };
    let total: f64 = heat.iter().map(|heat| heat.amount).sum();
    let share = |code: &Code| {
        let amount = heat
            .iter()
            .find(|heat| heat.code == *code)
            .map_or(0.0, |heat| heat.amount);
        if 0.0 < total { amount / total } else { 0.0 }
    };
    let found = codes.into_iter().map(|code| Found {
        share: share(&code),
        write: unique(snapshot, &code),
        code,
    });
    let mut found: Vec<Found> = found.collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.code.cmp(&b.code)));
    if let [only] = found.as_mut_slice() {
        return Ok(only.clone());
    }
    let query = query.clone();
    Err(if found.is_empty() {
        let close = match &query {
            Query::Function(name) => close(heat, name),
            Query::Address(_) | Query::InModule(..) | Query::Line(_) => Vec::new(),
        };
        NotFound::Unknown { query, close }
    } else {
        NotFound::Ambiguous { query, found }
    })
}

fn named(heat: &[Heat], name: &str) -> Vec<Code> {
    let codes = || heat.iter().map(|heat| &heat.code);
    let as_found: Vec<Code> = codes().filter(|code| code.name == name).cloned().collect();
    if !as_found.is_empty() {
        return as_found;
    }
    let is_shown = |code: &&Code| names::function(&code.name, Demangle::On) == name;
    codes().filter(is_shown).cloned().collect()
}

/// Code at an address of the kernel, at one of user code in any process, or at one in the file of any module.
fn at_address(snapshot: &Snapshot, address: u64) -> Vec<Code> {
    let va = Va(address);
    let mut places: BTreeSet<(ModuleIdx, ImageAddr)> = BTreeSet::new();
    let processes = (0..snapshot.processes.len()).filter_map(|n| u32::try_from(n).ok());
    for process in processes.map(ProcessIdx) {
        let site = sites(snapshot, process, &[va]).into_iter().flatten();
        places.extend(site.map(|site| (site.module, site.addr)));
        // The kernel is the same in every process.
        if va.ring() == Ring::Kernel {
            break;
        }
    }
    if va.ring() == Ring::User {
        let modules = snapshot.modules.iter().zip((0..).map(ModuleIdx));
        let user = modules.filter(|(module, _)| !module.kind.is_kernel());
        places.extend(user.map(|(_, idx)| (idx, ImageAddr(address))));
    }
    let codes: BTreeSet<Code> = places
        .iter()
        .filter_map(|(module, at)| known(snapshot, *module, *at))
        .collect();
    codes.into_iter().collect()
}

fn in_module(snapshot: &Snapshot, name: &str, at: ImageAddr) -> Vec<Code> {
    let modules = snapshot.modules.iter().zip((0..).map(ModuleIdx));
    let fitting = modules.filter(|(module, _)| is_named(module, name));
    fitting.filter_map(|(_, idx)| known(snapshot, idx, at)).collect()
}

/// Whether a user means this module: by its path, its file name, or the first digits of its build id.
fn is_named(module: &Module, name: &str) -> bool {
    /// Fewer digits fit too many build ids.
    const DIGITS: usize = 8;

    let build_id = hex(&module.build_id);
    module.name == name
        || file_name(&module.name) == name
        || DIGITS <= name.len() && build_id.starts_with(name)
}

/// The code at an address whose text is in the profile.
fn known(snapshot: &Snapshot, module: ModuleIdx, at: ImageAddr) -> Option<Code> {
    let n_before = snapshot
        .text
        .partition_point(|text| (text.module, text.start) <= (module, at));
    let number = n_before.checked_sub(1)?;
    let text = snapshot.text.get(number)?;
    let offset = at
        .since(text.start)
        .and_then(|offset| usize::try_from(offset).ok())?;
    let inside = text.module == module && offset < text.bytes.len();
    let number = TextIdx(u32::try_from(number).ok().filter(|_| inside)?);
    code_at(snapshot, module, number, at)
}

fn on_line(heat: &[Heat], line: &str, locations: &SourceLocations) -> Vec<Code> {
    let is_line = |known: &str| {
        let before = known.strip_suffix(line);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    let at = locations
        .iter()
        .filter(|(_, at)| at.line.as_deref().is_some_and(is_line));
    let at: BTreeSet<(ModuleIdx, ImageAddr)> = at.map(|(at, _)| *at).collect();
    let holds = |code: &Code| {
        let range = (code.module, code.start)..(code.module, code.end);
        at.range(range).next().is_some()
    };
    heat.iter()
        .filter(|heat| holds(&heat.code))
        .map(|heat| heat.code.clone())
        .collect()
}

/// What names a function and no other: its module and address.
fn unique(snapshot: &Snapshot, code: &Code) -> String {
    let Some(module) = snapshot.modules.get(code.module.0 as usize) else {
        return code.start.to_string();
    };
    if module.kind.is_kernel() {
        return code.start.to_string();
    }
    let same = |name: &str| {
        snapshot
            .modules
            .iter()
            .filter(|other| is_named(other, name))
            .count()
    };
    let build_id = hex(&module.build_id);
    let name = match file_name(&module.name) {
        file if same(file) == 1 => file,
        _ if same(&module.name) == 1 || build_id.is_empty() => &module.name,
        _ => &build_id,
    };
    format!("{}+{}", harmless(name), code.start)
}

/// Names like the one that was not found, best first.
fn close(heat: &[Heat], name: &str) -> Vec<String> {
    /// Names to show.
    const MOST: usize = 5;
    /// Functions that are looked at, hottest first.
    const AMONG: usize = 20_000;

    let allowed = 1 + name.len() / 4;
    let mut near: Vec<(usize, String)> = Vec::new();
    for heat in heat.iter().take(AMONG) {
        let shown = names::function(&heat.code.name, Demangle::On);
        let contains = 3 <= name.len() && shown.contains(name);
        let distance = if contains {
            Some(0)
        } else {
            distance(name, &shown, allowed)
        };
        near.extend(distance.map(|distance| (distance, format!("`{shown}`"))));
    }
    // Among names at the same distance the hottest come first, as the sort is stable.
    near.sort_by_key(|(distance, _)| *distance);
    let mut seen = BTreeSet::new();
    let names = near
        .into_iter()
        .map(|(_, name)| name)
        .filter(|name| seen.insert(name.clone()));
    names.take(MOST).collect()
}

/// Levenshtein's distance of two names in characters; `None` if it is more than `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if most < a.len().abs_diff(b.len()) {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut least = left;
        for (slot, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *slot;
            let replaced = diagonal + usize::from(from != to);
            left = replaced.min(above + 1).min(left + 1);
            diagonal = above;
            *slot = left;
            least = least.min(left);
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        if most < least {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests;
