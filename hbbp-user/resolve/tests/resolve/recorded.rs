//! The resolver on a recording: functions that were hit have names, whichever functions were hit before.

use std::path::PathBuf;

use hbbp_analysis::mix::function;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::functions::{SymbolFile, read_functions};
use hbbp_elf::layout::read_layout;
use hbbp_model::addr::{FileOff, ImageAddr, Va};
use hbbp_model::record::{FileIdentity, Mmap, Record, Timed};
use hbbp_model::snapshot::{EventIdx, Interval, IpCount, ProcessIdx, Snapshot, StreamCount};
use hbbp_resolve::Resolver;
use hbbp_resolve::user::find_file::Places;
use hbbp_resolve::user::recorded_files::RecordedFiles;

use crate::{no_kernel, snapshot};

const PID: u32 = 7;
const BASE: u64 = 0x7f00_0000_0000;

fn ip(process: ProcessIdx, at: u64) -> IpCount {
    IpCount {
        event: EventIdx(0),
        process,
        ip: Va(at),
        exact: false,
        hits: 1,
        weight: 1,
    }
}

fn stream(process: ProcessIdx, start: u64, end: u64) -> StreamCount {
    StreamCount {
        event: EventIdx(0),
        process,
        start: Va(start),
        end: Va(end),
        source: None,
        hits: 1,
        weight: 1.0,
        cycles: None,
    }
}

#[test]
fn functions_have_names_after_one_bogus_long_stream() {
    let path = std::env::current_exe().expect("own program");
    let file = std::fs::File::open(&path).expect("own program");
    let len = file.metadata().expect("own program").len();
    let source = ByteSource::File(file, len);
    let layout = read_layout(&source).expect("ELF");
    let own = SymbolFile {
        source: &source,
        layout: &layout,
    };
    let functions = read_functions(own, &[]);
    let text = layout
        .segments
        .iter()
        .filter(|s| s.executable)
        .max_by_key(|s| s.len);
    let text = *text.expect("code");
    let middle = text.start.0 + text.len / 2;
    let near = |at: &ImageAddr| middle <= at.0 && at.0 < middle + 0xf000;
    let mut starts: Vec<ImageAddr> = functions.starts().filter(near).collect();
    starts.dedup();
    assert!(10 < starts.len(), "{}", starts.len());

    let running = |at: ImageAddr| BASE + (at.0 - text.start.0);
    let mmap = Mmap {
        pid: PID,
        start: Va(BASE),
        len: text.len,
        offset: FileOff(text.offset.0),
        identity: FileIdentity::Unknown,
        shared: false,
        path: path.to_str().expect("UTF-8").into(),
    };
    let running: Vec<u64> = starts.iter().map(|at| running(*at)).collect();
    let snapshot = stream_over_samples(mmap, path, &running);
    let module = snapshot.modules.last().expect("the program");
    for at in starts {
        let expected = functions
            .read_function_at(at, &source, &[])
            .expect("it starts one");
        assert_eq!(function(module, at), Some(expected.name));
    }
}

/// A stream from the first to the last of these addresses of a program, and a sample at each of them.
fn stream_over_samples(mmap: Mmap, program: PathBuf, at: &[u64]) -> Snapshot {
    let records = [Timed {
        time: 1,
        record: Record::Mmap(mmap),
    }];
    let places = Places {
        binaries: vec![program],
        ..Places::default()
    };
    let files = RecordedFiles::new(places, Default::default(), &[], Vec::new());
    let mut resolver = Resolver::recorded(no_kernel(), &records, files);
    let (process, interval) = resolver.owner(PID, 0, 5);
    assert_eq!(interval, 0);
    resolver.recorded_interval(Interval {
        start: 1,
        end: 9,
        streams: vec![stream(process, at[0], at[at.len() - 1])],
        ..Interval::default()
    });
    resolver.recorded_interval(Interval {
        start: 9,
        end: 19,
        ips: at.iter().map(|at| ip(process, *at)).collect(),
        ..Interval::default()
    });
    snapshot(resolver)
}

/// Counts before and after an exec have the mappings of their own program.
#[test]
fn counts_around_an_exec_have_their_own_mappings() {
    let map = |time, path: &str| Timed {
        time,
        record: Record::Mmap(Mmap {
            pid: PID,
            start: Va(BASE),
            len: 0x1000,
            offset: FileOff(0),
            identity: FileIdentity::Unknown,
            shared: false,
            path: path.into(),
        }),
    };
    let exec = Timed {
        time: 10,
        record: Record::Comm {
            pid: PID,
            tid: PID,
            comm: "second".into(),
            exec: true,
        },
    };
    let records = [map(1, "/bin/first"), exec, map(11, "/bin/second")];
    let mut resolver = Resolver::recorded(no_kernel(), &records, RecordedFiles::default());
    let owners = [5, 15].map(|time| resolver.owner(PID, 0, time));
    let [(first, _), (second, _)] = owners;
    assert_ne!(first, second);
    resolver.recorded_interval(Interval {
        start: 1,
        end: 19,
        ips: vec![ip(first, BASE + 1), ip(second, BASE + 1)],
        ..Interval::default()
    });
    let snapshot = snapshot(resolver);
    let module = |process: ProcessIdx| {
        let mappings = &snapshot.processes[process.0 as usize].mappings;
        let modules = mappings
            .iter()
            .map(|m| snapshot.modules[m.module.0 as usize].name.as_str());
        modules.collect::<Vec<_>>()
    };
    assert_eq!([first, second].map(module), [["/bin/first"], ["/bin/second"]]);
}
