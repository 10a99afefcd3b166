//! The map of ring 0: the kernel image, its modules, BPF programs, trampolines, and what has no name.
//!
//! It is made from the kernel's symbols and its list of modules, and follows the records of text that comes and goes.
//! Kernel text is known only as it runs, so its addresses in the snapshot are those that were executed.
//! A region belongs to a module; each BPF program is a module of its own, because its memory is used again by others.

use std::collections::BTreeMap;
use std::ops::Range;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{ModuleKind, Symbol};

use super::kallsyms::Kallsyms;
use super::kcore::TEXT_AREA;
use super::modules::LoadedModule;
use super::names::{MODULE_AREA_END, area, named_by_symbol, tagged_runs, written};
pub(crate) use super::region::{KERNEL, KernelModule, KernelModuleIdx, Region, Regions};

const PAGE: u64 = 4096;
/// Regions that may overlap one address: parts of modules and freed programs.
const MAX_OVERLAP: usize = 64;

/// The map of ring 0.
#[derive(Debug, Default)]
pub struct KernelMap {
    symbols: Kallsyms,
    modules: Vec<KernelModule>,
    /// By (start, order of arrival).
    regions: BTreeMap<(Va, u64), Region>,
    n_regions: u64,
    /// Functions of modules that came during the run, sorted by start, by start and arrival of their region.
    functions: BTreeMap<(Va, u64), Vec<Symbol>>,
}

impl KernelMap {
    /// Sets symbols and modules as they are at `time` (0: since before the run); regions that are known stay.
    /// `image` is where the kernel image lies, for a kernel that hides its symbols.
    pub fn update(&mut self, symbols: Kallsyms, loaded: &[LoadedModule], image: Option<(Va, Va)>, time: u64) {
        if let Some((start, end)) = symbols.image.range().or(image) {
            self.add_named(KernelModule::image(), start..end, time);
        } else if self.regions.is_empty() {
            // Nothing is known but the area that the image must lie in.
            self.add_named(
                KernelModule::image(),
                Va(TEXT_AREA)..Va(TEXT_AREA + (1 << 30)),
                time,
            );
        }
        let runs = tagged_runs(&symbols);
        for module in loaded {
            let has_symbols = runs.iter().any(|(tag, _)| *tag == module.name);
            let end = module.start.and_then(|start| start.checked_add(module.len));
            if let (Some(start), Some(end), false) = (module.start, end, has_symbols) {
                self.add_named(KernelModule::of_parts(&module.name), start..end, time);
            }
        }
        for (tag, run) in &runs {
            self.add_named(KernelModule::of_parts(tag), run.clone(), time);
        }
        for symbol in symbols.tagged() {
            if let Some(module) = named_by_symbol(&symbol) {
                let end = Va(symbol.start.0.saturating_add(symbol.len));
                self.add_named(module, symbol.start..end, time);
            }
        }
        self.symbols = symbols;
    }

    /// Text came that the kernel wrote: a BPF program or a trampoline.
    pub fn came(&mut self, start: Va, len: u32, name: &str, time: u64) {
        let end = start.checked_add(u64::from(len)).filter(|end| start < *end);
        if let Some(end) = end {
            self.add_named(written(name), start..end, time);
        }
    }

    /// Text went.
    pub fn went(&mut self, start: Va, name: &str, time: u64) {
        let modules = &self.modules;
        let named = |module: KernelModuleIdx| modules.get(module).is_some_and(|m| m.name == name);
        let at_start = self
            .regions
            .range_mut((start, 0)..=(start, u64::MAX))
            .map(|(_, region)| region);
        for region in at_start.filter(|r| r.until == u64::MAX && named(r.module)) {
            region.until = time;
        }
    }

    /// Adds a part of a module, with its functions. Returns its region, unless it existed already.
    pub(crate) fn module_came(
        &mut self,
        name: &str,
        part: Range<Va>,
        functions: Vec<Symbol>,
        time: u64,
    ) -> Option<Region> {
        let start = part.start;
        self.add_named(KernelModule::of_parts(name), part, time);
        let added = self.regions.range((start, 0)..=(start, u64::MAX)).next_back();
        let region = added.map(|(_, region)| *region).filter(|r| r.from == time)?;
        self.functions.insert((start, time), functions);
        Some(region)
    }

    /// A module went, with all its parts.
    pub(crate) fn module_went(&mut self, name: &str, time: u64) {
        let modules = &self.modules;
        let named = |r: &Region| {
            modules
                .get(r.module)
                .is_some_and(|m| m.name == name && m.kind == ModuleKind::KernelModule)
        };
        let there = self
            .regions
            .values_mut()
            .filter(|r| r.until == u64::MAX && named(r));
        for region in there {
            region.until = time;
        }
    }

    /// The modules whose regions held `at` at `time`.
    pub(crate) fn modules_at(&self, at: Va, time: u64) -> Vec<KernelModuleIdx> {
        let before = self.regions.range(..=(at, u64::MAX)).rev().take(MAX_OVERLAP);
        let holding = before
            .map(|(_, region)| region)
            .filter(|r| at < r.end && r.from <= time && time < r.until);
        let mut modules: Vec<KernelModuleIdx> = holding.map(|r| r.module).collect();
        modules.sort_unstable();
        modules.dedup();
        modules
    }

    /// For each module by its index, whether something of it did not go yet.
    pub(crate) fn modules_there(&self) -> Vec<bool> {
        let mut there = vec![false; self.modules.len()];
        for region in self.regions.values().filter(|r| r.until == u64::MAX) {
            if let Some(there) = there.get_mut(region.module) {
                *there = true;
            }
        }
        there
    }

    /// How many regions were ever added.
    pub(crate) fn n_regions(&self) -> u64 {
        self.n_regions
    }

    /// Whether `region` is the answer of [`Self::region_at`] for all these addresses of it at all times.
    pub(crate) fn is_alone(&self, region: &Region, addresses: &Range<Va>) -> bool {
        let before = self.regions.range(..(addresses.end, 0)).rev().take(MAX_OVERLAP);
        let mut overlapping = before.filter(|(_, r)| addresses.start < r.end);
        let first = overlapping.next();
        first.is_some_and(|(_, r)| r == region) && overlapping.next().is_none()
    }

    /// The region that held `at` at `time`. Every kernel address has one: what is unknown is named by its area.
    pub fn region_at(&mut self, at: Va, time: u64) -> Region {
        let holding = || {
            let before = self.regions.range(..=(at, u64::MAX)).rev().take(MAX_OVERLAP);
            before.map(|(_, region)| *region).filter(|r| at < r.end)
        };
        let at_its_time = holding().find(|r| r.from <= time && time < r.until);
        if let Some(region) = at_its_time.or_else(|| holding().next()) {
            return region;
        }
        let name = area(at);
        let start = Va(at.0 / PAGE * PAGE);
        let end = Va(start.0.saturating_add(PAGE));
        let module = self.modules.iter().position(|m| m.name == name);
        let module = module.unwrap_or_else(|| {
            self.add_module(KernelModule {
                name: name.to_owned(),
                kind: ModuleKind::Trampoline,
                regions: Regions::Unnamed,
            })
        });
        self.add_region(Region {
            start,
            end,
            module,
            from: 0,
            until: u64::MAX,
        })
    }

    /// The function that contains `at`, inside its region.
    pub fn function_at(&self, at: Va, region: &Region) -> Option<Symbol> {
        let module = self.module(region.module)?;
        // Text that came during the run is known by its record alone, and is one function.
        let is_one = matches!(module.kind, ModuleKind::Bpf)
            || 0 < region.from && module.kind == ModuleKind::Trampoline;
        if is_one {
            let len = region.end.since(region.start)?;
            return Some(Symbol {
                start: ImageAddr(region.start.0),
                len,
                name: module.name.clone(),
            });
        }
        if let Some(functions) = self.functions.get(&(region.start, region.from)) {
            let before = functions.partition_point(|f| f.start.0 <= at.0);
            let function = before.checked_sub(1).and_then(|n| functions.get(n))?;
            return (at.0 - function.start.0 < function.len).then(|| function.clone());
        }
        let symbol = self.symbols.at(at)?;
        let start = symbol.start.max(region.start);
        let end = Va(symbol.start.0.saturating_add(symbol.len)).min(region.end);
        let len = end.since(start)?;
        Some(Symbol {
            start: ImageAddr(start.0),
            len,
            name: symbol.name.to_owned(),
        })
    }

    /// The part of a region around `at`, which is in no function, up to the nearest functions.
    pub(crate) fn gap_at(&self, at: Va, region: &Region) -> Range<Va> {
        let gap = match self.functions.get(&(region.start, region.from)) {
            Some(functions) => {
                let n_before = functions.partition_point(|f| f.start.0 <= at.0);
                let before = n_before.checked_sub(1).and_then(|n| functions.get(n));
                let start = before.map_or(0, |f| f.start.0.saturating_add(f.len));
                Va(start)..Va(functions.get(n_before).map_or(u64::MAX, |f| f.start.0))
            }
            None => self.symbols.gap_at(at),
        };
        gap.start.max(region.start)..gap.end.min(region.end)
    }

    /// Start and length of a function of the kernel image.
    pub(crate) fn named(&self, name: &str) -> Option<(u64, u64)> {
        let symbol = self.symbols.named(name)?;
        Some((symbol.start.0, symbol.len))
    }

    /// A module of this map.
    pub(crate) fn module(&self, idx: KernelModuleIdx) -> Option<&KernelModule> {
        self.modules.get(idx)
    }

    /// A region that holds `at` and has a name of its own.
    pub(crate) fn named_region(&self, at: Va) -> Option<&Region> {
        let before = self.regions.range(..=(at, u64::MAX)).rev().take(MAX_OVERLAP);
        let own_name = |r: &Region| {
            self.module(r.module)
                .is_some_and(|m| m.regions != Regions::Unnamed)
        };
        before
            .map(|(_, region)| region)
            .find(|r| at < r.end && own_name(r))
    }

    /// Whether some region belongs to a module.
    pub(crate) fn holds(&self, module: KernelModuleIdx) -> bool {
        self.regions.values().any(|r| r.module == module)
    }

    /// Whether `at` lies where modules and BPF programs are loaded.
    pub(crate) fn in_module_area(at: Va) -> bool {
        TEXT_AREA <= at.0 && at.0 < MODULE_AREA_END
    }

    /// Whether the kernel hides its symbols.
    pub(crate) fn is_hidden(&self) -> bool {
        self.symbols.hidden
    }

    /// Forgets the regions that went before `time`, except those in use.
    pub fn forget_before(&mut self, time: u64, in_use: impl Fn(KernelModuleIdx) -> bool) {
        self.regions.retain(|_, r| time <= r.until || in_use(r.module));
        let regions = &self.regions;
        self.functions.retain(|(start, from), _| {
            let mut at_start = regions.range((*start, 0)..=(*start, u64::MAX));
            at_start.any(|(_, region)| region.from == *from)
        });
    }

    /// Adds a region unless it exists already, or begins in one of the same module: symbols show its first function, records the
    /// start of its text.
    fn add_named(&mut self, module: KernelModule, range: Range<Va>, from: u64) {
        let (start, end) = (range.start, range.end);
        let at_start = || {
            self.regions
                .range((start, 0)..=(start, u64::MAX))
                .map(|(_, region)| region)
        };
        let same =
            |r: &Region| r.until == u64::MAX && self.module(r.module).is_some_and(|m| m.name == module.name);
        let mut before = self.regions.range(..=(start, u64::MAX)).rev().take(MAX_OVERLAP);
        let inside = module.regions == Regions::OfName && before.any(|(_, r)| start < r.end && same(r));
        if inside || at_start().any(same) || end <= start {
            return;
        }
        let is_same = |known: &KernelModule| {
            known.name == module.name && known.kind == module.kind && module.regions == Regions::OfName
        };
        let known = self.modules.iter().position(is_same);
        let module = known.unwrap_or_else(|| self.add_module(module));
        self.add_region(Region {
            start,
            end,
            module,
            from,
            until: u64::MAX,
        });
    }

    fn add_module(&mut self, module: KernelModule) -> KernelModuleIdx {
        self.modules.push(module);
        self.modules.len() - 1
    }

    fn add_region(&mut self, region: Region) -> Region {
        self.n_regions += 1;
        self.regions.insert((region.start, self.n_regions), region);
        region
    }
}

#[cfg(test)]
mod tests;
