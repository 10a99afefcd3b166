//! Ring 0 of a run: which kernel text was hit, its bytes as they ran, and how both change while the run goes on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::addr::{ImageAddr, Va};
use crate::record::Record;
use crate::snapshot::{KernelTextSource, Loss, Losses, Mapping, Module, ModuleIdx, ModuleKind, Text};

use super::build_id::{read_kernel_build_id, read_module_build_id};
use super::kallsyms::{HIDDEN, Kallsyms, read_kallsyms};
use super::kernel::{KernelMap, KernelModuleIdx, Region};
use super::kernel_modules::read_modules;
use super::kernel_text::{KernelText, ReadKernel, open_kernel_text};
use super::text::{Covered, ModuleText};

/// A program that comes is copied at once, as it may be gone at the next drain; longer ones wait for a hit.
const MAX_EARLY: u32 = 64 << 10;

/// Ring 0 of a run.
#[derive(Debug)]
pub struct KernelSpace {
    map: KernelMap,
    reader: KernelText,
    texts: HashMap<KernelModuleIdx, ModuleText>,
    /// Regions that were hit, by (start, from).
    hit: BTreeMap<(Va, u64), Region>,
    /// When and where text was patched since the last drain.
    pokes: Vec<(u64, Va)>,
    /// Pages where modules are loaded that hold code without a name, such as the kernel's thunks and the compiled
    /// filters of sockets: reading all symbols once for each of them has to do.
    nameless: HashSet<u64>,
}

/// Pages of x86-64, as a power of two.
const PAGE_BITS: u32 = 12;

/// Opens the best reader of live kernel text and reads what the kernel says of itself.
/// `probe` is the collector's reader, for machines without /proc/kcore; `release` is that of the running kernel.
/// Also returns sentences about what had to be done without.
pub fn open_kernel_space(probe: Option<Box<ReadKernel>>, release: &str) -> (KernelSpace, Vec<String>) {
    let mut notes = Vec::new();
    let symbols = read_kallsyms().unwrap_or_else(|error| {
        notes.push(format!(
            "/proc/kallsyms cannot be read, so kernel functions have no names: {error}"
        ));
        Kallsyms::default()
    });
    let (reader, why) = open_kernel_text(probe, release, &symbols.image);
    notes.extend(why);
    let image = match &reader {
        KernelText::Kcore(kcore) => kcore.image(),
        _ => None,
    };
    let mut map = KernelMap::default();
    map.update(symbols, &read_modules(), image, 0);
    (KernelSpace::new(reader, map), notes)
}

impl KernelSpace {
    /// Starts with the kernel's map as it is before the run.
    pub fn new(reader: KernelText, map: KernelMap) -> Self {
        Self {
            map,
            reader,
            texts: HashMap::new(),
            hit: BTreeMap::new(),
            pokes: Vec::new(),
            nameless: HashSet::new(),
        }
    }

    /// Where text is read.
    pub fn source(&self) -> KernelTextSource {
        self.reader.source()
    }

    /// What the user should know about names, if anything.
    pub fn note(&self) -> Option<&'static str> {
        self.map.is_hidden().then_some(HIDDEN)
    }

    /// Takes over a record about kernel text, in the order of time.
    pub fn apply(&mut self, time: u64, record: &Record) {
        match record {
            Record::Ksymbol {
                start,
                name,
                gone: true,
                ..
            } => self.map.went(*start, name, time),
            Record::Ksymbol {
                start,
                len,
                name,
                gone: false,
                ..
            } => {
                self.map.came(*start, *len, name, time);
                if *len <= MAX_EARLY && self.reader.is_live() {
                    let region = self.map.region_at(*start, time);
                    self.cover(*start, &region);
                }
            }
            Record::TextPoke { start, .. } => self.pokes.push((time, *start)),
            _ => {}
        }
    }

    /// Reads what was hit before once more, at the end of the interval `idx`, which lasted `time`.
    pub fn reread(&mut self, idx: u32, time: &Range<u64>, losses: &mut Losses) {
        let Self {
            map,
            reader,
            texts,
            pokes,
            ..
        } = self;
        if !reader.is_live() {
            return;
        }
        let middle = time.start + time.end.saturating_sub(time.start) / 2;
        // Text that was patched late in the interval ran mostly as it was before.
        let since = |stretch: Range<ImageAddr>| {
            let inside = |at: &Va| stretch.start.0 <= at.0 && at.0 < stretch.end.0;
            let last = pokes
                .iter()
                .filter(|(_, at)| inside(at))
                .map(|(time, _)| *time)
                .max();
            if last.is_some_and(|last| middle < last) {
                idx + 1
            } else {
                idx
            }
        };
        // What went is not read again: its memory holds breakpoints by now, or another program.
        let there = map.there();
        let changed = texts
            .iter_mut()
            .filter(|(module, _)| there.contains(module))
            .map(|(_, text)| text.reread(&since, &mut |at, bytes| reader.read(Va(at.0), bytes)));
        losses.add(Loss::TextUncertain, changed.sum());
        pokes.clear();
    }

    /// Whether one of these addresses lies where modules are loaded, but in none that is known, and on a page that
    /// symbols were not read again for already.
    pub fn lacks(&mut self, hits: impl Iterator<Item = Va>) -> bool {
        if self.map.is_hidden() {
            return false;
        }
        let n_before = self.nameless.len();
        let unknown = hits.filter(|at| KernelMap::in_module_area(*at) && !self.map.knows(*at));
        self.nameless.extend(unknown.map(|at| at.0 >> PAGE_BITS));
        n_before < self.nameless.len()
    }

    /// Reads symbols and modules again; what is new came at `time` at the latest.
    pub fn read_again(&mut self, time: u64) {
        if let Ok(symbols) = read_kallsyms() {
            self.map.update(symbols, &read_modules(), None, time);
        }
    }

    /// Sees to it that the text around `at`, which ran at `time`, is kept.
    /// Returns the first address behind what is kept there.
    pub fn hit(&mut self, at: Va, time: u64, losses: &mut Losses) -> Option<Va> {
        let region = self.map.region_at(at, time);
        self.hit.entry((region.start, region.from)).or_insert(region);
        if self.cover(at, &region) == Covered::UnreadableNow {
            losses.add(Loss::TextUnreadable, 1);
        }
        self.texts
            .get(&region.module)?
            .behind(ImageAddr(at.0))
            .map(|at| Va(at.0))
    }

    fn cover(&mut self, at: Va, region: &Region) -> Covered {
        let Self {
            map, reader, texts, ..
        } = self;
        let text = texts.entry(region.module).or_default();
        let at = ImageAddr(at.0);
        if let Some(known) = text.known(at) {
            return known;
        }
        let bounds = ImageAddr(region.start.0)..ImageAddr(region.end.0);
        let function = map.function_at(Va(at.0), region);
        text.cover(at, bounds, function, &mut |at, bytes| {
            reader.read(Va(at.0), bytes)
        })
    }

    /// Forgets what went before `time` without having been hit.
    pub fn forget_before(&mut self, time: u64) {
        let hit = &self.hit;
        let in_use = |module| hit.values().any(|r| r.module == module);
        self.map.forget_before(time, in_use);
        let map = &self.map;
        self.texts
            .retain(|module, _| in_use(*module) || map.holds(*module));
    }

    /// Hands over the modules and the text that were hit, and returns the mappings of the kernel.
    pub fn emit(mut self, modules: &mut Vec<Module>, text: &mut Vec<Text>) -> Vec<Mapping> {
        let mut regions: Vec<Region> = self.hit.values().copied().collect();
        let mut used: Vec<KernelModuleIdx> = regions.iter().map(|r| r.module).collect();
        used.sort_unstable();
        used.dedup();
        for idx in &used {
            let Some(module) = self.map.module(*idx) else {
                continue;
            };
            let module_idx = ModuleIdx(u32::try_from(modules.len()).unwrap_or(u32::MAX));
            let symbols = self.texts.remove(idx).unwrap_or_default().emit(module_idx, text);
            let build_id = match module.kind {
                ModuleKind::Kernel => read_kernel_build_id(),
                ModuleKind::KernelModule => read_module_build_id(&module.name),
                _ => Vec::new(),
            };
            modules.push(Module {
                name: module.name.clone(),
                kind: module.kind,
                build_id,
                symbols,
            });
        }
        // Since Linux 6.4 the size of a module says too much: it ends where the next region starts.
        for idx in 1..regions.len() {
            if let [region, next] = &mut regions[idx - 1..=idx]
                && region.start < next.start
                && region.from == next.from
            {
                region.end = region.end.min(next.start);
            }
        }
        let first = modules.len() - used.len();
        let mapping = |r: &Region| {
            let rank = used.binary_search(&r.module).ok()?;
            let module = ModuleIdx(u32::try_from(first + rank).ok()?);
            Some(Mapping {
                start: r.start,
                end: r.end,
                module,
                image_start: ImageAddr(r.start.0),
                from: r.from,
            })
        };
        regions.iter().filter_map(mapping).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_again_once_for_code_without_a_name() {
        let mut kernel = KernelSpace::new(KernelText::None, KernelMap::default());
        let filter = Va(0xffff_ffff_c012_3010);
        assert!(KernelMap::in_module_area(filter));
        let lacks = |kernel: &mut KernelSpace, at| kernel.lacks([at].into_iter());
        assert!(
            lacks(&mut kernel, filter),
            "its module may have been loaded since"
        );
        assert!(!lacks(&mut kernel, filter), "nothing new is to be had");
        assert!(!lacks(&mut kernel, Va(filter.0 + 0x20)), "nor for its neighbours");
        assert!(
            lacks(&mut kernel, Va(filter.0 + 0x5000)),
            "another page is another matter"
        );
    }
}
