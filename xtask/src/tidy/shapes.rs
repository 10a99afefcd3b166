//! Shapes of the code that are counted, as few of them are good: public items, tuples instead of parameters, and wide
//! structs.

use super::finding::{Finding, Source};
use super::rust::{code, without_tests};

/// Most fields of a struct that a reader can keep in mind.
const WIDE: usize = 12;

/// Most of each that the product may have. What is taken away lowers them.
const MOST_PUBLIC: usize = 1_568;
const MOST_WITH_TUPLES: usize = 9;
const MOST_WIDE: usize = 0;

/// What is counted of the product.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// Items that other modules of the workspace can name.
    pub(crate) public: usize,
    /// Functions with a tuple among their parameters.
    pub(crate) with_tuples: Vec<Finding>,
    /// Structs of more than [`WIDE`] fields that neither the command line nor JSON reads.
    pub(crate) wide: Vec<Finding>,
}

/// The shapes of the product of which there are too many.
pub(crate) fn check(sources: &[&Source]) -> Vec<Finding> {
    let all = shapes(sources);
    let mut findings = Vec::new();
    if let Some(first) = sources.first().filter(|_| MOST_PUBLIC < all.public) {
        let message = format!(
            "{} public items below hbbp-user, where {MOST_PUBLIC} are allowed: make new ones `pub(crate)`, or private",
            all.public
        );
        findings.push(first.finding(1, message));
    }
    for (found, most) in [(all.with_tuples, MOST_WITH_TUPLES), (all.wide, MOST_WIDE)] {
        if most < found.len() {
            findings.extend(found);
        }
    }
    findings
}

/// Counts the shapes in the sources of the product, outside of tests.
pub(crate) fn shapes(sources: &[&Source]) -> Shapes {
    let mut all = Shapes::default();
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("hbbp-user/"))
    {
        let code = code(&source.text);
        let code = without_tests(&code);
        all.public += code.lines().filter(|line| is_public(line)).count();
        for (at, name) in code.match_indices("fn ") {
            let (before, after) = code.split_at(at + name.len());
            if has_tuple(after) {
                let line = before.matches('\n').count() + 1;
                let message = format!(
                    "a tuple as parameter, of which {MOST_WITH_TUPLES} are allowed: give each its name, or the tuple a type"
                );
                all.with_tuples.push(source.finding(line, message));
            }
        }
        for (line, n_fields) in wide(code) {
            let message =
                format!("a struct of {n_fields} fields, where {WIDE} are enough: it is more than one thing");
            all.wide.push(source.finding(line, message));
        }
    }
    all
}

fn is_public(line: &str) -> bool {
    let item = line.trim_start().strip_prefix("pub ");
    let kinds = [
        "fn", "struct", "enum", "const", "static", "trait", "type", "mod", "use", "unsafe", "async",
    ];
    item.and_then(|item| item.split(' ').next())
        .is_some_and(|kind| kinds.contains(&kind))
}

/// Whether the parameters that begin in what follows `fn ` hold a tuple.
fn has_tuple(rest: &str) -> bool {
    let Some((_, parameters)) = rest.split_once('(') else {
        return false;
    };
    let mut depth = 1;
    let end = parameters.char_indices().find_map(|(at, sign)| {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    });
    let parameters = &parameters[..end.unwrap_or(0)];
    // Parentheses are not a tuple where it is empty, or holds a type with several bounds.
    let is_tuple = |rest: &str| {
        !["()", "(impl ", "(dyn "]
            .iter()
            .any(|other| rest.starts_with(other))
    };
    [": ", ": &", ": &mut "].iter().any(|before| {
        let mut types = parameters.split(before).skip(1);
        types.any(|rest| rest.starts_with('(') && is_tuple(rest))
    })
}

/// Where wide structs begin, and how many fields they have.
fn wide(code: &str) -> Vec<(usize, usize)> {
    let mut wide = Vec::new();
    let (mut attributes, mut begin, mut fields, mut is_inside) = (String::new(), 0, 0, false);
    for (number, line) in (1..).zip(code.lines()) {
        if line.starts_with("#[") {
            attributes.push_str(line);
        } else if line.contains("struct ") && line.ends_with('{') && !line.starts_with(' ') {
            (is_inside, begin, fields) = (true, number, 0);
        } else if line == "}" && is_inside {
            let is_read = ["Serialize", "Deserialize", "Args", "Parser", "prost"];
            let is_counted = WIDE < fields && !is_read.iter().any(|name| attributes.contains(name));
            wide.extend(is_counted.then_some((begin, fields)));
            is_inside = false;
            attributes.clear();
        } else if is_inside {
            let is_field = line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ");
            fields += usize::from(is_field);
        } else if !line.trim().is_empty() {
            attributes.clear();
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_the_product_are_counted() {
        let fields: String = (0..13).map(|n| format!("    field{n}: u8,\n")).collect();
        let text = format!(
            "pub fn f(a: u8, (b, c): (u8, u8)) {{}}\npub(crate) fn g(a: &[(u8, u8)]) -> (u8, u8) {{}}\n\
             fn i(_: (), file: &mut (impl Read + Seek)) {{}}\nstruct S {{\n{fields}}}\n\
             #[derive(Serialize)]\nstruct J {{\n{fields}}}\n#[cfg(test)]\nmod tests {{\n    pub fn h(a: (u8, u8)) {{}}\n}}\n"
        );
        let source = |path: &str| Source {
            path: path.to_owned(),
            text: text.clone(),
        };
        let (product, other) = (source("hbbp-user/x/src/a.rs"), source("xtask/src/a.rs"));
        let found = shapes(&[&product, &other]);
        let at = |findings: &[Finding]| findings.iter().map(|finding| finding.line).collect::<Vec<_>>();
        assert_eq!(
            (found.public, at(&found.with_tuples), at(&found.wide)),
            (1, vec![1], vec![4])
        );
    }

    #[test]
    fn more_shapes_than_there_are_get_refused() {
        let source = |path: &str, text: String| Source {
            path: path.to_owned(),
            text,
        };
        let functions = |n| "fn f(a: &(u8, u8)) {}\n".repeat(n);
        let few = source("hbbp-user/x/src/a.rs", functions(MOST_WITH_TUPLES));
        let one = source("hbbp-user/x/src/b.rs", functions(1));
        assert!(check(&[&few]).is_empty());
        assert_eq!(check(&[&few, &one]).len(), MOST_WITH_TUPLES + 1);
        let public = source("hbbp-user/x/src/c.rs", "pub fn f() {}\n".repeat(MOST_PUBLIC + 1));
        assert_eq!(check(&[&public]).len(), 1);
    }
}
