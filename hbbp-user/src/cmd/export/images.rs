//! Exports for compilers and binary optimizers: one file for each image, in the addresses of that image.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::Summary;
use crate::export::autofdo::{SampleProfile, addresses, sample_profile, write_autofdo};
use crate::export::bolt::write_bolt;
use crate::export::counted::{Counted, Scale};
use crate::export::extbinary::write_extbinary;
use crate::export::flow::{ControlFlow, control_flow};
use crate::export::image::{Image, Wanted, WriteImage, Written, executions};
use crate::export::perf_script::write_perf_script;
use crate::export::profgen::write_profgen;
use crate::export::ranges::write_ranges;
use crate::profile::Output;
use crate::resolve::elf::build_id::hex;
use crate::resolve::source::image::{image_places, open_layout, read_build_id};
use crate::resolve::source::read_source_frames;
use crate::snapshot::{ImageLayout, Module, ModuleIdx, ModuleKind, Snapshot, SourceFrames};

/// A format that describes one image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageFormat {
    /// BOLT's pre-aggregated profile.
    Bolt,
    /// llvm-profgen's unsymbolized profile.
    Profgen,
    /// The text profile of create_llvm_prof.
    Ranges,
    /// Branch stacks as perf prints them.
    PerfScript,
    /// LLVM's sample profile as text.
    Autofdo,
    /// The same in its extensible binary form.
    ExtBinary,
}

/// Writes a sample profile in one of its forms.
type WriteSamples = fn(&SampleProfile, &SourceFrames, &mut dyn Write) -> std::io::Result<()>;

/// Most images that an error lists.
const LISTED: usize = 5;

impl ImageFormat {
    const fn extension(self) -> &'static str {
        match self {
            Self::Bolt => "preagg",
            Self::Profgen => "unsymbolized",
            Self::Ranges => "ranges",
            Self::PerfScript => "perf-script",
            Self::Autofdo => "afdo.txt",
            Self::ExtBinary => "afdo",
        }
    }

    /// What its counts are. BOLT judges functions by numbers of samples, and has none below its limits.
    const fn scale(self) -> Scale {
        match self {
            Self::Bolt | Self::PerfScript => Scale::Recorded,
            Self::Profgen | Self::Ranges | Self::Autofdo | Self::ExtBinary => Scale::Executions,
        }
    }

    /// Whether its addresses are not those of the ELF file, so that a program's file has to be read too.
    const fn needs_file(self) -> bool {
        matches!(self, Self::Profgen | Self::Ranges | Self::PerfScript)
    }

    /// Whether counts of addresses are enough, so that profiles without branch stacks serve too.
    const fn takes_addresses(self) -> bool {
        matches!(self, Self::Autofdo | Self::ExtBinary)
    }
}

/// A profile whose images are exported.
struct Images<'a> {
    counted: &'a Counted<'a>,
    flow: ControlFlow,
    /// Files that the user named.
    named: Vec<PathBuf>,
    format: ImageFormat,
}

/// Exports the image that `wanted` names, or all to a directory.
pub(super) fn export_images(
    counted: &Counted<'_>,
    format: ImageFormat,
    wanted: Option<&str>,
    named: &[PathBuf],
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let mut images = Images {
        counted,
        flow: control_flow(counted),
        named: named.to_vec(),
        format,
    };
    if images.flow.images.is_empty() && !format.takes_addresses() {
        bail!(
            "the profile has no branch stacks, which this format is made of; --format autofdo takes samples as well"
        );
    }
    let mut summary = Summary::new(counted, format.scale());
    images.note(&mut summary);
    if let Some(folder) = output.filter(|path| path.is_dir()) {
        let all = match wanted {
            Some(wanted) => vec![images.choose(wanted)?],
            None => images.all(),
        };
        for module in all {
            let mut bytes = Vec::new();
            match images.write(module, &mut bytes) {
                Ok(written) => {
                    let path = folder.join(images.file_name(module));
                    Output::open(&path)?.write(&bytes, &mut std::io::sink())?;
                    summary.wrote(&path, &written, out)?;
                }
                Err(error) => summary.warnings.push(format!("not exported: {error:#}")),
            }
        }
        return Ok(summary.warnings);
    }
    let module = match wanted {
        Some(wanted) => images.choose(wanted)?,
        None => images.only()?,
    };
    let mut bytes = Vec::new();
    let written = images.write(module, &mut bytes)?;
    match output {
        Some(path) => {
            let opened = Output::open(path)?;
            let is_standard = opened.is_standard();
            opened.write(&bytes, out)?;
            if !is_standard {
                summary.wrote(path, &written, out)?;
            } else {
                summary.left_out(&written);
            }
        }
        None => {
            out.write_all(&bytes)?;
            summary.left_out(&written);
        }
    }
    Ok(summary.warnings)
}

/// Whether a module has a file that a format can describe.
const fn has_file(kind: ModuleKind) -> bool {
    match kind {
        ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::Elf64 | ModuleKind::Elf32 => true,
        ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Vdso | ModuleKind::Anonymous => false,
    }
}

impl Images<'_> {
    /// What is in no image, in executions.
    fn note(&self, summary: &mut Summary) {
        let flow = &self.flow;
        let parts = [
            (
                flow.far,
                "executions of system calls, interrupts and returns from them, which are not control flow of an image",
            ),
            (
                flow.interrupted_at_once,
                "executions that an interrupt ended before the first instruction",
            ),
        ];
        for (amount, what) in parts.into_iter().filter(|(amount, _)| 0.5 <= *amount) {
            summary
                .warnings
                .push(format!("left out of all images: {amount:.0} {what}"));
        }
    }

    fn snapshot(&self) -> &Snapshot {
        self.counted.snapshot
    }

    fn module(&self, idx: ModuleIdx) -> anyhow::Result<&Module> {
        let module = self.snapshot().modules.get(idx.0 as usize);
        module.context("the profile refers to a module that it does not have")
    }

    /// The images that ran, the one with the most executions first.
    fn all(&self) -> Vec<ModuleIdx> {
        let modules = (0u32..).map(ModuleIdx).zip(&self.snapshot().modules);
        let mut all: Vec<(ModuleIdx, f64)> = modules
            .filter(|(_, module)| has_file(module.kind))
            .map(|(idx, _)| (idx, self.executions(idx)))
            .filter(|(_, executions)| 0.0 < *executions)
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.into_iter().map(|(idx, _)| idx).collect()
    }

    fn executions(&self, idx: ModuleIdx) -> f64 {
        if self.format.takes_addresses() {
            let ran = self.counted.executed_in(Some(idx));
            return ran.map(|executed| executed.executions).sum();
        }
        executions(&self.flow, idx)
    }

    /// The only image, if there is one.
    fn only(&self) -> anyhow::Result<ModuleIdx> {
        let all = self.all();
        match all.as_slice() {
            [] => bail!("no image with a file has executions in this profile"),
            [one] => Ok(*one),
            several => {
                let names: Vec<&str> = several
                    .iter()
                    .take(LISTED)
                    .filter_map(|idx| Some(self.module(*idx).ok()?.name.as_str()))
                    .collect();
                bail!(
                    "the profile has {} images: choose one with --image (the first by executions: {}), or name a \
                     directory with -o to export all",
                    several.len(),
                    names.join(", ")
                )
            }
        }
    }

    /// The image that the user names: a file by its build id, else a name.
    fn choose(&mut self, wanted: &str) -> anyhow::Result<ModuleIdx> {
        let path = Path::new(wanted);
        if !path.is_file() {
            return Ok(Wanted::parse(wanted).choose(self.snapshot())?);
        }
        self.named.insert(0, path.to_owned());
        let build_id = read_build_id(path).with_context(|| path.display().to_string())?;
        if build_id.is_empty() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(wanted);
            return Ok(Wanted::parse(name).choose(self.snapshot())?);
        }
        let id = hex(&build_id);
        Wanted::BuildId(build_id)
            .choose(self.snapshot())
            .with_context(|| {
                format!(
                    "{} has build id {id}, and nothing of the profile has",
                    path.display()
                )
            })
    }

    /// Where the image lies in its file. That of a program need not be found where addresses are those of the file.
    fn layout(&self, module: &Module) -> anyhow::Result<ImageLayout> {
        let release = &self.snapshot().run.kernel_release;
        let mut refused = Vec::new();
        for place in image_places(module, release, &self.named) {
            match open_layout(&place, module) {
                Ok(layout) => return Ok(layout),
                Err(why) => refused.push(format!("{} {why}", place.display())),
            }
        }
        let is_user = matches!(module.kind, ModuleKind::Elf64 | ModuleKind::Elf32);
        if is_user && !self.format.needs_file() {
            return Ok(ImageLayout::same());
        }
        bail!(
            "the file of {} is needed: name it with --image FILE{}; tried: {}",
            module.name,
            if module.kind == ModuleKind::Kernel {
                " or --vmlinux FILE"
            } else {
                ""
            },
            refused.join("; ")
        )
    }

    fn write(&self, idx: ModuleIdx, out: &mut dyn Write) -> anyhow::Result<Written> {
        let module = self.module(idx)?;
        let layout = self.layout(module)?;
        let write: WriteImage = match self.format {
            ImageFormat::Autofdo => return self.write_samples(idx, module, &layout, write_autofdo, out),
            ImageFormat::ExtBinary => return self.write_samples(idx, module, &layout, write_extbinary, out),
            ImageFormat::Bolt => write_bolt,
            ImageFormat::Profgen => write_profgen,
            ImageFormat::Ranges => write_ranges,
            ImageFormat::PerfScript => write_perf_script,
        };
        if layout.is_relocatable() && self.format != ImageFormat::Ranges {
            bail!(
                "{} is a relocatable file, which the reader of this format does not take: use --format autofdo or \
                 ranges",
                module.name
            );
        }
        let flow = self.flow.images.get(&idx);
        let flow = flow.with_context(|| format!("{} is in no branch stack", module.name))?;
        let image = Image {
            counted: self.counted,
            flow,
            layout: &layout,
            scale: self.format.scale(),
        };
        Ok(write(&image, out)?)
    }

    fn write_samples(
        &self,
        idx: ModuleIdx,
        module: &Module,
        layout: &ImageLayout,
        write: WriteSamples,
        out: &mut dyn Write,
    ) -> anyhow::Result<Written> {
        let release = &self.snapshot().run.kernel_release;
        let flow = self.flow.images.get(&idx);
        let addresses = addresses(self.counted, idx, flow);
        let frames = read_source_frames(module, release, &self.named, layout, addresses);
        let frames = frames.with_context(|| {
            format!(
                "no debug information for {}: build it with -g, or name the file that has it with --binary FILE",
                module.name
            )
        })?;
        let profile = sample_profile(self.counted, idx, layout, flow, &frames);
        write(&profile, &frames, out)?;
        Ok(profile.written)
    }

    /// `NAME-BUILDID.EXTENSION`, of the characters that file names are safe with.
    fn file_name(&self, idx: ModuleIdx) -> String {
        /// Digits of the build id, as many as tell two of one name apart.
        const DIGITS: usize = 8;

        let (name, id) = self.module(idx).map_or_else(
            |_| (String::new(), String::new()),
            |module| (module.name.clone(), hex(&module.build_id)),
        );
        let last = name.rsplit('/').next().unwrap_or_default();
        let safe: String = last
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-+".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let safe = safe.trim_matches(['_', '.']).to_owned();
        let id = id.get(..DIGITS).map_or_else(|| idx.0.to_string(), str::to_owned);
        format!("{safe}-{id}.{}", self.format.extension())
    }
}
