//! Source lines and inlined functions of the addresses of a snapshot, from debug information on this machine.
//!
//! They are looked up when a report asks for them, since the files are large and a profile stays small without them; a
//! build id identifies the executed file on any machine. addr2line and gimli do it, because they take sections that we
//! read ourselves: files of strangers are opened by our own rules.

use std::collections::HashMap;
use std::path::PathBuf;

use addr2line::{Context, Location};

use super::debug_file::{DebugFile, find_debug_file};
use super::dwarf::Bytes;
use super::section::{Budget, TooLarge};
use super::split::SplitUnits;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, Snapshot, SourceLocation, SourceLocations, Symbol};

/// The debug information of the modules of a snapshot, opened on request.
pub struct SourceLines<'a> {
    snapshot: &'a Snapshot,
    /// Files that the user named.
    named: Vec<PathBuf>,
    /// What was found for each module that was requested.
    modules: HashMap<ModuleIdx, Found>,
    /// Memory that is left for debug information.
    budget: Budget,
}

/// The debug information of a module.
enum Found {
    Lines(Box<ModuleLines>),
    None,
    TooLarge,
}

struct ModuleLines {
    context: Context<Bytes>,
    split: SplitUnits,
    moved: Moved,
}

/// How far the addresses of a snapshot are from those of the debug file, modulo 2^64.
///
/// User code has the addresses of its file. Kernel text is known only where it was executed; its functions have names,
/// and one whose name represents a single address says how far its section was moved.
#[derive(Debug, Default)]
struct Moved {
    /// By start of the function; sorted.
    functions: Vec<(ImageAddr, u64)>,
    /// Of most functions.
    usual: u64,
}

impl<'a> SourceLines<'a> {
    /// Debug information is looked for among the `named` files first.
    pub fn new(snapshot: &'a Snapshot, named: Vec<PathBuf>) -> Self {
        Self {
            snapshot,
            named,
            modules: HashMap::new(),
            budget: Budget::default(),
        }
    }

    /// The locations of instructions, by module and address.
    pub fn read(&mut self, instructions: impl Iterator<Item = (ModuleIdx, ImageAddr)>) -> SourceLocations {
        let found = |(module, at)| Some(((module, at), self.find(module, at)?));
        instructions.filter_map(found).collect()
    }

    /// The lines of instructions alone, without functions: debug information of functions is not parsed for them.
    pub fn read_lines(
        &mut self,
        instructions: impl Iterator<Item = (ModuleIdx, ImageAddr)>,
    ) -> SourceLocations {
        let found = |(module, at)| Some(((module, at), self.find_line(module, at)?));
        instructions.filter_map(found).collect()
    }

    /// Where the instruction at `at` is; `None` if no debug information says it.
    pub fn find(&mut self, idx: ModuleIdx, at: ImageAddr) -> Option<SourceLocation> {
        let (lines, linked, budget) = self.open(idx, at)?;
        for (wanted, take) in lines.context.preload_units(linked) {
            // A damaged unit has no functions.
            let _ = take(lines.split.load(&wanted, budget));
        }
        let mut frames = lines.context.find_frames(linked).skip_all_loads().ok()?;
        let innermost = frames.next().ok()??;
        let name = innermost
            .function
            .and_then(|function| Some(function.raw_name().ok()?.into_owned()));
        Some(SourceLocation {
            line: innermost.location.and_then(|location| shown(&location)),
            function: name,
            innermost_loop: None,
        })
    }

    fn find_line(&mut self, idx: ModuleIdx, at: ImageAddr) -> Option<SourceLocation> {
        let (lines, linked, _) = self.open(idx, at)?;
        let location = lines.context.find_location(linked).ok()??;
        Some(SourceLocation {
            line: shown(&location),
            ..SourceLocation::default()
        })
    }

    /// The debug information of a module, the address in it of an instruction, and the memory that is left.
    fn open(&mut self, idx: ModuleIdx, at: ImageAddr) -> Option<(&mut ModuleLines, u64, &mut Budget)> {
        let Self {
            snapshot,
            named,
            modules,
            budget,
        } = self;
        let module = snapshot.modules.get(idx.0 as usize)?;
        let open = || match find_debug_file(snapshot, idx, named, budget) {
            Ok(Some(file)) => {
                open_lines(file, module).map_or(Found::None, |lines| Found::Lines(Box::new(lines)))
            }
            Ok(None) => Found::None,
            Err(TooLarge) => Found::TooLarge,
        };
        match modules.entry(idx).or_insert_with(open) {
            Found::Lines(lines) => {
                let linked = at.0.wrapping_sub(lines.moved.at(module, at));
                Some((lines, linked, budget))
            }
            Found::None | Found::TooLarge => None,
        }
    }

    /// The modules that were requested and do not have all of their debug information here, in the order of the snapshot.
    pub fn without(&self) -> Vec<&'a Module> {
        self.modules_with(|found| match found {
            Found::None => true,
            Found::Lines(lines) => lines.split.lacks_some,
            Found::TooLarge => false,
        })
    }

    /// The modules whose debug information takes more memory than is granted to it, in the order of the snapshot.
    pub fn too_large(&self) -> Vec<&'a Module> {
        self.modules_with(|found| match found {
            Found::TooLarge => true,
            Found::Lines(lines) => lines.split.is_too_large,
            Found::None => false,
        })
    }

    fn modules_with(&self, is_wanted: impl Fn(&Found) -> bool) -> Vec<&'a Module> {
        let wanted = self.modules.iter().filter(|(_, found)| is_wanted(found));
        let mut wanted: Vec<ModuleIdx> = wanted.map(|(idx, _)| *idx).collect();
        wanted.sort_unstable();
        let module = |idx: &ModuleIdx| self.snapshot.modules.get(idx.0 as usize);
        wanted.iter().filter_map(module).collect()
    }
}

/// `file:line`; the line 0 means none.
fn shown(location: &Location<'_>) -> Option<String> {
    let line = location.line.filter(|line| 0 < *line)?;
    Some(format!("{}:{line}", location.file?))
}

fn open_lines(file: DebugFile, module: &Module) -> Option<ModuleLines> {
    let moved = Moved::of(&module.symbols, &file.functions);
    let context = Context::from_arc_dwarf(file.dwarf).ok()?;
    Some(ModuleLines {
        context,
        split: file.split,
        moved,
    })
}

impl Moved {
    fn of(symbols: &[Symbol], functions: &HashMap<String, Vec<u64>>) -> Self {
        let mut found = Vec::new();
        let mut n_by_distance: HashMap<u64, u64> = HashMap::new();
        for symbol in symbols {
            if let Some([linked]) = functions.get(&symbol.name).map(Vec::as_slice) {
                let moved = symbol.start.0.wrapping_sub(*linked);
                *n_by_distance.entry(moved).or_default() += 1;
                found.push((symbol.start, moved));
            }
        }
        let usual = n_by_distance.into_iter().max_by_key(|(moved, n)| (*n, *moved));
        Self {
            functions: found,
            usual: usual.map_or(0, |(moved, _)| moved),
        }
    }

    fn at(&self, module: &Module, at: ImageAddr) -> u64 {
        let n_before = module.symbols.partition_point(|symbol| symbol.start <= at);
        let symbol = n_before.checked_sub(1).and_then(|last| module.symbols.get(last));
        let own = symbol.and_then(|symbol| {
            let idx = self
                .functions
                .binary_search_by_key(&symbol.start, |(start, _)| *start)
                .ok()?;
            self.functions.get(idx)
        });
        own.map_or(self.usual, |(_, moved)| *moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, name: &str) -> Symbol {
        Symbol {
            start: ImageAddr(start),
            len: 16,
            name: name.to_owned(),
        }
    }

    #[test]
    fn kernel_functions_give_the_offset_of_their_sections() {
        let symbols = vec![
            symbol(0x1100, "a"),
            symbol(0x1200, "same"),
            symbol(0x1300, "b"),
            symbol(0x9000, "init"),
        ];
        let module = Module {
            name: "m".to_owned(),
            kind: hbbp_model::snapshot::ModuleKind::KernelModule,
            build_id: vec![1],
            symbols,
        };
        let functions = [
            ("a", vec![0x100]),
            ("same", vec![0x200, 0x800]),
            ("b", vec![0x300]),
            ("init", vec![0x10]),
        ];
        let functions = functions
            .into_iter()
            .map(|(name, at)| (name.to_owned(), at))
            .collect();
        let moved = Moved::of(&module.symbols, &functions);
        let linked = |at| at - moved.at(&module, ImageAddr(at));
        assert_eq!(linked(0x1104), 0x104);
        assert_eq!(
            linked(0x1204),
            0x204,
            "its name has two addresses; the others decide"
        );
        assert_eq!(linked(0x9004), 0x14, "in another section");
        assert_eq!(
            Moved::of(&module.symbols, &HashMap::new()).at(&module, ImageAddr(0x1104)),
            0
        );
    }
}
