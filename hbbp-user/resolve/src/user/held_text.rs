//! How much text a run may hold while it goes on: as much as its profile may have of files, and as much again of what was
//! written at run time. A compiler that works while programs run writes without end, so that of its code the ranges that
//! changed make room first; then no more is taken, and what is left out is counted.
//!
//! From one interval to the next, little is kept: text of files, which would be read again within a second.

use std::mem;

use super::image::{Content, Image};
use super::image_set::ImageSet;
use crate::text::ModuleText;
use hbbp_model::snapshot::budget::MAX_TEXT;
use hbbp_model::snapshot::{Loss, Losses};

impl ImageSet {
    /// Bounds the text in memory during a run: [`MAX_TEXT`] bytes of files, and the same of text written at run time.
    /// Of the latter, changed ranges are evicted first; then new text is refused.
    pub(super) fn bound_text(&mut self, losses: &mut Losses) {
        if MAX_TEXT < self.held_text(true) {
            let images = self.images.iter_mut().flatten();
            let written = images.filter(|image| image.is_written());
            let n_dropped = written.map(|image| image.drop_changed()).sum();
            losses.add(Loss::RegionsLeftOut, n_dropped);
        }
        self.full = [false, true].map(|is_written| MAX_TEXT < self.held_text(is_written));
    }

    /// Bytes of text held of files, or of what was written at run time.
    fn held_text(&self, is_written: bool) -> usize {
        let images = self.images.iter().flatten();
        let of_sort = images.filter(|image| image.is_written() == is_written);
        of_sort.map(|image| image.text().n_bytes()).sum()
    }
}

impl Image {
    /// Whether no more of its text is taken, where that of files or of what was written at run time is `full`; counted once.
    pub(super) fn is_left_out(&mut self, full: [bool; 2], losses: &mut Losses) -> bool {
        let is_full = full.get(usize::from(self.is_written())) == Some(&true);
        if is_full && !self.left_out {
            self.left_out = true;
            losses.add(Loss::RegionsLeftOut, 1);
        }
        is_full
    }

    /// Takes out the text that was hit. Text of a file without writers stays for later hits, as long as it takes no
    /// more than `left` bytes, which is lowered by its size.
    pub(super) fn take_text(&mut self, left: &mut usize) -> ModuleText {
        (self.counted, self.left_out, self.unnamed) = (false, false, false);
        if let Content::Elf(elf) = &mut self.content {
            elf.ask_again();
        }
        let stays = match &mut self.content {
            Content::Elf(elf) => !self.shared && !self.text.is_empty() && elf.is_unchanged(),
            _ => false,
        };
        if stays {
            self.text.take_hit(left)
        } else {
            mem::take(&mut self.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt as _;

    use super::super::image_set::MAX_KEPT_TEXT;
    use super::*;
    use hbbp_elf::byte_source::ByteSource;
    use hbbp_elf::layout::read_layout;
    use hbbp_elf::parser::Parser;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::ModuleIdx;

    /// The text around an address in an interval.
    fn text_of_interval(image: &mut Image, at: ImageAddr) -> Vec<u8> {
        if image.hit(at).is_none() {
            image.cover(at, at..ImageAddr(at.0 + 1), None, &Parser::Here);
        }
        let mut out = Vec::new();
        let mut left = MAX_KEPT_TEXT;
        image.take_text(&mut left).emit(ModuleIdx(0), &mut out);
        out.remove(0).bytes
    }

    #[test]
    fn text_of_a_file_is_read_again_when_the_file_was_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::copy("/bin/ls", &path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let source = ByteSource::File(file.try_clone().unwrap(), len);
        let layout = read_layout(&source).unwrap();
        let code = layout.segments.iter().find(|segment| segment.executable).unwrap();
        let at = ImageAddr(code.start.0 + code.len / 2);
        let offset = layout.file_off(at).unwrap().0;
        let mut image = Image::of_elf("program".to_owned(), source, layout);
        let first = text_of_interval(&mut image, at);
        assert_eq!(text_of_interval(&mut image, at), first);
        assert!(0 < image.text().n_bytes(), "it is kept");
        file.write_all_at(&[0xcc; 4], offset).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(text_of_interval(&mut image, at), first, "it was held already");
        let now = text_of_interval(&mut image, at);
        assert_ne!(now, first);
        assert!(now.windows(4).any(|bytes| bytes == [0xcc; 4]));
    }
}
