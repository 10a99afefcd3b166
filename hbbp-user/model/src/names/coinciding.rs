//! Different names that are shown alike.

use std::collections::HashMap;

/// Gives the names that are shown like a different one another text, from the name and what was shown.
pub(super) fn replace_coinciding(names: &[&str], shown: &mut [String], other: impl Fn(&str, &str) -> String) {
    let mut owners: HashMap<&str, Option<&str>> = HashMap::new();
    for (name, shown) in names.iter().zip(&*shown) {
        owners
            .entry(shown)
            .and_modify(|owner| *owner = owner.filter(|owner| owner == name))
            .or_insert(Some(name));
    }
    let coincides: Vec<bool> = shown
        .iter()
        .map(|shown| owners.get(shown.as_str()) == Some(&None))
        .collect();
    for ((name, shown), _) in names
        .iter()
        .zip(shown)
        .zip(coincides)
        .filter(|(_, coincides)| *coincides)
    {
        *shown = other(name, shown);
    }
}
