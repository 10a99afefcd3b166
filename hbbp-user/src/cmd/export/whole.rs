//! Exports of a whole profile, or of one of its modules, for viewers and analysis.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::images::choose;
use super::summary::Summary;
use hbbp_code::locate::Site;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, SourceLocations};
use hbbp_output::export::blocks::{write_assembly, write_blocks};
use hbbp_output::export::callgrind::write_callgrind;
use hbbp_output::export::chosen::ran_images;
use hbbp_output::export::collapsed::write_collapsed;
use hbbp_output::export::counted::{Counted, Only, Scale, WholeNumbers, is_in};
use hbbp_output::export::firefox::write_firefox;
use hbbp_output::export::image::Written;
use hbbp_output::export::pprof::write_pprof;
use hbbp_resolve::source::lines::SourceLines;
use hbbp_table::{write_arrow, write_parquet};

/// A format for all images together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WholeFormat {
    /// Collapsed stacks.
    Collapsed,
    /// Callgrind's profile.
    Callgrind,
    /// A profile of pprof.
    Pprof,
    /// A profile of the Firefox Profiler.
    Firefox,
    /// A table in Parquet's format.
    Parquet,
    /// A table as an Arrow IPC file.
    Arrow,
    /// Basic blocks as comma-separated values.
    Blocks,
    /// Basic blocks as assembly.
    Assembly,
}

/// Exports the profile, or the image that `wanted` names.
pub(super) fn export_whole(
    runs: &[Counted<'_>],
    format: WholeFormat,
    wanted: Option<&str>,
    named: &[PathBuf],
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let images = ran_images(runs.iter().map(|run| run.snapshot));
    let image = wanted.map(|wanted| choose(wanted, &images)).transpose()?;
    let of_image = |idx| image.map(|image| image.of_run(idx));
    let chosen: Vec<(&Counted<'_>, Only<'_>)> = runs
        .iter()
        .zip(0..)
        .map(|(run, idx)| (run, of_image(idx)))
        .collect();
    let numbers = WholeNumbers::new(runs, Scale::Executions);
    let mut bytes = Vec::new();
    let written = write(&chosen, format, numbers, named, &mut bytes)?;
    let mut summary = Summary::new(runs, numbers);
    summary.save(output, &bytes, &written, out)?;
    Ok(summary.warnings)
}

fn write(
    runs: &[(&Counted<'_>, Only<'_>)],
    format: WholeFormat,
    numbers: WholeNumbers,
    named: &[PathBuf],
    out: &mut dyn Write,
) -> anyhow::Result<Written> {
    let (counted, only) = match (format, runs) {
        (_, [run]) => *run,
        (WholeFormat::Collapsed, [run, ..]) => *run,
        (_, runs) => bail!(
            "the profile holds {} runs, and their processes and addresses have no sum: export the profiles that were \
             merged, or choose collapsed or a format of one image",
            runs.len()
        ),
    };
    Ok(match format {
        WholeFormat::Collapsed => write_collapsed(runs, numbers, out)?,
        WholeFormat::Pprof => write_pprof(counted, only, out)?,
        WholeFormat::Firefox => write_firefox(counted, only, out)?,
        WholeFormat::Parquet => write_parquet(counted, only, out)?,
        WholeFormat::Arrow => write_arrow(counted, only, out)?,
        WholeFormat::Blocks => write_blocks(counted, only, out)?,
        WholeFormat::Assembly => write_assembly(counted, only, out)?,
        WholeFormat::Callgrind => {
            write_callgrind(counted, only, &source_locations(counted, only, named), out)?
        }
    })
}

/// Source locations of executed and of sampled instructions, read image by image: debug information of all together may be larger than
/// memory.
fn source_locations(counted: &Counted<'_>, only: Only<'_>, named: &[PathBuf]) -> SourceLocations {
    let mut by_module: BTreeMap<ModuleIdx, BTreeSet<ImageAddr>> = BTreeMap::new();
    let executed = counted.executed_in(only).map(|executed| executed.site);
    let sampled = counted.samples().into_keys().map(|(site, _)| site);
    let wanted = sampled.filter(|site| is_in(only, site.module));
    for Site { module, addr } in executed.chain(wanted) {
        by_module.entry(module).or_default().insert(addr);
    }
    let mut locations = SourceLocations::new();
    for (module, addresses) in by_module {
        let mut lines = SourceLines::new(counted.snapshot, named.to_vec());
        locations.extend(lines.read_lines(addresses.into_iter().map(|at| (module, at))));
    }
    locations
}
