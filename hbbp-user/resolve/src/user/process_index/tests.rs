//! Processes that fork, execute and exit, by the records of the kernel, in and out of order.

use super::super::proc_scan::Scanned;
use super::*;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::FileIdentity;
use proptest::prelude::*;

fn map(pid: u32, start: u64, len: u64, path: &str) -> Record {
    let (start, offset, path) = (Va(start), FileOff(0), path.to_owned());
    Record::Mmap(Mmap {
        pid,
        start,
        len,
        offset,
        identity: FileIdentity::Unknown,
        shared: false,
        path: path.into(),
    })
}

fn exec(pid: u32, comm: &str) -> Record {
    Record::Comm {
        pid,
        tid: pid,
        comm: comm.into(),
        exec: true,
    }
}

fn fork(pid: u32, parent_pid: u32) -> Record {
    Record::Fork {
        pid,
        tid: pid,
        parent_pid,
    }
}

fn index(records: Vec<(u64, Record)>) -> ProcessIndex {
    let mut index = ProcessIndex::default();
    for (time, record) in records {
        index.apply(&Timed { time, record });
    }
    index
}

fn at(index: &ProcessIndex, pid: u32, time: u64, address: u64) -> Option<(&str, &str)> {
    let image = index.image_at(pid, time)?;
    let mapping = image.mapping_at(Va(address), time)?;
    Some((&image.comm, &*index.file(mapping.file)?.path))
}

fn shell() -> Scanned {
    let Record::Mmap(mmap) = map(1, 0x1000, 0x1000, "/bin/sh") else {
        unreachable!()
    };
    Scanned {
        tgid: 1,
        comm: "sh".to_owned(),
        parent: 0,
        n_threads: 1,
        at: 0,
        mappings: vec![mmap],
        whole: true,
    }
}

#[test]
fn children_inherit_and_exec_starts_anew() {
    let mut index = ProcessIndex::default();
    index.scanned(&shell(), 0);
    let records = [
        (10, fork(2, 1)),
        (20, exec(2, "cc1")),
        (21, map(2, 0x1000, 0x4000, "/bin/cc1")),
    ];
    for (time, record) in records {
        index.apply(&Timed { time, record });
    }
    assert_eq!(
        at(&index, 2, 15, 0x1800),
        Some(("sh", "/bin/sh")),
        "before the exec"
    );
    assert_eq!(at(&index, 2, 25, 0x1800), Some(("cc1", "/bin/cc1")));
    assert_eq!(at(&index, 1, 25, 0x1800), Some(("sh", "/bin/sh")));
    assert_eq!(at(&index, 2, 25, 0x5000), None);
    let generations = [15, 25].map(|time| index.image_at(2, time).expect("known").generation);
    assert_ne!(generations[0], generations[1]);
}

#[test]
fn a_child_has_one_thread_whatever_its_parent_has() {
    let mut index = ProcessIndex::default();
    let n_threads = 3;
    index.scanned(&Scanned { n_threads, ..shell() }, 0);
    let exit = Record::Exit { pid: 2, tid: 2 };
    for (time, record) in [(10, fork(2, 1)), (20, exit)] {
        index.apply(&Timed { time, record });
    }
    assert!(index.live(1).is_some() && index.live(2).is_none());
}

#[test]
fn later_mappings_hide_earlier_ones_from_their_time_on() {
    let records = vec![
        (10, map(5, 0x1000, 0x3000, "/a")),
        (20, map(5, 0x2000, 0x1000, "/b")),
    ];
    let index = index(records);
    assert_eq!(at(&index, 5, 15, 0x2800).map(|m| m.1), Some("/a"));
    assert_eq!(at(&index, 5, 25, 0x2800).map(|m| m.1), Some("/b"));
    assert_eq!(
        at(&index, 5, 25, 0x3000).map(|m| m.1),
        Some("/a"),
        "the remainder of it still shows"
    );
}

#[test]
fn a_process_id_is_used_again() {
    let exit = |pid, tid| Record::Exit { pid, tid };
    let first = vec![
        (10, fork(7, 1)),
        (11, exec(7, "one")),
        (12, map(7, 0x1000, 16, "/one")),
        (20, exit(7, 7)),
    ];
    let second = vec![
        (30, fork(7, 1)),
        (31, exec(7, "two")),
        (32, map(7, 0x1000, 16, "/two")),
    ];
    let mut index = index(first.into_iter().chain(second).collect());
    assert_eq!(at(&index, 7, 15, 0x1000), Some(("one", "/one")));
    assert_eq!(at(&index, 7, 40, 0x1000), Some(("two", "/two")));
    index.forget_before(25);
    assert_eq!(index.n_images(), 2, "the fork and the exec of the second one");
    index.forget_before(100);
    assert_eq!(index.n_images(), 1);
}

#[test]
fn threads_are_no_processes() {
    let thread = |tid| Record::Fork {
        pid: 8,
        tid,
        parent_pid: 8,
    };
    let name = Record::Comm {
        pid: 8,
        tid: 9,
        comm: "worker".into(),
        exec: false,
    };
    let exit = |tid| Record::Exit { pid: 8, tid };
    let records = vec![
        (1, fork(8, 1)),
        (2, exec(8, "main")),
        (3, thread(9)),
        (4, name),
        (5, exit(8)),
    ];
    let mut index = index(records);
    assert_eq!(index.image_at(8, 9).map(|i| i.comm.as_ref()), Some("main"));
    assert!(index.live(8).is_some(), "its leader ended, but a thread runs on");
    index.apply(&Timed {
        time: 6,
        record: exit(9),
    });
    assert!(index.live(8).is_none());
}

#[test]
fn unmapped_files_are_forgotten() {
    let mut index = ProcessIndex::default();
    let n_files = u64::try_from(MANY_FILES).expect("small") + 10;
    for n in 0..n_files {
        let record = map(9, 0x1000, 0x1000, &format!("/tmp/{n}"));
        index.apply(&Timed { time: n + 1, record });
        index.apply(&Timed {
            time: n + 1,
            record: exec(9, "next"),
        });
        index.forget_before(n + 1);
    }
    index.apply(&Timed {
        time: n_files + 1,
        record: map(9, 0x1000, 0x1000, "/bin/last"),
    });
    let Record::Mmap(awaited) = map(9, 0x9000, 0x1000, "/bin/next") else {
        unreachable!()
    };
    let idx = index.intern_mmap(&awaited);
    assert!(index.forget_files(std::iter::once(&awaited)));
    assert!(!index.forget_files(std::iter::once(&awaited)), "few are left");
    assert!(index.files.len() < 5, "{}", index.files.len());
    assert_eq!(index.file(idx).map(|f| &*f.path), Some("/bin/next"));
    assert_eq!(at(&index, 9, n_files + 2, 0x1000), Some(("next", "/bin/last")));
}

/// A build: 200 processes a second for two minutes, drained every ten seconds.
#[test]
fn memory_follows_the_live_processes() {
    let begin = std::time::Instant::now();
    let mut index = ProcessIndex::default();
    index.scanned(&shell(), 0);
    for n in 0..24_000_u32 {
        let (pid, time) = (100 + n % 30_000, 5_000_000 * u64::from(n) + 1);
        let mut records = vec![fork(pid, 1), exec(pid, "cc1")];
        records.extend((0..8).map(|lib| map(pid, 0x10_0000 * lib, 0x8000, &format!("/lib/{lib}.so"))));
        records.push(Record::Exit { pid, tid: pid });
        for record in records {
            index.apply(&Timed { time, record });
        }
        if n % 2000 == 1999 {
            assert!(index.n_images() <= 2 * 2000 + 1);
            index.forget_before(time + 1);
            assert_eq!(index.n_images(), 1, "the shell");
        }
    }
    println!("264 000 records took {:?}", begin.elapsed());
}

/// What a process of the model runs: its name, and the file at each page.
type Model = (String, [Option<u32>; PAGES]);

/// Pages of the model.
const PAGES: usize = 24;

/// A change of a process of the model.
#[derive(Clone, Debug)]
enum Change {
    Map { first: usize, len: usize, file: u32 },
    Exec,
    Fork(u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..PAGES - 1, 1..9usize, 0..4u32).prop_map(|(first, len, file)| Change::Map {
            first,
            len: len.min(PAGES - first),
            file,
        }),
        1 => Just(Change::Exec),
        1 => (1..4u32).prop_map(Change::Fork),
    ]
}

proptest! {
    /// Programs begin, fork, and map files over others. An address belongs at each time to the file that was there. And it is known
    /// when another file came to an address, so that counts can be split then.
    #[test]
    fn addresses_belong_to_what_was_there(changes in prop::collection::vec((1..4u32, change()), 1..40)) {
        let mut now: HashMap<u32, Model> = (1..4).map(|pid| (pid, ("first".to_owned(), [None; PAGES]))).collect();
        let mut index = index(now.keys().map(|pid| (1, exec(*pid, "first"))).collect());
        let (mut history, mut replaced) = (Vec::new(), Vec::new());
        for ((pid, change), time) in changes.into_iter().zip(2u64..) {
            let Some(model) = now.get_mut(&pid) else {
                unreachable!()
            };
            let record = match change {
                Change::Map { first, len, file } => {
                    let pages = &mut model.1[first..first + len];
                    if pages.iter().flatten().any(|before| *before != file) {
                        replaced.push(time);
                    }
                    pages.fill(Some(file));
                    // Each file is always mapped at the same distance.
                    let start = first as u64 * 0x1000;
                    let mut record = map(pid, start, len as u64 * 0x1000, &format!("/f{file}"));
                    if let Record::Mmap(mmap) = &mut record {
                        mmap.offset = FileOff(start);
                    }
                    record
                }
                Change::Exec => {
                    *model = (format!("p{time}"), [None; PAGES]);
                    exec(pid, &model.0)
                }
                Change::Fork(child) if child == pid => continue,
                Change::Fork(child) => {
                    let copy = model.clone();
                    now.insert(child, copy);
                    fork(child, pid)
                }
            };
            index.apply(&Timed { time, record });
            history.push((time, now.clone()));
        }
        for (time, models) in &history {
            for (pid, (name, pages)) in models {
                for (page, file) in pages.iter().enumerate() {
                    let file = file.map(|file| format!("/f{file}"));
                    let expected = file.as_deref().map(|file| (name.as_str(), file));
                    prop_assert_eq!(at(&index, *pid, *time, page as u64 * 0x1000 + 7), expected);
                }
            }
        }
        prop_assert_eq!(index.take_replaced(), replaced);
    }
}

proptest! {
    #[test]
    fn an_image_is_the_same_while_it_is_said_to_be(
        begun in prop::collection::vec((any::<bool>(), 1u64..20), 0..6),
        time in 0u64..24,
    ) {
        let mut index = ProcessIndex::default();
        index.scanned(&shell(), 0);
        for (is_exec, time) in begun {
            let record = if is_exec { exec(1, "x") } else { fork(1, 7) };
            index.apply(&Timed { time, record });
        }
        let generation = |time| index.image_at(1, time).map(|image| image.generation);
        let same = index.same_image(1, time);
        prop_assert!(same.contains(&time));
        for other in 0..24 {
            prop_assert!(!same.contains(&other) || generation(other) == generation(time));
        }
    }
}
