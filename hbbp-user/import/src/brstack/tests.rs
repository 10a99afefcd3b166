//! Branch stacks as perf prints them, in all their forms, and lines that are none.

use super::*;
use crate::sample::entries;

type Seen = ([u32; 2], Option<u64>, Option<u64>, u64, Vec<(u64, u64)>);

fn read(text: &str) -> (ScriptText, Vec<Seen>) {
    let mut script = read_script_records(text.as_bytes(), &mut |_| {}).unwrap();
    let mut seen = Vec::new();
    read_script_samples(text.as_bytes(), &mut script, &mut |_| {}, &mut |_, s| {
        let stack = entries(s.stack).map(|e| (e.from, e.to)).collect();
        seen.push(([s.tgid, s.tid], s.ip.map(|ip| ip.0), s.period, s.times, stack));
    })
    .unwrap();
    (script, seen)
}

#[test]
fn fields_before_the_entries() {
    let entry = "0x401010/0x401000/P/-/-/0";
    let stack = vec![(0x40_1010, 0x40_1000)];
    for (before, ids, ip, period) in [
        ("", [0, 0], None, None),
        ("          401234 ", [0, 0], Some(0x40_1234), None),
        ("ffffffff81000000 ", [0, 0], Some(0xffff_ffff_8100_0000), None),
        (" 1234  ", [1234, 0], None, None),
        (" 1234/1235  ", [1234, 1235], None, None),
        (" 1234  401234 ", [1234, 0], Some(0x40_1234), None),
        (
            "a b  1234 [002] 17.5:  300 cycles:u:  401234 main+0x4 (/bin/a)",
            [1234, 0],
            Some(0x40_1234),
            Some(300),
        ),
    ] {
        let (_, seen) = read(&format!("{before} {entry}\n"));
        assert_eq!(seen, [(ids, ip, period, 1, stack.clone())], "{before}");
    }
}

#[test]
fn heads_without_a_time_keep_event_pid_and_address() {
    for (before, tid, period) in [
        ("prog  1234/1235  cycles:u:          401234", 1235, None),
        (
            "a 7 b  1234/1235 [002]  300 cycles:u:  401234 main+0x4 (/bin/a)",
            1235,
            Some(300),
        ),
        ("prog  1234   300 cycles:u:   401234", 0, Some(300)),
    ] {
        let (script, seen) = read(&format!("{before} 0x401010/0x401000/P/-/-/0\n"));
        assert_eq!(
            seen,
            [(
                [1234, tid],
                Some(0x40_1234),
                period,
                1,
                vec![(0x40_1010, 0x40_1000)]
            )],
            "{before}"
        );
        assert_eq!(script.events, ["cycles:u"], "{before}");
    }
}

#[test]
fn commands_and_events_may_look_like_other_fields() {
    for (before, event) in [
        (
            "         a 1.5:  1234/1235 [000]   917.500000:    300 cycles:u:  401234",
            "cycles:u",
        ),
        (
            "       7 1.5: x  1234/1235 [000]   917.500000:    300 cycles:u:  401234",
            "cycles:u",
        ),
        (
            "  7 [001] 1.5:  1234/1235 [000]   917.500000:    300 cycles:u:  401234",
            "cycles:u",
        ),
        (
            "            a:  1234/1235 [000]   917.500000:    300 cycles:u:  401234",
            "cycles:u",
        ),
        (
            "a b  1234/1235 917.500000:  300 taken branches:  401234 f+0x4 (/bin/a 5 1.5: x)",
            "taken branches",
        ),
        ("a b  1234/1235  300 taken branches:  401234", "taken branches"),
        ("a 1.5:  1234/1235  300 cycles:u:  401234", "cycles:u"),
    ] {
        let (script, seen) = read(&format!("{before} 0x401010/0x401000/P/-/-/0\n"));
        let stack = vec![(0x40_1010, 0x40_1000)];
        let expected = ([1234, 1235], Some(0x40_1234), Some(300), 1, stack);
        assert_eq!(seen, [expected], "{before}");
        assert_eq!(script.events, [event], "{before}");
    }
}

#[test]
fn samples_without_entries_end_with_the_next_one() {
    let head = "prog 5/6 [000] 917.500000: 300 cycles:u: ";
    let text = format!(
        "{head} 401234 f+0x4 (/bin/a)\n{head}\n\t401235 f (/bin/a)\n\t401999 main (/bin/a)\n\n{head} 401236 f (/bin/a)\n"
    );
    let (script, seen) = read(&text);
    let ips: Vec<_> = seen.iter().map(|(_, ip, ..)| ip.unwrap()).collect();
    assert_eq!(ips, [0x40_1234, 0x40_1235, 0x40_1236]);
    assert_eq!((script.n_samples, script.has_stacks), (vec![3], vec![false]));
    assert!(is_script(&text) && !is_script("Nov 27 22:10:01 host prog[5]: text\n"));
}

#[test]
fn call_chains_are_between() {
    let text = "prog 77 [000] 1.5: 1000 branches:u: \n\t  401234 f+0x4 (/bin/a)\n\t  401999 main (/bin/a)\n \
                0x10/0x20/P/-/-/0/  0x5/0x6/M/-/-/0/ \n\n3\n  401777\n 401888\n 0x1/0x2/P/-/-/0\n";
    let (script, seen) = read(text);
    assert_eq!(
        seen[0],
        (
            [77, 0],
            Some(0x40_1234),
            Some(1000),
            1,
            vec![(0x10, 0x20), (0x5, 0x6)]
        )
    );
    assert_eq!(seen[1], ([0, 0], Some(0x40_1777), None, 3, vec![(1, 2)]));
    assert_eq!(
        (script.events, script.n_samples),
        (vec!["branches:u".to_owned(), String::new()], vec![1, 3])
    );
}

#[test]
fn files_named_by_build_ids_have_separate_addresses() {
    let (script, seen) = read("ab01:0x10/cd02:0x20/P/-/-/0 ab01:0x30/0x40/P/-/-/0\n");
    let base = |id: &str| {
        let file = crate::TextFile::BuildId(id.to_owned());
        script
            .modules
            .iter()
            .find(|module| module.file == file)
            .unwrap()
            .base
            .0
    };
    assert_eq!(
        seen[0].4,
        [
            (base("ab01") + 0x10, base("cd02") + 0x20),
            (base("ab01") + 0x30, 0x40)
        ]
    );
}

#[test]
fn names_without_addresses_are_refused() {
    let text = " 0x1/0x2/P/-/-/0\n main+0x10/f+0x0/P/-/-/0/\n";
    let error = read_script_records(text.as_bytes(), &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 2") && error.contains("brstacksym"),
        "{error}"
    );
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics(text in "([0-9a-fx:/ \\tPM.()\\[\\]-]{0,40}\n){0,6}") {
        if let Ok(mut script) = read_script_records(text.as_bytes(), &mut |_| {}) {
            let _ = read_script_samples(text.as_bytes(), &mut script, &mut |_| {}, &mut |_, _| {});
        }
    }
}
