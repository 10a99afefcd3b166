//! The names in a table: functions demangled, and everything safe to print.

use hbbp_model::names::{Demangle, cgroups, functions};
use hbbp_model::printable::harmless;

/// What a table shows for its keys, one text for each dimension. JSON and CSV keep the names as found, which other tools can
/// look up.
pub(super) fn shown_names(by: &[&str], keys: &[&[String]], demangle: Demangle) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = vec![Vec::with_capacity(by.len()); keys.len()];
    for (nth, dimension) in by.iter().enumerate() {
        let values: Vec<&str> = keys
            .iter()
            .map(|key| key.get(nth).map_or("", String::as_str))
            .collect();
        let shown = match *dimension {
            "function" | "inlined" | "line" | "block" | "callee" => functions(&values, demangle),
            "cgroup" => {
                let shown = cgroups(&values);
                shown.iter().map(|path| harmless(path)).collect()
            }
            _ => values.iter().map(|value| harmless(value)).collect(),
        };
        for (row, name) in rows.iter_mut().zip(shown) {
            row.push(name);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_safe_to_print() {
        let id = "0123456789abcdef".repeat(4);
        let keys = [format!("/docker/{id}"), "/a\x1b[2J".to_owned()].map(|path| vec![path]);
        let shown = shown_names(&["cgroup"], &[&keys[0], &keys[1]], Demangle::On);
        assert_eq!(shown[0], ["/docker/0123456789ab"]);
        assert!(!shown[1][0].contains('\x1b'), "{shown:?}");
    }

    #[test]
    fn functions_are_demangled_and_modules_are_not() {
        let key = ["_ZN5space3fooEi".to_owned(), "_ZN5space3fooEi".to_owned()];
        let shown = shown_names(&["module", "function"], &[&key], Demangle::On);
        assert_eq!(shown, [["_ZN5space3fooEi", "space::foo"]]);
    }
}
