//! Questions of users, with the page of each answer: at most two links away from the README.

use std::collections::{BTreeMap, BTreeSet};

use super::super::finding::{Finding, Source};
use super::links::{anchors, inside};
use super::markdown::links;
use super::pages::{BOOK, CONTENTS, README};

/// Most links from the README to an answer. The table of contents is passed by: it leads everywhere.
const MOST_LINKS: usize = 2;

/// A question, and the section that answers it.
struct Question {
    asked: &'static str,
    /// Below the folder of the book.
    page: &'static str,
    /// The heading of the section as links name it.
    section: &'static str,
    /// Words of the answer.
    words: &'static str,
}

const fn question(
    asked: &'static str,
    page: &'static str,
    section: &'static str,
    words: &'static str,
) -> Question {
    Question {
        asked,
        page,
        section,
        words,
    }
}

const QUESTIONS: [Question; 22] = [
    question(
        "My cloud has no PMU: what do I get?",
        "using/first-run.md",
        "without-a-pmu",
        "time-weighted samples",
    ),
    question(
        "How do I give a guest counters?",
        "using/first-run.md",
        "without-a-pmu",
        "pmu=on",
    ),
    question(
        "May I compare mnemonics measured by a clock?",
        "trust/limits.md",
        "what-its-figures-cannot-say",
        "waited for",
    ),
    question(
        "Why is so much kernel time in sti?",
        "trust/limits.md",
        "what-its-figures-cannot-say",
        "interrupts off",
    ),
    question(
        "How do I see what each process runs in the kernel?",
        "using/pivots.md",
        "processes-threads-and-cgroups",
        "function,process",
    ),
    question(
        "How do I find one container?",
        "using/pivots.md",
        "processes-threads-and-cgroups",
        "docker ps",
    ),
    question("Which ISA level really ran?", "using/pivots.md", "views", "isa"),
    question(
        "How do I fail a test if AVX-512 is not used?",
        "using/pivots.md",
        "requirements",
        "--require",
    ),
    question(
        "Did -O3 change the mix, or was it chance?",
        "using/diff.md",
        "compare",
        "p-values",
    ),
    question(
        "Which kernel code does a driver run?",
        "using/pivots.md",
        "views",
        "module:NAME",
    ),
    question(
        "Where does a stripped library get source lines?",
        "using/lines.md",
        "source-lines",
        "--binary FILE",
    ),
    question(
        "How do I make an AutoFDO profile of the kernel?",
        "using/exports.md",
        "a-kernel-built-with-its-profile",
        "CLANG_AUTOFDO_PROFILE",
    ),
    question(
        "Which tools read the exports?",
        "using/exports.md",
        "exports-for-compilers-bolt-and-viewers",
        "llvm-profdata",
    ),
    question(
        "What does the daemon take per day?",
        "always/daemon.md",
        "what-it-takes-per-day",
        "disk",
    ),
    question(
        "What happens when the budget is exceeded?",
        "always/budgets.md",
        "cpu",
        "sampling periods follow",
    ),
    question(
        "Which privileges does it need?",
        "always/privileges.md",
        "capabilities",
        "CAP_PERFMON",
    ),
    question(
        "How do I add up a fleet?",
        "always/fleet.md",
        "many-hosts",
        "read_parquet",
    ),
    question(
        "Does it disturb perf on the same machine?",
        "how/collection.md",
        "collection-in-the-kernel",
        "undisturbed",
    ),
    question(
        "Is the text what really ran, patches included?",
        "how/text.md",
        "kernel",
        "TEXT_POKE",
    ),
    question(
        "What do lost samples mean?",
        "trust/report.md",
        "sample-accounting",
        "adds up exactly",
    ),
    question(
        "How far off is a figure?",
        "trust/errors.md",
        "without-bias",
        "two standard errors",
    ),
    question(
        "Can scripts that call processwatch stay?",
        "using/processwatch.md",
        "replacing-processwatch",
        "interval,pid,name",
    ),
];

/// The questions whose answers are missing, or too far away.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let pages: BTreeMap<&str, &Source> = sources
        .iter()
        .map(|source| (source.path.as_str(), source))
        .collect();
    // Workspaces of tests may lack the book.
    let Some(readme) = pages.get(README).filter(|_| pages.contains_key(CONTENTS)) else {
        return Vec::new();
    };
    let near = reached(&pages);
    let unanswered = QUESTIONS.iter().filter_map(|question| {
        let path = format!("{}{}", BOOK, question.page);
        let why = match pages.get(path.as_str()) {
            Some(page) if !anchors(page).contains(question.section) => "its section is missing",
            Some(page) if !page.text.contains(question.words) => "its answer is missing",
            Some(_) if !near.contains(&path) => "its page is more than two links away",
            Some(_) => return None,
            None => "its page is missing",
        };
        let Question {
            asked, page, section, ..
        } = question;
        Some(readme.finding(1, format!("`{asked}` ({page}#{section}): {why}")))
    });
    unanswered.collect()
}

/// The files that links lead to from the README.
fn reached(pages: &BTreeMap<&str, &Source>) -> BTreeSet<String> {
    let mut reached = BTreeSet::from([README.to_owned()]);
    for _ in 0..MOST_LINKS {
        let from = reached.iter().filter(|path| *path != CONTENTS);
        let targets = from.filter_map(|path| pages.get(path.as_str())).flat_map(|page| {
            let links = links(&page.text).into_iter();
            links.filter_map(|(_, target)| Some(inside(&page.path, &target)?.0))
        });
        let targets: Vec<String> = targets.collect();
        reached.extend(targets);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_two_links_away_without_the_contents() {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source(
                README,
                "[a](hbbp-user/book/src/a.md) [all](hbbp-user/book/src/SUMMARY.md)",
            ),
            source("hbbp-user/book/src/a.md", "[b](b.md)"),
            source("hbbp-user/book/src/b.md", "[c](c.md)"),
            source("hbbp-user/book/src/c.md", ""),
            source(CONTENTS, "[c](c.md)"),
        ];
        let pages = sources
            .iter()
            .map(|source| (source.path.as_str(), source))
            .collect();
        let reached = reached(&pages);
        assert!(reached.contains("hbbp-user/book/src/b.md"));
        assert!(!reached.contains("hbbp-user/book/src/c.md"));
        assert_eq!(
            check(&sources).len(),
            QUESTIONS.len(),
            "no page of an answer is there"
        );
    }
}
