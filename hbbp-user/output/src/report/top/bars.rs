//! The bar of a ring: its categories by share. Each is filled with the letter of its category, so that it can be read
//! without colour as well.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::figures::RingShare;
use hbbp_analysis::mix::Category;

/// Colours that differ on dark and on light grounds; black text can be read on each.
const COLOURS: [Color; 7] = [
    Color::Green,
    Color::Cyan,
    Color::Yellow,
    Color::Magenta,
    Color::Blue,
    Color::Red,
    Color::Gray,
];

/// The letter of a category: lower case where an earlier one has the same.
pub(super) fn letter(category: Category) -> char {
    let initial = |category: Category| category.name().chars().next().unwrap_or('?');
    let earlier = Category::ALL.into_iter().take_while(|other| *other != category);
    let n_alike = earlier
        .filter(|other| initial(*other) == initial(category))
        .count();
    let letter = initial(category);
    match n_alike {
        0 => letter.to_ascii_uppercase(),
        1 => letter,
        // The third and later ones of a letter are rare; their second letter has to do.
        _ => category.name().chars().nth(1).unwrap_or(letter),
    }
}

fn colour(category: Category) -> Color {
    let nth = Category::ALL.into_iter().position(|other| other == category);
    COLOURS
        .get(nth.unwrap_or(0) % COLOURS.len())
        .copied()
        .unwrap_or(Color::Gray)
}

/// How the cells of a category look.
fn style(category: Category) -> Style {
    Style::new().fg(Color::Black).bg(colour(category))
}

/// A bar of at most `width` cells, where all of them are `full`.
pub(super) fn bar(ring: &RingShare, full: f64, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for (category, share) in &ring.categories {
        sum += share;
        // Rounds to cells so that the cells of all categories add up: what is rounded down in one is carried to the next.
        let until = (0..=width)
            .rev()
            .find(|n| *n as f64 <= (sum / full * width as f64).round())
            .unwrap_or(0);
        let cells = until.saturating_sub(drawn);
        if 0 < cells {
            spans.push(Span::styled(
                letter(*category).to_string().repeat(cells),
                style(*category),
            ));
            drawn = until;
        }
    }
    Line::from(spans)
}

/// The categories with the largest shares of both ringsthat fit into `width` columns.
pub(super) fn legend(rings: &[RingShare; 2], width: usize) -> Line<'static> {
    let share = |category| {
        let of_rings = rings.iter().flat_map(|ring| &ring.categories);
        of_rings
            .filter(|(of, _)| *of == category)
            .fold(0.0, |sum, (_, share)| sum + share)
    };
    let mut shares: Vec<(Category, f64)> = Category::ALL.into_iter().map(|c| (c, share(c))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares.retain(|(_, share)| 0.005 <= *share);
    let with_share = |(category, share): &(Category, f64)| {
        let text = format!(" {} {:.0} %  ", category.name(), 100.0 * share);
        (letter(*category), style(*category), text)
    };
    let alone = |(category, _): &(Category, f64)| {
        (
            letter(*category),
            style(*category),
            format!(" {}  ", category.name()),
        )
    };
    let entries: Vec<_> = shares.iter().map(with_share).collect();
    let needed: usize = entries.iter().map(|(.., text)| 1 + text.chars().count()).sum();
    // On a narrow screen more letters are worth more than their shares, which the table of categories has.
    let entries = if needed <= width {
        entries
    } else {
        shares.iter().map(alone).collect()
    };
    let (mut spans, mut used) = (Vec::new(), 0);
    for (letter, style, text) in entries {
        used += 1 + text.chars().count();
        if width + 2 < used {
            break;
        }
        spans.push(Span::styled(letter.to_string(), style));
        spans.push(Span::raw(text));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_categories_have_letters_of_their_own() {
        let common = [
            Category::Transfer,
            Category::Stack,
            Category::Arithmetic,
            Category::Logic,
            Category::Compare,
            Category::ConditionalBranch,
            Category::Call,
            Category::Return,
        ];
        let letters: std::collections::BTreeSet<char> = common.into_iter().map(letter).collect();
        assert_eq!(letters.len(), common.len(), "{letters:?}");
    }

    #[test]
    fn bars_are_as_long_as_the_ring() {
        let ring = RingShare {
            share: 0.5,
            categories: vec![
                (Category::Transfer, 0.303),
                (Category::Stack, 0.003),
                (Category::Logic, 0.194),
            ],
        };
        let cells = |width| bar(&ring, 1.0, width).width();
        assert_eq!([10, 20, 100].map(cells), [5, 10, 50]);
        assert_eq!(bar(&ring, 0.5, 20).to_string().matches('D').count(), 12);
    }
}
