//! What is answered to a request: metrics, health, and the profile of the last seconds.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;

use super::counters::{Counter, Counters};
use super::metrics::{Form, Metrics};
use super::work::{ProfileRequest, Work};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PROFILE: &str = "application/octet-stream";

/// Longest time that a profile may be asked for, in seconds.
const MAX_SECONDS: u64 = 3600;
/// Time from one profile to the next: reading segments takes time of the thread that writes them.
const BETWEEN_PROFILES: Duration = Duration::from_secs(10);

/// What is served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) metrics: Arc<Metrics>,
    pub(super) profiles: Profiles,
}

/// The sender of requests for profiles.
#[derive(Debug)]
pub(super) struct Profiles {
    /// The thread of the segments; `None` if others than the owner could ask.
    work: Option<SyncSender<Work>>,
    counters: Arc<Counters>,
    /// When the last one was asked for.
    last: Mutex<Option<Instant>>,
}

type Answer = Response<Full<Bytes>>;

impl Served {
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Answer {
        if request.method() != Method::GET {
            return said(StatusCode::METHOD_NOT_ALLOWED, "only GET");
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request),
            "/healthz" => match self.metrics.complaint() {
                None => said(StatusCode::OK, "ok"),
                Some(why) => said(StatusCode::SERVICE_UNAVAILABLE, &why),
            },
            "/profile" => {
                self.profiles
                    .answer(request.uri().query().unwrap_or_default())
                    .await
            }
            _ => said(StatusCode::NOT_FOUND, "/metrics, /healthz or /profile?seconds=N"),
        }
    }

    fn metrics<B>(&self, request: &Request<B>) -> Answer {
        let accept = request.headers().get(ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        let (form, kind) = match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => {
                (Form::OpenMetrics, OPEN_METRICS)
            }
            _ => (Form::Prometheus, PROMETHEUS),
        };
        match self.metrics.text(form) {
            Ok(text) => response(StatusCode::OK, kind, text),
            Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }
}

impl Profiles {
    /// Profiles through `work`, if any are to be served.
    pub(super) const fn new(work: Option<SyncSender<Work>>, counters: Arc<Counters>) -> Self {
        Self {
            work,
            counters,
            last: Mutex::new(None),
        }
    }

    async fn answer(&self, query: &str) -> Answer {
        let Some(work) = &self.work else {
            let why = "profiles hold names and paths of other users: they are served at a Unix socket alone (--listen unix:PATH)";
            return said(StatusCode::FORBIDDEN, why);
        };
        let Some(seconds) = seconds(query) else {
            let why = format!("expected /profile?seconds=N, N from 1 to {MAX_SECONDS}");
            return said(StatusCode::BAD_REQUEST, &why);
        };
        if !self.is_due() {
            return self.refused(StatusCode::TOO_MANY_REQUESTS, "one profile in ten seconds");
        }
        let (answer, answered) = oneshot::channel();
        match work.try_send(Work::Profile(ProfileRequest { seconds, answer })) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return self.refused(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "segments are being written: try again",
                );
            }
        }
        match answered.await {
            Ok(Ok(bytes)) => response(StatusCode::OK, PROFILE, bytes),
            Ok(Err(why)) => said(StatusCode::NOT_FOUND, &why),
            Err(_) => said(StatusCode::SERVICE_UNAVAILABLE, "the daemon ends"),
        }
    }

    /// Whether the last one was long enough ago; then this one is the last.
    fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| BETWEEN_PROFILES <= last.elapsed());
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn refused(&self, status: StatusCode, why: &str) -> Answer {
        self.counters.add(Counter::ProfilesRefused, 1);
        let mut answer = said(status, why);
        let after = HeaderValue::from(BETWEEN_PROFILES.as_secs());
        answer.headers_mut().insert(RETRY_AFTER, after);
        answer
    }
}

/// The number of seconds in a query.
fn seconds(query: &str) -> Option<u64> {
    let seconds: u64 = query.strip_prefix("seconds=")?.parse().ok()?;
    (1..=MAX_SECONDS).contains(&seconds).then_some(seconds)
}

/// A line of text.
fn said(status: StatusCode, line: &str) -> Answer {
    response(status, TEXT, format!("{line}\n"))
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_that_is_refused_does_not_put_off_the_next() {
        let profiles = Profiles::new(None, Arc::default());
        assert!(profiles.is_due());
        // In the future, so that it is too soon on the busiest machine.
        let asked = Some(Instant::now() + Duration::from_secs(3600));
        *profiles.last.lock().unwrap() = asked;
        assert!(!profiles.is_due());
        assert_eq!(*profiles.last.lock().unwrap(), asked);
    }

    #[test]
    fn seconds_are_bounded() {
        assert_eq!(
            (seconds("seconds=1"), seconds("seconds=3600")),
            (Some(1), Some(3600))
        );
        for wrong in [
            "",
            "seconds=",
            "seconds=0",
            "seconds=3601",
            "seconds=-1",
            "second=1",
            "seconds=1&x",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
