//! Serves metrics and profiles over HTTP, on a loopback address or a Unix socket.
//!
//! Whoever asks may ask badly: a request has a bounded size and number of headers, a connection a bounded time and one
//! request, and there is a bounded number of connections at once. One more closes the oldest, so that idle connections
//! cannot block others. Profiles hold names and paths of other users: they are served at a Unix socket alone, which
//! only its owner can use (`served`).

use std::collections::VecDeque;
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
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::counters::{Counter, Counters};
use super::served::Served;

/// Most bytes of a request, the least that hyper takes.
const MAX_REQUEST: usize = 8192;
/// Most headers of a request.
const MAX_HEADERS: usize = 32;
/// Time for the request, and for the whole connection: a profile is read from the disk first.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(5);
const MAX_TIME: Duration = Duration::from_secs(30);
/// Connections at once.
const MAX_CONNECTIONS: usize = 32;
/// Pause after a connection could not be accepted, as where too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where metrics are served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listen {
    /// At a loopback address.
    Tcp(SocketAddr),
    /// At a Unix socket, which its owner alone can use.
    Unix(PathBuf),
}

impl Listen {
    /// Whether the owner alone can ask there.
    pub(super) const fn is_private(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
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

    /// Serves until it is asked to stop.
    pub(super) fn serve(
        self,
        served: &Arc<Served>,
        counters: &Arc<Counters>,
        end: &Notify,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connections = Connections {
                served,
                counters,
                open: VecDeque::new(),
            };
            match self {
                Self::Tcp(bound) => {
                    let bound = tokio::net::TcpListener::from_std(bound)?;
                    while let Some(accepted) = unless(end, bound.accept()).await {
                        connections.answer(accepted).await;
                    }
                }
                Self::Unix(bound, path) => {
                    let bound = tokio::net::UnixListener::from_std(bound)?;
                    while let Some(accepted) = unless(end, bound.accept()).await {
                        connections.answer(accepted).await;
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

/// The connections that are being answered.
struct Connections<'a> {
    served: &'a Arc<Served>,
    counters: &'a Counters,
    /// The oldest first.
    open: VecDeque<JoinHandle<()>>,
}

impl Connections<'_> {
    /// Starts to answer a connection; where there are too many, it replaces the oldest one.
    async fn answer<S, A>(&mut self, accepted: io::Result<(S, A)>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            return;
        };
        self.open.retain(|answering| !answering.is_finished());
        if MAX_CONNECTIONS <= self.open.len()
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
            self.counters.add(Counter::ConnectionsClosed, 1);
        }
        self.open
            .push_back(tokio::spawn(answer_all(stream, Arc::clone(self.served))));
    }
}

/// Answers the one request of a connection.
async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin, served: Arc<Served>) {
    let service = service_fn(|request: Request<Incoming>| {
        let served = Arc::clone(&served);
        async move { Ok::<_, Infallible>(served.answer(&request).await) }
    });
    let answered = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_REQUEST_TIME)
        .keep_alive(false)
        .max_buf_size(MAX_REQUEST)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Whether the other side was slow or wrong is its own business.
    let _ = tokio::time::timeout(MAX_TIME, answered).await;
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
