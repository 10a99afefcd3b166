//! Ring 0 of a run: which kernel text was hit, its executed bytes, and how both change during the run.

use std::collections::BTreeMap;
use std::ops::Range;

use super::changes::TextChanges;
use super::image_marks::ImageMarks;
use super::kallsyms::HIDDEN;
use super::map::{KernelMap, KernelModuleIdx, Region};
use super::module_symbols::read_module_symbols;
use super::reader::KernelText;
use super::segments::Segments;
use super::static_branches::StaticBranches;
use super::unknown_pages::UnknownPages;
use crate::clock::now;
use crate::lookup_cache::Validity;
use crate::raw::TaskKey;
use crate::text::versions::Poke;
use crate::text::{Change, Covered, ModuleText};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::record::{LoadedText, Record};
use hbbp_model::snapshot::{KernelTextSource, Loss, Losses, Symbol};

/// A program that comes is copied at once, as it may be gone at the next drain; longer ones wait for a hit.
const MAX_EARLY: u32 = 64 << 10;
/// A module that comes as well. All that Debian has are shorter, but for a few drivers of graphics cards.
const MAX_EARLY_MODULE: u64 = 2 << 20;

/// Which text of the kernel goes into the snapshot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TextHistory {
    /// As it was at each time of the run.
    #[default]
    Followed,
    /// Kernel text is read once, at the end of the run. This is what other tools do.
    Once,
}

/// The machine whose kernel this is.
#[derive(Clone, Debug, Default)]
pub(super) enum Machine {
    /// This one: what /proc and /sys say is true of it.
    #[default]
    This,
    /// That of a recording, with the build id of its kernel, empty where it is unknown; nothing else is known of it.
    Recorded(Vec<u8>),
}

/// Ring 0 of a run.
#[derive(Debug)]
pub struct KernelSpace {
    pub(super) map: KernelMap,
    pub(super) reader: KernelText,
    pub(super) texts: BTreeMap<KernelModuleIdx, ModuleText>,
    /// Regions that were hit, by (start, from).
    pub(super) hit: BTreeMap<(Va, u64), Region>,
    pub(super) machine: Machine,
    pub(super) history: TextHistory,
    pub(super) changes: TextChanges,
    pub(super) static_branches: StaticBranches,
    unknown: UnknownPages,
    /// A region that was hit and overlaps no other, with the number of regions that there were.
    pub(super) alone: Option<(Region, u64)>,
}

impl KernelSpace {
    /// Starts with the kernel's map as it is before the run.
    pub fn new(reader: KernelText, map: KernelMap) -> Self {
        Self {
            map,
            reader,
            texts: BTreeMap::new(),
            hit: BTreeMap::new(),
            machine: Machine::default(),
            history: TextHistory::Followed,
            changes: TextChanges::default(),
            static_branches: StaticBranches::default(),
            unknown: UnknownPages::default(),
            alone: None,
        }
    }

    /// The kernel is that of a recording, with this build id.
    pub(super) fn recorded(mut self, build_id: &[u8]) -> Self {
        self.machine = Machine::Recorded(build_id.to_vec());
        self
    }

    /// Sets what is known of code in pages that modules do not have.
    pub(super) fn know(&mut self, unknown: UnknownPages) {
        self.unknown = unknown;
    }

    /// Reads the kernel's table of static branches, where it lies between these marks.
    pub(super) fn read_static_branches(&mut self, marks: &ImageMarks) {
        let reader = &mut self.reader;
        self.static_branches = StaticBranches::read(marks, |at, bytes| reader.read(at, bytes));
    }

    /// Takes another history of text than [`TextHistory::Followed`], from the start of the run.
    pub fn keep(&mut self, history: TextHistory) {
        self.history = history;
    }

    /// Where text is read.
    pub(crate) fn source(&self) -> KernelTextSource {
        self.reader.source()
    }

    /// Start and length of the function in which the kernel changes from one task to the next; `None` if the kernel
    /// hides its addresses.
    pub fn switch(&self) -> Option<(u64, u64)> {
        self.map.named("__switch_to_asm")
    }

    /// What the user should know about names, if anything.
    pub(crate) fn note(&self) -> Option<&'static str> {
        self.map.is_hidden().then_some(HIDDEN)
    }

    /// Applies a record about kernel text, in the order of time.
    pub(crate) fn apply(&mut self, time: u64, record: &Record) {
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
            Record::TextPoke { start, old, new } => self.changes.notified(time, *start, old, new),
            Record::Module(module) if module.gone => {
                self.changes.switched(time);
                self.map.module_went(&module.name, time);
            }
            Record::Module(module) => self.module_came(time, module),
            _ => {}
        }
    }

    fn module_came(&mut self, time: u64, module: &LoadedText) {
        self.changes.switched(time);
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

    /// Opens a part of a drain, of this time and with the first interval `first`: applies the patches in it.
    /// Returns the intervals that it has to be split into.
    pub fn begin(&mut self, first: u32, time: Range<u64>, losses: &mut Losses) -> Segments {
        let Self {
            map, texts, changes, ..
        } = self;
        let mut take = |poke: &Poke, interval: u32| {
            for module in map.modules_at(Va(poke.start.0), poke.time) {
                let text = texts.get_mut(&module);
                let unexpected = text.map_or(0, |text| text.change(Change::Notified(poke, interval)));
                losses.add(Loss::TextUncertain, unexpected);
            }
        };
        self.alone = None;
        changes.begin(first, time, &mut take)
    }

    /// Splits the current drain at a time, because user text changed then. Call it before [`Self::begin`].
    pub(crate) fn split_at(&mut self, time: u64) {
        self.changes.switched(time);
    }

    /// How many of `hits` on the instructions from `start` to the one at `end`, the first of which came at `first_time`, may
    /// have run other bytes.
    pub(crate) fn ambiguous(&self, start: Va, end: Va, first_time: u64, hits: u64) -> u64 {
        self.changes.ambiguous(start, end, first_time, hits)
    }

    /// Whether an address lies where modules are loaded, but in none that is known, and on a page that symbols were not
    /// read again for already.
    fn lacks(&mut self, at: Va) -> bool {
        let is_known = !KernelMap::in_module_area(at) || self.map.named_region(at).is_some();
        let can_read = matches!(self.machine, Machine::This) && !self.map.is_hidden();
        !is_known && can_read && self.unknown.is_first(at)
    }

    /// Loads the text around `at`, which was executed at `time`, if needed.
    /// Returns the first address after it, and the validity of that as long as there are as many
    /// [regions](Self::n_regions).
    pub fn hit(&mut self, at: Va, time: u64, losses: &mut Losses) -> Option<(Va, Validity)> {
        if !at.is_canonical() {
            losses.add(Loss::TextNotCanonical, 1);
            return None;
        }
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
        let held = match known {
            Some(held) => held,
            None => {
                if self.cover(at, &region) == Covered::UnreadableNow {
                    losses.add(self.why_unreadable(at), 1);
                }
                self.texts.get_mut(&module)?.hit(ImageAddr(at.0))?
            }
        };
        let end = Va(held.end.0);
        let addresses = Va(held.start.0).max(region.start)..end.min(region.end);
        let time = if alone.is_some() || self.map.is_alone(&region, &addresses) {
            0..u64::MAX
        } else {
            0..0
        };
        let validity = Validity {
            task: TaskKey::KERNEL,
            at: addresses,
            time,
        };
        Some((end, validity))
    }

    /// Why the text at an address could not be read.
    fn why_unreadable(&self, at: Va) -> Loss {
        match self.reader.source() {
            KernelTextSource::None => Loss::TextWithoutSource,
            _ if KernelMap::in_module_area(at) && self.map.named_region(at).is_none() => Loss::TextGone,
            _ => Loss::TextUnreadable,
        }
    }

    /// The text that was executed at `time`, from `at` to the end of what was read around it.
    pub(crate) fn text_from(&mut self, at: Va, time: u64, losses: &mut Losses) -> Option<&[u8]> {
        self.hit(at, time, losses)?;
        let module = self.region_hit(at, time).module;
        self.texts.get(&module)?.from(ImageAddr(at.0))
    }

    /// The region that was hit.
    fn region_hit(&mut self, at: Va, time: u64) -> Region {
        if self.lacks(at) {
            self.unknown.read(&mut self.map, self.changes.start());
        }
        let region = self.map.region_at(at, time);
        self.hit.entry((region.start, region.from)).or_insert(region);
        if self.map.is_alone(&region, &(region.start..region.end)) {
            self.alone = Some((region, self.map.n_regions()));
        }
        region
    }

    /// How many regions of kernel text were ever known.
    pub(crate) fn n_regions(&self) -> u64 {
        self.map.n_regions()
    }

    /// Marks the range that starts at `at` as entered from the one before by a stream at `time`.
    pub(crate) fn entered(&mut self, at: Va, time: u64) {
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
        let function = map.function_at(at, region);
        let bounds = match function {
            Some(_) => region.start..region.end,
            None => map.gap_at(at, region),
        };
        let bounds = ImageAddr(bounds.start.0)..ImageAddr(bounds.end.0);
        let covered = text.cover(ImageAddr(at.0), bounds, function, &mut |at, bytes| {
            reader.read(Va(at.0), bytes)
        });
        self.date(region);
        covered
    }

    /// Timestamps new text of a region, and applies the patches of this drain.
    fn date(&mut self, region: &Region) {
        let Some(text) = self.texts.get_mut(&region.module) else {
            return;
        };
        let added = text.added();
        if !added.is_empty() {
            let patches = self.changes.near(region, &added);
            text.date(now(), self.changes.n_readings(), &patches.into_iter());
        }
    }

    /// Copies text that may be gone when it turns out that it was hit.
    pub(super) fn copy_early(&mut self, at: Va, region: &Region) {
        let text = self.texts.entry(region.module).or_default();
        if text.known(ImageAddr(at.0)).is_none() && self.cover(at, region) == Covered::Yes {
            let text = self.texts.entry(region.module).or_default();
            text.set_early(ImageAddr(at.0));
        }
    }

    /// Closes the current part: its patches are taken over.
    pub(crate) fn close(&mut self) {
        self.changes.close();
    }

    /// Forgets what went before `time` without having been hit.
    pub(crate) fn forget_before(&mut self, time: u64) {
        let hit = &self.hit;
        let in_use = |module| hit.values().any(|r| r.module == module);
        self.map.forget_before(time, in_use);
        let map = &self.map;
        self.texts
            .retain(|module, _| in_use(*module) || map.holds(*module));
    }
}
