//! What instructions are called in exports: ring, module, function, class and process, safe to print.

use std::rc::Rc;

use super::counted::{Counted, Executed};
use hbbp_analysis::mix::{Class, Dimension, function};
use hbbp_code::locate::Site;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::ProcessIdx;

/// The names of a profile.
pub struct Names<'a> {
    counted: &'a Counted<'a>,
    modules: Vec<String>,
    /// By index of the instruction form. The flow is that of the first such instruction that was looked up.
    classes: Vec<Option<Rc<ClassNames>>>,
}

/// The classes of an instruction, by the names that the dimensions of a mix use.
#[derive(Clone, Debug, Default)]
pub struct ClassNames {
    /// Its mnemonic.
    pub mnemonic: String,
    /// Its extension of the instruction set.
    pub extension: String,
    /// Its category.
    pub category: String,
}

impl ClassNames {
    fn new(class: Option<&Class>) -> Self {
        let value = |dimension| class.and_then(|class| class.value(dimension)).unwrap_or_default();
        Self {
            mnemonic: value(Dimension::Mnemonic),
            extension: value(Dimension::Extension),
            category: value(Dimension::Category),
        }
    }
}

impl<'a> Names<'a> {
    /// Those of a profile; no class is looked up yet.
    pub fn new(counted: &'a Counted<'a>) -> Self {
        let modules = &counted.snapshot.modules;
        Self {
            counted,
            modules: modules.iter().map(|module| harmless(&module.name)).collect(),
            classes: vec![None; counted.map.forms.len()],
        }
    }

    /// The module of a site.
    pub fn module(&self, site: Site) -> &str {
        self.modules
            .get(site.module.0 as usize)
            .map_or("", String::as_str)
    }

    /// The function that covers a site, else its module in brackets.
    pub fn function(&self, site: Site) -> String {
        let module = self.counted.module(site);
        let function = module.and_then(|module| function(module, site.addr));
        let function = function.filter(|function| !function.is_empty());
        function.map_or_else(|| format!("[{}]", self.module(site)), |name| harmless(&name))
    }

    /// The classes of an instruction.
    pub fn class(&mut self, executed: &Executed) -> Rc<ClassNames> {
        let instruction = executed.instruction;
        let idx = usize::from(instruction.form.0);
        let forms = &self.counted.map.forms;
        match self.classes.get_mut(idx).zip(forms.get(idx)) {
            Some((known, form)) => {
                let new = || Rc::new(ClassNames::new(Class::of(form, instruction.flow).as_ref()));
                Rc::clone(known.get_or_insert_with(new))
            }
            None => Rc::default(),
        }
    }

    /// A process image as reports name it.
    pub(crate) fn process_image(&self, process: ProcessIdx) -> String {
        let image = self.counted.snapshot.processes.get(process.0 as usize);
        match image.filter(|_| process != ProcessIdx::KERNEL) {
            Some(image) => format!("{} ({})", harmless(&image.comm), image.which()),
            None => "[kernel] (0)".to_owned(),
        }
    }

    /// Command name of a process image; that of the kernel is `[kernel]`.
    pub fn process(&self, process: ProcessIdx) -> (String, u32) {
        match self.counted.snapshot.processes.get(process.0 as usize) {
            Some(image) if process != ProcessIdx::KERNEL => (harmless(&image.comm), image.tgid),
            _ => ("[kernel]".to_owned(), 0),
        }
    }
}
