//! The kernel's code page in processes.

use super::image::Image;
use super::mapping::{Backing, ImageMapping};
use super::proc_scan::read_process;
use super::process_image::Mapper;
use super::process_memory::ProcessMemory;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::parser::Parser;
use hbbp_model::snapshot::ModuleKind;

const VDSO: &str = "[vdso]";

/// It is one or two pages long; more is not a vdso.
const MAX_VDSO: u64 = 64 << 10;

/// The kernel's code page: that of our own process for 64-bit code, that of the process itself for 32-bit code, from its
/// `memory`.
pub(super) fn read_vdso(
    mapper: &Mapper,
    mapping: &ImageMapping,
    memory: Option<&mut ProcessMemory>,
    parser: &Parser,
) -> Option<Image> {
    let mut own_memory = ProcessMemory::default();
    let (tgid, start, len, memory) = if mapper.bits == 32 {
        (
            mapper.tgid,
            mapping.start,
            mapping.end.since(mapping.start)?,
            memory?,
        )
    } else {
        let own = read_process(std::process::id())?;
        let vdso = own
            .mappings
            .into_iter()
            .find(|m| Backing::of(&m.path) == Backing::Vdso)?;
        (own.tgid, vdso.start, vdso.len, &mut own_memory)
    };
    let mut bytes = vec![0; usize::try_from(len.min(MAX_VDSO)).ok()?];
    let read = memory.read(tgid, start, &mut bytes);
    let mut image = Image::of_file(VDSO.to_owned(), ByteSource::Memory(bytes), parser)
        .ok()
        .filter(|_| read)?;
    if image.kind == ModuleKind::Elf64 {
        image.kind = ModuleKind::Vdso;
    }
    Some(image)
}
