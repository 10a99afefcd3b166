//! Source lines and inlined functions, from debug information in the program, next to it, and where it is named.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::server::Server;
use super::{kernel, number, run};

/// Two functions are inlined into one; each is on lines of its own.
const SOURCE: &str = "#include <stdlib.h>
static inline __attribute__((always_inline)) unsigned turned(unsigned x, unsigned i)
{
    return (x ^ i) << 7 | (x ^ i) >> 25;
}
static inline __attribute__((always_inline)) unsigned divided(unsigned x, unsigned i)
{
    return x / (i | 1);
}
__attribute__((noinline)) unsigned work(unsigned n)
{
    unsigned x = 1;
    for (unsigned i = 0; i < n; i++)
        x = divided(turned(x, i), i);
    return x;
}
int main(int argc, char **argv)
{
    return work(strtoul(argv[1], NULL, 0)) == 3;
}
";

fn tool(name: &str, args: &[&str]) {
    assert!(
        Command::new(name).args(args).status().unwrap().success(),
        "{name} {args:?}"
    );
}

/// The rows of user code by this dimension: key and samples.
fn rows(report: &[u8]) -> Vec<(String, u64)> {
    let report: Value = serde_json::from_slice(report).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        (
            row["key"][0].as_str().unwrap().to_owned(),
            number(&row["user"]["amount"]),
        )
    })
    .filter(|(_, amount)| 0 < *amount)
    .collect()
}

/// The samples of the keys that end so, in parts of all.
fn share(rows: &[(String, u64)], end: &str) -> f64 {
    let sum = |rows: &mut dyn Iterator<Item = &(String, u64)>| rows.map(|(_, amount)| amount).sum::<u64>();
    sum(&mut rows.iter().filter(|(key, _)| key.ends_with(end))) as f64 / sum(&mut rows.iter()) as f64
}

/// The program that is measured, with debug information, and its source file.
fn compiled(folder: &Path) -> [String; 2] {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (source, program) = (path("lines.c"), path("lines"));
    std::fs::write(&source, SOURCE).unwrap();
    // Compressed as debug packages are.
    tool(
        "cc",
        &["-O2", "-g", "-gz", "-Wl,--build-id", "-o", &program, &source],
    );
    [program, source]
}

/// A profile of the program, at this path.
fn record(program: &str, profile: &str) {
    let options = ["record", "-o", profile, "--period", "200003", "--"];
    let recorded = run(&[&options[..], &[program, "300000000"]].concat());
    assert!(recorded.status.success(), "{recorded:?}");
}

fn assert_lines(lines: &[(String, u64)]) {
    println!("{lines:?}");
    let within: f64 = ["lines.c:4", "lines.c:8", "lines.c:13", "lines.c:14"]
        .map(|line| share(lines, line))
        .iter()
        .sum();
    assert!(0.98 < within, "{within}: {lines:?}");
    // A division takes longer than everything else in the loop together.
    assert!(0.15 < share(lines, "lines.c:8"), "{lines:?}");
}

fn assert_inlined(inlined: &[(String, u64)]) {
    println!("{inlined:?}");
    // Two instructions, which the division overlaps with: 0.15 to 0.18 of the time.
    assert!(0.1 < share(inlined, "turned"), "{inlined:?}");
    assert!(0.15 < share(inlined, "divided"), "{inlined:?}");
}

#[test]
fn lines_come_from_a_server_where_the_user_names_one() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [program, _] = compiled(folder.path());
    let (debug, profile) = (path("lines.debug"), path("profile"));
    tool("objcopy", &["--only-keep-debug", &program, &debug]);
    tool("strip", &[&program]);
    record(&program, &profile);
    let url = Server::default()
        .with(&program, "debuginfo", Path::new(&debug))
        .start();
    let report = |url: &str, sudo: Option<&str>| {
        let mut report = super::program(&["report", &profile, "--by", "line", "--format", "json"]);
        report
            .env("DEBUGINFOD_URLS", url)
            .env("no_proxy", "127.0.0.1")
            .env("DEBUGINFOD_CACHE_PATH", path("cache"));
        report.envs(sudo.map(|user| ("SUDO_UID", user)));
        let output = report.output().unwrap();
        (
            rows(&output.stdout),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let has_lines = |rows: &[(String, u64)]| 0.0 < share(rows, "lines.c:8");
    // Under sudo the environment may be that of another user.
    assert!(!has_lines(&report(&url, Some("1000")).0));
    assert!(!has_lines(&report("", None).0));
    let (_, said) = report("http://127.0.0.1:1", None);
    assert!(
        said.contains("no more files are asked for at DEBUGINFOD_URLS"),
        "{said}"
    );
    assert_lines(&report(&url, None).0);
}

#[test]
fn lines_and_inlined_functions_follow_the_build_id() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [program, source] = compiled(folder.path());
    let (debug, profile) = (path("lines.debug"), path("profile"));
    record(&program, &profile);
    let by = |dimension: &str, more: &[&str]| {
        let args = [
            &[
                "report", &profile, "--by", dimension, "--format", "json", "--top", "all",
            ],
            more,
        ]
        .concat();
        run(&args).stdout
    };

    let lines = rows(&by("line", &[]));
    assert_lines(&lines);
    assert_inlined(&rows(&by("inlined", &[])));
    assert!(0.98 < share(&rows(&by("function", &[])), "work"));

    // On a terminal it is said what takes the time.
    let command = format!("{} report {profile} --by line", env!("CARGO_BIN_EXE_hbbp-sys"));
    if let Ok(shown) = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output()
    {
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(
            shown.contains("source lines") && shown.contains("lines.c:"),
            "{shown}"
        );
    }

    // The debug information moves to a file of its own: nothing is found but the symbol, and that is said ..
    tool("objcopy", &["--only-keep-debug", &program, &debug]);
    tool("strip", &["--strip-debug", &program]);
    let without = rows(&by("line", &[]));
    assert!(0.98 < share(&without, "work"), "{without:?}");
    let said = run(&["report", &profile, "--by", "line"]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("no debug information for"), "{said}");
    // .. unless it is named, or lies where the program says.
    assert_eq!(rows(&by("line", &["--binary", &debug])), lines);
    tool("objcopy", &[&format!("--add-gnu-debuglink={debug}"), &program]);
    assert_eq!(rows(&by("line", &[])), lines);

    // A file of another build has the same name and other lines.
    std::fs::write(&source, format!("\n\n{}", SOURCE.replace("<< 7", "<< 6"))).unwrap();
    std::fs::remove_file(&debug).unwrap();
    tool("cc", &["-O2", "-g", "-Wl,--build-id", "-o", &program, &source]);
    assert_eq!(rows(&by("line", &["--binary", &program])), without);
    assert!(Path::new(&program).exists());
}

/// Its text says that it is the same file, where no build id does.
#[test]
fn file_without_build_id_is_known_by_its_text() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [program, source] = compiled(folder.path());
    let build = |text: &str| {
        std::fs::write(&source, text).unwrap();
        tool(
            "cc",
            &["-O2", "-g", "-Wl,--build-id=none", "-o", &program, &source],
        );
    };
    build(SOURCE);
    let profile = path("profile");
    record(&program, &profile);
    let lines = || {
        let args = [
            "report", &profile, "--by", "line", "--format", "json", "--top", "all",
        ];
        rows(&run(&args).stdout)
    };
    assert_lines(&lines());
    // The same code on other lines, written since; and other code, of a time before.
    let other = format!("\n{SOURCE}");
    for (text, earlier) in [(other.as_str(), false), (&SOURCE.replace("<< 7", "<< 6"), true)] {
        build(text);
        if earlier {
            tool("touch", &["-d", "2020-01-01", &program]);
        }
        let lines = lines();
        assert!(0.98 < share(&lines, "work"), "{lines:?}");
    }
    let said = String::from_utf8(run(&["report", &profile, "--by", "line"]).stderr).unwrap();
    assert!(said.contains("no debug information for"), "{said}");
}

/// The functions of a unit are in another file, or in a package of them; the tool that packs them reads DWARF 4 alone.
#[test]
fn split_debug_information_is_found() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (source, program, profile) = (path("lines.c"), path("lines"), path("profile"));
    std::fs::write(&source, SOURCE).unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        tool(
            "cc",
            &[
                "-O2",
                version,
                "-gsplit-dwarf",
                "-Wl,--build-id",
                "-o",
                &program,
                &source,
            ],
        );
        record(&program, &profile);
        let inlined = |more: &[&str]| {
            let args = [
                "report", &profile, "--by", "inlined", "--format", "json", "--top", "all",
            ];
            rows(&run(&[&args[..], more].concat()).stdout)
        };
        let found = inlined(&[]);
        assert_inlined(&found);
        let unit = path("lines.dwo");
        if version == "-gdwarf-4" {
            tool("dwp", &["-e", &program, "-o", &path("lines.dwp")]);
            std::fs::rename(&unit, path("away")).unwrap();
            assert_eq!(inlined(&[]), found);
            // A package that is elsewhere is named.
            std::fs::rename(path("lines.dwp"), path("other.dwp")).unwrap();
            assert_eq!(inlined(&["--binary", &path("other.dwp")]), found);
        } else {
            // That of another build, at the same path.
            std::fs::copy(path("away"), &unit).unwrap();
        }
        let without = inlined(&[]);
        assert_eq!(share(&without, "divided"), 0.0, "{without:?}");
        let said = String::from_utf8(run(&["report", &profile, "--by", "inlined"]).stderr).unwrap();
        assert!(
            said.contains("no debug information for") && said.contains(&program),
            "{said}"
        );
    }
}

/// Annotated code has the lines of its source next to it, unless the caller may not read them, or they changed after the run.
#[test]
fn annotated_code_has_its_source() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let set_mode = |mode| std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    let [program, source] = compiled(folder.path());
    let profile = folder.path().join("profile");
    let profile = profile.to_str().unwrap();
    record(&program, profile);
    let annotated = || {
        let shown = run(&["annotate", profile, "work", "--no-pager"]);
        assert!(shown.status.success(), "{shown:?}");
        String::from_utf8(shown.stdout).unwrap()
    };

    // Root's folder: whoever named one of its files in debug information must not read it.
    set_mode(0o700);
    let code = annotated();
    assert!(
        code.contains("lines.c:8") && !code.contains("return x /"),
        "{code}"
    );

    set_mode(0o755);
    let code = annotated();
    let line = |text: &str| code.lines().find(|line| line.contains(text));
    let divided = line("lines.c:8  return x / (i | 1);");
    assert!(divided.is_some(), "{code}");
    let hot = |line: &&str| line.contains("div") && !line.contains("lines.c:4");
    assert!(code.lines().any(|line| hot(&line)), "{code}");
    assert!(line("return (x ^ i) << 7 | (x ^ i) >> 25;").is_some(), "{code}");

    std::fs::write(&source, format!("\n{SOURCE}")).unwrap();
    let code = annotated();
    assert!(
        code.contains("lines.c:8") && !code.contains("return x /"),
        "{code}"
    );
    assert!(code.contains("lines.c changed after the measurement"), "{code}");
}
