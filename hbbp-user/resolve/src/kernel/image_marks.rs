//! Where the parts of the kernel image lie, by the symbols that name their ends.

use hbbp_model::addr::Va;

/// Addresses by which the kernel image names its own parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ImageMarks {
    /// `_text`: first byte of the image.
    pub text: Option<Va>,
    /// `_stext`: first byte of its functions.
    pub stext: Option<Va>,
    /// `_etext`: first byte after its functions.
    pub etext: Option<Va>,
    /// `_end`: first byte after the image.
    pub end: Option<Va>,
    /// `__start___jump_table`: the table of static branches (kernels with `CONFIG_KALLSYMS_ALL` list it).
    pub jump_table: Option<Va>,
    /// `__stop___jump_table`: first byte after it.
    pub jump_table_end: Option<Va>,
    /// The first and the last `struct tracepoint` (likewise).
    pub tracepoints: Option<(Va, Va)>,
    /// `modules`: the list of loaded modules (likewise).
    pub modules: Option<Va>,
    /// `bpf_kallsyms`: the list of compiled BPF programs (likewise).
    pub bpf_programs: Option<Va>,
}

impl ImageMarks {
    /// Whether [`Self::note`] may take a name that begins so: all others need not be expanded.
    pub(super) const fn may_take(name: &[u8]) -> bool {
        matches!(
            name,
            [b'_', b't' | b's' | b'e', ..]
                | [b'_', b'_', b's', b't', ..]
                | [b'_', b'_', b't', b'r', ..]
                | [b'm', b'o', ..]
                | [b'b', b'p', ..]
        )
    }

    pub(super) fn note(&mut self, name: &str, address: Va) {
        let mark = match name {
            "_text" => &mut self.text,
            "_stext" => &mut self.stext,
            "_etext" => &mut self.etext,
            "_end" => &mut self.end,
            "__start___jump_table" => &mut self.jump_table,
            "__stop___jump_table" => &mut self.jump_table_end,
            "modules" => &mut self.modules,
            "bpf_kallsyms" => &mut self.bpf_programs,
            _ => return self.note_tracepoint(name, address),
        };
        *mark = Some(address);
    }

    /// Each tracepoint has a symbol of this beginning, and a pointer to it in another section (include/linux/tracepoint.h).
    fn note_tracepoint(&mut self, name: &str, address: Va) {
        let is_tracepoint = name
            .strip_prefix("__tracepoint_")
            .is_some_and(|name| !name.starts_with("ptr_"));
        if is_tracepoint {
            let (first, last) = self.tracepoints.unwrap_or((address, address));
            self.tracepoints = Some((first.min(address), last.max(address)));
        }
    }

    /// First and last address of the image, where the table names them.
    pub(crate) fn range(&self) -> Option<(Va, Va)> {
        let start = self.text.or(self.stext)?;
        let end = self.end.or(self.etext)?;
        (start < end).then_some((start, end))
    }
}
