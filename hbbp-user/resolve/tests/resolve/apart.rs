//! Files that a worker parses: the profile is the same as with files parsed here, and where the worker gives up, text
//! comes from memory, or the file is counted.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hbbp_elf::parser::serve::serve;
use hbbp_elf::parser::{Parser, Worker};
use hbbp_model::snapshot::{Loss, Snapshot};
use hbbp_resolve::Resolver;
use hbbp_resolve::raw::RawInterval;

use super::program::{PROGRAM, Running, compile};
use super::{ip, memory, no_kernel, snapshot, text_at};

/// Longer than any worker takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// A worker by threads of this process.
fn worker() -> Parser {
    let start = |socket: OwnedFd| {
        std::thread::spawn(move || serve(&UnixStream::from(socket), || {}, || Duration::ZERO));
        Ok(())
    };
    let one = || Worker::new(start, |failure| assert_eq!(Some(failure), None));
    Parser::apart(one(), one())
}

/// A worker that cannot be started.
fn no_worker() -> Parser {
    let start = |_: OwnedFd| Err(io::ErrorKind::OutOfMemory.into());
    Parser::apart(Worker::new(start, |_| ()), Worker::new(start, |_| ()))
}

fn sampled(mut resolver: Resolver, running: &Running) -> Snapshot {
    resolver.drained(vec![RawInterval {
        start: 1,
        end: 9,
        counts: vec![ip(running.child.id(), 5, running.addresses[0] + 1)],
    }]);
    resolver.await_functions(PATIENCE);
    snapshot(resolver)
}

#[test]
fn worker_leads_to_the_same_profile() {
    let Some(program) = compile("apart", PROGRAM, &[]) else {
        return;
    };
    let running = Running::start(&program, 1);
    let profile = |parser| {
        let resolver = Resolver::parsing(no_kernel(), &[running.scanned()], &parser);
        sampled(resolver, &running)
    };
    let here = profile(Parser::Here);
    assert_eq!(profile(worker()), here);
    assert!(here.modules[0].symbols.iter().any(|symbol| symbol.name == "spin"));
}

#[test]
fn file_that_is_given_up_is_read_from_memory_or_counted() {
    let Some(program) = compile("given-up", PROGRAM, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 1);
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    let resolver = || Resolver::parsing(no_kernel(), &[running.scanned()], &no_worker());
    let (alive, late) = (sampled(resolver(), &running), resolver());
    let (_, bytes) = text_at(&alive, 1, spin).expect("its memory");
    assert_eq!(bytes, memory(tgid, spin, bytes.len()));
    assert_eq!(alive.losses.iter().count(), 0);
    running.end();
    let ended = sampled(late, &running);
    assert_eq!(ended.losses.get(Loss::FileGivenUp), 1);
}
