//! Shapes of the code that are counted, as few of them are good: public items, tuples in place of parameters, and wide structs.

use super::finding::Source;
use super::rust::{code, without_tests};

/// Most fields of a struct that a reader can keep in mind.
const WIDE: usize = 12;

/// What is counted of the product.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shapes {
    /// Items that other modules of the workspace can name.
    pub(crate) public: usize,
    /// Functions with a tuple among their parameters.
    pub(crate) with_tuples: usize,
    /// Structs of more than [`WIDE`] fields that neither the command line nor JSON reads.
    pub(crate) wide: usize,
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
        all.with_tuples += code.split("fn ").skip(1).filter(|rest| has_tuple(rest)).count();
        all.wide += wide(code);
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
    let end = parameters.char_indices().find_map(|(at, it)| {
        match it {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    });
    let parameters = &parameters[..end.unwrap_or(0)];
    parameters.contains(": (") || parameters.contains(": &(") || parameters.contains(": &mut (")
}

fn wide(code: &str) -> usize {
    let mut wide = 0;
    let (mut attributes, mut fields, mut is_inside) = (String::new(), 0, false);
    for line in code.lines() {
        if line.starts_with("#[") {
            attributes.push_str(line);
        } else if line.contains("struct ") && line.ends_with('{') && !line.starts_with(' ') {
            (is_inside, fields) = (true, 0);
        } else if line == "}" && is_inside {
            let is_read = ["Serialize", "Deserialize", "Args", "Parser", "prost"];
            let is_counted = WIDE < fields && !is_read.iter().any(|name| attributes.contains(name));
            wide += usize::from(is_counted);
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
            "pub fn f(a: u8, (b, c): (u8, u8)) {{}}\npub(crate) fn g(a: &[(u8, u8)]) -> (u8, u8) {{}}\nstruct S {{\n{fields}}}\n\
             #[derive(Serialize)]\nstruct J {{\n{fields}}}\n#[cfg(test)]\nmod tests {{\n    pub fn h(a: (u8, u8)) {{}}\n}}\n"
        );
        let source = |path: &str| Source {
            path: path.to_owned(),
            text: text.clone(),
        };
        let (product, other) = (source("hbbp-user/x/src/a.rs"), source("xtask/src/a.rs"));
        let expected = Shapes {
            public: 1,
            with_tuples: 1,
            wide: 1,
        };
        assert_eq!(shapes(&[&product, &other]), expected);
    }
}
