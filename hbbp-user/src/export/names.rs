//! What instructions are called in exports: ring, module, function, class and process, safe to print.

use std::collections::HashMap;

use super::counted::{Counted, Executed};
use crate::blocks::FormIdx;
use crate::locate::Site;
use crate::mix::{Class, Dimension, function};
use crate::printable::harmless;
use crate::snapshot::ProcessIdx;

/// The names of a profile.
pub(super) struct Names<'a> {
    counted: &'a Counted<'a>,
    modules: Vec<String>,
    classes: HashMap<FormIdx, ClassNames>,
}

/// The classes of an instruction, as the dimensions of a mix have them.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassNames {
    pub(super) mnemonic: String,
    pub(super) extension: String,
    pub(super) category: String,
}

impl<'a> Names<'a> {
    pub(super) fn new(counted: &'a Counted<'a>) -> Self {
        let modules = &counted.snapshot.modules;
        Self {
            counted,
            modules: modules.iter().map(|module| harmless(&module.name)).collect(),
            classes: HashMap::new(),
        }
    }

    /// The module of a site.
    pub(super) fn module(&self, site: Site) -> &str {
        self.modules
            .get(site.module.0 as usize)
            .map_or("", String::as_str)
    }

    /// The function that covers a site, else its module in brackets.
    pub(super) fn function(&self, site: Site) -> String {
        let module = self.counted.module(site);
        let function = module.and_then(|module| function(module, site.addr));
        let function = function.filter(|function| !function.is_empty());
        function.map_or_else(|| format!("[{}]", self.module(site)), |name| harmless(&name))
    }

    /// The classes of an instruction.
    pub(super) fn class(&mut self, executed: &Executed) -> ClassNames {
        let instruction = executed.instruction;
        let forms = &self.counted.map.forms;
        let class = self.classes.entry(instruction.form).or_insert_with(|| {
            let form = forms.get(usize::from(instruction.form.0));
            let class = form.and_then(|form| Class::of(form, instruction.flow));
            let value = |dimension| {
                class
                    .as_ref()
                    .and_then(|class| class.value(dimension))
                    .unwrap_or_default()
            };
            ClassNames {
                mnemonic: value(Dimension::Mnemonic),
                extension: value(Dimension::Extension),
                category: value(Dimension::Category),
            }
        });
        class.clone()
    }

    /// Command name of a process image; that of the kernel is `[kernel]`.
    pub(super) fn process(&self, process: ProcessIdx) -> (String, u32) {
        match self.counted.snapshot.processes.get(process.0 as usize) {
            Some(image) if process != ProcessIdx::KERNEL => (harmless(&image.comm), image.tgid),
            _ => ("[kernel]".to_owned(), 0),
        }
    }
}
