//! The static image of the running kernel, for comparison with the executed bytes.

use std::path::PathBuf;

use hbbp_analysis::annotate::StaticText;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{KernelTextSource, ModuleIdx, ModuleKind, ProcessIdx, Snapshot};
use hbbp_resolve::kernel::image_marks::ImageMarks;
use hbbp_resolve::kernel::text_difference::differing;
use hbbp_resolve::kernel::vmlinux::{Vmlinux, find_vmlinux, open_vmlinux_at};

/// The image, opened when it is asked for.
pub(super) struct StaticImage<'a> {
    snapshot: &'a Snapshot,
    /// Files that the user named.
    named: &'a [PathBuf],
    /// `None` until it is asked for.
    opened: Option<Option<Vmlinux>>,
}

impl<'a> StaticImage<'a> {
    /// Looks among the `named` files, then in the usual locations.
    pub(super) fn new(snapshot: &'a Snapshot, named: &'a [PathBuf]) -> Self {
        Self {
            snapshot,
            named,
            opened: None,
        }
    }

    /// The static text of these bytes, which were executed at an address of a module; `None` of anything but the kernel
    /// image.
    pub(super) fn text(&mut self, module: ModuleIdx, at: ImageAddr, bytes: &[u8]) -> Option<StaticText> {
        let kind = self.snapshot.modules.get(module.0 as usize)?.kind;
        // Text that was taken from the image says nothing about what the kernel patched.
        let is_live = matches!(
            self.snapshot.run.kernel_text,
            KernelTextSource::Kcore | KernelTextSource::Probe
        );
        if kind != ModuleKind::Kernel || !is_live {
            return None;
        }
        let (snapshot, named) = (self.snapshot, self.named);
        let opened = self.opened.get_or_insert_with(|| open(snapshot, module, named));
        let image = opened.as_ref()?;
        let mut linked = vec![0; bytes.len()];
        if !image.read(Va(at.0), &mut linked) {
            return None;
        }
        Some(StaticText {
            start: at,
            differs: differing(&linked, bytes, image.slide()),
            bytes: linked,
        })
    }

    /// What the user must know where the image was looked for in vain.
    pub(super) fn note(&self) -> Option<String> {
        let missing = matches!(self.opened, Some(None));
        missing.then(|| {
            "the static image of this kernel was not found, so patched code is not marked: pass it with --vmlinux FILE, or \
             install its debug package"
                .to_owned()
        })
    }
}

fn open(snapshot: &Snapshot, kernel: ModuleIdx, named: &[PathBuf]) -> Option<Vmlinux> {
    let run = &snapshot.run;
    let mappings = &snapshot.processes.get(ProcessIdx::KERNEL.0 as usize)?.mappings;
    let image = mappings.iter().find(|mapping| mapping.module == kernel)?;
    let marks = ImageMarks {
        text: Some(image.start),
        ..ImageMarks::default()
    };
    // Without a build id no file is known to be the image.
    if run.host.kernel_build_id.is_empty() {
        return None;
    }
    let mut named = named.iter();
    let found = named.find_map(|path| open_vmlinux_at(path, &run.host.kernel_build_id, &marks).ok());
    found.or_else(|| find_vmlinux(&run.host.kernel_release, &run.host.kernel_build_id, &marks).ok())
}
