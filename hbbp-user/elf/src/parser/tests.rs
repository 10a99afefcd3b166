//! A worker answers as this process would; whatever it answers instead, or where it answers nothing, asking goes on.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::serve::{Head, serve};
use super::*;
use hbbp_model::addr::ImageAddr;

fn own_program() -> ByteSource {
    let file = File::open("/proc/self/exe").unwrap();
    let len = file.metadata().unwrap().len();
    ByteSource::File(file, len)
}

/// A worker by threads of this process, each of which does this at its socket; and what failed.
fn worker(
    deadline: Duration,
    work: impl Fn(UnixStream) + Send + Clone + 'static,
) -> (Parser, Arc<Mutex<Vec<Failure>>>, Arc<AtomicUsize>) {
    let (failures, starts) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (told, started) = (Arc::clone(&failures), Arc::clone(&starts));
    let one = || {
        let (work, started, told) = (work.clone(), Arc::clone(&started), Arc::clone(&told));
        let start = move |socket: OwnedFd| {
            started.fetch_add(1, Ordering::Relaxed);
            let work = work.clone();
            thread::spawn(move || work(UnixStream::from(socket)));
            Ok(())
        };
        Worker::new(start, move |failure| told.lock().unwrap().push(failure)).with_deadline(deadline)
    };
    (Parser::apart(one(), one()), failures, starts)
}

/// What is found in the end, where something is.
fn found<T: Default>(mut answer: Answer<T>) -> T {
    answer.within(PATIENT).expect("it comes");
    match answer {
        Answer::There(found) => found.unwrap_or_default(),
        Answer::Awaited(_) => T::default(),
    }
}

/// Longer than any test.
const PATIENT: Duration = Duration::from_secs(600);

fn summary(parser: &Parser) -> (Vec<u8>, Vec<(u64, String)>) {
    let program = own_program();
    let layout = parser.layout(&program).unwrap();
    assert!(layout.sections.is_empty());
    let functions = found(parser.functions(&program, &[]));
    let starts: Vec<ImageAddr> = functions.starts().step_by(97).collect();
    let named = starts
        .into_iter()
        .filter_map(|at| functions.read_function_at(at, &program, &[]));
    let segments = layout.segments.len().to_le_bytes();
    (
        [&layout.build_id[..], &segments].concat(),
        named
            .map(|function| (function.start.0 + function.len, function.name))
            .collect(),
    )
}

#[test]
fn worker_finds_what_this_process_finds() {
    let (parser, failures, starts) = worker(PATIENT, |socket| {
        serve(&socket, || {}, || Duration::ZERO).unwrap();
    });
    let (here, apart) = (summary(&Parser::Here), summary(&parser));
    assert!(10 < here.1.len() && here == apart);
    let file = ByteSource::Memory(b"7f10 20 one\n7f80 8 two\n".to_vec());
    let map = found(parser.perf_map(&file));
    let named = |at| map.function_at(ImageAddr(at), &file, 0).map(|it| it.name);
    assert_eq!(
        (named(0x7f2f), named(0x7f30), named(0x7f87)),
        (Some("one".to_owned()), None, Some("two".to_owned()))
    );
    let refused = [&b"MZ"[..], b"", &[0x7f, b'E', b'L', b'F', 9, 9, 9, 9]];
    for bytes in refused {
        let file = ByteSource::Memory(bytes.to_vec());
        assert_eq!(parser.layout(&file).err(), Parser::Here.layout(&file).err());
    }
    assert!(failures.lock().unwrap().is_empty());
    assert_eq!(starts.load(Ordering::Relaxed), 2, "one for each task");
}

#[test]
fn spent_worker_is_replaced_and_nothing_is_lost() {
    let (parser, failures, starts) = worker(PATIENT, |socket| serve(&socket, || {}, || PATIENT).unwrap());
    assert_eq!(summary(&Parser::Here), summary(&parser));
    assert!(failures.lock().unwrap().is_empty());
    assert_eq!(starts.load(Ordering::Relaxed), 2);
}

#[test]
fn worker_that_does_not_answer_is_given_up() {
    let (parser, failures, _) = worker(Duration::from_millis(20), |mut socket| {
        // As one that hangs: it ends when the other end is closed.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    assert_eq!(parser.layout(&own_program()).err(), Some(ElfError::GivenUp));
    assert!(found(parser.functions(&own_program(), &[])).is_empty());
    assert_eq!(*failures.lock().unwrap(), [Failure::TimedOut; 2]);
}

/// As one that shares its CPU with many others: what it may take is its own time, not that of the clock.
#[test]
fn worker_that_gets_little_of_a_cpu_is_waited_for() {
    let (parser, failures, starts) = worker(PATIENT, |socket| {
        thread::sleep(FILE_CPU + Duration::from_millis(100));
        serve(&socket, || {}, || Duration::from_millis(3)).unwrap();
    });
    assert_eq!(summary(&Parser::Here), summary(&parser));
    assert!(failures.lock().unwrap().is_empty());
    assert_eq!(starts.load(Ordering::Relaxed), 2);
    // What was spent is its own time as well, once for each of the two.
    assert_eq!(parser.spent(), 6_000_000);
}

/// The thread that asks reads rings meanwhile.
#[test]
fn files_of_a_slow_worker_block_no_caller() {
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = Arc::new(Mutex::new(held));
    let (parser, failures, _) = worker(PATIENT, move |socket| {
        // Until the other end is dropped.
        let _ = held.lock().unwrap().recv();
        serve(&socket, || {}, || Duration::ZERO).unwrap();
    });
    let maps = ["7f10 20 one\n", "7f10 20 two\n", "7f10 20 three\n"];
    let maps = maps.map(|map| ByteSource::Memory(map.as_bytes().to_vec()));
    let mut answers: Vec<_> = maps.iter().map(|map| parser.perf_map(map)).collect();
    assert!(answers.iter_mut().all(|answer| parser.wait(answer).is_none()));
    drop(release);
    for (answer, map) in answers.into_iter().zip(&maps) {
        assert!(found(answer).function_at(ImageAddr(0x7f10), map, 0).is_some());
    }
    assert!(failures.lock().unwrap().is_empty());
}

#[test]
fn worker_that_answers_byte_by_byte_is_given_up() {
    let (parser, failures, _) = worker(Duration::from_millis(100), |mut socket| {
        let _ = receive(&socket);
        let head = Head {
            len: 40,
            is_last: false,
            is_cut: false,
            cpu: Duration::ZERO,
            read: 0,
        };
        let _ = socket.write_all(&head.bytes());
        // Each byte comes in time, and all of them take longer than an answer may.
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(10));
            let _ = socket.write_all(&[255]);
        }
    });
    assert_eq!(parser.layout(&own_program()).err(), Some(ElfError::GivenUp));
    assert_eq!(*failures.lock().unwrap(), [Failure::TimedOut]);
}

#[test]
fn answers_of_a_worker_in_foreign_hands_are_refused() {
    let head = |len, is_cut| Head {
        len,
        is_last: false,
        is_cut,
        cpu: Duration::ZERO,
        read: 0,
    };
    let answer = |len, bytes: &[u8]| [&head(len, false).bytes(), bytes].concat();
    let answers = [
        // Longer than any answer.
        answer(u32::MAX, &[]),
        // No message.
        answer(3, &[255, 255, 255]),
        // Neither a class nor an error.
        answer(0, &[]),
        // Cut off.
        answer(9, &[8]),
        Vec::new(),
        // There was more to read than may be.
        head(0, true).bytes(),
    ];
    let (parser, failures, starts) = worker(PATIENT, {
        let (next, answers) = (Arc::new(AtomicUsize::new(0)), answers.clone());
        move |mut socket| {
            let answer = answers.get(next.fetch_add(1, Ordering::Relaxed));
            let _ = receive(&socket);
            let _ = socket.write_all(answer.map_or(&[], Vec::as_slice));
        }
    });
    let file = ByteSource::Memory(b"anything".to_vec());
    for _ in &answers {
        assert_eq!(parser.layout(&file).err(), Some(ElfError::GivenUp));
    }
    let (invalid, ended) = (Failure::Invalid, Failure::Ended);
    assert_eq!(
        *failures.lock().unwrap(),
        [invalid, invalid, invalid, ended, ended, Failure::TooLarge]
    );
    assert_eq!(starts.load(Ordering::Relaxed), answers.len());
}

#[test]
fn functions_that_do_not_fit_together_are_refused() {
    let whole = Functions::parse(&[&own_program()]).encode();
    assert!(Functions::decode(whole.clone().into()).is_some());
    let mut refused = 0;
    for at in (0..whole.len()).step_by(1 + whole.len() / 400) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        refused += usize::from(Functions::decode(changed.into()).is_none());
        refused += usize::from(Functions::decode(whole[..at].to_vec().into()).is_none());
    }
    assert!(100 < refused, "{refused}");
}

/// A file of symbols for whose every entry another table of common entries is to be read far away.
#[test]
fn what_is_read_of_a_file_is_bounded_in_sum() {
    let (parser, failures, _) = worker(PATIENT, |socket| {
        serve(&socket, || {}, || Duration::ZERO).unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames");
    std::fs::write(&path, far_frames()).unwrap();
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    assert!(found(parser.functions(&ByteSource::File(file, len), &[])).is_empty());
    assert_eq!(*failures.lock().unwrap(), [Failure::TooLarge]);
    // The worker lives on, and the next file has all that may be read.
    assert!(!found(parser.functions(&own_program(), &[])).is_empty());
}

/// A program whose `.eh_frame` has 100,000 entries, each of which refers to another common entry 2 MiB before it.
fn far_frames() -> Vec<u8> {
    const FRAMES: u64 = 0x1000;
    const N: u64 = 100_000;
    let entry = |at: u64| {
        [16_u32, u32::try_from(at).unwrap(), 0, 1, 0]
            .map(u32::to_le_bytes)
            .concat()
    };
    let mut frames: Vec<u8> = (0..N).flat_map(|_| entry(0)).collect();
    frames.extend((N..2 * N).flat_map(|_| entry(u32::try_from(20 * N + 4).unwrap().into())));
    let section = |name: u32, kind: u32, start: u64, offset: u64, len: u64| {
        let words = [
            u64::from(name) | u64::from(kind) << 32,
            0,
            start,
            offset,
            len,
            0,
            1,
            0,
        ];
        words.map(u64::to_le_bytes).concat()
    };
    let names = b"\0.eh_frame\0";
    let sections = [
        section(1, 1, FRAMES, FRAMES, frames.len() as u64),
        section(0, 3, 0, 0x800, names.len() as u64),
    ];
    let mut bytes = vec![0; FRAMES as usize];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    bytes[16..20].copy_from_slice(&[3, 0, 62, 0]);
    bytes[40..48].copy_from_slice(&0x400_u64.to_le_bytes());
    bytes[52..64].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 2, 0, 1, 0]);
    bytes[0x400..0x480].copy_from_slice(&sections.concat());
    bytes[0x800..0x800 + names.len()].copy_from_slice(names);
    bytes.extend(frames);
    bytes
}
