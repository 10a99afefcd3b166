//! Exports for compilers and binary optimizers: one file for each image, in the addresses of that image.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::image_format::ImageFormat;
use super::summary::Summary;
use crate::advice::error_in_words;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::profile::Output;
use hbbp_model::snapshot::{ImageLayout, Module, ModuleIdx, ModuleKind, SourceFrames, hex};
use hbbp_output::export::autofdo::{SampleProfile, locations, sample_profile, write_autofdo};
use hbbp_output::export::bolt::write_bolt;
use hbbp_output::export::chosen::{RanImage, Wanted, ran_images};
use hbbp_output::export::counted::{Counted, WholeNumbers};
use hbbp_output::export::extbinary::write_extbinary;
use hbbp_output::export::flow::{ControlFlow, control_flow};
use hbbp_output::export::image::{Image, ImageRun, WriteImage, Written};
use hbbp_output::export::perf_script::write_perf_script;
use hbbp_output::export::profgen::write_profgen;
use hbbp_output::export::ranges::write_ranges;
use hbbp_resolve::source::image::{image_places, open_layout, read_build_id};
use hbbp_resolve::source::read_source_frames;

/// Writes a sample profile in one of its forms.
type WriteSamples = fn(&SampleProfile, &SourceFrames, &mut dyn Write) -> std::io::Result<()>;

/// Most images that an error lists.
const LISTED: usize = 5;

/// A profile whose images are exported.
struct Images<'a> {
    runs: &'a [Counted<'a>],
    /// The control flow of each run.
    flows: Vec<ControlFlow>,
    /// All images of the runs.
    images: Vec<RanImage>,
    /// Files that the user named.
    named: Vec<PathBuf>,
    format: ImageFormat,
    numbers: WholeNumbers,
}

/// Exports the image that `wanted` names, or all to a directory: the sum of all runs.
pub(super) fn export_images(
    runs: &[Counted<'_>],
    format: ImageFormat,
    wanted: Option<&str>,
    named: &[PathBuf],
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let mut images = Images {
        runs,
        flows: runs.iter().map(control_flow).collect(),
        images: ran_images(runs.iter().map(|run| run.snapshot)),
        named: named.to_vec(),
        format,
        numbers: WholeNumbers::new(runs, format.scale()),
    };
    if images.flows.iter().all(|flow| flow.images.is_empty()) && !format.takes_addresses() {
        bail!(
            "the profile has no branch stacks, which this format is made of; --format autofdo takes samples as well"
        );
    }
    let mut summary = Summary::new(runs, images.numbers);
    images.note(&mut summary);
    if let Some(folder) = folder(output)? {
        let all = match wanted {
            Some(wanted) => vec![images.choose(wanted)?],
            None => images.all(),
        };
        for (image, n) in all.into_iter().zip(1..) {
            let mut bytes = Vec::new();
            match images.write(&image, &mut bytes) {
                Ok(written) => {
                    let path = folder.join(format.file_name(&image, n));
                    Output::open(&path)?.write(&bytes, &mut std::io::sink())?;
                    summary.wrote(&path, &written, out)?;
                }
                Err(error) => {
                    let why = format!("not exported: {}", error_in_words(&error));
                    summary.warnings.push(why);
                }
            }
        }
        return Ok(summary.warnings);
    }
    let image = match wanted {
        Some(wanted) => images.choose(wanted)?,
        None => images.only()?,
    };
    let mut bytes = Vec::new();
    let written = images.write(&image, &mut bytes)?;
    summary.save(output, &bytes, &written, out)?;
    Ok(summary.warnings)
}

/// Where a file for each image goes: a directory that is there, or one whose path ends in a slash, which is made.
fn folder(output: Option<&Path>) -> anyhow::Result<Option<&Path>> {
    let Some(path) = output else { return Ok(None) };
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") && !path.exists() {
        fs::create_dir(path).with_context(|| format!("failed to create {}", path.display()))?;
    }
    Ok(Some(path).filter(|path| path.is_dir()))
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
        let sum = |amount: fn(&ControlFlow) -> f64| self.flows.iter().map(amount).sum::<f64>();
        let parts = [
            (
                sum(|flow| flow.far),
                "executions of system calls, interrupts and returns from them, which are not control flow of an image",
            ),
            (
                sum(|flow| flow.interrupted_at_once),
                "executions that an interrupt ended before the first instruction",
            ),
        ];
        for (amount, what) in parts.into_iter().filter(|(amount, _)| 0.5 <= *amount) {
            summary
                .warnings
                .push(format!("left out of all images: {amount:.0} {what}"));
        }
    }

    /// The runs of an image, with its modules in each.
    fn modules(&self, image: &RanImage) -> impl Iterator<Item = (&Counted<'_>, &ControlFlow, ModuleIdx)> {
        let runs = self.runs.iter().zip(&self.flows).zip(&image.modules);
        runs.flat_map(|((run, flow), modules)| modules.iter().map(move |module| (run, flow, *module)))
    }

    /// The executed images, the one with the most executions first.
    fn all(&self) -> Vec<RanImage> {
        let images = self.images.iter().filter(|image| has_file(image.kind));
        let mut all: Vec<(&RanImage, f64)> = images
            .map(|image| (image, self.executions(image)))
            .filter(|(_, executions)| 0.0 < *executions)
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.into_iter().map(|(image, _)| image.clone()).collect()
    }

    fn executions(&self, image: &RanImage) -> f64 {
        let of_module = |(run, flow, module): (&Counted<'_>, &ControlFlow, ModuleIdx)| {
            if self.format.takes_addresses() {
                let only = [module];
                let ran = run.executed_in(Some(&only));
                return ran.map(|executed| executed.executions).sum::<f64>();
            }
            let ranges = flow
                .images
                .get(&module)
                .into_iter()
                .flat_map(|flow| flow.ranges.values());
            ranges.map(|range| range.executions).sum()
        };
        self.modules(image).map(of_module).sum()
    }

    /// The only image, if there is one.
    fn only(&self) -> anyhow::Result<RanImage> {
        let mut all = self.all();
        match (all.pop(), all.as_slice()) {
            (None, _) => bail!("no image with a file has executions in this profile"),
            (Some(image), []) => Ok(image),
            (Some(_), several) => {
                let names: Vec<&str> = several.iter().take(LISTED).map(RanImage::name).collect();
                bail!(
                    "the profile has {} images: choose one with --image (the first by executions: {}), or name a \
                     directory with -o to export all",
                    several.len() + 1,
                    names.join(", ")
                )
            }
        }
    }

    /// The image that the user names: a file by its build id, else a name.
    fn choose(&mut self, wanted: &str) -> anyhow::Result<RanImage> {
        let path = Path::new(wanted);
        if path.is_file() {
            self.named.insert(0, path.to_owned());
        }
        Ok(choose(wanted, &self.images)?.clone())
    }

    /// Where the image lies in its file. That of a program need not be found where addresses are those of the file.
    fn layout(&self, module: &Module, release: &str) -> anyhow::Result<ImageLayout> {
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

    /// The image in each run that executed it.
    fn runs(&self, image: &RanImage) -> anyhow::Result<Vec<ImageRun<'_>>> {
        let mut runs = Vec::new();
        for (counted, flow, idx) in self.modules(image) {
            let flow = flow.images.get(&idx);
            if flow.is_none() && !self.format.takes_addresses() {
                continue;
            }
            let module = counted.snapshot.modules.get(idx.0 as usize);
            let module = module.context("the profile refers to a module that it does not have")?;
            runs.push(ImageRun {
                counted,
                module: idx,
                flow,
                layout: self.layout(module, &counted.snapshot.run.host.kernel_release)?,
            });
        }
        Ok(runs)
    }

    fn write(&self, image: &RanImage, out: &mut dyn Write) -> anyhow::Result<Written> {
        let runs = self.runs(image)?;
        let first = runs.first();
        let first = first.with_context(|| format!("{} is in no branch stack", image.name()))?;
        let described = Image {
            runs: &runs,
            layout: &first.layout,
            numbers: self.numbers,
        };
        let write: WriteImage = match self.format {
            ImageFormat::Autofdo => return self.write_samples(&described, write_autofdo, out),
            ImageFormat::ExtBinary => return self.write_samples(&described, write_extbinary, out),
            ImageFormat::Bolt => write_bolt,
            ImageFormat::Profgen => write_profgen,
            ImageFormat::Ranges => write_ranges,
            ImageFormat::PerfScript => write_perf_script,
        };
        if first.layout.is_relocatable() && self.format != ImageFormat::Ranges {
            bail!(
                "{} is a relocatable file, which the reader of this format does not take: use --format autofdo or \
                 ranges",
                image.name()
            );
        }
        Ok(write(&described, out)?)
    }

    fn write_samples(
        &self,
        image: &Image<'_>,
        write: WriteSamples,
        out: &mut dyn Write,
    ) -> anyhow::Result<Written> {
        let (snapshot, idx, module) = image
            .runs
            .iter()
            .find_map(|run| {
                let snapshot = run.counted.snapshot;
                Some((snapshot, run.module, snapshot.modules.get(run.module.0 as usize)?))
            })
            .context("the image is in no run")?;
        let frames = read_source_frames(snapshot, idx, &self.named, locations(image.runs))?;
        let profile = sample_profile(image, &frames);
        if profile.functions.is_empty() {
            let why = format!("no debug information for the code of {} that ran", module.name);
            bail!(Advised::new(why, Advice::NameDebugFile));
        }
        write(&profile, &frames, out)?;
        Ok(profile.written)
    }
}

/// The image that the user names: a file by its build id, else a name.
pub(super) fn choose<'a>(wanted: &str, images: &'a [RanImage]) -> anyhow::Result<&'a RanImage> {
    let path = Path::new(wanted);
    if !path.is_file() {
        return Ok(Wanted::parse(wanted).choose(images).map_err(Advised::from)?);
    }
    let build_id = read_build_id(path).with_context(|| path.display().to_string())?;
    if build_id.is_empty() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(wanted);
        return Ok(Wanted::parse(name).choose(images).map_err(Advised::from)?);
    }
    let id = hex(&build_id);
    let chosen = Wanted::BuildId(build_id).choose(images).map_err(Advised::from);
    chosen.with_context(|| {
        format!(
            "{} has build id {id}, and nothing of the profile has",
            path.display()
        )
    })
}
