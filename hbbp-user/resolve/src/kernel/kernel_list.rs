//! A walk through one of the kernel's doubly linked lists in its memory (include/linux/list.h, `struct list_head`).
//!
//! Others change the list meanwhile, so that a walk counts only if it comes back to where it began and each link agrees with the
//! one before.

use hbbp_model::addr::Va;

/// No structure that is read here is larger.
const MAX_SIZE: u32 = 1 << 16;

/// What a list is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListShape {
    /// The head.
    pub(super) head: Va,
    /// Bytes of an entry.
    pub(super) size: u32,
    /// Offset in it of the links, next and previous.
    pub(super) links: u32,
    /// The most entries that such a list has.
    pub(super) most: usize,
}

/// The entries in their order as `parse` reads a copy of each; `None` if one cannot be read or links do not agree.
pub(super) fn walk_list<T>(
    shape: ListShape,
    read: &mut dyn FnMut(Va, &mut [u8]) -> bool,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let mut links = [0; 16];
    let (mut at, last) = read(shape.head, &mut links).then(|| links_at(&links, 0))??;
    let mut previous = shape.head;
    let mut found = Vec::new();
    let size = Some(shape.size).filter(|size| *size <= MAX_SIZE)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    while at != shape.head {
        let start = Va(at.0.checked_sub(shape.links.into())?);
        let (next, back) = read(start, &mut bytes).then(|| links_at(&bytes, shape.links))??;
        if back != previous || shape.most <= found.len() {
            return None;
        }
        found.push(parse(&bytes)?);
        (previous, at) = (at, next);
    }
    (previous == last).then_some(found)
}

fn links_at(bytes: &[u8], at: u32) -> Option<(Va, Va)> {
    let (next, remainder) = bytes.get(usize::try_from(at).ok()?..)?.split_first_chunk()?;
    let word = |bytes: &[u8; 8]| Va(u64::from_le_bytes(*bytes));
    Some((word(next), word(remainder.first_chunk()?)))
}
