//! How many tables of functions are held: a table has an entry for each function of a file, of which there may be a million,
//! and every build brings files that were never run before. Those that are asked for most stay; the others are read again
//! where they are hit next.

use super::image::{Content, Image};
use super::image_set::ImageSet;

/// Bytes of tables of functions that are held from one drain to the next: the tables of a compiler of two hundred thousand
/// functions and of what it links take some 8 MiB.
const MAX_NAMES: usize = 12 << 20;

impl ImageSet {
    /// Drops the tables of functions that were asked for least since they were read, where all take more than [`MAX_NAMES`].
    pub(super) fn bound_names(&mut self) {
        let images = self.images.iter_mut().flatten();
        let mut held: Vec<(u32, usize, &mut Image)> = images
            .filter_map(|image| {
                let (uses, bytes) = image.held_names()?;
                Some((uses, bytes, &mut **image))
            })
            .collect();
        held.sort_unstable_by_key(|(uses, bytes, _)| (std::cmp::Reverse(*uses), *bytes));
        let mut left = MAX_NAMES;
        for (_, bytes, image) in held {
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => image.drop_names(),
            }
        }
    }
}

impl Image {
    /// How often the table of its functions was asked for, lately more than before, and its bytes; `None` where none is held.
    fn held_names(&mut self) -> Option<(u32, usize)> {
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
    use crate::addr::ImageAddr;
    use crate::resolve::elf::byte_source::ByteSource;
    use crate::resolve::elf::layout::read_layout;
    use crate::resolve::parser::Parser;

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

    #[test]
    fn tables_that_are_asked_for_most_stay() {
        let (mut first, at) = own_image();
        hit(&mut first, at);
        let (_, bytes) = first.held_names().unwrap();
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
        let held: Vec<_> = set
            .images
            .iter_mut()
            .flatten()
            .map(|image| image.held_names())
            .collect();
        let n_held = held.iter().flatten().count();
        assert!((1..n).contains(&n_held), "{n_held} of {n}");
        assert!(held[..n - n_held].iter().all(Option::is_none), "{held:?}");
        assert!(held.iter().flatten().map(|(_, bytes)| bytes).sum::<usize>() <= MAX_NAMES);
        // What was dropped is read again.
        let dropped = set.images[0].as_mut().unwrap();
        hit(dropped, ImageAddr(at.0 + 0x20_0000));
        assert!(dropped.held_names().is_some());
    }
}
