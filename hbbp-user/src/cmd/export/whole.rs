//! Exports of a whole profile, or of one of its modules, for viewers and analysis.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Summary;
use crate::export::blocks::{write_assembly, write_blocks};
use crate::export::callgrind::write_callgrind;
use crate::export::collapsed::write_collapsed;
use crate::export::counted::{Counted, Scale};
use crate::export::firefox::write_firefox;
use crate::export::image::{Wanted, Written};
use crate::export::pprof::write_pprof;
use crate::export::table::{write_arrow, write_parquet};
use crate::profile::Output;
use crate::resolve::source::lines::SourceLines;
use crate::snapshot::ModuleIdx;

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

/// Exports the profile, or the module that `wanted` names.
pub(super) fn export_whole(
    counted: &Counted<'_>,
    format: WholeFormat,
    wanted: Option<&str>,
    named: &[PathBuf],
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<String>> {
    let only = wanted
        .map(|wanted| Wanted::parse(wanted).choose(counted.snapshot))
        .transpose()?;
    let mut summary = Summary::new(counted, Scale::Executions);
    let Some(path) = output else {
        let written = write(counted, format, only, named, out)?;
        summary.left_out(&written);
        return Ok(summary.warnings);
    };
    let opened = Output::open(path)?;
    let is_standard = opened.is_standard();
    let mut bytes = Vec::new();
    let written = write(counted, format, only, named, &mut bytes)?;
    opened.write(&bytes, out)?;
    if is_standard {
        summary.left_out(&written);
    } else {
        summary.wrote(path, &written, out)?;
    }
    Ok(summary.warnings)
}

fn write(
    counted: &Counted<'_>,
    format: WholeFormat,
    only: Option<ModuleIdx>,
    named: &[PathBuf],
    out: &mut dyn Write,
) -> anyhow::Result<Written> {
    Ok(match format {
        WholeFormat::Collapsed => write_collapsed(counted, only, out)?,
        WholeFormat::Pprof => write_pprof(counted, only, out)?,
        WholeFormat::Firefox => write_firefox(counted, only, out)?,
        WholeFormat::Parquet => write_parquet(counted, only, out)?,
        WholeFormat::Arrow => write_arrow(counted, only, out)?,
        WholeFormat::Blocks => write_blocks(counted, only, out)?,
        WholeFormat::Assembly => write_assembly(counted, only, out)?,
        WholeFormat::Callgrind => {
            let sites = counted.executed_in(only).map(|executed| executed.site);
            let mut lines = SourceLines::new(counted.snapshot, named.to_vec());
            let locations = lines.read(sites.map(|site| (site.module, site.addr)));
            write_callgrind(counted, only, &locations, out)?
        }
    })
}
