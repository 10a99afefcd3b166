//! Files of a recording: those that are missing are named, and text ranges are whole.

use crate::elf::{LOOP, Program, elf};
use crate::run::{Folder, export, hbbp, lines, refused};
use crate::writer::{File, mmap2, stack, turns};
use hbbp_model::addr::Va;

/// Two programs, of which one has a file.
fn recording() -> File {
    File::new(vec![
        mmap2(5, 1, (0x40_1000, 0x1000), 0x1000, "/bin/here"),
        mmap2(6, 1, (0x40_1000, 0x1000), 0x1000, "/opt/gone"),
        stack(5, 3, &turns(Va(0x40_1000))),
        stack(6, 4, &turns(Va(0x40_1000))),
    ])
}

fn program(code: &[u8]) -> Vec<u8> {
    elf(&Program {
        code,
        offset: 0x1000,
        address: 0x40_1000,
        build_id: &[],
    })
}

#[test]
fn missing_files_are_named_by_report_and_import() {
    let folder = Folder::new();
    let here = folder.write("here", program(LOOP));
    let path = folder.write("perf.data", recording().bytes());
    let (path, here) = (path.to_str().unwrap(), here.to_str().unwrap());
    let report = hbbp(&["report", "--details", path, "--binary", here]);
    let flat: Vec<&str> = report.out.split_whitespace().collect();
    let flat = flat.join(" ");
    assert!(
        flat.contains("files that ran were not found: /opt/gone; name each with --binary FILE"),
        "{}",
        report.out
    );
    let target = folder.path().join("profile.hbbp");
    let import = hbbp(&["import", path, "--binary", here, "-o", target.to_str().unwrap()]);
    assert_eq!(import.code, Some(0), "{import:?}");
    assert!(
        import
            .err
            .contains("warning: files that ran were not found: /opt/gone;"),
        "{import:?}"
    );
}

#[test]
fn imports_that_resolve_nothing_fail_and_say_what_is_missing() {
    let folder = Folder::new();
    let path = folder.write("perf.data", recording().bytes());
    let error = refused(&path, &[]);
    assert!(error.contains("/bin/here, /opt/gone"), "{error}");
}

#[test]
fn text_of_a_program_without_a_name_asks_for_its_file() {
    let folder = Folder::new();
    let script = "401005  0x401007/0x401005/P/-/-/0 0x401007/0x401005/M/-/-/0\n";
    for text in ["F 401005 401007 9\n", script] {
        let path = folder.write("text", text);
        let error = refused(&path, &[]);
        assert!(error.contains("name the program with --binary FILE"), "{error}");
    }
}

/// Streams that end in the last instruction of a window are whole.
#[test]
fn streams_to_the_end_of_a_window_are_whole() {
    // A jump that begins with the last byte of the window around the first instruction.
    const WINDOW: u64 = 1 << 10;
    let (start, end) = (0x40_2000, 0x40_2000 + WINDOW - 1);
    let mut code = vec![0x90; 0x4000];
    let jump = usize::try_from(end - 0x40_1000).unwrap();
    code[jump..jump + 5].copy_from_slice(&[0xe9, 0, 0xf0, 0xff, 0xff]);
    let folder = Folder::new();
    let program = folder.write("prog", program(&code));
    let text = folder.write("text", format!("F {start:x} {end:x} 9\n"));
    let args = ["--binary", program.to_str().unwrap(), "--format", "streams"];
    let streams = export(&text, &args);
    assert_eq!(
        lines(&streams, "S "),
        [format!("S {start:x} {end:x} 9")],
        "{streams}"
    );
}
