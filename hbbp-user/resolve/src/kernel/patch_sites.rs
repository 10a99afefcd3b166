//! The patch sites of the kernel image, from the tables that the linker left in the image.
//!
//! The kernel reads the same tables when it patches. Their layouts are those of Linux 6.1 and 6.12
//! (arch/x86/include/asm/alternative.h, paravirt_types.h, runtime-const.h; include/linux/jump_label.h and
//! static_call_types.h; the section names are in arch/x86/kernel/vmlinux.lds.S). Most entries hold a 32-bit distance
//! from the field itself to the site. Tables in the middle of a section are bounded by symbols, which only the running
//! kernel has where the image is stripped.

use std::fmt;

use iced_x86::{Decoder, DecoderOptions};

use hbbp_model::addr::{ImageAddr, Va};

use super::alternatives::{AltLayout, target};
use super::kallsyms::{Kallsyms, parse_marks};
use super::vmlinux::Vmlinux;

macro_rules! causes {
    ($($variant:ident, $name:literal, $sentence:literal;)*) => {
        /// Why live text differs from linked text. Of two causes for one byte the later in this order counts: it is the
        /// order in which the kernel patches (arch/x86/kernel/alternative.c, `alternative_instructions`), but call
        /// thunks, which few processors need, rank below everything else.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Cause {
            $(#[doc = $sentence] $variant,)*
        }

        impl Cause {
            /// All of them, in their order.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// Stable name, also in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// What is patched there.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

causes! {
    Unknown, "unknown", "sites in no kernel table";
    CallThunks, "call-thunks", "call depth tracking";
    Paravirt, "paravirt", "paravirt calls, made direct or replaced by the native instruction";
    Cfi, "cfi", "FineIBT: function type hashes before functions";
    Retpolines, "retpolines", "indirect branches through thunks";
    ReturnThunks, "return-thunks", "returns, direct or through a thunk";
    Alternatives, "alternatives", "instructions chosen by CPU features";
    EndbrSeals, "endbr-seals", "ENDBR of functions that are never called indirectly";
    SmpLocks, "smp-locks", "LOCK prefixes, removed on uniprocessor machines";
    RuntimeConstants, "runtime-constants", "addresses and shifts fixed at boot";
    Ftrace, "ftrace", "ftrace calls at function entry";
    StaticKeys, "static-keys", "static key branches, such as tracepoints";
    StaticCalls, "static-calls", "static calls and their trampolines";
    Kprobes, "kprobes", "kprobe breakpoints and jumps";
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A site that the kernel may patch.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Site {
    /// Its cause; sites are sorted by it.
    pub cause: Cause,
    /// First byte, where it was linked.
    pub start: ImageAddr,
    /// Length in bytes.
    pub len: u64,
}

/// Linked text: what is at each address of a section.
#[derive(Clone, Copy, Debug)]
pub struct Linked<'a> {
    /// Address of the first byte.
    pub start: ImageAddr,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Linked<'_> {
    fn at(&self, at: ImageAddr) -> Option<&[u8]> {
        let from_start = usize::try_from(at.since(self.start)?).ok()?;
        self.bytes
            .get(from_start..)
            .filter(|remainder| !remainder.is_empty())
    }

    /// Length of the instruction that was linked here.
    fn instruction_len(&self, at: ImageAddr) -> Option<u64> {
        let mut decoder = Decoder::new(64, self.at(at)?, DecoderOptions::NONE);
        u64::try_from(decoder.decode().len()).ok().filter(|len| 0 < *len)
    }
}

/// What the running kernel says of its text, as it prints it.
#[derive(Clone, Copy, Debug)]
pub struct RunningKernel<'a> {
    /// Text of /proc/kallsyms.
    pub kallsyms: &'a [u8],
    /// The same, understood.
    pub symbols: &'a Kallsyms,
    /// Text of kprobes/list in debugfs; empty if it cannot be read.
    pub kprobes: &'a str,
}

/// Reads all sites of `text`, sorted; and a sentence about each table that could not be read.
pub fn read_sites(
    vmlinux: &Vmlinux,
    text: Linked<'_>,
    kernel: RunningKernel<'_>,
) -> (Vec<Site>, Vec<String>) {
    let mut reading = Reading {
        vmlinux,
        text,
        sites: Vec::new(),
        notes: Vec::new(),
    };
    reading.distances(".retpoline_sites", Cause::Retpolines, |text, at| {
        text.instruction_len(at)
    });
    reading.distances(".return_sites", Cause::ReturnThunks, |text, at| {
        text.instruction_len(at)
    });
    reading.distances(".call_sites", Cause::CallThunks, |text, at| {
        text.instruction_len(at)
    });
    reading.distances(".ibt_endbr_seal", Cause::EndbrSeals, |_, _| Some(ENDBR));
    reading.distances(".cfi_sites", Cause::Cfi, |_, _| Some(CFI_PREAMBLE));
    reading.distances(".smp_locks", Cause::SmpLocks, |_, _| Some(1));
    reading.distances("runtime_ptr_*", Cause::RuntimeConstants, |_, _| Some(8));
    reading.distances("runtime_shift_*", Cause::RuntimeConstants, |_, _| Some(1));
    reading.alternatives();
    reading.paravirt();
    reading.bounded(kernel.kallsyms);
    reading.trampolines(kernel.symbols);
    reading.kprobes(kernel.kprobes);
    let Reading { mut sites, notes, .. } = reading;
    sites.sort_unstable();
    sites.dedup();
    (sites, notes)
}

/// ENDBR64 (SDM vol. 2).
const ENDBR: u64 = 4;
/// The bytes before a function that hold its hash (arch/x86/kernel/alternative.c, `fineibt_preamble_start`).
const CFI_PREAMBLE: u64 = 16;
/// Call or jump with a 32-bit distance, and the NOP of the same length.
const BRANCH: u64 = 5;

struct Reading<'a> {
    vmlinux: &'a Vmlinux,
    text: Linked<'a>,
    sites: Vec<Site>,
    notes: Vec<String>,
}

impl Reading<'_> {
    /// Tables also name text that is gone after the boot; only what is in `text` counts.
    fn add(&mut self, cause: Cause, start: ImageAddr, len: u64) {
        if self.text.at(start).is_some() && 0 < len {
            self.sites.push(Site { cause, start, len });
        }
    }

    /// Sections of distances, each to one site.
    fn distances(&mut self, name: &str, cause: Cause, len: impl Fn(&Linked<'_>, ImageAddr) -> Option<u64>) {
        let vmlinux = self.vmlinux;
        for section in vmlinux.sections(name) {
            let bytes = vmlinux.read_section(section).unwrap_or_default();
            for at in (0..bytes.len()).step_by(4) {
                let place = target(section.start, &bytes, at);
                if let Some((place, len)) = place.and_then(|place| Some((place, len(&self.text, place)?))) {
                    self.add(cause, place, len);
                }
            }
        }
    }

    fn alternatives(&mut self) {
        let vmlinux = self.vmlinux;
        let Some(table) = vmlinux.sections(".altinstructions").next() else {
            return;
        };
        let bytes = vmlinux.read_section(table).unwrap_or_default();
        let replacements = vmlinux.sections(".altinstr_replacement").next();
        let Some(layout) = replacements.and_then(|it| AltLayout::of(table.start, &bytes, it)) else {
            self.notes.push(
                "unknown layout of .altinstructions: patched alternatives are listed as unknown".to_owned(),
            );
            return;
        };
        for at in (0..bytes.len()).step_by(layout.stride) {
            let len = bytes.get(at + layout.len_at).copied().unwrap_or(0);
            let flags = layout.flags_at.and_then(|flags_at| bytes.get(at + flags_at));
            let is_call = flags.is_some_and(|flags| flags & AltLayout::DIRECT_CALL != 0);
            let cause = if is_call {
                Cause::Paravirt
            } else {
                Cause::Alternatives
            };
            if let Some(place) = target(table.start, &bytes, at) {
                self.add(cause, place, len.into());
            }
        }
    }

    /// `struct paravirt_patch_site` of 6.1: the address, a type, a length, padding.
    fn paravirt(&mut self) {
        const STRIDE: usize = 16;
        const LEN_AT: usize = 9;

        let vmlinux = self.vmlinux;
        for section in vmlinux.sections(".parainstructions") {
            let bytes = vmlinux.read_section(section).unwrap_or_default();
            for record in bytes.chunks_exact(STRIDE) {
                let place = record.first_chunk().map(|place| u64::from_le_bytes(*place));
                let len = record.get(LEN_AT).copied().map(u64::from);
                if let (Some(place), Some(len)) = (place, len) {
                    self.add(Cause::Paravirt, ImageAddr(place), len);
                }
            }
        }
    }

    /// Tables that only symbols bound.
    fn bounded(&mut self, kallsyms: &[u8]) {
        let [keys, keys_end, calls, calls_end, ftrace, ftrace_end] = parse_marks(
            kallsyms,
            [
                "__start___jump_table",
                "__stop___jump_table",
                "__start_static_call_sites",
                "__stop_static_call_sites",
                "__start_mcount_loc",
                "__stop_mcount_loc",
            ],
        );
        /// `struct jump_entry`: two distances, to the site and to its target, and the key.
        const KEY: usize = 16;
        if let Some((table, bytes)) = self.between("static keys", keys, keys_end) {
            for at in (0..bytes.len()).step_by(KEY) {
                let place = target(table, &bytes, at);
                // The short forms are a jump of two bytes and the NOP of the same length.
                let linked = |place| self.text.at(place);
                let len = match place.and_then(linked) {
                    Some([0xeb, ..] | [0x66, 0x90, ..]) => 2,
                    _ => BRANCH,
                };
                self.add(Cause::StaticKeys, place.unwrap_or_default(), len);
            }
        }
        /// `struct static_call_site`: distances to the site and to the key.
        const CALL: usize = 8;
        if let Some((table, bytes)) = self.between("static calls", calls, calls_end) {
            for at in (0..bytes.len()).step_by(CALL) {
                let place = target(table, &bytes, at).unwrap_or_default();
                // Conditional tail calls have six bytes.
                let len = match self.text.at(place) {
                    Some([0x0f, 0x80..=0x8f, ..]) => BRANCH + 1,
                    _ => BRANCH,
                };
                self.add(Cause::StaticCalls, place, len);
            }
        }
        if let Some((_, bytes)) = self.between("ftrace", ftrace, ftrace_end) {
            let places = bytes.as_chunks::<8>().0.iter();
            for place in places.map(|place| u64::from_le_bytes(*place)) {
                self.add(Cause::Ftrace, ImageAddr(place), BRANCH);
            }
        }
        // The tracer's own trampolines call what is set (arch/x86/kernel/ftrace.c, `ftrace_update_ftrace_func`).
        let calls = parse_marks(kallsyms, ["ftrace_call", "ftrace_regs_call"]);
        for call in calls.into_iter().flatten() {
            let place = ImageAddr(call.0.wrapping_sub(self.vmlinux.slide()));
            self.add(Cause::Ftrace, place, BRANCH);
        }
    }

    /// The bytes of a table between two running addresses, and where it was linked.
    fn between(&mut self, what: &str, start: Option<Va>, end: Option<Va>) -> Option<(ImageAddr, Vec<u8>)> {
        let vmlinux = self.vmlinux;
        let table = start.zip(end).and_then(|(start, end)| {
            let linked = ImageAddr(start.0.wrapping_sub(vmlinux.slide()));
            Some((linked, vmlinux.read_linked(linked, end.since(start)?)?))
        });
        if table.is_none() {
            self.notes.push(format!(
                "/proc/kallsyms lacks the table of {what} (no CONFIG_KALLSYMS_ALL, or no such feature): its \
                 patches are listed as unknown"
            ));
        }
        table
    }

    /// The trampolines of static calls are named after their key (include/linux/static_call_types.h).
    fn trampolines(&mut self, symbols: &Kallsyms) {
        let slide = self.vmlinux.slide();
        for symbol in symbols
            .iter()
            .filter(|s| s.name.starts_with("__SCT__") && s.tag.is_none())
        {
            self.add(
                Cause::StaticCalls,
                ImageAddr(symbol.start.0.wrapping_sub(slide)),
                BRANCH,
            );
        }
    }

    /// Lines such as `ffffffff812345d0  k  vfs_read+0x10    [OPTIMIZED]` (kernel/kprobes.c, `report_probe`).
    fn kprobes(&mut self, list: &str) {
        let slide = self.vmlinux.slide();
        for line in list.lines().filter(|line| !line.contains("[FTRACE]")) {
            let at = line.split_whitespace().next().unwrap_or_default();
            let at = u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap_or_default();
            // A breakpoint, or a jump where the probe was optimized.
            let len = if line.contains("[OPTIMIZED]") { BRANCH } else { 1 };
            self.add(Cause::Kprobes, ImageAddr(at.wrapping_sub(slide)), len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: ImageAddr = ImageAddr(0x1000);

    #[test]
    fn instructions_give_the_lengths_of_their_sites() {
        // jmp rel32; jne rel32; and the end of the text.
        let bytes = [0xe9, 1, 2, 3, 4, 0x0f, 0x85, 1, 2, 3, 4];
        let text = Linked {
            start: TEXT,
            bytes: &bytes,
        };
        assert_eq!(text.instruction_len(TEXT), Some(5));
        assert_eq!(text.instruction_len(ImageAddr(0x1005)), Some(6));
        for outside in [0, 0xfff, 0x100b, u64::MAX] {
            assert_eq!(text.instruction_len(ImageAddr(outside)), None);
        }
    }
}
