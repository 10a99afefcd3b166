//! What mdBook made of the book: its links lead to a page and to a heading of it, as mdBook names headings, and options outside
//! of code have two hyphens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Pages that mdBook makes of others: their links are relative to another folder, or seen on those pages.
const MADE_OF_OTHERS: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// A page of the book.
struct Page {
    text: String,
    ids: BTreeSet<String>,
}

/// Checks the pages below a folder, and gives the number of links.
pub(super) fn check(folder: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    read(folder, &mut pages)?;
    let mut links = 0;
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        if let Some(option) = option_with_a_dash(&page.text) {
            wrong.push(format!("{}: an option has a dash: {option}", path.display()));
        }
        for link in attributes(&page.text, "href").filter(|link| is_relative(link)) {
            links += 1;
            if !leads_somewhere(path, link, &pages) {
                wrong.push(format!("{}: the link leads nowhere: {link}", path.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(links)
}

/// Reads the pages of a folder and those below it.
fn read(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            read(&path, pages)?;
        } else if name.ends_with(".html") && !MADE_OF_OTHERS.contains(&name) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            let ids = attributes(&text, "id").map(str::to_owned).collect();
            pages.insert(path, Page { text, ids });
        }
    }
    Ok(())
}

/// The values of an attribute.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let parts: Vec<&str> = text.split(&begin).skip(1).collect();
    parts.into_iter().filter_map(|part| Some(part.split_once('"')?.0))
}

fn is_relative(link: &str) -> bool {
    !link.contains(':') && !link.starts_with('/')
}

fn leads_somewhere(from: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let to = if file.is_empty() {
        from.to_owned()
    } else {
        normalized(&from.with_file_name(file))
    };
    match pages.get(&to) {
        Some(page) => heading.is_empty() || page.ids.contains(heading),
        None => heading.is_empty() && to.is_file(),
    }
}

/// The path without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            normalized.pop();
        } else {
            normalized.push(component);
        }
    }
    normalized
}

/// An option whose hyphens became a dash.
fn option_with_a_dash(text: &str) -> Option<String> {
    let mut afters = text.split('–').skip(1);
    let after = afters.find(|after| after.starts_with(|letter: char| letter.is_ascii_lowercase()))?;
    let option = after
        .split(|it: char| !it.is_ascii_lowercase() && it != '-')
        .next();
    option.map(|option| format!("–{option}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, pages: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-book-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("a")).unwrap();
        for (path, text) in pages {
            fs::write(folder.join(path), text).unwrap();
        }
        folder
    }

    #[test]
    fn links_lead_to_pages_and_headings() {
        let good = folder(
            "good",
            &[
                (
                    "index.html",
                    r##"<h1 id="x"><a href="#x">x</a> <a href="a/b.html#y">y</a> <a href="https://e.org/">e</a>"##,
                ),
                ("a/b.html", r#"<h1 id="y"><a href="../index.html#x">x</a>"#),
                ("print.html", r#"<a href="gone.html">"#),
            ],
        );
        let bad = folder(
            "bad",
            &[(
                "a/b.html",
                r##"<a href="../gone.html"> <a href="#gone"> raise –map-entries"##,
            )],
        );
        let (links, errors) = (check(&good), check(&bad));
        for folder in [good, bad] {
            fs::remove_dir_all(folder).unwrap();
        }
        assert_eq!(links.unwrap(), 3);
        let errors = errors.unwrap_err().to_string();
        for error in [
            "a/b.html: an option has a dash: –map-entries",
            "gone.html",
            "#gone",
        ] {
            assert!(errors.contains(error), "{errors}");
        }
    }
}
