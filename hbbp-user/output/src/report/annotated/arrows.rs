//! Arrows to the left of code: one from the end of each loop back to its start, the shortest loops innermost.

/// Loops that are drawn side by side; of deeper nests the outer loops are left out.
const LANES: usize = 5;

/// A loop, by its first and last line.
pub(super) type Span = (usize, usize);

/// The drawing for `n_lines` lines; all lines have the same number of columns, none without loops.
pub(super) fn drawn(mut loops: Vec<Span>, n_lines: usize) -> Vec<String> {
    loops.retain(|(first, last)| first <= last && *last < n_lines);
    loops.sort_unstable_by_key(|(first, last)| (last - first, *first));
    loops.dedup();
    let mut lanes: Vec<Vec<Span>> = Vec::new();
    for span in loops {
        let is_free = |lane: &Vec<Span>| lane.iter().all(|other| other.1 < span.0 || span.1 < other.0);
        let free = lanes.iter().position(is_free).unwrap_or(lanes.len());
        if free == lanes.len() && free < LANES {
            lanes.push(Vec::new());
        }
        if let Some(lane) = lanes.get_mut(free) {
            lane.push(span);
        }
    }
    if lanes.is_empty() {
        return vec![String::new(); n_lines];
    }
    // The innermost lane is the rightmost column but one, where the heads of the arrows are.
    let width = lanes.len() + 1;
    let mut drawing = vec![vec![' '; width]; n_lines];
    for (nth, lane) in lanes.iter().enumerate() {
        let column = lanes.len() - 1 - nth;
        for &(first, last) in lane {
            for (at, line) in drawing.iter_mut().enumerate().take(last + 1).skip(first) {
                let corner = match at {
                    _ if first == last => '↻',
                    _ if at == first => '┌',
                    _ if at == last => '└',
                    _ => '│',
                };
                if corner != '│' {
                    let end = if at == first { '►' } else { '─' };
                    across(line, column + 1, if first == last { ' ' } else { end });
                }
                if let Some(cell) = line.get_mut(column) {
                    *cell = if *cell == '─' { '┼' } else { corner };
                }
            }
        }
    }
    drawing
        .into_iter()
        .map(|line| line.into_iter().collect())
        .collect()
}

/// Draws a line from a column to the right edge, where it ends in `end`.
fn across(line: &mut [char], from: usize, end: char) {
    if end == ' ' {
        return;
    }
    let last = line.len().saturating_sub(1);
    for (column, cell) in line.iter_mut().enumerate().skip(from) {
        *cell = match *cell {
            ' ' if column == last => end,
            ' ' => '─',
            '│' => '┼',
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loops_nest() {
        let shown = drawn(vec![(0, 5), (1, 3), (4, 4)], 7);
        let expected = ["┌─►", "│┌►", "││ ", "│└─", "│↻ ", "└──", "   "];
        assert_eq!(shown, expected);
        assert_eq!(drawn(Vec::new(), 2), ["", ""]);
        assert_eq!(drawn(vec![(3, 1), (0, 9)], 2), ["", ""]);
    }

    proptest! {
        #[test]
        fn every_line_has_the_same_width(loops in prop::collection::vec((0usize..20, 0usize..20), 0..30)) {
            let shown = drawn(loops, 20);
            let widths: Vec<usize> = shown.iter().map(|line| line.chars().count()).collect();
            prop_assert!(widths.iter().all(|width| *width == widths[0] && *width <= LANES + 1));
        }
    }
}
