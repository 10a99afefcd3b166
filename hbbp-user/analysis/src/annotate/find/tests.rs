//! Names, addresses and lines that a user may give, and what is said where none fits.

use super::*;
use hbbp_model::snapshot::{Interval, Mapping, ModuleKind, Process, SourceLocation, Symbol, Text};

/// Two modules `a` of which each has functions `f` and `_ZN5space3barEv`, and code without a symbol.
fn snapshot() -> Snapshot {
    let symbol = |start, name: &str| Symbol {
        start: ImageAddr(start),
        len: 0x10,
        name: name.to_owned(),
    };
    let module = |name: &str, id: u8| Module {
        name: name.to_owned(),
        kind: ModuleKind::Elf64,
        build_id: vec![id; 20],
        symbols: vec![
            symbol(0x1000, "f"),
            symbol(0x1010, "_ZN5space3barEv"),
            symbol(0x1020, ""),
        ],
    };
    let text = |module| Text {
        module: ModuleIdx(module),
        start: ImageAddr(0x1000),
        bytes: vec![0x90; 0x80],
        since: 0,
    };
    let mapping = |start: u64, module| Mapping {
        start: Va(start),
        end: Va(start + 0x1000),
        module: ModuleIdx(module),
        image_start: ImageAddr(0x1000),
        from: 0,
    };
    let program = Process {
        mappings: vec![mapping(0x40_0000, 0), mapping(0x50_0000, 1)],
        ..Process::default()
    };
    Snapshot {
        modules: vec![
            module("/bin/a", 0xaa),
            module("/opt/a", 0xbb),
            module("/bin/b", 0xcc),
        ],
        processes: vec![Process::default(), program],
        text: vec![text(0), text(1), text(2)],
        intervals: vec![Interval::default()],
        ..Snapshot::default()
    }
}

fn heat(snapshot: &Snapshot) -> Vec<Heat> {
    let codes = [(0, 0x1000), (0, 0x1010), (1, 0x1000), (2, 0x1020)];
    let heat = codes
        .into_iter()
        .zip([4.0, 3.0, 2.0, 1.0])
        .map(|((module, at), amount)| Heat {
            code: known(snapshot, ModuleIdx(module), ImageAddr(at)).unwrap(),
            amount,
        });
    heat.collect()
}

fn found(text: &str) -> Result<(u32, u64, f64), String> {
    let snapshot = snapshot();
    let mut locations = SourceLocations::new();
    let line = SourceLocation {
        line: Some("/src/lib/x.c:12".to_owned()),
        ..SourceLocation::default()
    };
    locations.insert((ModuleIdx(0), ImageAddr(0x1014)), line);
    let query = text.parse().unwrap();
    let found = find(&snapshot, &heat(&snapshot), &query, &locations);
    found
        .map(|found| (found.code.module.0, found.code.start.0, found.share))
        .map_err(|error| error.to_string())
}

#[test]
fn functions_are_found_by_name_address_and_line() {
    for text in [
        "space::bar",
        "_ZN5space3barEv",
        "/bin/a+0x1017",
        "aaaaaaaa+0x1010",
        "x.c:12",
        "lib/x.c:12",
        "0x400010",
    ] {
        assert_eq!(found(text), Ok((0, 0x1010, 0.3)), "{text}");
    }
    assert_eq!(found("b+0x1020"), Ok((2, 0x1020, 0.1)));
    assert_eq!(found("/bin/b+0x1020"), Ok((2, 0x1020, 0.1)));
    assert_eq!(found("b+0x1050"), Ok((2, 0x1030, 0.0)), "text without a symbol");
}

#[test]
fn a_name_of_two_functions_lists_what_to_write() {
    let error = found("f").unwrap_err();
    let expected = "`f` is in 2 functions; write one of these instead:\n  /bin/a+0x1000  f, 40.00 % of all\n  \
                    /opt/a+0x1000  f, 20.00 % of all";
    assert_eq!(error, expected);
    assert!(found("a+0x1000").unwrap_err().contains("/opt/a+0x1000"));
    assert_eq!(found("/opt/a+0x1000"), Ok((1, 0x1000, 0.2)));
}

#[test]
fn an_unknown_line_asks_for_debug_information() {
    let unknown = |query| NotFound::Unknown {
        query,
        close: Vec::new(),
    };
    let advice = |query| Advised::from(unknown(query)).advice;
    assert_eq!(
        advice(Query::Line("y.c:12".to_owned())),
        Some(Advice::NameDebugFileForLines)
    );
    assert_eq!(advice(Query::Address(0x9000)), None);
}

#[test]
fn an_unknown_name_suggests_close_ones() {
    let error = found("space::baz").unwrap_err();
    assert_eq!(
        error,
        "no function that ran is named `space::baz`; did you mean `space::bar`?"
    );
    assert_eq!(found("0x9000").unwrap_err(), "no code that ran is at `0x9000`");
    let of_line = found("y.c:12").unwrap_err();
    assert_eq!(of_line, "no code that ran has the source line `y.c:12`");
    assert_eq!(distance("kitten", "sitting", 3), Some(3));
    assert_eq!(distance("kitten", "sitting", 2), None);
}
