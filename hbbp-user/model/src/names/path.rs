//! Paths in narrow columns: the file's name stays, and as many of its last folders as there is width for. Addresses in modules
//! lose the digits that they have in common, and keep those that differ.

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
    let is_long = |shown: &str| width < columns(shown);
    if shown.iter().any(|shown| is_long(shown)) {
        for (path, shown) in paths.iter().zip(&mut shown).filter(|(_, shown)| is_long(shown)) {
            if let Some(short) = where_they_differ(path, paths) {
                *shown = short;
            }
        }
    }
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

/// `[kernel]+0xffffffff8226e639` as `[kernel]+…26e639`, without the digits that all addresses in this module begin with; `None`
/// for what is not an address in a module.
fn where_they_differ(name: &str, all: &[&str]) -> Option<String> {
    /// Digits that stay, however much the addresses agree.
    const FEWEST: usize = 6;

    let (module, digits) = address_in(name)?;
    let of_module = all.iter().filter_map(|other| address_in(other));
    let others = of_module.filter(|(of, _)| *of == module);
    let agreeing = others.map(|(_, other)| {
        if other.len() != digits.len() {
            return 0;
        }
        let both = digits.bytes().zip(other.bytes());
        both.take_while(|(a, b)| a == b).count()
    });
    let agreeing = agreeing
        .min()
        .unwrap_or(0)
        .min(digits.len().saturating_sub(FEWEST));
    let kept = digits.get(agreeing..).filter(|_| 1 < agreeing)?;
    Some(format!("{}+…{kept}", file_name(module)))
}

/// The module and the hexadecimal digits of `module+0xdigits`.
fn address_in(name: &str) -> Option<(&str, &str)> {
    let (module, digits) = name.rsplit_once("+0x")?;
    let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then_some((module, digits))
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
    fn addresses_lose_the_digits_that_they_have_in_common() {
        let blocks = [
            "[kernel]+0xffffffff8226e639",
            "[kernel]+0xffffffff8226e640",
            "[kernel]+0xffffffff8101e640",
            "/usr/lib/libc.so.6+0x29c240",
        ];
        let shown = fitted(&blocks, 24);
        assert_eq!(shown[..2], ["[kernel]+…226e639", "[kernel]+…226e640"]);
        assert_eq!(shown[2..], ["[kernel]+…101e640", "…/lib/libc.so.6+0x29c240"]);
        assert_eq!(fitted(&blocks, 40), blocks);
        // Alone it keeps the digits that a reader compares.
        assert_eq!(fitted(&blocks[..1], 20), ["[kernel]+…26e639"]);
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
