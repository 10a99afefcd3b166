//! How much text a run may hold while it goes on: as much as its profile may have of files, and as much again of what was
//! written at run time. A compiler that works while programs run writes without end, so that of its code the ranges that
//! changed make room first; then no more is taken, and what is left out is counted.

use super::image::Image;
use super::image_set::ImageSet;
use crate::snapshot::budget::MAX_TEXT;
use crate::snapshot::{Loss, Losses};

impl ImageSet {
    /// Bounds the text that is held while a run goes on: [`MAX_TEXT`] bytes of files, and as many of what was written at run
    /// time. Of that, ranges that changed make room first; then no more is taken.
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
}
