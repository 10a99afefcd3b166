//! Paths of cgroups in tables: the ids of containers and pods, which are 64 hexadecimal digits, are cut to the 12 that
//! `docker ps` and `podman ps` print.

/// Digits of a whole id: SHA-256, as container runtimes name containers and sandboxes.
const WHOLE: usize = 64;
/// Digits that runtimes print.
const SHOWN: usize = 12;

/// The paths as they are shown, in the same order. Distinct paths stay distinct: if two shortened forms coincide, both paths are
/// shown in full.
pub fn cgroups(paths: &[&str]) -> Vec<String> {
    let mut shown: Vec<String> = paths.iter().map(|path| shortened(path)).collect();
    super::replace_coinciding(paths, &mut shown, |path, _| path.to_owned());
    shown
}

/// The path with its ids cut.
fn shortened(path: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut shown = String::with_capacity(path.len());
    let mut remaining = path;
    while !remaining.is_empty() {
        let n = remaining.find(|c| !is_digit(c)).unwrap_or(remaining.len());
        let (digits, after) = remaining.split_at(n);
        let kept = if n == WHOLE { SHOWN } else { n };
        shown.push_str(digits.get(..kept).unwrap_or(digits));
        let n = after.find(is_digit).unwrap_or(after.len());
        let (other, after) = after.split_at(n);
        shown.push_str(other);
        remaining = after;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4e8a91b2c7d6e5f4e8a91b2c7d6e5f3f4e8a91b2c7d6e5f4e8a91b2c7d6e5f";

    #[test]
    fn ids_of_containers_are_cut_and_other_names_are_not() {
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice";
        let cases = [
            (format!("/docker/{ID}"), "/docker/3f4e8a91b2c7".to_owned()),
            (
                format!("/system.slice/docker-{ID}.scope"),
                "/system.slice/docker-3f4e8a91b2c7.scope".to_owned(),
            ),
            (
                format!("{pod}/cri-containerd-{ID}.scope"),
                format!("{pod}/cri-containerd-3f4e8a91b2c7.scope"),
            ),
            (format!("/a{ID}"), format!("/a{ID}")),
            (
                "/user.slice/user-1000.slice".to_owned(),
                "/user.slice/user-1000.slice".to_owned(),
            ),
            (String::new(), String::new()),
        ];
        for (path, expected) in cases {
            assert_eq!(shortened(&path), expected);
        }
    }

    #[test]
    fn different_cgroups_stay_different() {
        let other = format!("/docker/{}0", &ID[..63]);
        let first = format!("/docker/{ID}");
        let shown = cgroups(&[&first, &other, "/init.scope", &first]);
        assert_eq!(shown, [first.as_str(), &other, "/init.scope", &first]);
    }
}
