//! What the set-up finds missing, and what it would install.

use super::packagers::PACKAGERS;
use super::{Line, Missing, parse_packages};
use crate::system::System;

const ALL: fn() -> Missing = || Missing {
    compiler: true,
    linker: true,
    test_packages: vec!["gcc".to_owned(), "qemu-system-x86".to_owned()],
    packagers: Vec::new(),
    readers: false,
    promtool: false,
    browser: false,
};

#[track_caller]
fn check(missing: &Missing, system: System, present: &[&str], expected: &[&str]) {
    let absent = |names: Vec<String>| {
        names
            .into_iter()
            .filter(|name| !present.contains(&name.as_str()))
            .collect()
    };
    let shown = |line: Line| format!("{} {}", if line.needs_root { '#' } else { '$' }, line.text);
    let lines: Vec<String> = missing.lines(system, absent).into_iter().map(shown).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_ready_machine_installs_nothing() {
    check(&Missing::default(), System::Debian, &[], &[]);
    let tested = Missing {
        test_packages: vec!["gcc".to_owned()],
        ..Missing::default()
    };
    check(&tested, System::Debian, &["gcc"], &[]);
    check(&tested, System::Arch, &[], &[]);
}

#[test]
fn debian_brings_its_own_compiler() {
    check(
        &ALL(),
        System::Debian,
        &["gcc"],
        &[
            "# apt-get update -qq",
            "# DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends rustc-web cargo-web \
             libstd-rust-web-dev-bpf llvm-22-dev qemu-system-x86",
            "$ PATH=/usr/lib/llvm-22/bin:$PATH LLVM_SYS_221_PREFIX=/usr/lib/llvm-22 cargo install --quiet --locked --force \
             --version 0.13.0 --no-default-features --features llvm-22 bpf-linker",
        ],
    );
}

#[test]
fn elsewhere_a_nightly_compiles() {
    let compiler = Missing {
        compiler: true,
        ..Missing::default()
    };
    let rustup = "$ rustup toolchain install nightly-2026-05-20 --profile minimal --component rust-src";
    check(&compiler, System::Ubuntu, &[], &[rustup]);
    check(&compiler, System::Other, &[], &[rustup]);
    let linker = Missing {
        linker: true,
        ..Missing::default()
    };
    check(
        &linker,
        System::Arch,
        &[],
        &[
            "# pacman -S --needed gcc llvm",
            "$ PATH=$(llvm-config --prefix)/bin:$PATH LLVM_SYS_221_PREFIX=$(llvm-config --prefix) cargo install --quiet \
             --locked --force --version 0.13.0 --no-default-features --features llvm-22 bpf-linker",
        ],
    );
}

/// Readers of exports have fixed versions and a folder of their own.
#[test]
fn readers_of_exports_have_fixed_versions_and_a_folder() {
    let missing = Missing {
        readers: true,
        ..Missing::default()
    };
    let folder = crate::command::workspace().join("target/readers");
    let folder = folder.display();
    check(
        &missing,
        System::Debian,
        &[],
        &[
            &format!("$ python3 -m venv --clear {folder}"),
            &format!(
                "$ {folder}/bin/pip install --quiet --disable-pip-version-check --no-deps pyarrow==26.0.1 \
                 duckdb==2.0.0 protobuf==3.20.3 pypprof==0.0.1 axe-playwright-python==0.1.8"
            ),
        ],
    );
}

#[test]
fn packagers_have_fixed_versions() {
    let missing = Missing {
        packagers: PACKAGERS.to_vec(),
        ..Missing::default()
    };
    let install = "$ cargo install --quiet --locked --force --version";
    let lines = [
        "3.8.0 cargo-deb",
        "0.21.1 cargo-generate-rpm",
        "0.5.9 cargo-cyclonedx",
    ];
    let lines = lines.map(|packager| format!("{install} {packager}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    check(&missing, System::Debian, &["dpkg-dev"], &lines);
}

#[test]
fn a_list_of_packages_may_be_commented() {
    let list = "# why\ngcc\n\n  qemu-system-x86  # a virtual machine\n";
    assert_eq!(
        parse_packages(list).collect::<Vec<_>>(),
        ["gcc", "qemu-system-x86"]
    );
}

#[test]
fn browser_and_checker_of_metrics_are_for_all_tests() {
    let readers = Missing {
        promtool: true,
        browser: true,
        ..Missing::default()
    };
    let lines = readers.lines(System::Debian, |names| names);
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.ends_with("chromium")), "{texts:?}");
    // The package is unpacked: installed, it would start a server.
    let checker: Vec<&&str> = texts.iter().filter(|text| text.contains("prometheus")).collect();
    assert!(
        matches!(checker[..], [line] if line.contains("apt-get download") && !line.contains("apt-get install")),
        "{texts:?}"
    );
}
