//! Ring 0 of a recording: the kernel's text as perf copied it, or the image that it was started from.
//!
//! `perf record --kcore` and `perf buildid-cache --kcore` copy three files of the running kernel into a folder: its
//! text (`kcore`), its symbols (`kallsyms`) and its list of modules (`modules`).

use std::path::{Path, PathBuf};

use super::image_marks::ImageMarks;
use super::kallsyms::{Kallsyms, parse_kallsyms};
use super::kcore::{TEXT_AREA, open_kcore_at};
use super::map::KernelMap;
use super::modules::{LoadedModule, parse_modules};
use super::reader::KernelText;
use super::space::KernelSpace;
use super::vmlinux::open_vmlinux_at;
use crate::debuginfod::{Artifact, fetch};
use hbbp_model::addr::Va;
use hbbp_model::record::{Mmap, Record, Timed};
use hbbp_model::snapshot::hex;

/// How perf names the kernel among the mappings; the name of a symbol at a known address may follow.
const KERNEL: &str = "[kernel.kallsyms]";
/// The same for the guest of the recording.
const GUEST: &str = "[guest.kernel.kallsyms";

/// Where the text of the recorded kernel is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KernelPlace {
    /// Nowhere: its samples stay unresolved.
    #[default]
    None,
    /// A folder with `kcore`, `kallsyms` and `modules`.
    Kcore(PathBuf),
    /// The image, which lacks what the kernel patched into itself.
    Vmlinux(PathBuf),
}

/// Opens the kernel of a recording with these records; `build_id` is empty where the recording does not have it. An
/// error is a sentence for the user, who named the path.
pub fn open_recorded_kernel(
    place: &KernelPlace,
    records: &[Timed],
    build_id: &[u8],
) -> Result<KernelSpace, String> {
    let mmaps = || records.iter().filter_map(kernel_mmap);
    let image = mmaps().find(|mmap| mmap.path.starts_with(KERNEL));
    let mut map = KernelMap::default();
    let opened = |path: &Path| open_vmlinux_at(path, build_id, &marks(image?)).ok();
    let fetched = || opened(&fetch(Artifact::DebugInfo, build_id)?);
    let vmlinux = match place {
        KernelPlace::None => fetched(),
        KernelPlace::Kcore(_) => None,
        KernelPlace::Vmlinux(path) => Some(opened(path).ok_or_else(|| refused(path, build_id))?),
    };
    let reader = match (place, vmlinux) {
        (_, Some(vmlinux)) => {
            map.update(
                vmlinux.read_symbols(),
                &loaded(mmaps()),
                image.and_then(extent),
                0,
            );
            KernelText::Vmlinux(vmlinux)
        }
        (KernelPlace::None | KernelPlace::Vmlinux(_), None) => {
            map.update(Kallsyms::default(), &loaded(mmaps()), image.and_then(extent), 0);
            KernelText::None
        }
        (KernelPlace::Kcore(folder), None) => {
            let read = |name: &str| {
                let path = folder.join(name);
                std::fs::read(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
            };
            let kcore = folder.join("kcore");
            let kcore = open_kcore_at(&kcore)
                .map_err(|error| format!("{} cannot be used: {error}", kcore.display()))?;
            let modules = parse_modules(&read("modules").unwrap_or_default());
            map.update(parse_kallsyms(&read("kallsyms")?), &modules, kcore.image(), 0);
            KernelText::Kcore(kcore)
        }
    };
    let mut kernel = KernelSpace::new(reader, map).recorded(build_id);
    for timed in records {
        kernel.apply(timed.time, &timed.record);
    }
    Ok(kernel)
}

fn refused(path: &Path, build_id: &[u8]) -> String {
    let wanted = if build_id.is_empty() {
        "not recorded".to_owned()
    } else {
        hex(build_id)
    };
    format!(
        "{} is not the image of the recorded kernel (build id {wanted}), has no text, or the recording \
         lacks the kernel address",
        path.display()
    )
}

fn kernel_mmap(timed: &Timed) -> Option<&Mmap> {
    match &timed.record {
        Record::Mmap(mmap) if mmap.pid == u32::MAX && !mmap.path.starts_with(GUEST) => Some(mmap),
        _ => None,
    }
}

/// perf states the address of the symbol that follows the name instead of a file offset.
fn marks(image: &Mmap) -> ImageMarks {
    let at = Some(Va(image.offset.0));
    match image.path.strip_prefix(KERNEL) {
        Some("_stext") => ImageMarks {
            stext: at,
            ..ImageMarks::default()
        },
        _ => ImageMarks {
            text: at,
            ..ImageMarks::default()
        },
    }
}

/// Where the image lies; old versions of perf let it begin at 0 and end with the address space.
fn extent(image: &Mmap) -> Option<(Va, Va)> {
    let start = image.start.max(Va(TEXT_AREA)).max(Va(image.offset.0));
    let end = image.start.checked_add(image.len)?;
    (start < end).then_some((start, end))
}

fn loaded<'a>(mmaps: impl Iterator<Item = &'a Mmap>) -> Vec<LoadedModule> {
    let modules = mmaps.filter(|mmap| !mmap.path.starts_with('[') || mmap.path.ends_with(']'));
    let module = |mmap: &Mmap| {
        let file = mmap.path.rsplit('/').next().unwrap_or(&mmap.path);
        let name = file
            .trim_matches(['[', ']'])
            .split(".ko")
            .next()
            .unwrap_or(file)
            .replace('-', "_");
        LoadedModule {
            name,
            start: Some(mmap.start),
            len: mmap.len,
        }
    };
    modules
        .filter(|mmap| !mmap.path.starts_with(KERNEL))
        .map(module)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::FileOff;
    use hbbp_model::record::FileIdentity;
    use hbbp_model::snapshot::Losses;

    fn mmap(start: u64, len: u64, offset: u64, path: &str) -> Timed {
        let record = Record::Mmap(Mmap {
            pid: u32::MAX,
            start: Va(start),
            len,
            offset: FileOff(offset),
            identity: FileIdentity::Unknown,
            shared: false,
            path: path.into(),
        });
        Timed { time: 0, record }
    }

    fn records() -> Vec<Timed> {
        vec![
            mmap(
                0,
                0xffff_ffff_9fff_ffff,
                0xffff_ffff_8020_0000,
                "[kernel.kallsyms]_text",
            ),
            mmap(
                0xffff_ffff_a000_0000,
                0x3_dfff,
                0,
                "/lib/modules/2.6.34/kernel/net/ipv6/nf-x.ko.xz",
            ),
            mmap(0xffff_ffff_a010_0000, 0x1000, 0, "[bridge]"),
        ]
    }

    #[test]
    fn without_text_the_modules_have_names() {
        let mut kernel = open_recorded_kernel(&KernelPlace::None, &records(), &[]).unwrap();
        for at in [
            0xffff_ffff_8020_1000,
            0xffff_ffff_a000_0010,
            0xffff_ffff_a010_0010,
        ] {
            kernel.hit(Va(at), 1, &mut Losses::default());
        }
        let (mut modules, mut text) = (Vec::new(), Vec::new());
        kernel.emit(&mut modules, &mut text);
        let names: Vec<_> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!((names, text.len()), (vec!["[kernel]", "nf_x", "bridge"], 0));
    }

    #[test]
    fn unusable_paths_are_named() {
        let missing = PathBuf::from("/nowhere");
        for place in [KernelPlace::Kcore(missing.clone()), KernelPlace::Vmlinux(missing)] {
            let error = open_recorded_kernel(&place, &records(), &[]).unwrap_err();
            assert!(error.contains("/nowhere"), "{error}");
        }
    }
}
