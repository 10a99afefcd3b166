//! Sentences of comments and documentation are short enough to be understood at the first reading.

use super::finding::{Finding, Source};

/// Words of the longest sentence. Technical authors aim at 20 to 25 on average.
const MOST_WORDS: usize = 29;

/// A sentence, and the line that its paragraph begins on.
struct Sentence {
    line: usize,
    n_words: usize,
}

/// The sentences of this file that are too long.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.is_any_of(&["/golden/", "/fixtures/"]) {
        return Vec::new();
    }
    let long = sentences(source).into_iter().filter(|it| it.n_words > MOST_WORDS);
    let found = long.map(|sentence| {
        let message = format!("a sentence of {} words, more than {MOST_WORDS}", sentence.n_words);
        source.finding(sentence.line, message)
    });
    found.collect()
}

/// How many sentences there are in all, and how many are too long.
pub(super) fn counts(sources: &[Source]) -> (usize, usize) {
    let all: Vec<Sentence> = sources.iter().flat_map(sentences).collect();
    let long = all.iter().filter(|it| it.n_words > MOST_WORDS).count();
    (all.len(), long)
}

/// The sentences of a page, or of the comments of a source file.
fn sentences(source: &Source) -> Vec<Sentence> {
    let lines = source.text.lines();
    let lines: Vec<Option<(&str, &str)>> = if source.path.ends_with(".md") {
        lines.map(|line| Some(("", line))).collect()
    } else if source.is_rust() {
        lines.map(comment).collect()
    } else {
        return Vec::new();
    };
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_code = false;
    // The kind of comment whose paragraph goes on.
    let mut goes_on = None;
    for (line, comment) in (1..).zip(lines) {
        let Some((kind, text)) = comment else {
            (is_code, goes_on) = (false, None);
            continue;
        };
        let text = text.trim();
        if text.starts_with("```") {
            (is_code, goes_on) = (!is_code, None);
        } else if is_code || text.is_empty() || text.starts_with(['|', '#']) || text.starts_with("<!--") {
            goes_on = None;
        } else {
            match paragraphs.last_mut() {
                Some((_, paragraph)) if goes_on == Some(kind) && !is_item(text) => {
                    paragraph.push(' ');
                    paragraph.push_str(text);
                }
                _ => paragraphs.push((line, text.to_owned())),
            }
            goes_on = Some(kind);
        }
    }
    paragraphs
        .iter()
        .flat_map(|(line, text)| split(*line, text))
        .collect()
}

/// The mark of a comment that fills a line, and its text.
pub(super) fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let marks = ["//!", "///", "//"].into_iter();
    marks
        .filter_map(|mark| Some((mark, line.strip_prefix(mark)?)))
        .next()
}

/// Whether a line begins an item of a list.
fn is_item(text: &str) -> bool {
    let after_number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = after_number.len() < text.len() && after_number.starts_with(". ");
    is_numbered || text.starts_with("- ") || text.starts_with("* ")
}

/// The sentences of a paragraph; a semicolon or a colon ends one as well.
fn split(line: usize, paragraph: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut n_words = 0;
    for word in paragraph.split_whitespace() {
        n_words += usize::from(word.chars().any(char::is_alphanumeric));
        if word.ends_with(['.', '!', '?', ';', ':']) {
            sentences.push(Sentence { line, n_words });
            n_words = 0;
        }
    }
    if n_words > 0 {
        sentences.push(Sentence { line, n_words });
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_rule;
    use super::check;

    fn words(n: usize) -> String {
        vec!["word"; n].join(" ")
    }

    #[test]
    fn long_sentence_of_a_page() {
        let found = "3: a sentence of 30 words, more than 29";
        check_rule(
            check,
            "a.md",
            &format!("# A\n\n{}\n{}.\n", words(20), words(10)),
            &[found],
        );
    }

    #[test]
    fn short_sentences_of_a_page() {
        let page = format!(
            "{}; {}\n- {}\n- {}\n\n| {} |\n```text\n{}\n```\n",
            words(29),
            words(20),
            words(20),
            words(20),
            words(40),
            words(40)
        );
        check_rule(check, "a.md", &page, &[]);
        check_rule(check, "x/tests/golden/a.md", &words(40), &[]);
    }

    #[test]
    fn long_sentence_of_comments() {
        let file = format!(
            "/// {}\n/// {}\nfn x() {{}} // {}\n",
            words(20),
            words(10),
            words(40)
        );
        check_rule(check, "a.rs", &file, &["1: a sentence of 30 words, more than 29"]);
    }

    #[test]
    fn comments_of_two_kinds_and_code_between() {
        let file = format!("//! {0}\n/// {0}\nfn x() {{}}\n// {0}\n", words(20));
        check_rule(check, "a.rs", &file, &[]);
    }
}
