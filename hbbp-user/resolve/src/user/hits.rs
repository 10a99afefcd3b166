//! Looking up the address of a task: its mapping and the text around it, which is read if needed.
//!
//! Lookups are the same for live runs and recordings; [`Origin`] says where the bytes come from.

use super::comparison::RanText;
use super::hit_mappings::{HitMapping, MappedAt, PrivateFile, Shows};
use super::mapping::ImageMapping;
use super::process_image::{Mapper, ProcessImage};
use super::space::{Origin, RanMapping, UserSpace};
use crate::lookup_cache::Validity;
use crate::raw::TaskKey;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::snapshot::{Losses, ProcessIdx};

/// What a hit led to.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// The running process image.
    pub process: ProcessIdx,
    /// The first address after the text that is there, and the validity of all this until the next
    /// [change](UserSpace::n_changes); `None` without text.
    pub text: Option<(Va, Validity)>,
}

impl Origin {
    /// When the current drain began, in ns.
    fn drain_start(&self) -> u64 {
        match self {
            Self::Live(live) => live.drain.start,
            Self::Recorded(..) => 0,
        }
    }
}

impl UserSpace {
    /// Loads the text around `at`, which `task` executed at `time`, if needed.
    pub(crate) fn hit(&mut self, task: TaskKey, time: u64, at: Va, losses: &mut Losses) -> Hit {
        if let Some((validity, ran)) = self.mappings.get(task, time, at) {
            let (validity, ran) = (validity.clone(), *ran);
            return self.text(ran, validity, at, losses);
        }
        self.read_unsure(task.tgid);
        let mut found = self.look_up(task, time, at);
        if found.1.is_none() && self.rescan(task.tgid, time) {
            found = self.look_up(task, time, at);
        }
        let (image, mapping) = found;
        let process = self.process(task, image.as_ref(), losses);
        let ran = match image.zip(mapping) {
            Some((image, mapping)) => {
                let ran = self.ran(process, task, &image, &mapping, at, losses);
                ran.map(|ran| (ran, self.validity(task, &image, &mapping, time, at)))
            }
            None => self.named(process, at, losses).map(|ran| {
                let at = at..Va(at.0.saturating_add(1));
                let time = time..time.saturating_add(1);
                (ran, Validity { task, at, time })
            }),
        };
        match ran {
            Some((ran, validity)) => {
                self.mappings.add(at, &validity, ran);
                self.text(ran, validity, at, losses)
            }
            None => Hit { process, text: None },
        }
    }

    fn validity(
        &self,
        task: TaskKey,
        image: &ProcessImage,
        mapping: &ImageMapping,
        time: u64,
        at: Va,
    ) -> Validity {
        let visible = image.visible_at(at, time);
        let (at, times) = match visible.filter(|visible| visible.mapping == mapping) {
            Some(visible) => (visible.at, visible.time),
            None => (at..Va(at.0.saturating_add(1)), time..time.saturating_add(1)),
        };
        let same_image = self.index.same_image(task.tgid, time);
        let time = times.start.max(same_image.start)..times.end.min(same_image.end);
        Validity { task, at, time }
    }

    fn text(&mut self, ran: RanMapping, validity: Validity, at: Va, losses: &mut Losses) -> Hit {
        let RanMapping {
            process,
            generation,
            start,
            from,
            hit,
        } = ran;
        let text = || {
            let mapped = hit.image_start..hit.image_start.checked_add(hit.end.since(start)?)?;
            let image_at = hit.image_start.checked_add(at.since(start)?)?;
            let held = match self.images.hit(hit.image, image_at) {
                Some(held) => held,
                None => {
                    let memory = match &mut self.origin {
                        Origin::Live(live) if self.index.is_live(validity.task.tgid, generation) => {
                            Some(&mut live.memory)
                        }
                        _ => None,
                    };
                    self.images.cover(hit.image, image_at, mapped, memory, losses)?
                }
            };
            if let Origin::Live(live) = &mut self.origin
                && hit.private.is_some()
            {
                let (at, mapping) = (held.start, MappedAt { start, from });
                live.comparison.ran(RanText { process, mapping, at });
            }
            let end = start.checked_add(held.end.since(hit.image_start)?)?;
            let before = held.start.since(hit.image_start).unwrap_or(0);
            Some((end, validity.within(start.checked_add(before)?..end)))
        };
        Hit {
            process,
            text: text(),
        }
    }

    fn look_up(&self, task: TaskKey, time: u64, at: Va) -> (Option<ProcessImage>, Option<ImageMapping>) {
        let image = self.index.image_at(task.tgid, time);
        let mapping = image.and_then(|image| image.mapping_at(at, time)).copied();
        (image.cloned(), mapping)
    }

    /// The mapping of a process image as it was hit.
    fn ran(
        &mut self,
        process: ProcessIdx,
        task: TaskKey,
        image: &ProcessImage,
        mapping: &ImageMapping,
        at: Va,
        losses: &mut Losses,
    ) -> Option<RanMapping> {
        let generation = Some(image.generation);
        let of = |hit| RanMapping {
            process,
            generation,
            start: mapping.start,
            from: mapping.from,
            hit,
        };
        let key = MappedAt {
            start: mapping.start,
            from: mapping.from,
        };
        if let Some(known) = self.hit_mappings.get(process, key) {
            return Some(of(*known));
        }
        let replaced = self.replaced_text(task.tgid, image, mapping, at, losses);
        let file = self.index.file(mapping.file)?;
        let shows = |distance: u64, offset: FileOff| {
            image.shows(mapping.file, Va(mapping.start.0.wrapping_add(distance)), offset)
        };
        let (idx, image_start) = match &mut self.origin {
            _ if let Some(replaced) = replaced => replaced,
            Origin::Live(live) => {
                let mapper = Mapper {
                    tgid: task.tgid,
                    generation: image.generation,
                    bits: image.bits,
                    ancestors: self.index.ancestors(image),
                };
                let is_live = self.index.is_live(task.tgid, generation);
                let memory = is_live.then_some(&mut live.memory);
                self.images.place(&mapper, mapping, file, memory, &shows)
            }
            Origin::Recorded(_, files) => {
                let idx = self.images.recorded(mapping.file, file, files, losses);
                (idx, self.images.image_start(idx, mapping, &shows)?)
            }
        };
        let hit = HitMapping {
            end: mapping.end,
            image: idx,
            image_start,
            private: (!mapping.shared && self.images.is_file(idx)).then(|| PrivateFile::of(mapping)),
            hit_since: self.origin.drain_start(),
            shows: Shows::Unknown,
        };
        self.hit_mappings.insert(process, key, hit);
        Some(of(hit))
    }

    /// The file of a recording that a text names an address of, as if it were mapped.
    fn named(&mut self, process: ProcessIdx, at: Va, losses: &mut Losses) -> Option<RanMapping> {
        let Origin::Recorded(_, files) = &mut self.origin else {
            return None;
        };
        let (named, file) = files.named_at(at)?;
        let idx = self.index.intern(&file);
        let image = self.images.recorded(idx, &file, files, losses);
        let hit = HitMapping {
            end: named.base.checked_add(named.len)?,
            image,
            image_start: self.images.start_of_named(image, &named.addresses),
            private: None,
            hit_since: 0,
            shows: Shows::Unknown,
        };
        let mapping = MappedAt {
            start: named.base,
            from: 0,
        };
        self.hit_mappings.insert(process, mapping, hit);
        Some(RanMapping {
            process,
            generation: None,
            start: named.base,
            from: 0,
            hit,
        })
    }

    /// The text of a process of a recording at `time`, from `at` to the end of what was read around it. The size in
    /// bits is for its decoder.
    pub(crate) fn recorded_text(
        &mut self,
        tgid: u32,
        time: u64,
        at: Va,
        losses: &mut Losses,
    ) -> Option<(u32, &[u8])> {
        let task = self.recorded_task(tgid, time);
        self.hit(task, time, at, losses);
        let (_, ran) = self.mappings.get(task, time, at)?;
        let image_at = ran.hit.image_start.checked_add(at.since(ran.start)?)?;
        let bits = self.images.bits(ran.hit.image)?;
        Some((bits, self.images.text(ran.hit.image)?.from(image_at)?))
    }
}
