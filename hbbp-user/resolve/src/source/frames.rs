//! Inlined functions, lines and discriminators of the instructions of one module, from DWARF.
//!
//! addr2line gives lines, but neither discriminators nor the lines that functions are declared at, which profiles for
//! compilers are made of. Only the units that hold an address that is requested are read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{
    DW_AT_GNU_discriminator, DW_AT_call_line, DW_TAG_inlined_subroutine, DW_TAG_subprogram, DwAt, Unit,
};

use super::debug_file::DebugFile;
use super::declaration::{Entry, declaration};
use super::dwarf::Bytes;
use super::section::Budget;
use super::split::SplitUnits;
use hbbp_model::snapshot::{Frame, Frames, Linked, NameIdx, SourceFrames, StackIdx};

/// A function, or an inlined copy of one.
struct Scope {
    function: NameIdx,
    /// Line of the declaration.
    declared: i64,
    /// Line and discriminator of the call, of an inlined copy.
    call: (i64, u64),
    ranges: Vec<Range<u64>>,
    /// Where it is entered, if the debug information says so.
    entry: Option<u64>,
    /// The ranges of inlined copies, sorted, each with the index of its scope: those of one scope do not overlap.
    children: Vec<(Range<u64>, usize)>,
}

/// A row of the line table.
#[derive(Clone, Copy)]
struct Row {
    addr: u64,
    /// 0 at the end of a sequence, after which nothing is known, sorts first.
    is_row: bool,
    line: i64,
    discriminator: u64,
}

/// Reads the frames at locations in the file of a module.
pub(super) fn read_frames(
    mut file: DebugFile,
    locations: impl Iterator<Item = Linked>,
    budget: &mut Budget,
) -> SourceFrames {
    let found = SourceFrames {
        sections: file.sections,
        ..SourceFrames::default()
    };
    let mut wanted: Vec<u64> = locations.filter_map(|linked| found.addr(&linked)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut reader = Reader {
        wanted,
        names: HashMap::new(),
        found,
        stacks: HashMap::new(),
    };
    let mut headers = file.dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        // A damaged unit has no frames.
        let Ok(unit) = file.dwarf.unit(header) else {
            continue;
        };
        if !reader.is_wanted(&file.dwarf, &unit) {
            continue;
        }
        let _ = match unit.dwo_id {
            None => reader.read_unit(&file.dwarf, &unit, &unit),
            // Without its functions there is nothing to say.
            Some(id) => split_unit(&file.dwarf, &unit, id, &mut file.split, budget)
                .map_or(Ok(()), |(dwarf, split)| reader.read_unit(&dwarf, &split, &unit)),
        };
    }
    reader.finish()
}

/// The functions of a unit whose skeleton this is, and what they are read with.
fn split_unit(
    parent: &Arc<gimli::Dwarf<Bytes>>,
    skeleton: &Unit<Bytes>,
    dwo_id: gimli::DwoId,
    split: &mut SplitUnits,
    budget: &mut Budget,
) -> Option<(Arc<gimli::Dwarf<Bytes>>, Unit<Bytes>)> {
    let path = skeleton.dwo_name().ok()??;
    let wanted = SplitDwarfLoad {
        dwo_id,
        comp_dir: skeleton.comp_dir.clone(),
        path: parent.attr_string(skeleton, path).ok(),
        parent: Arc::clone(parent),
    };
    let dwarf = split.load(&wanted, budget)?;
    let header = dwarf.units().next().ok()??;
    let mut unit = dwarf.unit(header).ok()?;
    unit.copy_relocated_attributes(skeleton);
    Some((dwarf, unit))
}

struct Reader {
    /// Sorted.
    wanted: Vec<u64>,
    names: HashMap<String, NameIdx>,
    found: SourceFrames,
    /// Those that were found, by their index in the list that they become.
    stacks: HashMap<Frames, StackIdx>,
}

impl Reader {
    fn wanted_in(&self, range: &Range<u64>) -> Range<usize> {
        let bound = |addr: u64| self.wanted.partition_point(|at| *at < addr);
        bound(range.start)..bound(range.end.max(range.start))
    }

    fn is_wanted(&self, dwarf: &gimli::Dwarf<Bytes>, unit: &Unit<Bytes>) -> bool {
        let Ok(mut ranges) = dwarf.unit_ranges(unit) else {
            return true;
        };
        while let Ok(Some(range)) = ranges.next() {
            if !self.wanted_in(&(range.begin..range.end)).is_empty() {
                return true;
            }
        }
        false
    }

    /// Reads the functions of `unit`, and the lines of the same one or of its skeleton.
    fn read_unit(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes>,
        unit: &Unit<Bytes>,
        of_lines: &Unit<Bytes>,
    ) -> gimli::Result<()> {
        let rows = rows(of_lines)?;
        let (scopes, functions) = self.scopes(dwarf, unit)?;
        for function in functions {
            let Some(scope) = scopes.get(function) else {
                continue;
            };
            let wanted: Vec<u64> = scope
                .ranges
                .iter()
                .flat_map(|range| self.wanted.get(self.wanted_in(range)).unwrap_or(&[]))
                .copied()
                .collect();
            if wanted.is_empty() {
                continue;
            }
            for addr in wanted {
                if scope.entry == Some(addr) {
                    self.found.entries.insert(addr, scope.function);
                }
                if let Some(frames) = frames(&scopes, function, &rows, addr) {
                    let stack = self.intern_stack(frames);
                    self.found.at.insert(addr, stack);
                }
            }
            for range in &scope.ranges {
                let first = rows.partition_point(|row| row.addr < range.start);
                let inside = rows.get(first..).unwrap_or(&[]).iter();
                let inside = inside
                    .take_while(|row| row.addr < range.end)
                    .filter(|row| row.is_row);
                for frames in inside.filter_map(|row| frames(&scopes, function, &rows, row.addr)) {
                    self.intern_stack(frames);
                }
            }
        }
        Ok(())
    }

    /// All functions and inlined copies of a unit, and which of them are functions.
    fn scopes(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes>,
        unit: &Unit<Bytes>,
    ) -> gimli::Result<(Vec<Scope>, Vec<usize>)> {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut functions = Vec::new();
        // The scopes that the current entry is in, each with its depth.
        let mut open: Vec<(isize, usize)> = Vec::new();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            while open.last().is_some_and(|(depth, _)| entry.depth() <= *depth) {
                open.pop();
            }
            let is_inlined = entry.tag() == DW_TAG_inlined_subroutine;
            if !is_inlined && entry.tag() != DW_TAG_subprogram {
                continue;
            }
            let scope = self.scope(dwarf, unit, entry)?;
            if scope.ranges.is_empty() {
                continue;
            }
            let idx = scopes.len();
            match open.last().and_then(|(_, parent)| scopes.get_mut(*parent)) {
                Some(parent) if is_inlined => {
                    let ranges = scope.ranges.iter().cloned();
                    parent.children.extend(ranges.map(|range| (range, idx)));
                }
                _ => functions.push(idx),
            }
            open.push((entry.depth(), idx));
            scopes.push(scope);
        }
        for scope in &mut scopes {
            scope.children.sort_by_key(|(range, _)| range.start);
        }
        Ok((scopes, functions))
    }

    fn scope(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes>,
        unit: &Unit<Bytes>,
        entry: &Entry,
    ) -> gimli::Result<Scope> {
        let mut ranges = Vec::new();
        let mut found = dwarf.die_ranges(unit, entry)?;
        while let Some(range) = found.next()? {
            if range.begin < range.end {
                ranges.push(range.begin..range.end);
            }
        }
        let number = |name: DwAt| entry.attr_value(name).and_then(|value| value.udata_value());
        let signed = |n: u64| i64::try_from(n).unwrap_or(0);
        // A function in several parts begins with the part that comes first in its list.
        let entry_addr = ranges.first().map(|range| range.start);
        if ranges.is_empty() {
            return Ok(Scope::without_code());
        }
        let (name, declared) = declaration(dwarf, unit, entry);
        Ok(Scope {
            function: self.intern(name),
            declared: signed(declared),
            call: (
                signed(number(DW_AT_call_line).unwrap_or(0)),
                number(DW_AT_GNU_discriminator).unwrap_or(0),
            ),
            ranges,
            entry: entry_addr,
            children: Vec::new(),
        })
    }

    fn intern_stack(&mut self, frames: Frames) -> StackIdx {
        let next = StackIdx(u32::try_from(self.stacks.len()).unwrap_or(u32::MAX));
        *self.stacks.entry(frames).or_insert(next)
    }

    /// What was found.
    fn finish(mut self) -> SourceFrames {
        let mut stacks: Vec<(Frames, StackIdx)> = self.stacks.into_iter().collect();
        stacks.sort_by_key(|(_, idx)| *idx);
        self.found.stacks = stacks.into_iter().map(|(frames, _)| frames).collect();
        self.found
    }

    fn intern(&mut self, name: String) -> NameIdx {
        let names = &mut self.found.names;
        *self.names.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            NameIdx(u32::try_from(names.len() - 1).unwrap_or(u32::MAX))
        })
    }
}

impl Scope {
    /// A declaration, or a function that was inlined everywhere.
    const fn without_code() -> Self {
        Self {
            function: NameIdx(0),
            declared: 0,
            call: (0, 0),
            ranges: Vec::new(),
            entry: None,
            children: Vec::new(),
        }
    }

    /// The inlined copy that holds an address.
    fn inlined_at(&self, addr: u64) -> Option<usize> {
        let after = self.children.partition_point(|(range, _)| range.start <= addr);
        let (range, child) = self.children.get(after.checked_sub(1)?)?;
        range.contains(&addr).then_some(*child)
    }
}

/// The line table of a unit, sorted by address.
fn rows(unit: &Unit<Bytes>) -> gimli::Result<Vec<Row>> {
    let mut found = Vec::new();
    let Some(program) = unit.line_program.clone() else {
        return Ok(found);
    };
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        found.push(Row {
            addr: row.address(),
            is_row: !row.end_sequence(),
            line: row
                .line()
                .map_or(0, |line| i64::try_from(line.get()).unwrap_or(0)),
            discriminator: row.discriminator(),
        });
    }
    // Stable: of several rows of one address, the last counts.
    found.sort_by_key(|row| (row.addr, row.is_row));
    Ok(found)
}

/// The frames at an address of a function.
fn frames(scopes: &[Scope], function: usize, rows: &[Row], addr: u64) -> Option<Frames> {
    let after = rows.partition_point(|row| row.addr <= addr);
    let row = rows.get(after.checked_sub(1)?).filter(|row| row.is_row)?;
    let mut frames = Vec::new();
    let mut scope = scopes.get(function)?;
    loop {
        let inlined = scope.inlined_at(addr).and_then(|child| scopes.get(child));
        let (line, discriminator) = inlined.map_or((row.line, row.discriminator), |inlined| inlined.call);
        frames.push(Frame {
            function: scope.function,
            line: offset(line, scope.declared),
            discriminator,
        });
        match inlined {
            Some(inlined) => scope = inlined,
            None => return Some(frames.into()),
        }
    }
}

/// A line from that of a declaration; the line 0 means none (DWARF 5, section 6.2.2).
fn offset(line: i64, declared: i64) -> Option<u16> {
    let offset = (line - declared).rem_euclid(1 << 16);
    u16::try_from(offset).ok().filter(|_| line != 0)
}
