//! Options of `hbbp-sys export`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::recording::InputArgs;
use super::report::RuleArgs;
use crate::cmd::export::{ExportFormat, ExportLines, ExportOptions, ImageFormat, WholeFormat};
use hbbp_output::export::StreamFilter;
use hbbp_output::export::counts::CountSource;

/// What holds for several formats; each is explained where it is defined.
pub(super) const EXPORT_HELP: &str = "\
bolt, profgen, ranges, perf-script, autofdo and extbinary are profiles of one image (--image), in
the addresses of its file, for compilers and binary optimizers. streams, branches, counts and
entries are lines for scripts, of all images, as recorded. The other formats hold the whole
profile, or the module of --image.

bolt, profgen, ranges and perf-script hold ranges and taken branches: recorded streams, scaled to
executions and balanced as in the report; those of perf-script add up to the number of recorded
streams. autofdo, extbinary and the formats of the whole profile hold the executions of the report,
by address.
Where executions are relative, counts are thousandths of them. What a format cannot hold is counted
on standard error. Of a merged profile, the formats of one image and collapsed hold the sum of all
runs; the others take profiles of one run.

Lines for scripts:
  M PATH BUILDID                start of a module; BUILDID is - if unknown
  S START END COUNT             stream: addresses of its first and last instruction
  B FROM TO COUNT MISPREDICTED  branch; a target in another module is BUILDID:ADDRESS
  ADDRESS EXECUTIONS            count of an instruction
  # unit UNIT                   head of counts that are not executions, such as time
  # discarded REASON COUNT      trailer: counts that are in no other line

Addresses are ELF addresses (for the kernel, runtime addresses) in hexadecimal without 0x;
counts are decimal. Modules are sorted by path, lines by address.

Entries are lines of `perf script -F ip,brstack`, newest entry first:
  FROM/TO/M|P|-/X|-/A|-/CYCLES/TYPE/SPECULATION";

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Format of the export.
    #[arg(long, value_enum)]
    format: FormatArg,
    /// Image to export, by path or build id.
    ///
    /// A build id (or its first digits), a path, a kernel module, or vmlinux. A file is matched by its build id.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Write to a file, or all images to a directory.
    ///
    /// Default: standard output.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    rule: RuleArgs,
    /// Print streams as recorded, without discarding impossible ones.
    #[arg(long)]
    raw: bool,
    /// Source of the counts, with --format counts.
    ///
    /// Default: lbr if there are streams, else ebs.
    #[arg(long, value_enum)]
    source: Option<SourceArg>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum FormatArg {
    /// Code from the target of one recorded branch to the source of the next: a line for each, with its count.
    Streams,
    /// Taken branches with counts and mispredictions: a line for each source and target.
    Branches,
    /// Executions of each instruction: a line for each address.
    Counts,
    /// Every branch stack of a recording, as a line of `perf script -F ip,brstack`.
    Entries,
    /// Pre-aggregated profile of one image, for `perf2bolt --pa` and `llvm-bolt --pa`.
    Bolt,
    /// Unsymbolized profile of one image, for `llvm-profgen --unsymbolized-profile`.
    Profgen,
    /// Text of one image for `create_llvm_prof --profiler=text`; file offsets, so .ko files work too.
    Ranges,
    /// Stacks of one image as of `perf script -F ip,brstack`, with counts, for `llvm-profgen --perfscript`.
    PerfScript,
    /// LLVM's sample profile of one image (`clang -fprofile-sample-use`), with inlined functions.
    Autofdo,
    /// The same sample profile in LLVM's extensible binary form.
    Extbinary,
    /// Lines `ring;module;function;category executions`, for flame graphs; time has its unit as the outermost frame.
    Collapsed,
    /// For KCachegrind and callgrind_annotate, by instruction and source line; event Ir for executions, Time for time.
    Callgrind,
    /// Gzipped protobuf for pprof; labels ring, category, extension, mnemonic and process.
    Pprof,
    /// JSON for profiler.firefox.com; one thread for each process.
    Firefox,
    /// Parquet table: one row for each instruction address and process.
    Parquet,
    /// The same table as an Arrow IPC file.
    Arrow,
    /// Basic blocks as CSV: bytes in hexadecimal, executions (or what the column is named for), cycles (BHive, uiCA).
    Blocks,
    /// The heaviest basic blocks as assembly, for llvm-mca.
    Mca,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArg {
    /// Recorded streams through each instruction, not scaled by the period.
    Lbr,
    /// Executions estimated from eventing IPs.
    Ebs,
    /// Executions as in the report: EBS or LBR, as the rule chooses for each block.
    Hybrid,
}

impl ExportArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<ExportOptions> {
        if self.raw && self.format != FormatArg::Streams {
            bail!("--raw requires --format streams");
        }
        if self.source.is_some() && self.format != FormatArg::Counts {
            bail!("--source requires --format counts");
        }
        let format = self.format();
        if matches!(format, ExportFormat::Lines(_)) && (self.image.is_some() || self.output.is_some()) {
            bail!("--image and --output do not apply to lines for scripts, which are printed for all images");
        }
        Ok(ExportOptions {
            format,
            input: self.input.into_options(),
            image: self.image,
            output: self.output,
            rule: self.rule.rule,
        })
    }

    fn format(&self) -> ExportFormat {
        ExportFormat::Lines(match self.format {
            FormatArg::Streams if self.raw => ExportLines::Streams(StreamFilter::Raw),
            FormatArg::Streams => ExportLines::Streams(StreamFilter::Checked),
            FormatArg::Branches => ExportLines::Branches,
            FormatArg::Counts => ExportLines::Counts(self.source.map(|source| match source {
                SourceArg::Lbr => CountSource::Lbr,
                SourceArg::Ebs => CountSource::Ebs,
                SourceArg::Hybrid => CountSource::Hybrid,
            })),
            FormatArg::Entries => ExportLines::Entries,
            FormatArg::Bolt => return ExportFormat::Image(ImageFormat::Bolt),
            FormatArg::Profgen => return ExportFormat::Image(ImageFormat::Profgen),
            FormatArg::Ranges => return ExportFormat::Image(ImageFormat::Ranges),
            FormatArg::PerfScript => return ExportFormat::Image(ImageFormat::PerfScript),
            FormatArg::Autofdo => return ExportFormat::Image(ImageFormat::Autofdo),
            FormatArg::Extbinary => return ExportFormat::Image(ImageFormat::ExtBinary),
            FormatArg::Collapsed => return ExportFormat::Whole(WholeFormat::Collapsed),
            FormatArg::Callgrind => return ExportFormat::Whole(WholeFormat::Callgrind),
            FormatArg::Pprof => return ExportFormat::Whole(WholeFormat::Pprof),
            FormatArg::Firefox => return ExportFormat::Whole(WholeFormat::Firefox),
            FormatArg::Parquet => return ExportFormat::Whole(WholeFormat::Parquet),
            FormatArg::Arrow => return ExportFormat::Whole(WholeFormat::Arrow),
            FormatArg::Blocks => return ExportFormat::Whole(WholeFormat::Blocks),
            FormatArg::Mca => return ExportFormat::Whole(WholeFormat::Assembly),
        })
    }
}
