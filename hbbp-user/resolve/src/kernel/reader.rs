//! The readers of kernel text, best first: /proc/kcore, a copying BPF program, a vmlinux file.

use std::fmt;
use std::path::{Path, PathBuf};

use hbbp_model::addr::Va;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{KernelTextSource, hex};

use super::image_marks::ImageMarks;
use super::kallsyms::Kallsyms;
use super::kcore::{Kcore, open_kcore};
use super::vmlinux::{NotTheImage, Vmlinux, open_vmlinux, open_vmlinux_at};
use hbbp_elf::build_id::read_kernel_build_id;

/// Fills a buffer with kernel memory from an address on; `false` if it cannot.
pub type ReadKernel = dyn FnMut(Va, &mut [u8]) -> bool + Send;

/// Where kernel text is read.
#[derive(Default)]
pub enum KernelText {
    /// Nowhere.
    #[default]
    None,
    /// The live text through /proc/kcore.
    Kcore(Kcore),
    /// The live text through a function of the collector, which copies it by a BPF program.
    Probe(Box<ReadKernel>),
    /// The static image.
    Vmlinux(Vmlinux),
}

/// A static image that the user named is not the image of the running kernel.
#[derive(Debug, thiserror::Error)]
#[error("{} {why}; the running kernel has build id {}", path.display(), hex(build_id))]
pub struct WrongImage {
    path: PathBuf,
    why: NotTheImage,
    build_id: Vec<u8>,
}

/// Opens a static image that the user named; the kernel runs at `marks`.
pub fn open_named_image(path: &Path, marks: &ImageMarks) -> Result<Vmlinux, WrongImage> {
    let build_id = read_kernel_build_id();
    open_vmlinux_at(path, &build_id, marks).map_err(|why| WrongImage {
        path: path.to_owned(),
        why,
        build_id,
    })
}

/// Where the kernel image runs; /proc/kcore shows its start even if symbols are hidden.
pub(super) fn image_marks(symbols: &Kallsyms) -> ImageMarks {
    if symbols.image.range().is_some() {
        return symbols.image;
    }
    let image = open_kcore().ok().and_then(|kcore| kcore.image());
    ImageMarks {
        text: image.map(|(start, _)| start),
        ..symbols.image
    }
}

/// The symbols of the image with a note, if /proc/kallsyms shows none and the image has some: the image inside a boot
/// image has no symbol table.
pub(super) fn stand_in(symbols: &Kallsyms, image: &Vmlinux) -> Option<(Kallsyms, String)> {
    let lacking = symbols.hidden || symbols.iter().next().is_none();
    let of_image = lacking.then(|| image.read_symbols())?;
    of_image.iter().next()?;
    let note = format!(
        "/proc/kallsyms shows no addresses: names of kernel functions are from {}",
        image.path.display()
    );
    Some((of_image, note))
}

/// Opens the best reader of kernel text: /proc/kcore, else the probe of the collector, else a static image: the one
/// that the user `named`, or one of this `release` that runs at `marks`.
/// If live text cannot be read, a sentence says why and what to do.
pub fn open_kernel_text(
    probe: Option<Box<ReadKernel>>,
    release: &str,
    marks: &ImageMarks,
    named: Option<Vmlinux>,
) -> (KernelText, Option<Advised>) {
    let why = match open_kcore() {
        Ok(kcore) => return (KernelText::Kcore(kcore), None),
        Err(error) => error,
    };
    if let Some(probe) = probe {
        return (KernelText::Probe(probe), None);
    }
    let no_live = format!(
        "live kernel text cannot be read (/proc/kcore: {why}; reading by a BPF program is \
                           not permitted)"
    );
    match named.or_else(|| open_vmlinux(release, &read_kernel_build_id(), marks)) {
        Some(vmlinux) => {
            let path = vmlinux.path.display();
            let note = format!("{no_live}: using {path}, which lacks runtime patches");
            (KernelText::Vmlinux(vmlinux), Some(note.into()))
        }
        None => {
            let note = format!(
                "{no_live}, and no image of {release} was found, so kernel samples cannot be resolved"
            );
            let note = Advised::new(note, Advice::NameKernelImage);
            (KernelText::None, Some(note))
        }
    }
}

impl KernelText {
    /// How the snapshot names it.
    pub fn source(&self) -> KernelTextSource {
        match self {
            Self::None => KernelTextSource::None,
            Self::Kcore(_) => KernelTextSource::Kcore,
            Self::Probe(_) => KernelTextSource::Probe,
            Self::Vmlinux(vmlinux) => KernelTextSource::Vmlinux(vmlinux.path.display().to_string()),
        }
    }

    /// Whether it shows what runs now, so that reading again can find something new.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Kcore(_) | Self::Probe(_))
    }

    /// Fills `bytes` with the text from `at` on; `false` if it cannot be read as a whole.
    pub fn read(&mut self, at: Va, bytes: &mut [u8]) -> bool {
        match self {
            Self::None => false,
            Self::Kcore(kcore) => kcore.read(at, bytes),
            Self::Probe(read) => read(at, bytes),
            Self::Vmlinux(vmlinux) => vmlinux.read(at, bytes),
        }
    }
}

impl fmt::Debug for KernelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.source())
    }
}
