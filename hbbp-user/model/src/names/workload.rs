//! What a cgroup represents: the service, the user or the container whose processes are in it, by the names that systemd and
//! the usual container runtimes give to cgroups.
//!
//! ```text
//! /system.slice/nginx.service                                          service
//! /user.slice/user-1000.slice/user@1000.service/..                     user: what is below is the user's own
//! /system.slice/docker-ID.scope, /docker/ID                            container
//! /kubepods.slice/../kubepods-burstable-podUID.slice/cri-containerd-ID.scope   container of a pod
//! /kubepods/burstable/podUID/ID                                        the same without systemd
//! ```
//!
//! What is below a service, a user or a container is counted with it: it is named by whoever runs there.

/// Digits of a container's id, as runtimes name cgroups.
const ID: usize = 64;
/// Digits of it that `docker ps` and `podman ps` print.
const SHOWN: usize = 12;
/// Characters of a pod's id.
const UID: usize = 36;

/// Whose a cgroup is.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Workload {
    /// Path of the cgroup of the service, user or container, with the ids of containers cut.
    pub cgroup: String,
    /// Id of the pod, or nothing.
    pub pod: String,
    /// Id of the container, or nothing: its first twelve digits.
    pub container: String,
}

impl Workload {
    /// That of a path; names in brackets, which are no paths, stay as they are.
    pub fn of(path: &str) -> Self {
        let mut found = Self::default();
        if !path.starts_with('/') {
            found.cgroup = path.to_owned();
            return found;
        }
        for name in path.split('/').filter(|name| !name.is_empty()) {
            found.cgroup.push('/');
            if let Some(id) = container(name) {
                let shown = id.get(..SHOWN).unwrap_or(id);
                found.cgroup.push_str(&name.replacen(id, shown, 1));
                shown.clone_into(&mut found.container);
                return found;
            }
            found.cgroup.push_str(name);
            if let Some(uid) = pod(name) {
                found.pod = uid;
            }
            if is_delegated(name) {
                return found;
            }
        }
        if found.cgroup.is_empty() {
            found.cgroup.push('/');
        }
        found
    }
}

/// Whether others name what is below: services, users and scopes of systemd (systemd.resource-control(5), Delegate=).
fn is_delegated(name: &str) -> bool {
    let is_user = name.starts_with("user-") && name.ends_with(".slice");
    is_user || name.ends_with(".service") || name.ends_with(".scope")
}

/// The id of the container whose cgroup has this name: alone, or as `docker-ID.scope`, `libpod-ID.scope`,
/// `cri-containerd-ID.scope`, `crio-ID.scope`.
fn container(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".scope").unwrap_or(name);
    let id = id.rsplit_once('-').map_or(id, |(_, id)| id);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (id.len() == ID && id.bytes().all(is_digit)).then_some(id)
}

/// The id of the pod whose cgroup has this name: `podUID`, or `kubepods-burstable-podUID.slice` with `_` for `-`.
fn pod(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = name.strip_prefix("pod").or_else(|| {
        name.strip_prefix("kubepods")
            .and_then(|it| Some(it.rsplit_once("-pod")?.1))
    })?;
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() == UID && uid.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4e8a91b2c7d6e5f4e8a91b2c7d6e5f3f4e8a91b2c7d6e5f4e8a91b2c7d6e5f";
    const POD: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn of(path: &str) -> [String; 3] {
        let Workload {
            cgroup,
            pod,
            container,
        } = Workload::of(path);
        [cgroup, pod, container]
    }

    #[test]
    fn containers_and_pods_are_found_as_runtimes_name_them() {
        let short = &ID[..SHOWN];
        for (before, after) in [
            ("/docker/", ""),
            ("/system.slice/docker-", ".scope"),
            ("/machine.slice/libpod-", ".scope"),
        ] {
            let expected = [format!("{before}{short}{after}"), String::new(), short.to_owned()];
            assert_eq!(of(&format!("{before}{ID}{after}")), expected);
            assert_eq!(of(&format!("{before}{ID}{after}/init/own")), expected);
        }
        let slice = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            POD.replace('-', "_")
        );
        for (pod, name) in [
            (slice, "cri-containerd-"),
            (format!("/kubepods/burstable/pod{POD}"), ""),
        ] {
            let expected = [format!("{pod}/{name}{short}"), POD.to_owned(), short.to_owned()];
            assert_eq!(of(&format!("{pod}/{name}{ID}")), expected);
        }
    }

    #[test]
    fn names_that_others_choose_are_not_labels() {
        let user = "/user.slice/user-1000.slice";
        assert_eq!(of(&format!("{user}/user@1000.service/app.slice/any"))[0], user);
        let service = "/system.slice/nginx.service";
        assert_eq!(of(&format!("{service}/workers/7"))[0], service);
        for path in ["/", "[kernel]", "(unknown)", "/init.scope", "/docker/3f4e"] {
            assert_eq!(of(path), [path, "", ""]);
        }
        assert_eq!(of("/podracing/kubepods-podx.slice")[1], "");
    }
}
