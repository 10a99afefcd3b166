//! A worker answers as this process would; whatever it answers instead, or where it answers nothing, asking goes on.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::serve::{LAST, serve};
use super::*;
use crate::addr::ImageAddr;

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
    let start = move |socket: OwnedFd| {
        started.fetch_add(1, Ordering::Relaxed);
        let work = work.clone();
        thread::spawn(move || work(UnixStream::from(socket)));
        Ok(())
    };
    let worker = Worker::new(start, move |failure| told.lock().unwrap().push(failure));
    (Parser::apart(worker.with_deadline(deadline)), failures, starts)
}

/// Longer than any test.
const PATIENT: Duration = Duration::from_secs(600);

fn summary(parser: &Parser) -> (Vec<u8>, Vec<(u64, String)>) {
    let program = own_program();
    let layout = parser.layout(&program).unwrap();
    assert!(layout.sections.is_empty());
    let functions = parser.functions(&program, None);
    let starts: Vec<ImageAddr> = functions.starts().step_by(97).collect();
    let named = starts
        .into_iter()
        .filter_map(|at| functions.read_function_at(at, &program, None));
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
    let (parser, failures, starts) = worker(PATIENT, |socket| serve(&socket, || false).unwrap());
    let (here, apart) = (summary(&Parser::Here), summary(&parser));
    assert!(10 < here.1.len() && here == apart);
    let text = b"7f10 20 one\n7f80 8 two\n";
    let map = parser.perf_map(&ByteSource::Memory(text.to_vec()));
    let named = |at| map.function_at(ImageAddr(at)).map(|it| it.name);
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
    assert_eq!(starts.load(Ordering::Relaxed), 1);
}

#[test]
fn spent_worker_is_replaced_and_nothing_is_lost() {
    let (parser, failures, starts) = worker(PATIENT, |socket| serve(&socket, || true).unwrap());
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
    assert!(parser.functions(&own_program(), None).is_empty());
    assert_eq!(*failures.lock().unwrap(), [Failure::TimedOut; 2]);
}

#[test]
fn worker_that_answers_byte_by_byte_is_given_up() {
    let (parser, failures, _) = worker(Duration::from_millis(100), |mut socket| {
        let _ = receive(&socket);
        let _ = socket.write_all(&[40, 0, 0, 0, LAST]);
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
    let answers: [&[u8]; 5] = [
        // Longer than any answer.
        &[255, 255, 255, 255, 0],
        // No message.
        &[3, 0, 0, 0, 0, 255, 255, 255],
        // Neither a class nor an error.
        &[0, 0, 0, 0, 0],
        // Cut off.
        &[9, 0, 0, 0, LAST, 8],
        &[],
    ];
    let (parser, failures, starts) = worker(PATIENT, {
        let next = Arc::new(AtomicUsize::new(0));
        move |mut socket| {
            let answer = answers[next.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1)];
            let _ = receive(&socket);
            let _ = socket.write_all(answer);
        }
    });
    let file = ByteSource::Memory(b"anything".to_vec());
    for _ in answers {
        assert_eq!(parser.layout(&file).err(), Some(ElfError::GivenUp));
    }
    let (invalid, ended) = (Failure::Invalid, Failure::Ended);
    assert_eq!(
        *failures.lock().unwrap(),
        [invalid, invalid, invalid, ended, ended]
    );
    assert_eq!(starts.load(Ordering::Relaxed), answers.len() + 1);
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
