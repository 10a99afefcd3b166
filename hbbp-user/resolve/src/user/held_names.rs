//! How many tables of functions stay in memory: a table has an entry for each function of a file, of which there may be
//! a million, and every build brings files that were never executed before. Recently used ones stay, whatever their
//! size; the others stay within a budget. A dropped table is read again at its next hit.

use super::image::{Content, Image};
use super::image_set::ImageSet;

/// Bytes of tables of functions in addition to those used recently: the tables of a compiler of two hundred thousand
/// functions and of what it links take some 8 MiB.
const MAX_NAMES: usize = 12 << 20;

impl ImageSet {
    /// Drops tables of functions that were unused in the last drains, where all take more than [`MAX_NAMES`]. One that
    /// is in use would be read again in the next drain.
    pub(super) fn bound_names(&mut self) {
        let images = self.images.iter_mut().flatten();
        let mut held: Vec<(u32, usize, &mut Image)> = images
            .filter_map(|image| {
                let (uses, bytes) = image.age_names()?;
                Some((uses, bytes, &mut **image))
            })
            .collect();
        held.sort_unstable_by_key(|(uses, bytes, _)| (std::cmp::Reverse(*uses), *bytes));
        let mut left = MAX_NAMES;
        for (uses, bytes, image) in held {
            if uses == 0 && left < bytes {
                image.drop_names();
            } else {
                left = left.saturating_sub(bytes);
            }
        }
    }
}

impl Image {
    /// See [`super::image::ElfContent::age_names`]; `None` if none is held.
    fn age_names(&mut self) -> Option<(u32, usize)> {
        let Content::Elf(elf) = &mut self.content else {
            return None;
        };
        elf.age_names()
    }

    fn drop_names(&mut self) {
        if let Content::Elf(elf) = &mut self.content {
            elf.drop_names();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use hbbp_elf::byte_source::ByteSource;
    use hbbp_elf::layout::read_layout;
    use hbbp_elf::parser::Parser;
    use hbbp_model::addr::ImageAddr;

    /// This program, which has many functions, as the image of a file; the address of its first code.
    fn own_image() -> (Image, ImageAddr) {
        let file = File::open("/proc/self/exe").unwrap();
        let len = file.metadata().unwrap().len();
        let source = ByteSource::File(file, len);
        let layout = read_layout(&source).unwrap();
        let code = layout.segments.iter().find(|segment| segment.executable).unwrap();
        let at = code.start;
        (Image::of_elf("own".to_owned(), source, layout), at)
    }

    fn hit(image: &mut Image, at: ImageAddr) {
        image.cover(at, at..ImageAddr(at.0 + 1), None, &Parser::Here);
    }

    fn n_held(set: &mut ImageSet) -> usize {
        let images = set.images.iter_mut().flatten();
        images.filter_map(|image| image.age_names()).count()
    }

    #[test]
    fn tables_that_are_in_use_stay_and_others_are_bounded() {
        let (mut first, at) = own_image();
        hit(&mut first, at);
        let (_, bytes) = first.age_names().unwrap();
        assert!(24 * 1_000 < bytes, "{bytes} bytes");
        let n = MAX_NAMES / bytes + 4;
        let mut set = ImageSet::default();
        for nth in 0..n {
            let (mut image, at) = own_image();
            for more in 0..=nth as u64 {
                hit(&mut image, ImageAddr(at.0 + 0x1000 * more));
            }
            set.images.push(Some(Box::new(image)));
        }
        set.bound_names();
        assert_eq!(n_held(&mut set), n, "all are in use");
        // The drains after it ask for none.
        (0..8).for_each(|_| set.bound_names());
        let held: Vec<_> = set
            .images
            .iter_mut()
            .flatten()
            .map(|image| image.age_names())
            .collect();
        let n_held = held.iter().flatten().count();
        assert!((1..n).contains(&n_held), "{n_held} of {n}");
        assert!(held.iter().flatten().map(|(_, bytes)| bytes).sum::<usize>() <= MAX_NAMES);
        // What was dropped is read again.
        let nth = held.iter().position(Option::is_none).unwrap();
        let dropped = set.images[nth].as_mut().unwrap();
        hit(dropped, ImageAddr(at.0 + 0x20_0000));
        assert!(dropped.age_names().is_some());
    }
}
