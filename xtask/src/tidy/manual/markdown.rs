//! Just enough of Markdown to ask for the links, the headings, the commands and the prose of a page.

/// The start of the line before a generated table; the name of the table follows.
pub(super) const GENERATED: &str = "<!-- generated: ";

/// What a line of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// Inside of a block of code, with the language that its first line names.
    Code(&'a str),
    Heading,
    Table,
    /// A comment of one line.
    Comment,
    Prose,
    /// The first and the last line of a block of code.
    Fence,
}

/// A line, and its number from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) kind: Kind<'a>,
    pub(crate) text: &'a str,
}

/// The lines of a page.
pub(crate) fn lines(page: &str) -> Vec<Line<'_>> {
    let mut language = None;
    let mut lines = Vec::new();
    for (number, text) in (1..).zip(page.lines()) {
        let start = text.trim_start();
        let kind = match (start.strip_prefix("```"), language) {
            (Some(_), Some(_)) => {
                language = None;
                Kind::Fence
            }
            (Some(named), None) => {
                language = Some(named.trim());
                Kind::Fence
            }
            (None, Some(named)) => Kind::Code(named),
            (None, None) if start.starts_with('#') => Kind::Heading,
            (None, None) if start.starts_with('|') => Kind::Table,
            (None, None) if start.starts_with("<!--") => Kind::Comment,
            (None, None) => Kind::Prose,
        };
        lines.push(Line { number, kind, text });
    }
    lines
}

/// A line without its spans of code.
pub(crate) fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The targets of the links of a page, each with its line.
pub(crate) fn links(page: &str) -> Vec<(usize, String)> {
    let has_links = |line: &Line<'_>| matches!(line.kind, Kind::Prose | Kind::Table | Kind::Heading);
    let mut links = Vec::new();
    for line in lines(page).into_iter().filter(has_links) {
        for after in without_code(line.text).split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            links.push((line.number, target.to_owned()));
        }
    }
    links
}

/// The name of a heading in links, as mdBook and GitHub make it.
pub(crate) fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
        _ => None,
    });
    kept.collect()
}

/// The commands that a page shows: lines of `sh` blocks, and lines after `$` in other blocks, without comments.
#[cfg(test)]
pub(crate) fn commands<'a>(page: &'a str) -> Vec<(usize, &'a str)> {
    let command = |line: Line<'a>| {
        let Kind::Code(language) = line.kind else {
            return None;
        };
        let text = match line.text.strip_prefix("$ ") {
            Some(text) => text,
            None if language == "sh" => line.text,
            None => return None,
        };
        let text = text.split(" #").next().unwrap_or(text).trim();
        (!text.is_empty()).then_some((line.number, text))
    };
    lines(page).into_iter().filter_map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A `b` page: c\n\nSee [x](y.md#z) and `[no](link)`.\n\n```sh\nhbbp-sys top  # now\n```\n\
                        ```text\n$ hbbp-sys check\n| no table\n```\n| [a](b.md) |\n<!-- note -->\n";

    #[test]
    fn line_kinds_follow_blocks() {
        let kinds: Vec<Kind<'_>> = lines(PAGE).iter().map(|line| line.kind).collect();
        let expected = [
            Kind::Heading,
            Kind::Prose,
            Kind::Prose,
            Kind::Prose,
            Kind::Fence,
            Kind::Code("sh"),
            Kind::Fence,
            Kind::Fence,
            Kind::Code("text"),
            Kind::Code("text"),
            Kind::Fence,
            Kind::Table,
            Kind::Comment,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn links_outside_code() {
        let found = links(PAGE);
        assert_eq!(found, [(3, "y.md#z".to_owned()), (12, "b.md".to_owned())]);
    }

    #[test]
    fn commands_of_blocks() {
        assert_eq!(commands(PAGE), [(6, "hbbp-sys top"), (9, "hbbp-sys check")]);
    }

    #[test]
    fn anchor_of_heading() {
        assert_eq!(anchor("## Without a PMU, `x_y`: ±!"), "without-a-pmu-x_y-");
    }
}
