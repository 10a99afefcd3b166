//! Serves metrics over HTTP, on a loopback address or a Unix socket.
//!
//! Whoever asks may ask badly: a request has a bounded size and number of headers, a connection a bounded time and one
//! request, and there is a bounded number of connections at once. What is beyond is closed and counted.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::counters::{Counter, Counters};
use super::metrics::{Form, Metrics};

/// Most bytes of a request, the least that hyper takes.
const MAX_REQUEST: usize = 8192;
/// Most headers of a request.
const MAX_HEADERS: usize = 32;
/// Time from the first to the last byte of a connection.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Connections at once.
const MAX_CONNECTIONS: usize = 8;
/// Pause after a connection could not be accepted, as where too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Where metrics are served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listen {
    /// At a loopback address.
    Tcp(SocketAddr),
    /// At a Unix socket, which its owner alone can use.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let address: Option<SocketAddr> = text.parse().ok();
        match address {
            Some(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            Some(_) => Err(
                "metrics are served to this machine alone: use 127.0.0.1:PORT, and a proxy for others"
                    .to_owned(),
            ),
            None => Err("expected 127.0.0.1:PORT, [::1]:PORT or unix:PATH".to_owned()),
        }
    }
}

/// A server that is not serving yet.
#[derive(Debug)]
pub(super) enum Server {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Server {
    /// Takes the address, so that what is wrong with it is known before anything is measured.
    pub(super) fn bind(listen: &Listen) -> anyhow::Result<Self> {
        match listen {
            Listen::Tcp(address) => {
                let bound =
                    TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
                bound.set_nonblocking(true)?;
                Ok(Self::Tcp(bound))
            }
            Listen::Unix(path) => {
                let failed = || format!("cannot listen at {}", path.display());
                if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
                    if UnixStream::connect(path).is_ok() {
                        bail!("another program listens at {}", path.display());
                    }
                    // A daemon that was killed left it.
                    fs::remove_file(path).with_context(failed)?;
                }
                let bound = UnixListener::bind(path).with_context(failed)?;
                fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(failed)?;
                bound.set_nonblocking(true)?;
                Ok(Self::Unix(bound, path.clone()))
            }
        }
    }

    /// Serves until it is told to end.
    pub(super) fn serve(
        self,
        metrics: &Arc<Metrics>,
        counters: &Arc<Counters>,
        end: &Notify,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            let admit = || {
                let permit = Arc::clone(&connections).try_acquire_owned().ok();
                if permit.is_none() {
                    counters.add(Counter::ScrapesRefused, 1);
                }
                Some((permit?, Arc::clone(metrics)))
            };
            match self {
                Self::Tcp(bound) => {
                    let bound = tokio::net::TcpListener::from_std(bound)?;
                    while let Some(accepted) = unless(end, bound.accept()).await {
                        start(accepted, &admit).await;
                    }
                }
                Self::Unix(bound, path) => {
                    let bound = tokio::net::UnixListener::from_std(bound)?;
                    while let Some(accepted) = unless(end, bound.accept()).await {
                        start(accepted, &admit).await;
                    }
                    let _ = fs::remove_file(path);
                }
            }
            Ok(())
        })
    }
}

/// What comes, unless the end comes first.
async fn unless<T>(end: &Notify, next: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = end.notified() => None,
        next = next => Some(next),
    }
}

/// Starts to answer a connection, if one more is admitted.
async fn start<S, A>(
    accepted: io::Result<(S, A)>,
    admit: &impl Fn() -> Option<(OwnedSemaphorePermit, Arc<Metrics>)>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match accepted {
        Ok((stream, _)) => {
            if let Some((permit, metrics)) = admit() {
                tokio::spawn(async move {
                    answer_all(stream, metrics).await;
                    drop(permit);
                });
            }
        }
        Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
    }
}

/// Answers the one request of a connection.
async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin, metrics: Arc<Metrics>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&request, &metrics);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_REQUEST)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Whether the other side was slow or wrong is its own business.
    let _ = tokio::time::timeout(MAX_TIME, served).await;
}

fn answer<B>(request: &Request<B>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
    }
    match request.uri().path() {
        "/metrics" => {
            let accept = request
                .headers()
                .get(ACCEPT)
                .and_then(|value| value.to_str().ok());
            let (form, kind) = match accept {
                Some(accept) if accept.contains("application/openmetrics-text") => {
                    (Form::OpenMetrics, OPEN_METRICS)
                }
                _ => (Form::Prometheus, PROMETHEUS),
            };
            match metrics.text(form) {
                Ok(text) => response(StatusCode::OK, kind, text),
                Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            }
        }
        "/healthz" => match metrics.complaint() {
            None => response(StatusCode::OK, TEXT, "ok\n".to_owned()),
            Some(why) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        },
        _ => response(StatusCode::NOT_FOUND, TEXT, "/metrics or /healthz\n".to_owned()),
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
        assert!(matches!("127.0.0.1:9464".parse(), Ok(Listen::Tcp(_))));
        assert!(matches!("[::1]:9464".parse(), Ok(Listen::Tcp(_))));
        let refused = "0.0.0.0:9464".parse::<Listen>().unwrap_err();
        assert!(refused.contains("this machine alone"), "{refused}");
        for wrong in ["", "unix:", "localhost", "9464"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
