//! Functions of files that come later than the first hit: addresses wait for them, and are seen to when they are there.

use std::mem;
use std::time::{Duration, Instant};

use super::image::{Content, Image, MAX_AWAITING, Names};
use super::image_set::ImageSet;
use super::process_memory::ProcessMemory;
use super::space::{Origin, UserSpace};
use hbbp_elf::parser::{Answer, Parser};
use hbbp_model::snapshot::{Loss, Losses};

/// Time between two looks whether there is haste.
const HASTE_EVERY: Duration = Duration::from_millis(50);

impl UserSpace {
    /// Takes the functions that came since they were asked for.
    pub(super) fn take_functions(&mut self, losses: &mut Losses) {
        if let Origin::Live(live) = &mut self.origin {
            self.images
                .take_functions(Instant::now(), &mut live.memory, losses);
        }
    }

    /// Waits for functions that addresses wait for, at most so long for all of them, and not once there is haste. Text whose
    /// functions have not come is read without them, and counted.
    pub(crate) fn await_functions(&mut self, most: Duration, losses: &mut Losses) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        let until = Instant::now() + most;
        loop {
            let next_look = until.min(Instant::now() + HASTE_EVERY);
            self.images.take_functions(next_look, &mut live.memory, losses);
            if until <= next_look || self.images.is_complete() || self.images.has_haste() {
                break;
            }
        }
        self.images.give_up_functions(losses);
    }
}

impl ImageSet {
    fn take_functions(&mut self, until: Instant, memory: &mut ProcessMemory, losses: &mut Losses) {
        let images = self.images.iter_mut().flatten();
        for image in images.filter(|image| image.is_awaiting()) {
            if !image.take_functions(until, memory) {
                image.count_unnamed(losses);
            }
        }
    }

    /// Whether no address waits for functions.
    fn is_complete(&self) -> bool {
        !self.images.iter().flatten().any(|image| image.is_awaiting())
    }

    fn give_up_functions(&mut self, losses: &mut Losses) {
        let images = self.images.iter_mut().flatten();
        for image in images.filter(|image| image.is_awaiting()) {
            image.count_unnamed(losses);
            image.cover_awaiting();
        }
    }
}

impl Image {
    /// Whether addresses wait for its functions.
    fn is_awaiting(&self) -> bool {
        !self.awaiting.is_empty() || matches!(&self.content, Content::Memory(owner) if owner.asks_again)
    }

    /// Takes the functions that came until a time, and sees to the addresses that waited for them; says whether any still do.
    fn take_functions(&mut self, until: Instant, memory: &mut ProcessMemory) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        match &mut self.content {
            Content::Elf(elf) => {
                let names = elf.names.as_mut();
                let is_awaited = |names: &mut Names| names.functions.within(left).is_none();
                if names.is_some_and(is_awaited) {
                    return true;
                }
                self.cover_awaiting();
            }
            Content::Memory(owner) => {
                let Some(names) = memory.names_within(owner.tgid, owner.generation, left) else {
                    return true;
                };
                self.given_up |= names.is_none();
                let awaiting = mem::take(&mut self.awaiting).into_keys();
                for (at, names) in awaiting.filter_map(|at| Some((at, names?))) {
                    match names.function_at(at) {
                        Some(function) => self.text.name(function),
                        None => self.text.take_name(at),
                    }
                }
                if mem::take(&mut owner.asks_again)
                    && let Some(names) = names
                {
                    let unnamed = self.text.unnamed().into_iter();
                    let functions = unnamed.flat_map(|range| names.functions_in(range));
                    for function in functions.take(MAX_AWAITING).flatten() {
                        if self.text.is_as_read(&function) {
                            self.text.name(function);
                        }
                    }
                }
            }
            Content::Flat(..) | Content::Patched | Content::Missing => {}
        }
        false
    }

    /// Reads the text around the addresses that wait for functions, with what is known of these.
    fn cover_awaiting(&mut self) {
        let awaiting = mem::take(&mut self.awaiting);
        let Content::Elf(elf) = &mut self.content else {
            return;
        };
        for (at, mapped) in awaiting {
            let found = elf.known_function_at(at, &Parser::Here).unwrap_or_default();
            elf.cover(&mut self.text, at, mapped, found);
        }
    }

    /// Counts once that its functions were given up, or are still awaited.
    pub(super) fn count_unnamed(&mut self, losses: &mut Losses) {
        let is_there = match &self.content {
            Content::Elf(elf) => {
                let names = elf.names.as_ref();
                names.is_none_or(
                    |names| matches!(&names.functions, Answer::There(Some(functions)) if !functions.is_cut()),
                )
            }
            _ => !self.given_up && !self.is_awaiting(),
        };
        if !self.unnamed && !is_there {
            self.unnamed = true;
            losses.add(Loss::FunctionsGivenUp, 1);
        }
    }
}
