//! The kernel's own symbol table, from the text of /proc/kallsyms or from what the kernel prints that text of
//! (`symbol_tables`, `module_list`).
//!
//! It names what runs in ring 0: the kernel image, its modules, BPF programs and trampolines.
//! It gives starts only, so a function ends where the next symbol starts; several symbols may share one address,
//! and one of them is chosen by a fixed rule, so that two runs on one kernel give the same names.
//! Both sources hand over symbols in the order of the text, so that names, lengths and choices among aliases are the same.
//! procfs does not read this file.
//! Where the kernel hides addresses (`kernel.kptr_restrict`) every line has the address 0, and the table is empty.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::io;
use std::ops::Range;

use hbbp_model::addr::Va;

use super::image_marks::ImageMarks;
use super::kallsyms_line::{Line, parse_line};
use super::kernel_file::KernelFile;

/// The note for the user when [`Kallsyms::hidden`].
pub const HIDDEN: &str = "kernel symbol addresses are hidden, so kernel functions have no names: run as \
                          root with `sysctl kernel.kptr_restrict=1` (or 0)";

/// A gap longer than this separates two regions: no function of the kernel is so long.
const MAX_FUNCTION: u64 = 1 << 20;
/// The last function before such a gap is taken to end with its page.
const PAGE: u64 = 4096;

/// The text symbols of a running kernel, sorted by address, one for each address.
#[derive(Clone, Debug, Default)]
pub struct Kallsyms {
    /// The names, one after the other.
    names: String,
    entries: Vec<Entry>,
    tags: Vec<String>,
    /// The ends of the kernel image, as far as they are named.
    pub image: ImageMarks,
    /// Whether the table had lines, but all of them with address 0.
    pub hidden: bool,
}

/// A function of the running kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelSymbol<'a> {
    /// First byte.
    pub start: Va,
    /// Length in bytes: up to the next symbol.
    pub len: u64,
    /// Name as the kernel gives it.
    pub name: &'a str,
    /// What follows in brackets: the module, `bpf`, `__builtin__ftrace`; `None` for the kernel image.
    pub tag: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// Length in bytes; 0 if it was not given and has not been guessed yet.
    len: u64,
    name_at: u32,
    name_len: u16,
    tag: u16,
    kind: u8,
}

/// Tag of the kernel image itself.
const NO_TAG: u16 = 0;

/// Reads /proc/kallsyms. The kernel decided when it was opened whether it shows addresses.
pub fn read_kallsyms() -> io::Result<Kallsyms> {
    Ok(parse_kallsyms(&KernelFile::Symbols.read()?))
}

/// Looks up symbols of the kernel image that are no functions, such as the bounds of tables (kernels with
/// `CONFIG_KALLSYMS_ALL` list them); in the order of `names`, `None` if one is missing or hidden.
pub(crate) fn parse_marks<const N: usize>(text: &[u8], names: [&str; N]) -> [Option<Va>; N] {
    let mut marks = [None; N];
    for line in lines(&decoded(text)).filter_map(parse_line) {
        let wanted = names.iter().position(|name| *name == line.name);
        if let Some(mark) = wanted.and_then(|idx| marks.get_mut(idx))
            && line.tag.is_none()
            && line.address != 0
        {
            *mark = Some(Va(line.address));
        }
    }
    marks
}

/// Interprets the text of /proc/kallsyms; lines that it cannot understand are skipped.
pub fn parse_kallsyms(text: &[u8]) -> Kallsyms {
    let mut table = KallsymsBuilder::default();
    for line in lines(&decoded(text)).filter_map(parse_line) {
        table.add(&line);
    }
    table.finish()
}

/// Makes a table of symbols, one by one in the order in which the kernel prints them.
#[derive(Debug, Default)]
pub(super) struct KallsymsBuilder {
    table: Kallsyms,
    n_symbols: u64,
}

impl KallsymsBuilder {
    /// Whether the name of a symbol that begins so makes a difference.
    pub(super) const fn takes_name(kind: u8, beginning: &[u8]) -> bool {
        is_text(kind) || ImageMarks::may_take(beginning)
    }

    /// Adds a symbol.
    pub(super) fn add(&mut self, symbol: &Line<'_>) {
        self.n_symbols += 1;
        if symbol.address == 0 {
            return;
        }
        if symbol.tag.is_none() {
            self.table.image.note(symbol.name, Va(symbol.address));
        }
        // Absolute symbols are numbers, not addresses.
        if !matches!(symbol.kind, b'a' | b'A') {
            self.table.push(symbol);
        }
    }

    /// The ends of the kernel image and of its tables, as far as they came.
    pub(super) fn image(&self) -> &ImageMarks {
        &self.table.image
    }

    /// The table: one symbol for each address, functions alone. There are 200,000 symbols, so they are sorted and
    /// thinned out in the same memory.
    pub(super) fn finish(self) -> Kallsyms {
        let Self { mut table, n_symbols } = self;
        let names = &table.names;
        table.hidden = 0 < n_symbols && table.entries.is_empty();
        // The kernel prints them nearly in order, which a stable sort makes use of.
        table.entries.sort_by_key(|e| e.start);
        table.entries.dedup_by(|next, best| {
            let alias = next.start == best.start;
            if alias {
                let len = next.len.max(best.len);
                if next.rank(names) < best.rank(names) {
                    std::mem::swap(next, best);
                }
                best.len = len;
            }
            alias
        });
        // Symbols of data are no functions, but a function ends where they start.
        for idx in 0..table.entries.len() {
            let next = table.entries.get(idx + 1).copied();
            if let Some(entry) = table.entries.get_mut(idx).filter(|e| e.len == 0) {
                entry.len = guessed_len(entry, next);
            }
        }
        table.entries.retain(Entry::is_text);
        table.entries.shrink_to_fit();
        table.names.shrink_to_fit();
        table
    }
}

/// The text as characters. It is ASCII as a rule, which is checked many bytes at a time; errors are replaced byte by byte.
fn decoded(text: &[u8]) -> Cow<'_, str> {
    str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed)
}

/// The lines of a text. The standard library looks at single bytes for the end of lines as short as these.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).chain([text.len()]);
    ends.filter_map(move |end| {
        let line = text.get(start..end);
        start = end + 1;
        line.filter(|line| !line.is_empty())
    })
}

/// Whether code has this type of symbol.
const fn is_text(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

impl Entry {
    fn is_text(&self) -> bool {
        is_text(self.kind)
    }

    fn name<'a>(&self, text: &'a str) -> &'a str {
        let start = self.name_at as usize;
        text.get(start..start + usize::from(self.name_len)).unwrap_or("")
    }

    /// Orders the symbols of one address, the best first: text before data, functions before marks of sections, global
    /// before local, few leading underscores, no suffix of the compiler, short, and then by the alphabet.
    fn rank<'a>(&self, text: &'a str) -> (bool, bool, bool, usize, bool, usize, Reverse<&'a str>) {
        let name = self.name(text);
        let plain = name.trim_start_matches('_');
        let mark = matches!(name, "_text" | "_stext" | "_etext" | "_end")
            || ["_text_start", "_text_end", "_begin"]
                .iter()
                .any(|s| name.ends_with(s));
        let local = !self.kind.is_ascii_uppercase();
        let underscores = name.len() - plain.len();
        (
            !self.is_text(),
            mark,
            local,
            underscores,
            name.contains('.'),
            name.len(),
            Reverse(name),
        )
    }
}

impl Kallsyms {
    /// Sets the lengths of functions that the kernel writes, by their starts. A guess ends at the next symbol, or with
    /// the page.
    pub(crate) fn tell_lengths(&mut self, told: &[(Va, u64)]) {
        for (start, len) in told {
            if let Ok(found) = self.entries.binary_search_by_key(&start.0, |e| e.start)
                && let Some(entry) = self.entries.get_mut(found).filter(|e| e.tag != NO_TAG)
            {
                entry.len = *len;
            }
        }
    }

    /// Adds a symbol. The names of data are left out: they rank after those of functions, and are not kept.
    fn push(&mut self, line: &Line<'_>) {
        let name = if is_text(line.kind) { line.name } else { "" };
        let (Ok(name_at), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return;
        };
        self.names.push_str(name);
        let tag = match line.tag {
            None => NO_TAG,
            // Symbols of one module are adjacent, so the last tag is nearly always the right one.
            Some(tag) => match self.tags.iter().skip(1).rposition(|t| t == tag) {
                Some(idx) => u16::try_from(idx + 1).unwrap_or(NO_TAG),
                None => {
                    if self.tags.is_empty() {
                        self.tags.push(String::new());
                    }
                    self.tags.push(tag.to_owned());
                    u16::try_from(self.tags.len() - 1).unwrap_or(NO_TAG)
                }
            },
        };
        self.entries.push(Entry {
            start: line.address,
            len: line.size.unwrap_or(0),
            name_at,
            name_len,
            tag,
            kind: line.kind,
        });
    }

    /// The function that contains `at`.
    pub fn at(&self, at: Va) -> Option<KernelSymbol<'_>> {
        let n_before = self.entries.partition_point(|e| e.start <= at.0);
        let entry = self.entries.get(n_before.checked_sub(1)?)?;
        (at.0 - entry.start < entry.len).then(|| self.symbol(entry))
    }

    /// The addresses around `at`, which is in no function, up to the nearest functions.
    pub(crate) fn gap_at(&self, at: Va) -> Range<Va> {
        let n_before = self.entries.partition_point(|e| e.start <= at.0);
        let before = n_before.checked_sub(1).and_then(|n| self.entries.get(n));
        let start = before.map_or(0, |e| e.start.saturating_add(e.len));
        let end = self.entries.get(n_before).map_or(u64::MAX, |e| e.start);
        Va(start)..Va(end)
    }

    /// Those of the functions that have a tag.
    pub(crate) fn tagged(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.entries
            .iter()
            .filter(|e| e.tag != NO_TAG)
            .map(|e| self.symbol(e))
    }

    /// All functions in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.entries.iter().map(|e| self.symbol(e))
    }

    /// The function `name` of the kernel image.
    pub fn named(&self, name: &str) -> Option<KernelSymbol<'_>> {
        self.iter().find(|s| s.tag.is_none() && s.name == name)
    }

    fn symbol(&self, entry: &Entry) -> KernelSymbol<'_> {
        let tag = self
            .tags
            .get(usize::from(entry.tag))
            .map(String::as_str)
            .filter(|t| !t.is_empty());
        KernelSymbol {
            start: Va(entry.start),
            len: entry.len,
            name: entry.name(&self.names),
            tag,
        }
    }
}

/// The length of a function up to the next symbol, or to the end of its page where nothing of its kind follows.
fn guessed_len(entry: &Entry, next: Option<Entry>) -> u64 {
    let to_page_end = PAGE - entry.start % PAGE;
    match next {
        Some(next) => {
            let gap = next.start - entry.start;
            let neighbours = next.tag == entry.tag && gap < MAX_FUNCTION;
            if neighbours { gap } else { gap.min(to_page_end) }
        }
        None => to_page_end,
    }
}

#[cfg(test)]
mod tests;
