//! Opens mapped files, and does not wait for file systems that do not answer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::haste::Haste;
use super::image::Image;
use super::mapped_file::{open_linked, open_mapped, plain_path};
use super::patient::{GivenUp, Patient};
use hbbp_elf::layout::ElfError;
use hbbp_elf::parser::Parser;
use hbbp_model::record::{FileIdentity, Mmap};
use hbbp_model::snapshot::Loss;

/// A file system that did not answer in time is left alone for so long.
const RETRY: Duration = Duration::from_secs(10);

/// An image of a file, where it is one, and the device and inode of the file.
pub(super) type OpenedImage = (Result<Image, Loss>, (u64, u64));

/// What has to answer when a file is opened: its file system, as far as it is known.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum FileSource {
    /// Major and minor number.
    Device(u32, u32),
    Folder(String),
}

impl FileSource {
    fn of(mmap: &Mmap) -> Self {
        match mmap.identity {
            FileIdentity::Inode { major, minor, .. } => Self::Device(major, minor),
            _ => Self::Folder(mmap.path.rsplit_once('/').unwrap_or_default().0.to_owned()),
        }
    }
}

/// Opens the file of a mapping and reads what kind of file it is; may take for ever.
fn open_image(mmap: &Mmap, relatives: &[u32], parser: &Parser) -> Result<OpenedImage, Loss> {
    let file = open_mapped(mmap, relatives).map_err(|refusal| refusal.loss())?;
    let image = Image::of_file(plain_path(&mmap.path).to_owned(), file.source, parser);
    let image = image.map(|image| image.with_linked(parser, |link| open_linked(mmap.pid, &mmap.path, link)));
    let image = image.map_err(|error| match error {
        ElfError::GivenUp => Loss::FileGivenUp,
        ElfError::NotElf | ElfError::Foreign | ElfError::Broken => Loss::FileUnreadable,
    });
    Ok((image, file.place))
}

/// Opens the files of mappings.
#[derive(Debug, Default)]
pub(super) struct FileOpener {
    /// Reads what kind of files they are.
    pub(super) parser: Parser,
    /// Once there is haste no more files are opened.
    pub(super) haste: Haste,
    patient: Patient<Result<OpenedImage, Loss>>,
    /// What did not answer, and when it is tried again.
    unanswered: HashMap<FileSource, Instant>,
}

impl FileOpener {
    /// Opens the file of a mapping of a process or of one of its relatives.
    pub(super) fn open(&mut self, mmap: &Mmap, relatives: &[u32]) -> Result<OpenedImage, Loss> {
        if self.haste.has_begun() {
            return Err(Loss::FileGivenUp);
        }
        let source = FileSource::of(mmap);
        let until = self.unanswered.get(&source);
        if until.is_some_and(|until| Instant::now() < *until) {
            return Err(Loss::FileTimedOut);
        }
        let (mmap, relatives, parser) = (mmap.clone(), relatives.to_vec(), self.parser.clone());
        match self.patient.run(move || open_image(&mmap, &relatives, &parser)) {
            Ok(opened) => opened,
            Err(GivenUp) => {
                self.unanswered.insert(source, Instant::now() + RETRY);
                Err(Loss::FileTimedOut)
            }
        }
    }
}
