//! Opens ring 0 of this machine: the best reader of its text, its symbols and its modules.

use std::path::Path;

use super::kallsyms::Kallsyms;
use super::live_symbols::{KernelFacts, Printed, read_live_symbols};
use super::map::KernelMap;
use super::modules::read_modules;
use super::reader::{
    KernelText, ReadKernel, WrongImage, image_marks, open_kernel_text, open_named_image, stand_in,
};
use super::space::KernelSpace;
use super::unknown_pages::UnknownPages;
use hbbp_model::advice::Advised;

/// Opens the best reader of live kernel text, and reads the symbols and modules of the kernel.
/// `probe` is the collector's reader, for machines without /proc/kcore.
/// `image` is a static image that the user named: it replaces live text and the symbols of the kernel where
/// these cannot be read.
/// Also returns sentences about what is missing.
pub fn open_kernel_space(
    probe: Option<Box<ReadKernel>>,
    image: Option<&Path>,
    facts: &KernelFacts<'_>,
) -> Result<(KernelSpace, Vec<Advised>), WrongImage> {
    let mut notes = Vec::new();
    let loaded = read_modules();
    let (mut symbols, printed) = read_live_symbols(facts, &loaded).unwrap_or_else(|error| {
        let note = format!("/proc/kallsyms cannot be read, so kernel functions have no names: {error}");
        notes.push(note.into());
        (Kallsyms::default(), Printed::Read)
    });
    symbols.tell_lengths(facts.programs);
    let marks = image_marks(&symbols);
    let named = image.map(|path| open_named_image(path, &marks)).transpose()?;
    if let Some((of_image, note)) = named.as_ref().and_then(|image| stand_in(&symbols, image)) {
        symbols = of_image;
        notes.push(note.into());
    }
    let (reader, why) = open_kernel_text(probe, facts.release, &marks, named);
    notes.extend(why);
    let image = match &reader {
        KernelText::Kcore(kcore) => kcore.image(),
        _ => None,
    };
    let mut map = KernelMap::default();
    let marks = symbols.image;
    map.update(symbols, &loaded, image, 0);
    let mut kernel = KernelSpace::new(reader, map);
    kernel.know(UnknownPages::new(printed, facts.programs));
    kernel.read_static_branches(&marks);
    Ok((kernel, notes))
}
