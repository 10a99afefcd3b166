//! Paths in narrow columns: the file's name stays, and as many of its last folders as there is width for.

use unicode_width::UnicodeWidthChar as _;

/// Placeholder of folders that are not shown.
const LEFT_OUT: &str = "…/";

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Paths in at most `width` columns, in the order of `paths`. Different paths stay different where the width allows it:
/// the folder in which they differ is shown as well. What is not an absolute path, or too long even so, is left as it
/// is.
pub fn fitted(paths: &[&str], width: usize) -> Vec<String> {
    let mut shown: Vec<String> = paths.iter().map(|path| tail(path, width)).collect();
    super::replace_coinciding(paths, &mut shown, |path, _| with_folder(path, paths));
    super::replace_coinciding(paths, &mut shown, |path, _| path.to_owned());
    shown
}

/// The end of an absolute path that fits into `width` columns: whole folders, and the file's name at least.
fn tail(path: &str, width: usize) -> String {
    if !path.starts_with('/') || columns(path) <= width {
        return path.to_owned();
    }
    let slashes = path.match_indices('/').map(|(at, _)| at);
    let mut ends = slashes
        .filter_map(|at| path.get(at + 1..))
        .map(|end| format!("{LEFT_OUT}{end}"));
    let fits = |end: &String| columns(end) <= width;
    ends.find(fits)
        .unwrap_or_else(|| format!("{LEFT_OUT}{}", file_name(path)))
}

/// `…/folder/…/file`, with the last folder that no other path with this file name has at the same depth.
fn with_folder(path: &str, all: &[&str]) -> String {
    let others = || {
        all.iter()
            .filter(|other| **other != path && file_name(other) == file_name(path))
    };
    let parts: Vec<&str> = path.rsplit('/').collect();
    let is_own =
        |(at, folder): &(usize, &&str)| others().all(|other| other.rsplit('/').nth(*at) != Some(folder));
    match parts.iter().enumerate().skip(1).find(is_own) {
        Some((1, folder)) => format!("{LEFT_OUT}{folder}/{}", file_name(path)),
        Some((_, folder)) if !folder.is_empty() => {
            format!("{LEFT_OUT}{folder}/{LEFT_OUT}{}", file_name(path))
        }
        _ => path.to_owned(),
    }
}

fn columns(text: &str) -> usize {
    text.chars().filter_map(|c| c.width()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_file_name_of_a_long_path_stays() {
        let driver = "/home/.rustup/toolchains/1.95.0-x86_64/lib/librustc_driver.so";
        let shown = |width| fitted(&[driver, "[kernel]"], width).remove(0);
        assert_eq!(shown(80), driver);
        assert_eq!(shown(40), "…/1.95.0-x86_64/lib/librustc_driver.so");
        assert_eq!(shown(23), "…/librustc_driver.so");
        assert_eq!(shown(3), "…/librustc_driver.so");
        assert_eq!(fitted(&["[kernel]"], 3), ["[kernel]"]);
    }

    #[test]
    fn files_of_one_name_are_distinguished() {
        let paths = [
            "/opt/tools/1.94/lib/libx.so",
            "/opt/tools/1.95/lib/libx.so",
            "/opt/other/liby.so",
            "/opt/tools/1.95/lib/libx.so",
        ];
        let shown = [
            "…/1.94/…/libx.so",
            "…/1.95/…/libx.so",
            "…/liby.so",
            "…/1.95/…/libx.so",
        ];
        assert_eq!(fitted(&paths, 14), shown);
        assert_eq!(fitted(&["/a/x.so", "/b/x.so"], 6), ["…/a/x.so", "…/b/x.so"]);
    }

    proptest! {
        #[test]
        fn different_paths_stay_different(paths in prop::collection::btree_set("(/[ab]{0,2}){1,4}", 1..8), width in 0usize..12) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let mut shown = fitted(&paths, width);
            shown.sort();
            shown.dedup();
            prop_assert_eq!(shown.len(), paths.len());
        }
    }
}
