//! Files that use each other in a circle. Files without one have an order, from what is used to what uses it, in which they can be
//! read and tested.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Source};
use super::rust::mentions;

/// Most circles in the workspace.
const MOST: usize = 5;

/// A file by its position in the crate: the folder of its sources, and the names of the modules that lead to it.
type Module = (String, Vec<String>);

/// The file that each file of a crate uses, with the names that it takes from there.
type Uses = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// The circles, where there are more than [`MOST`].
pub(crate) fn check(sources: &[&Source]) -> Vec<Finding> {
    let all = all(sources);
    if all.len() <= MOST { Vec::new() } else { all }
}

/// Every circle, with its references.
pub(crate) fn all(sources: &[&Source]) -> Vec<Finding> {
    let uses = uses(sources);
    let finding = |circle: &BTreeSet<usize>| {
        let first = circle.iter().find_map(|file| sources.get(*file))?;
        Some(first.finding(1, told(sources, &uses, circle)))
    };
    circles(&uses).iter().filter_map(finding).collect()
}

/// The references of a circle.
fn told(sources: &[&Source], uses: &Uses, circle: &BTreeSet<usize>) -> String {
    let path = |file: &usize| sources.get(*file).map_or("", |source| source.path.as_str());
    let ties = circle.iter().flat_map(|from| {
        let to = uses.get(from).into_iter().flatten();
        to.filter(|(to, _)| circle.contains(to)).map(move |(to, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("\n    {} -> {}: {}", path(from), path(to), names.join(", "))
        })
    });
    let ties: String = ties.collect();
    format!(
        "a circle of {} files, where {MOST} circles are allowed:{ties}",
        circle.len()
    )
}

/// The module that a file is, for sources of a crate.
fn module(path: &str) -> Option<Module> {
    let (crate_root, file) = path.strip_suffix(".rs")?.split_once("/src/")?;
    let names = file
        .split('/')
        .filter(|name| !matches!(*name, "mod" | "lib" | "main"));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    // A program next to the library is a crate of its own.
    let is_program = names.first().is_some_and(|name| name == "bin");
    let root = match is_program {
        true => format!(
            "{crate_root}/src/{}",
            names.drain(..names.len().min(2)).collect::<Vec<_>>().join("/")
        ),
        false => format!("{crate_root}/src"),
    };
    Some((root, names))
}

fn uses(sources: &[&Source]) -> Uses {
    let modules: BTreeMap<Module, usize> = sources
        .iter()
        .zip(0..)
        .filter_map(|(source, file)| Some((module(&source.path)?, file)))
        .collect();
    let paths: BTreeMap<usize, (&Module, Vec<Vec<String>>)> = modules
        .iter()
        .filter_map(|(module, file)| {
            let mentions = mentions(&sources.get(*file)?.text);
            let paths = mentions
                .iter()
                .map(|it| it.path.split("::").map(str::to_owned).collect());
            Some((*file, (module, paths.collect())))
        })
        .collect();
    let found = |(root, names): &Module, path: &[String]| found(&modules, (root, names), path);
    let mut uses = Uses::new();
    for (file, (module, mentioned)) in &paths {
        for path in mentioned {
            let Some((mut to, mut name)) = found(module, path) else {
                continue;
            };
            // A name that the other file has from elsewhere is used from there. Names lead on no longer than folders are deep.
            for _ in 0..8 {
                let on = paths.get(&to).and_then(|(module, mentioned)| {
                    let same = mentioned
                        .iter()
                        .filter(|path| 1 < path.len() && path.last() == name.first());
                    same.filter_map(|path| found(module, path))
                        .find(|(next, _)| *next != to)
                });
                match on {
                    Some((next, _)) => to = next,
                    None => break,
                }
            }
            name.truncate(1);
            if to != *file {
                uses.entry(*file).or_default().entry(to).or_default().extend(name);
            }
        }
    }
    uses
}

/// The file of the crate that a path leads to from a module, and what is left of the path there.
fn found(
    modules: &BTreeMap<Module, usize>,
    (root, names): (&str, &[String]),
    path: &[String],
) -> Option<(usize, Vec<String>)> {
    // As in `mod below;`, `pub(crate)` and `self.field`.
    if path.len() < 2 {
        return None;
    }
    let mut at = names.to_vec();
    let mut rest = path.iter().peekable();
    match rest.peek().map(|name| name.as_str())? {
        "crate" => {
            at.clear();
            rest.next();
        }
        "self" => {
            rest.next();
        }
        "super" => {
            while rest.next_if(|name| *name == "super").is_some() {
                at.pop()?;
            }
        }
        // The name of a module below, or of something else.
        name => {
            at.push(name.to_owned());
            modules.get(&(root.to_owned(), at.clone()))?;
            rest.next();
        }
    }
    while let Some(name) = rest.peek() {
        at.push((*name).clone());
        if !modules.contains_key(&(root.to_owned(), at.clone())) {
            at.pop();
            break;
        }
        rest.next();
    }
    // As in `pub(in crate::above)`.
    if rest.peek().is_none() && names.starts_with(&at) {
        return None;
    }
    let file = modules.get(&(root.to_owned(), at))?;
    Some((*file, rest.cloned().collect()))
}

/// The sets of files that reach each other, of more than one file.
fn circles(uses: &Uses) -> Vec<BTreeSet<usize>> {
    let reached = |from: usize| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let next = uses.get(&file).into_iter().flatten().map(|(to, _)| *to);
            open.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    };
    let all: BTreeMap<usize, BTreeSet<usize>> = uses.keys().map(|file| (*file, reached(*file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached) in &all {
        let back = |other: &usize| all.get(other).is_some_and(|it| it.contains(file));
        let circle: BTreeSet<usize> = reached.iter().copied().filter(back).collect();
        if 1 < circle.len() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn circles_of(files: &[(&str, &str)], expected: &[&[&str]]) {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
            })
            .collect();
        let sources: Vec<&Source> = sources.iter().collect();
        let circles = circles(&uses(&sources));
        let paths = |circle: &BTreeSet<usize>| circle.iter().map(|file| files[*file].0).collect();
        let found: Vec<Vec<&str>> = circles.iter().map(paths).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        circles_of(
            &[
                ("x/src/a.rs", "use crate::b::f;"),
                ("x/src/b.rs", "use super::a::g;"),
                ("x/src/c.rs", "use crate::a::g;"),
            ],
            &[&["x/src/a.rs", "x/src/b.rs"]],
        );
    }

    #[test]
    fn a_child_that_uses_what_its_folder_defines_is_one() {
        circles_of(
            &[
                ("x/src/a/mod.rs", "mod b; use b::f; struct S;"),
                ("x/src/a/b.rs", "use super::S;"),
            ],
            &[&["x/src/a/mod.rs", "x/src/a/b.rs"]],
        );
    }

    #[test]
    fn a_name_that_is_handed_on_is_used_where_it_is_defined() {
        circles_of(
            &[
                ("x/src/lib.rs", "pub use b::S; use a::f;"),
                ("x/src/a.rs", "use crate::S;"),
                ("x/src/b.rs", "struct S;"),
            ],
            &[],
        );
    }

    #[test]
    fn tests_may_use_anything() {
        circles_of(
            &[
                ("x/src/a.rs", "use crate::b::f;"),
                ("x/src/b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::g;\n}"),
            ],
            &[],
        );
    }
}
