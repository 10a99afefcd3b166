//! Ring 0 of a run: which kernel text was hit, its bytes as they ran, and how both change while the run goes on.

mod emit;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;

use crate::addr::{ImageAddr, Va};
use crate::record::{LoadedText, Record};
use crate::snapshot::{KernelTextSource, Loss, Losses, Symbol};

use super::doubt::Doubt;
use super::generations::{Poke, Records};
use super::kallsyms::{HIDDEN, Kallsyms, read_kallsyms};
use super::kept::Holds;
use super::kernel::{KernelMap, KernelModuleIdx, Region};
use super::kernel_modules::read_modules;
use super::kernel_symbols::read_module_symbols;
use super::kernel_text::{
    KernelText, ReadKernel, WrongImage, image_marks, open_kernel_text, open_named_image, stand_in,
};
use super::raw::TaskKey;
use super::segments::Segments;
use super::text::{Covered, Known, Live, ModuleText};

/// A program that comes is copied at once, as it may be gone at the next drain; longer ones wait for a hit.
const MAX_EARLY: u32 = 64 << 10;
/// A module that comes as well. All that Debian has are shorter, but for a few drivers of graphics cards.
const MAX_EARLY_MODULE: u64 = 2 << 20;
/// No patch is longer: the longest writes a whole page of a trampoline.
const MAX_PATCH: u64 = 16 << 10;

/// How kernel text is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TextHistory {
    /// As it was at each time of the run.
    #[default]
    Followed,
    /// As it is at the end of the run, as other tools read it.
    Once,
}

/// Ring 0 of a run.
#[derive(Debug)]
pub struct KernelSpace {
    map: KernelMap,
    reader: KernelText,
    texts: BTreeMap<KernelModuleIdx, ModuleText>,
    /// Regions that were hit, by (start, from).
    hit: BTreeMap<(Va, u64), Region>,
    history: TextHistory,
    /// Patches that the kernel told since the last part, sorted by place from [`Self::begin`] on.
    pokes: Vec<Poke>,
    records: Records,
    /// When modules came or went since the last part.
    switches: Vec<u64>,
    /// The part of a drain at hand.
    segments: Segments,
    doubt: Doubt,
    /// Pages where modules are loaded that hold code without a name, such as the kernel's thunks and the compiled
    /// filters of sockets: reading all symbols once for each of them has to do.
    nameless: HashSet<u64>,
    /// A region that was hit and overlaps no other, with the number of regions that there were.
    alone: Option<(Region, u64)>,
    /// How often all that was hit was read once more.
    n_readings: u64,
}

/// A reading of the text that was hit.
#[derive(Debug)]
pub struct LiveText {
    /// When it began, in ns.
    time: u64,
    modules: Vec<(KernelModuleIdx, Live)>,
}

/// Pages of x86-64, as a power of two.
const PAGE_BITS: u32 = 12;

/// Opens the best reader of live kernel text, and reads the symbols and modules of the kernel.
/// `probe` is the collector's reader, for machines without /proc/kcore; `release` is that of the running kernel.
/// `image` is a static image that the user named: it stands in for live text and for the symbols of the kernel where
/// these cannot be read.
/// Also returns sentences about what is missing.
pub fn open_kernel_space(
    probe: Option<Box<ReadKernel>>,
    release: &str,
    image: Option<&Path>,
) -> Result<(KernelSpace, Vec<String>), WrongImage> {
    let mut notes = Vec::new();
    let mut symbols = read_kallsyms().unwrap_or_else(|error| {
        notes.push(format!(
            "/proc/kallsyms cannot be read, so kernel functions have no names: {error}"
        ));
        Kallsyms::default()
    });
    let marks = image_marks(&symbols);
    let named = image.map(|path| open_named_image(path, &marks)).transpose()?;
    if let Some((of_image, note)) = named.as_ref().and_then(|image| stand_in(&symbols, image)) {
        symbols = of_image;
        notes.push(note);
    }
    let (reader, why) = open_kernel_text(probe, release, &marks, named);
    notes.extend(why);
    let image = match &reader {
        KernelText::Kcore(kcore) => kcore.image(),
        _ => None,
    };
    let mut map = KernelMap::default();
    map.update(symbols, &read_modules(), image, 0);
    Ok((KernelSpace::new(reader, map), notes))
}

impl KernelSpace {
    /// Starts with the kernel's map as it is before the run.
    pub fn new(reader: KernelText, map: KernelMap) -> Self {
        Self {
            map,
            reader,
            texts: BTreeMap::new(),
            hit: BTreeMap::new(),
            history: TextHistory::Followed,
            pokes: Vec::new(),
            records: Records::NoneYet,
            switches: Vec::new(),
            segments: Segments::default(),
            doubt: Doubt::default(),
            nameless: HashSet::new(),
            alone: None,
            n_readings: 0,
        }
    }

    /// Keeps text in another way than [`TextHistory::Followed`], from the start of the run.
    pub fn keep(&mut self, history: TextHistory) {
        self.history = history;
    }

    /// Where text is read.
    pub fn source(&self) -> KernelTextSource {
        self.reader.source()
    }

    /// Start and length of the function in which the kernel changes from one task to the next; `None` where the kernel
    /// hides its addresses.
    pub fn switch(&self) -> Option<(u64, u64)> {
        self.map.named("__switch_to_asm")
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
                if *len <= MAX_EARLY && self.reader.is_live() && self.history == TextHistory::Followed {
                    let region = self.map.region_at(*start, time);
                    self.copy_early(*start, &region);
                }
            }
            _ if self.history == TextHistory::Once => {}
            Record::TextPoke { start, old, new } => {
                self.records = Records::Come;
                self.pokes.push(Poke {
                    time,
                    start: ImageAddr(start.0),
                    old: old.clone(),
                    new: new.clone(),
                });
            }
            Record::Module(module) if module.gone => {
                self.switches.push(time);
                self.map.module_went(&module.name, time);
            }
            Record::Module(module) => self.module_came(time, module),
            _ => {}
        }
    }

    fn module_came(&mut self, time: u64, module: &LoadedText) {
        self.switches.push(time);
        let symbols = read_module_symbols(module, &mut |at, bytes| self.reader.read(at, bytes));
        for part in &module.parts {
            let Some(end) = part.start.checked_add(part.len) else {
                continue;
            };
            let inside = |s: &&Symbol| part.start.0 <= s.start.0 && s.start.0 < end.0;
            let inside: Vec<Symbol> = symbols.iter().filter(inside).cloned().collect();
            let starts: Vec<Va> = inside.iter().map(|s| Va(s.start.0)).collect();
            let Some(region) = self.map.module_came(&module.name, part.start..end, inside, time) else {
                continue;
            };
            if part.len <= MAX_EARLY_MODULE && self.reader.is_live() {
                for start in starts {
                    self.copy_early(start, &region);
                }
            }
        }
    }

    /// Opens a part of a drain, of this time and with the first interval `first`: takes over the patches in it.
    /// Returns the intervals that it has to be cut into.
    pub fn begin(&mut self, first: u32, time: Range<u64>, losses: &mut Losses) -> Segments {
        let Self {
            map,
            texts,
            pokes,
            switches,
            ..
        } = self;
        let end = time.end;
        let switched = switches.extract_if(.., |at| *at <= end);
        let times = pokes.iter().map(|poke| poke.time).chain(switched);
        let segments = Segments::new(first, time, times);
        pokes.sort_by_key(|poke| poke.time);
        for poke in pokes.iter().filter(|poke| poke.time <= end) {
            for module in map.modules_at(Va(poke.start.0), poke.time) {
                let text = texts.get_mut(&module);
                let unexpected = text.map_or(0, |text| text.patch(poke, segments.interval(poke.time)));
                losses.add(Loss::TextUncertain, unexpected);
            }
        }
        pokes.sort_by_key(|poke| poke.start);
        self.doubt = Doubt::new(pokes.iter(), end);
        self.segments = segments.clone();
        self.alone = None;
        segments
    }

    /// How many of `hits` between the addresses `passed`, the first of which came at `first_time`, may have run other
    /// bytes.
    pub fn doubt(&self, passed: (Va, Va), first_time: u64, hits: u64) -> u64 {
        self.doubt.of(passed, first_time, hits)
    }

    /// Reads what was hit once more, after a drain.
    pub fn read_live(&mut self) -> LiveText {
        let mut live = LiveText {
            time: now(),
            modules: Vec::new(),
        };
        if self.reader.is_live() && self.history == TextHistory::Followed {
            let fresh = Some(self.n_readings);
            self.n_readings += 1;
            let Self {
                map, reader, texts, ..
            } = self;
            let there = map.modules_there();
            let there = texts
                .iter()
                .filter(|(module, _)| there.get(**module) == Some(&true));
            let read = |(module, text): (&KernelModuleIdx, &ModuleText)| {
                (
                    *module,
                    text.read_live(fresh, &mut |at, bytes| reader.read(Va(at.0), bytes)),
                )
            };
            live.modules = there.map(read).collect();
        }
        live
    }

    /// Compares a reading with what is known. All records up to the reading should have been applied: what went before it
    /// was told had been read already, or what took its place.
    pub fn compare(&mut self, live: LiveText, losses: &mut Losses) {
        let end = self.segments.time().end;
        let mut pending: Vec<Poke> = self.pokes.iter().filter(|p| end < p.time).cloned().collect();
        pending.sort_by_key(|poke| poke.time);
        let there = self.map.modules_there();
        let known = Known {
            time: live.time,
            interval: self.segments.first(),
            records: self.records,
            pending: &pending,
        };
        for (module, live) in live.modules {
            let is_there = there.get(module) == Some(&true);
            if let Some(text) = self.texts.get_mut(&module).filter(|_| is_there) {
                losses.add(Loss::TextUncertain, text.compare(&known, live));
            }
        }
    }

    /// The intervals in which text versions begin.
    pub fn version_starts(&self) -> impl Iterator<Item = u32> {
        self.texts.values().flat_map(ModuleText::version_starts)
    }

    /// Puts an end to the histories: differences whose record did not come are taken as they are, and text that is to
    /// be read once is read now.
    pub fn settle(&mut self, losses: &mut Losses) {
        let Self { reader, texts, .. } = self;
        match self.history {
            TextHistory::Followed => {
                losses.add(
                    Loss::TextUncertain,
                    texts.values_mut().map(ModuleText::settle).sum(),
                );
            }
            TextHistory::Once => {
                for text in texts.values_mut() {
                    text.replace(&mut |at, bytes| reader.read(Va(at.0), bytes));
                }
            }
        }
    }

    /// Whether an address lies where modules are loaded, but in none that is known, and on a page that symbols were not
    /// read again for already.
    fn lacks(&mut self, at: Va) -> bool {
        let is_known = !KernelMap::in_module_area(at) || self.map.named_region(at).is_some();
        !is_known && !self.map.is_hidden() && self.nameless.insert(at.0 >> PAGE_BITS)
    }

    /// Reads symbols and modules again; what is new came at the start of the part at hand at the latest.
    fn read_again(&mut self) {
        let time = self.segments.time().start;
        if let Ok(symbols) = read_kallsyms()
            && !symbols.hidden
        {
            self.map.update(symbols, &read_modules(), None, time);
        }
    }

    /// Sees to it that the text around `at`, which ran at `time`, is kept.
    /// Returns the first address behind what is kept there, and for which addresses and times that is so as long as there
    /// are as many [regions](Self::n_regions).
    pub fn hit(&mut self, at: Va, time: u64, losses: &mut Losses) -> Option<(Va, Holds)> {
        let n_regions = self.map.n_regions();
        let alone = self
            .alone
            .filter(|(r, n)| r.start <= at && at < r.end && *n == n_regions);
        let region = match alone {
            Some((region, _)) => region,
            None => self.region_hit(at, time),
        };
        let module = region.module;
        let known = self
            .texts
            .get_mut(&module)
            .and_then(|text| text.hit(ImageAddr(at.0)));
        let stretch = match known {
            Some(stretch) => stretch,
            None => {
                if self.cover(at, &region) == Covered::UnreadableNow {
                    losses.add(Loss::TextUnreadable, 1);
                }
                self.texts.get_mut(&module)?.hit(ImageAddr(at.0))?
            }
        };
        let behind = Va(stretch.end.0);
        let addresses = Va(stretch.start.0).max(region.start)..behind.min(region.end);
        let time = if alone.is_some() || self.map.is_alone(&region, &addresses) {
            0..u64::MAX
        } else {
            0..0
        };
        let holds = Holds {
            task: TaskKey::KERNEL,
            at: addresses,
            time,
        };
        Some((behind, holds))
    }

    /// The region that was hit.
    fn region_hit(&mut self, at: Va, time: u64) -> Region {
        if self.lacks(at) {
            self.read_again();
        }
        let region = self.map.region_at(at, time);
        self.hit.entry((region.start, region.from)).or_insert(region);
        if self.map.is_alone(&region, &(region.start..region.end)) {
            self.alone = Some((region, self.map.n_regions()));
        }
        region
    }

    /// How many regions of kernel text were ever known.
    pub fn n_regions(&self) -> u64 {
        self.map.n_regions()
    }

    /// Says that a stream at `time` ran into the stretch that starts at `at` from the one before.
    pub fn entered(&mut self, at: Va, time: u64) {
        let region = self.map.region_at(at, time);
        if let Some(text) = self.texts.get_mut(&region.module) {
            text.set_entered(ImageAddr(at.0));
        }
    }

    fn cover(&mut self, at: Va, region: &Region) -> Covered {
        let Self {
            map, reader, texts, ..
        } = self;
        let text = texts.entry(region.module).or_default();
        let bounds = ImageAddr(region.start.0)..ImageAddr(region.end.0);
        let function = map.function_at(at, region);
        let covered = text.cover(ImageAddr(at.0), bounds, function, &mut |at, bytes| {
            reader.read(Va(at.0), bytes)
        });
        self.date(region);
        covered
    }

    /// Tells new text of a region its time, and the patches of this drain.
    fn date(&mut self, region: &Region) {
        let Self {
            texts,
            pokes,
            segments,
            n_readings,
            ..
        } = self;
        let Some(text) = texts.get_mut(&region.module) else {
            return;
        };
        let added = text.added();
        if added.is_empty() {
            return;
        }
        let first = added.start.0.saturating_sub(MAX_PATCH);
        let from = pokes.partition_point(|poke| poke.start.0 < first);
        let near = pokes.iter().skip(from).take_while(|poke| poke.start < added.end);
        let end = segments.time().end;
        // What is written there when the region has gone belongs to another, such as a slot of a kprobe.
        let there = |p: &&Poke| region.from <= p.time && p.time < region.until && p.time <= end;
        let mut near: Vec<&Poke> = near.filter(there).collect();
        near.sort_by_key(|poke| poke.time);
        let patches = near.iter().map(|poke| (*poke, segments.interval(poke.time)));
        text.date(now(), *n_readings, &patches);
    }

    /// Copies text that may be gone when it turns out that it was hit.
    fn copy_early(&mut self, at: Va, region: &Region) {
        let text = self.texts.entry(region.module).or_default();
        if text.known(ImageAddr(at.0)).is_none() && self.cover(at, region) == Covered::Yes {
            let text = self.texts.entry(region.module).or_default();
            text.set_early(ImageAddr(at.0));
        }
    }

    /// Closes the part at hand: its patches are taken over.
    pub fn close(&mut self) {
        let end = self.segments.time().end;
        self.pokes.retain(|poke| end < poke.time);
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
}

/// Now in ns of CLOCK_MONOTONIC, the clock of the records.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_again_once_for_code_without_a_name() {
        let mut kernel = KernelSpace::new(KernelText::None, KernelMap::default());
        let filter = Va(0xffff_ffff_c012_3010);
        assert!(KernelMap::in_module_area(filter));
        let lacks = |kernel: &mut KernelSpace, at| kernel.lacks(at);
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
