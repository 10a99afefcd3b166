//! Sends profiles and metrics to an OpenTelemetry collector, as OTLP over HTTP (protobuf, gzip).
//!
//! ```text
//! segments thread: Requests ---- a bounded queue ----> otlp thread: Export ---> client.rs
//! ```
//!
//! Requests are encoded where the estimates are; the thread that speaks to the network gets bytes. It holds no capability.
//! A collector that is away, slow or wrong costs a bounded queue: what does not fit or is not accepted is counted.

mod client;
mod endpoint;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use prost::Message;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::counters::{Counter, Counters};
use super::metrics::Metrics;
use client::{Outcome, post};
pub(crate) use endpoint::Endpoint;
use endpoint::Signal;
use hbbp_output::export::counted::Counted;
use hbbp_output::export::otlp::otlp_profile;
use hbbp_resolve::clock::since_epoch;

/// Requests in the queue, two for each interval, and their bytes.
const MOST: usize = 64;
const MOST_BYTES: usize = 8 << 20;
/// Samples of a profile with a location of their own; the others are one for each ring. Each takes some 40 bytes.
const MOST_SAMPLES: usize = 50_000;
/// Times that a request is sent before it is given up: for some three minutes.
const ATTEMPTS: u32 = 8;
/// Pause after the first failure, and the longest one; it doubles between them.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time at the end of the daemon for what is in the queue.
const LAST: Duration = Duration::from_secs(3);

/// A request in the queue.
#[derive(Clone, Debug)]
struct Queued {
    signal: Signal,
    body: Bytes,
}

/// Where requests are put.
#[derive(Debug)]
pub(super) struct Requests {
    queue: Sender<Queued>,
    load: Arc<Load>,
    counters: Arc<Counters>,
    /// Start of the daemon in ns since 1970.
    started: u64,
}

/// Where they are taken from.
#[derive(Debug)]
pub(super) struct Export {
    to: Endpoint,
    queue: Receiver<Queued>,
    load: Arc<Load>,
    counters: Arc<Counters>,
}

/// Requests in the queue and their bytes, that which is being sent included.
#[derive(Debug, Default)]
struct Load {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Requests {
    /// Sends the profile of an interval.
    pub(super) fn send_profile(&self, counted: &Counted<'_>) {
        let (request, folded) = otlp_profile(counted, MOST_SAMPLES);
        let folded = u64::try_from(folded).unwrap_or(u64::MAX);
        self.counters.add(Counter::OtlpFolded, folded);
        self.send(Signal::Profiles, &request.encode_to_vec());
    }

    /// Sends all metrics.
    pub(super) fn send_metrics(&self, metrics: &Metrics) {
        if let Ok(request) = metrics.otlp(self.started, since_epoch()) {
            self.send(Signal::Metrics, &request.encode_to_vec());
        }
    }

    /// Puts a request into the queue, or counts it as lost.
    fn send(&self, signal: Signal, message: &[u8]) {
        let lost = || self.counters.add(Counter::OtlpDropped, 1);
        let Ok(body) = compressed(message) else {
            return lost();
        };
        let len = body.len();
        if MOST_BYTES < self.load.bytes.load(Ordering::Relaxed).saturating_add(len) {
            return lost();
        }
        self.load.add(len);
        match self.queue.try_send(Queued { signal, body }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {
                self.load.remove(len);
                lost();
            }
        }
    }
}

impl Load {
    fn add(&self, len: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
    }

    fn remove(&self, len: usize) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(len, Ordering::Relaxed);
    }
}

impl Export {
    /// The way to a collector.
    pub(super) fn new(to: Endpoint, counters: &Arc<Counters>) -> (Requests, Self) {
        let (sender, receiver) = channel(MOST);
        let load = Arc::new(Load::default());
        let requests = Requests {
            queue: sender,
            load: Arc::clone(&load),
            counters: Arc::clone(counters),
            started: since_epoch(),
        };
        let export = Self {
            to,
            queue: receiver,
            load,
            counters: Arc::clone(counters),
        };
        (requests, export)
    }

    /// Sends until nobody puts anything into the queue any more, and for a while after the end of the daemon.
    pub(super) fn run(mut self, end: &Notify) -> std::io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (load, counters) = (Arc::clone(&self.load), Arc::clone(&self.counters));
        runtime.block_on(async {
            let sending = self.send_all();
            tokio::pin!(sending);
            tokio::select! {
                () = &mut sending => {}
                () = end.notified() => {
                    let _ = tokio::time::timeout(LAST, sending).await;
                }
            }
        });
        let left = load.requests.load(Ordering::Relaxed);
        counters.add(Counter::OtlpUnsent, u64::try_from(left).unwrap_or(u64::MAX));
        Ok(())
    }

    async fn send_all(&mut self) {
        while let Some(queued) = self.queue.recv().await {
            let (counter, n) = self.deliver(&queued).await;
            self.counters.add(counter, n);
            self.load.remove(queued.body.len());
        }
    }

    /// Sends a request until it is accepted, refused or given up; what became of it.
    async fn deliver(&self, queued: &Queued) -> (Counter, u64) {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            let asked = match post(&self.to, queued.signal, queued.body.clone()).await {
                Outcome::Accepted => return (Counter::OtlpSent, 1),
                Outcome::Rejected(n) => return (Counter::OtlpRejected, n),
                Outcome::Refused => return (Counter::OtlpRefused, 1),
                Outcome::Again(asked) => asked,
            };
            self.counters.add(Counter::OtlpRetries, 1);
            let asked = asked.unwrap_or_default().min(LONGEST_PAUSE);
            tokio::time::sleep(asked.max(jittered(pause))).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
        match post(&self.to, queued.signal, queued.body.clone()).await {
            Outcome::Accepted => (Counter::OtlpSent, 1),
            Outcome::Rejected(n) => (Counter::OtlpRejected, n),
            Outcome::Refused => (Counter::OtlpRefused, 1),
            Outcome::Again(_) => (Counter::OtlpGivenUp, 1),
        }
    }
}

/// Half of a pause to all of it, so that many hosts do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let chance = RandomState::new().build_hasher().finish() % 512;
    let parts = u32::try_from(512 + chance).unwrap_or(1024);
    pause * parts / 1024
}

fn compressed(message: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_bounded_and_what_does_not_fit_is_counted() {
        let counters = Arc::new(Counters::default());
        let to = "http://127.0.0.1:1".parse().unwrap();
        let (requests, export) = Export::new(to, &counters);
        for _ in 0..MOST + 3 {
            requests.send(Signal::Metrics, b"x");
        }
        assert_eq!(counters.get(Counter::OtlpDropped), 3);
        drop(export);
        requests.send(Signal::Metrics, b"x");
        assert_eq!(counters.get(Counter::OtlpDropped), 4);
    }
}
