//! Just enough of Rust's grammar to ask which paths a source file mentions, and on which line.

/// A path such as `std::fs::read`, written out even inside the braces of a `use`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The paths that the code mentions, its tests excepted.
pub(crate) fn mentions(text: &str) -> Vec<Mention> {
    let code = code(text);
    let tokens = tokens(without_tests(&code));
    let mut mentions = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].kind {
            Kind::Word(_) => at = tree(&tokens, at, "", &mut mentions),
            _ => at += 1,
        }
    }
    mentions
}

/// The text with comments replaced by blanks and literals by quotes; lines and columns stay.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (len, is_code) = match skipped(rest) {
            Some(len) => (len, false),
            None => (first.len_utf8(), true),
        };
        let (piece, after) = rest.split_at(len);
        if is_code {
            code.push_str(piece);
        } else {
            let filler = if piece.starts_with('/') { ' ' } else { '"' };
            code.extend(piece.chars().map(|it| if it == '\n' { '\n' } else { filler }));
        }
        rest = after;
    }
    code
}

/// The literals of the code, its tests excepted, with all else replaced by blanks; lines and columns stay.
pub(crate) fn literals(text: &str) -> String {
    let code = code(text);
    let tested = without_tests(&code).chars();
    let pairs = text.chars().zip(tested);
    pairs
        .map(|(it, code)| if code == '"' || code == '\n' { it } else { ' ' })
        .collect()
}

/// The files of the modules that exist only in tests, from the file that declares them.
pub(crate) fn test_only_files(path: &str, text: &str) -> Vec<String> {
    let Some(stem) = path.strip_suffix(".rs") else {
        return Vec::new();
    };
    let folder = match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    };
    let code = code(text);
    let declared = code.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let name = after.trim_start().strip_prefix("mod ")?.split(';').next()?;
        name.chars()
            .all(|it| it.is_alphanumeric() || it == '_')
            .then_some(name)
    });
    declared.map(|name| format!("{folder}/{name}.rs")).collect()
}

/// The code before its module of tests, which may use whatever it needs.
pub(super) fn without_tests(code: &str) -> &str {
    let is_last_module = |(at, _): &(usize, &str)| {
        let after = code[*at..].trim_start_matches("#[cfg(test)]").trim_start();
        // Other modules may use what is in it, where it is visible to them.
        ["mod", "pub(super) mod", "pub(crate) mod"]
            .iter()
            .any(|module| after.starts_with(&format!("{module} tests {{")))
    };
    code.match_indices("#[cfg(test)]")
        .find(is_last_module)
        .map_or(code, |(at, _)| &code[..at])
}

/// The length of the comment or literal that begins here, if one does.
fn skipped(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        Some(rest.find('\n').unwrap_or(rest.len()))
    } else if rest.starts_with("/*") {
        Some(rest.find("*/").map_or(rest.len(), |end| end + 2))
    } else if rest.starts_with('"') {
        Some(quoted(rest, '"'))
    } else if let Some(raw) = rest.strip_prefix('r') {
        let body = raw.trim_start_matches('#');
        let end = format!("\"{}", "#".repeat(raw.len() - body.len()));
        let len = body.strip_prefix('"')?.find(&end).map(|at| 1 + at + end.len());
        Some(len.map_or(rest.len(), |len| rest.len() - body.len() + len))
    } else if rest.starts_with('\'') {
        // A lifetime has no closing quote right after its first letter.
        let mut chars = rest.chars().skip(1);
        let is_char = chars.next() == Some('\\') || chars.next() == Some('\'');
        is_char.then(|| quoted(rest, '\''))
    } else {
        None
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, it)) = chars.next() {
        if it == '\\' {
            chars.next();
        } else if it == quote {
            return at + it.len_utf8();
        }
    }
    rest.len()
}

struct Token<'a> {
    line: usize,
    kind: Kind<'a>,
}

#[derive(PartialEq, Eq)]
enum Kind<'a> {
    Word(&'a str),
    PathSep,
    Sign(char),
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (line, mut rest) in (1..).zip(code.lines()) {
        while let Some(first) = rest.chars().next() {
            let word = rest
                .find(|it: char| !it.is_alphanumeric() && it != '_')
                .unwrap_or(rest.len());
            let (kind, len) = match first {
                _ if 0 < word => (Kind::Word(&rest[..word]), word),
                ':' if rest.starts_with("::") => (Kind::PathSep, 2),
                _ => (Kind::Sign(first), first.len_utf8()),
            };
            if !first.is_whitespace() {
                tokens.push(Token { line, kind });
            }
            rest = &rest[len..];
        }
    }
    tokens
}

/// Adds the path, or the tree of paths, that begins with the word at `at`; returns where it ends.
fn tree(tokens: &[Token<'_>], mut at: usize, prefix: &str, mentions: &mut Vec<Mention>) -> usize {
    let mut path = prefix.to_owned();
    let mut line = 0;
    while let Some(Token {
        line: here,
        kind: Kind::Word(word),
    }) = tokens.get(at)
    {
        line = *here;
        path = if path.is_empty() {
            (*word).to_owned()
        } else {
            format!("{path}::{word}")
        };
        at += 1;
        if !matches!(
            tokens.get(at),
            Some(Token {
                kind: Kind::PathSep,
                ..
            })
        ) {
            // The name of a macro keeps its sign.
            if matches!(
                tokens.get(at),
                Some(Token {
                    kind: Kind::Sign('!'),
                    ..
                })
            ) {
                path.push('!');
            }
            mentions.push(Mention { line, path });
            return at;
        }
        at += 1;
    }
    match tokens.get(at).map(|token| &token.kind) {
        Some(Kind::Sign('{')) => {
            at += 1;
            while let Some(token) = tokens.get(at) {
                match token.kind {
                    Kind::Word("as") => at += 2,
                    Kind::Word(_) => at = tree(tokens, at, &path, mentions),
                    Kind::Sign('}') => return at + 1,
                    _ => at += 1,
                }
            }
        }
        // A glob or the arguments of a generic.
        _ => mentions.push(Mention { line, path }),
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{code, mentions, test_only_files};

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &str)]) {
        let found = mentions(text);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.line, it.path.as_str()))
            .filter(|it| it.1.contains(':'))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn trees_are_written_out() {
        check(
            "use a::b;\nuse c::{d::{e, f},\n g};",
            &[(1, "a::b"), (2, "c::d::e"), (2, "c::d::f"), (3, "c::g")],
        );
        check("use a::{self, b as c};", &[(1, "a::self"), (1, "a::b")]);
        check(
            "use a::b::*; a::b::<u8>() a::b!()",
            &[(1, "a::b"), (1, "a::b"), (1, "a::b!")],
        );
    }

    #[test]
    fn comments_literals_and_tests_do_not_count() {
        check(
            "// a::b\n/* a::c\n */ let x: &'a str = \"a::d \\\" a::e\"; x::y('\\'', '\"', r#\"a::f\"#)",
            &[(3, "x::y")],
        );
        check(
            "x::y();\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
            &[(1, "x::y")],
        );
    }

    #[test]
    fn blanks_keep_their_column() {
        assert_eq!(code("a // b\n\"é\" c"), "a     \n\"\"\" c");
    }

    #[test]
    fn a_module_may_exist_in_tests_only() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(test_only_files("x/src/mix/mod.rs", text), ["x/src/mix/b.rs"]);
        assert_eq!(test_only_files("x/src/mix.rs", text), ["x/src/mix/b.rs"]);
    }
}
