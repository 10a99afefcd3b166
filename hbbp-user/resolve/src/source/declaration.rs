//! What DWARF says of the declaration of a function: an inlined copy refers to an abstract one, and that to a specification.

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_decl_line, DW_AT_linkage_name, DW_AT_name,
    DW_AT_specification, DwAt, Unit, UnitOffset,
};

use super::dwarf::Bytes;

pub(super) type Entry = gimli::DebuggingInformationEntry<Bytes>;

/// Entries that are read for the declaration of one function, each of which may refer to two more; real ones have three.
const MOST_ENTRIES: usize = 16;

/// Linkage name (else the plain name) and line of declaration of a function, through the entries that it refers to.
pub(super) fn declaration(dwarf: &gimli::Dwarf<Bytes>, unit: &Unit<Bytes>, entry: &Entry) -> (String, u64) {
    let mut chain = Chain::default();
    chain.visit(dwarf, unit, entry);
    (
        chain.linkage_name.or(chain.name).unwrap_or_default(),
        chain.line.unwrap_or(0),
    )
}

/// What an entry and those that it refers to say of a function; the first that says something counts.
#[derive(Default)]
struct Chain {
    n_entries: usize,
    linkage_name: Option<String>,
    name: Option<String>,
    line: Option<u64>,
}

impl Chain {
    fn visit(&mut self, dwarf: &gimli::Dwarf<Bytes>, unit: &Unit<Bytes>, entry: &Entry) {
        let text = |name: DwAt| {
            let value = entry.attr_value(name)?;
            let text = dwarf.attr_string(unit, value).ok()?;
            Some(String::from_utf8_lossy(text.bytes()).into_owned())
        };
        self.linkage_name = self.linkage_name.take().or_else(|| text(DW_AT_linkage_name));
        self.name = self.name.take().or_else(|| text(DW_AT_name));
        let line = || entry.attr_value(DW_AT_decl_line)?.udata_value();
        self.line = self.line.or_else(line);
        self.n_entries += 1;
        for reference in [DW_AT_abstract_origin, DW_AT_specification] {
            match entry.attr_value(reference) {
                Some(AttributeValue::UnitRef(offset)) => self.follow(dwarf, unit, offset),
                Some(AttributeValue::DebugInfoRef(offset)) => {
                    // Link-time optimisation refers to other units.
                    let Some(other) = unit_of(dwarf, offset) else {
                        continue;
                    };
                    if let Some(offset) = offset.to_unit_offset(&other.header) {
                        self.follow(dwarf, &other, offset);
                    }
                }
                _ => {}
            }
        }
    }

    fn follow(&mut self, dwarf: &gimli::Dwarf<Bytes>, unit: &Unit<Bytes>, offset: UnitOffset<usize>) {
        if self.n_entries < MOST_ENTRIES
            && let Ok(entry) = unit.entry(offset)
        {
            self.visit(dwarf, unit, &entry);
        }
    }
}

/// The unit that holds an offset.
fn unit_of(dwarf: &gimli::Dwarf<Bytes>, offset: gimli::DebugInfoOffset<usize>) -> Option<Unit<Bytes>> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if offset.to_unit_offset(&header).is_some() {
            return dwarf.unit(header).ok();
        }
    }
    None
}
