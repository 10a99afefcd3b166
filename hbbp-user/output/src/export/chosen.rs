//! The images of a profile over all its runs, and which of them is exported.

use std::collections::BTreeSet;
use std::fmt;

use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot, hex};

/// An executed file: the modules with its build id in all runs, or those with its name where there is no build id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RanImage {
    /// What it is.
    pub kind: ModuleKind,
    /// Its build id; empty if that is unknown.
    pub build_id: Vec<u8>,
    /// Its names: a file may have several paths.
    pub names: BTreeSet<String>,
    /// Its modules, by run.
    pub modules: Vec<Vec<ModuleIdx>>,
}

/// The images of the runs of a profile, in the order of the first run that has them.
pub fn ran_images<'a>(runs: impl ExactSizeIterator<Item = &'a Snapshot>) -> Vec<RanImage> {
    let n_runs = runs.len();
    let mut images: Vec<RanImage> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (run, snapshot) in runs.enumerate() {
        for (idx, module) in (0u32..).map(ModuleIdx).zip(&snapshot.modules) {
            let name = module.build_id.is_empty().then_some(&module.name);
            let image = *known
                .entry((module.kind, &module.build_id, name))
                .or_insert_with(|| {
                    images.push(RanImage::new(module, n_runs));
                    images.len() - 1
                });
            if let Some(image) = images.get_mut(image) {
                image.names.insert(module.name.clone());
                image
                    .modules
                    .get_mut(run)
                    .into_iter()
                    .for_each(|of_run| of_run.push(idx));
            }
        }
    }
    images
}

impl RanImage {
    fn new(module: &Module, n_runs: usize) -> Self {
        Self {
            kind: module.kind,
            build_id: module.build_id.clone(),
            names: BTreeSet::new(),
            modules: vec![Vec::new(); n_runs],
        }
    }

    /// One of its names.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Its modules in a run.
    pub fn of_run(&self, run: usize) -> &[ModuleIdx] {
        self.modules.get(run).map_or(&[], Vec::as_slice)
    }
}

/// How an image is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The kernel image: `vmlinux`.
    Kernel,
    /// By the beginning of the build id, of at least [`SHORTEST`] digits, or by name: path, file name or module name.
    Named(String),
    /// By the whole build id of a file.
    BuildId(Vec<u8>),
}

/// Fewest digits of a build id that name an image.
pub(crate) const SHORTEST: usize = 6;

/// Why no image is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotChosen {
    /// Nothing of the profile has this name.
    Unknown(String),
    /// Several have.
    Ambiguous(String, Vec<String>),
}

impl fmt::Display for NotChosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(wanted) => write!(
                f,
                "the profile has no image `{wanted}`: name a build id, a path, a kernel module, or vmlinux"
            ),
            Self::Ambiguous(wanted, names) => {
                write!(
                    f,
                    "`{wanted}` is several images; name one by its build id: {}",
                    names.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for NotChosen {}

impl From<NotChosen> for Advised {
    fn from(why: NotChosen) -> Self {
        let advice = match why {
            NotChosen::Unknown(_) => Some(Advice::ListModules),
            NotChosen::Ambiguous(..) => None,
        };
        Self::new(why.to_string(), advice)
    }
}

impl Wanted {
    /// From the command line.
    pub fn parse(name: &str) -> Self {
        match name {
            "vmlinux" | "[kernel]" => Self::Kernel,
            name => Self::Named(name.to_owned()),
        }
    }

    fn fits(&self, image: &RanImage) -> bool {
        match self {
            Self::Kernel => image.kind == ModuleKind::Kernel,
            Self::BuildId(id) => image.build_id == *id,
            Self::Named(wanted) => {
                let is_named = |name: &String| name == wanted || name.rsplit('/').next() == Some(wanted);
                image.names.iter().any(is_named)
                    || SHORTEST <= wanted.len() && hex(&image.build_id).starts_with(wanted.as_str())
            }
        }
    }

    /// The image that is wanted; of several, the one whose whole name it is.
    pub fn choose<'a>(&self, images: &'a [RanImage]) -> Result<&'a RanImage, NotChosen> {
        let found: Vec<&RanImage> = images.iter().filter(|image| self.fits(image)).collect();
        let wanted = match self {
            Self::Kernel => "vmlinux".to_owned(),
            Self::Named(name) => name.clone(),
            Self::BuildId(id) => hex(id),
        };
        let whole: Vec<&RanImage> = found
            .iter()
            .filter(|image| image.names.contains(&wanted))
            .copied()
            .collect();
        match (found.as_slice(), whole.as_slice()) {
            ([], _) => Err(NotChosen::Unknown(wanted)),
            ([image], _) | (_, [image]) => Ok(image),
            (several, _) => {
                let name = |image: &&RanImage| match hex(&image.build_id) {
                    id if id.is_empty() => format!("{} (no build id)", image.name()),
                    id => format!("{} ({id})", image.name()),
                };
                Err(NotChosen::Ambiguous(wanted, several.iter().map(name).collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(modules: &[(&str, &[u8])]) -> Snapshot {
        let module = |(name, id): &(&str, &[u8])| Module {
            name: (*name).to_owned(),
            kind: ModuleKind::Elf64,
            build_id: id.to_vec(),
            symbols: Vec::new(),
        };
        Snapshot {
            modules: modules.iter().map(module).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn an_image_is_one_over_all_runs_and_paths() {
        let runs = [
            run(&[("/bin/a", &[1; 20]), ("/bin/b", &[])]),
            run(&[("/bin/b", &[]), ("/mnt/bin/a", &[1; 20]), ("/bin/a", &[2; 20])]),
        ];
        let images = ran_images(runs.iter());
        let modules: Vec<_> = images.iter().map(|image| image.modules.clone()).collect();
        let idx = ModuleIdx;
        assert_eq!(
            modules,
            [
                vec![vec![idx(0)], vec![idx(1)]],
                vec![vec![idx(1)], vec![idx(0)]],
                vec![vec![], vec![idx(2)]],
            ]
        );
        let choose = |name: &str| Wanted::parse(name).choose(&images);
        assert_eq!(choose("/mnt/bin/a").unwrap(), &images[0]);
        assert_eq!(choose("020202").unwrap(), &images[2]);
        assert_eq!(choose("b").unwrap(), &images[1]);
        assert_eq!(choose("c"), Err(NotChosen::Unknown("c".to_owned())));
        let several = choose("/bin/a").unwrap_err().to_string();
        assert!(
            several.contains(&"01".repeat(20)) && several.contains(&"02".repeat(20)),
            "{several}"
        );
    }
}
