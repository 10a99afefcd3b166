//! `hbbp-sys kernel-text`: differences between live kernel text and the image that was booted, by cause.
//!
//! `--write` is the patch of the paper (section IV.B: the static image with the text of the live kernel): analyses of
//! the written file and of the live text read the same bytes.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;

use hbbp_collect::object::{Constants, MapSizes, Object};
use hbbp_collect::text::TextWindow;
use hbbp_elf::build_id::read_kernel_build_id;
use hbbp_model::addr::Va;
use hbbp_model::printable::write_json;
use hbbp_model::snapshot::{KernelTextSource, hex};
use hbbp_output::report::TextOrJson;
use hbbp_resolve::kernel::kallsyms::{HIDDEN, Kallsyms, parse_kallsyms};
use hbbp_resolve::kernel::patch_sites::{Cause, Linked, RunningKernel, read_sites};
use hbbp_resolve::kernel::reader::{KernelText, ReadKernel, open_kernel_text, open_named_image};
use hbbp_resolve::kernel::text_difference::{TextDifference, compare};
use hbbp_resolve::kernel::vmlinux::{Vmlinux, find_vmlinux};

/// What to compare, and where to write the patched image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelTextOptions {
    /// The static image; `None` to look for that of the running kernel in the usual locations.
    pub vmlinux: Option<PathBuf>,
    /// Where to write the image with the live text.
    pub write: Option<PathBuf>,
    /// The form of the report.
    pub format: TextOrJson,
}

/// The report; in JSON with these names.
#[derive(Clone, Debug, Serialize)]
struct Findings {
    /// Version of this layout.
    format: &'static str,
    /// File of the static image.
    image: String,
    /// Its build id in hexadecimal.
    build_id: String,
    /// Where live text was read.
    live: &'static str,
    /// KASLR offset: run-time minus link-time address, in bytes.
    moved_by: u64,
    /// Bytes of .text.
    text_bytes: u64,
    /// Bytes whose live text could not be read.
    unreadable_bytes: u64,
    compared_bytes: u64,
    same_bytes: u64,
    /// Bytes that differ because of relocation.
    relocated_bytes: u64,
    /// Other differing bytes: the sum over the causes.
    differing_bytes: u64,
    /// Share of the differing bytes with unknown cause.
    unknown_share: f64,
    causes: Vec<CauseFound>,
    /// Runs of bytes without a cause, the first 1000.
    unknown: Vec<UnknownFound>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct CauseFound {
    cause: &'static str,
    meaning: &'static str,
    sites: u64,
    patched_sites: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct UnknownFound {
    /// Where it runs.
    address: String,
    symbol: String,
    linked: String,
    live: String,
}

/// Compares the two texts and prints the differences.
pub(crate) fn kernel_text(options: &KernelTextOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let kallsyms = std::fs::read("/proc/kallsyms").context("failed to read /proc/kallsyms")?;
    let symbols = parse_kallsyms(&kallsyms);
    if symbols.hidden {
        bail!("{HIDDEN}");
    }
    let vmlinux = open_image(options.vmlinux.as_deref(), &symbols)?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (mut live, why) = open_kernel_text(open_probe(), release.trim(), &symbols.image, None);
    if !live.is_live() {
        bail!(why.unwrap_or_default());
    }
    let path = vmlinux.path.display();
    let Some(section) = vmlinux.sections(".text").next() else {
        bail!("{path} has no section .text");
    };
    let linked = vmlinux.read_section(section);
    let linked = linked.with_context(|| format!("{path} is truncated"))?;
    let text = Linked {
        start: section.start,
        bytes: &linked,
    };
    let (now, unreadable_bytes) = read_live(
        &mut live,
        Va(section.start.0.wrapping_add(vmlinux.slide())),
        &linked,
    );
    // In debugfs, which may not be mounted, or locked.
    let kprobes = std::fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap_or_default();
    let kernel = RunningKernel {
        kallsyms: &kallsyms,
        symbols: &symbols,
        kprobes: &kprobes,
    };
    let (sites, mut notes) = read_sites(&vmlinux, text, kernel);
    let difference = compare(text, &now, vmlinux.slide(), &sites);
    if let Some(to) = &options.write {
        vmlinux
            .write_patched(to, section, &now)
            .with_context(|| format!("failed to write {} (the file must not exist yet)", to.display()))?;
        notes.push(format!("wrote the image with the live text to {}", to.display()));
    }
    let findings = findings(&vmlinux, &live, &difference, unreadable_bytes, &symbols, notes);
    match options.format {
        TextOrJson::Text => out.write_all(text_of(&findings).as_bytes())?,
        TextOrJson::Json => write_json(&findings, out)?,
    }
    Ok(())
}

/// The image that was named, or that of the running kernel.
fn open_image(named: Option<&Path>, symbols: &Kallsyms) -> anyhow::Result<Vmlinux> {
    if let Some(path) = named {
        return Ok(open_named_image(path, &symbols.image)?);
    }
    let build_id = read_kernel_build_id();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    find_vmlinux(release.trim(), &build_id, &symbols.image).map_err(|refused| {
        let refused: Vec<String> = refused
            .iter()
            .map(|(path, why)| format!("  {} {why}", path.display()))
            .collect();
        anyhow::anyhow!(
            "found no image of the running kernel ({}, build id {}); pass its vmlinux or boot image with \
             --vmlinux FILE, or install its package\n{}",
            release.trim(),
            hex(&build_id),
            refused.join("\n")
        )
    })
}

/// The reader for machines without /proc/kcore.
fn open_probe() -> Option<Box<ReadKernel>> {
    let mut object = Object::load(Constants::default(), MapSizes::default()).ok()?;
    let window = TextWindow::open(&mut object).ok()?;
    Some(Box::new(move |at, out: &mut [u8]| window.read(at, out)))
}

/// Reads the live text. Unreadable pages keep their linked bytes, and are counted in bytes.
fn read_live(live: &mut KernelText, start: Va, linked: &[u8]) -> (Vec<u8>, u64) {
    /// As much as a reader copies at once, and a page.
    const STEPS: [usize; 2] = [1 << 20, 4096];

    let mut now = linked.to_vec();
    let mut unreadable = 0;
    let mut at = start.0;
    for (chunk, linked) in now.chunks_mut(STEPS[0]).zip(linked.chunks(STEPS[0])) {
        if live.read(Va(at), chunk) {
            at += chunk.len() as u64;
            continue;
        }
        for (page, linked) in chunk.chunks_mut(STEPS[1]).zip(linked.chunks(STEPS[1])) {
            if !live.read(Va(at), page) {
                page.copy_from_slice(linked);
                unreadable += page.len() as u64;
            }
            at += page.len() as u64;
        }
    }
    (now, unreadable)
}

fn findings(
    vmlinux: &Vmlinux,
    live: &KernelText,
    difference: &TextDifference,
    unreadable_bytes: u64,
    symbols: &Kallsyms,
    notes: Vec<String>,
) -> Findings {
    let differing_bytes = difference.bytes();
    let unknown_bytes = difference.bytes_of(Cause::Unknown);
    let unknown = difference.unknown.iter().map(|run| {
        let at = Va(run.start.0.wrapping_add(vmlinux.slide()));
        let symbol = symbols.at(at);
        let symbol = symbol.map(|s| format!("{}+{:#x}", s.name, at.0 - s.start.0));
        UnknownFound {
            address: at.to_string(),
            symbol: symbol.unwrap_or_default(),
            linked: hex(&run.linked),
            live: hex(&run.live),
        }
    });
    let causes = difference.tallies.iter().map(|tally| CauseFound {
        cause: tally.cause.name(),
        meaning: tally.cause.sentence(),
        sites: tally.sites,
        patched_sites: tally.patched,
        bytes: tally.bytes,
    });
    let compared_bytes = difference.compared - unreadable_bytes;
    Findings {
        format: "hbbp-sys.kernel-text/1",
        image: vmlinux.path.display().to_string(),
        build_id: hex(vmlinux.build_id()),
        live: match live.source() {
            KernelTextSource::Probe => "BPF program",
            _ => "/proc/kcore",
        },
        moved_by: vmlinux.slide(),
        text_bytes: difference.compared,
        unreadable_bytes,
        compared_bytes,
        same_bytes: compared_bytes - difference.relocated - differing_bytes,
        relocated_bytes: difference.relocated,
        differing_bytes,
        unknown_share: unknown_bytes as f64 / (differing_bytes.max(1)) as f64,
        causes: causes.collect(),
        unknown: unknown.collect(),
        notes,
    }
}

fn text_of(findings: &Findings) -> String {
    /// More of them are in JSON.
    const MOST: usize = 10;

    let Findings {
        image,
        build_id,
        live,
        ..
    } = findings;
    // Writing to a String cannot fail.
    let mut text = format!("  static image  {image}, build id {build_id}\n  live text     {live}\n");
    let _ = writeln!(text, "  KASLR offset  {:#x}\n", findings.moved_by);
    text.push_str(&table_of_causes(findings));
    let _ = writeln!(text, "  {:>12}  bytes of .text", findings.text_bytes);
    let _ = writeln!(text, "- {:>12}  unreadable", findings.unreadable_bytes);
    let _ = writeln!(text, "- {:>12}  unchanged", findings.same_bytes);
    let _ = writeln!(text, "- {:>12}  relocated addresses", findings.relocated_bytes);
    let _ = writeln!(text, "= {:>12}  differing", findings.differing_bytes);
    for UnknownFound {
        address,
        symbol,
        linked,
        live,
    } in findings.unknown.iter().take(MOST)
    {
        let _ = writeln!(text, "unknown: {address} {symbol}: {linked} -> {live}");
    }
    for note in &findings.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The differing bytes by cause, most first, and their sum.
fn table_of_causes(findings: &Findings) -> String {
    let mut text = format!(
        "{:<18}{:>10}{:>10}{:>12}{:>9}\n",
        "cause", "sites", "patched", "bytes", "%"
    );
    let share = |bytes: u64| 100.0 * bytes as f64 / findings.differing_bytes.max(1) as f64;
    let mut causes: Vec<&CauseFound> = findings
        .causes
        .iter()
        .filter(|it| 0 < it.sites + it.bytes)
        .collect();
    causes.sort_by_key(|it| (it.cause == Cause::Unknown.name(), std::cmp::Reverse(it.bytes)));
    for CauseFound {
        cause,
        sites,
        patched_sites,
        bytes,
        ..
    } in causes
    {
        let _ = writeln!(
            text,
            "{cause:<18}{sites:>10}{patched_sites:>10}{bytes:>12}{:>9.2}",
            share(*bytes)
        );
    }
    let _ = writeln!(text, "{}", "-".repeat(59));
    let _ = writeln!(
        text,
        "{:<38}{:>12}{:>9.2}\n",
        "differing", findings.differing_bytes, 100.0
    );
    text
}
