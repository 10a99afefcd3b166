//! One request of OTLP/HTTP: a connection of its own, with bounds of time and of the answer.

use std::io;
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message as _;
use tokio::net::TcpStream;

use super::endpoint::{Endpoint, Signal};

/// Time from the begin of the connection to the end of the answer, as OpenTelemetry's exporters have.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Most bytes of the head and of the body of an answer, and headers of it.
const MAX_HEAD: usize = 16 << 10;
const MAX_ANSWER: usize = 64 << 10;
const MAX_HEADERS: usize = 64;

const PROTOBUF: &str = "application/x-protobuf";

/// What became of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// The collector has all of it.
    Accepted,
    /// It took the request, but rejected this number of its parts.
    Rejected(u64),
    /// It will not take it: to send it again is of no use.
    Refused,
    /// It may take it later, after the time that it asks for.
    Again(Option<Duration>),
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request.
pub(super) async fn post(to: &Endpoint, signal: Signal, body: Bytes) -> Outcome {
    match tokio::time::timeout(MAX_TIME, exchange(to, signal, body)).await {
        Ok(Ok(outcome)) => outcome,
        // No connection, an answer that is not HTTP or too large, or none in time.
        Ok(Err(_)) | Err(_) => Outcome::Again(None),
    }
}

async fn exchange(to: &Endpoint, signal: Signal, body: Bytes) -> Result<Outcome, Failure> {
    let stream = TcpStream::connect(address(&to.authority)?).await?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await?;
    let request = Request::post(format!("{}{}", to.prefix, signal.path()))
        .header(HOST, &to.authority)
        .header(CONTENT_TYPE, PROTOBUF)
        .header(CONTENT_ENCODING, "gzip")
        .body(Full::new(body))?;
    let answering = async {
        let answer = sender.send_request(request).await?;
        let (head, body) = answer.into_parts();
        let asked = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|it| it.to_str().ok()?.parse().ok());
        let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
        Ok::<_, Failure>(outcome(head.status, asked, signal, &body))
    };
    tokio::pin!(answering);
    tokio::select! {
        outcome = &mut answering => outcome,
        // The other side closed it; what it said is still to be read.
        _ = connection => answering.await,
    }
}

/// What an answer says (opentelemetry.io/docs/specs/otlp, OTLP/HTTP Response).
fn outcome(status: StatusCode, asked: Option<u64>, signal: Signal, body: &[u8]) -> Outcome {
    match status {
        StatusCode::OK => rejected(signal, body).map_or(Outcome::Refused, |n| match n {
            0 => Outcome::Accepted,
            n => Outcome::Rejected(n),
        }),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Outcome::Again(asked.map(Duration::from_secs)),
        _ => Outcome::Refused,
    }
}

/// The parts that were rejected; `None` where the answer is none of OTLP.
fn rejected(signal: Signal, body: &[u8]) -> Option<u64> {
    let n = match signal {
        Signal::Profiles => {
            let answer = ExportProfilesServiceResponse::decode(body).ok()?;
            answer
                .partial_success
                .map_or(0, |partial| partial.rejected_profiles)
        }
        Signal::Metrics => {
            let answer = ExportMetricsServiceResponse::decode(body).ok()?;
            answer
                .partial_success
                .map_or(0, |partial| partial.rejected_data_points)
        }
    };
    Some(u64::try_from(n).unwrap_or(0))
}

/// The first address of a host and port; that of HTTP where there is none. The name is looked up each time: a collector may
/// move.
fn address(authority: &str) -> io::Result<std::net::SocketAddr> {
    let found = match authority.to_socket_addrs() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (authority, 80).to_socket_addrs(),
        found => found,
    };
    found?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;

    use super::*;

    #[test]
    fn answers_say_what_became_of_a_request() {
        let of = |status, body: &[u8]| outcome(status, Some(7), Signal::Profiles, body);
        assert_eq!(of(StatusCode::OK, b""), Outcome::Accepted);
        assert_eq!(of(StatusCode::OK, b"<html>"), Outcome::Refused);
        let partial = ExportProfilesServiceResponse {
            partial_success: Some(ExportProfilesPartialSuccess {
                rejected_profiles: 1,
                error_message: "too large".to_owned(),
            }),
        };
        assert_eq!(of(StatusCode::OK, &partial.encode_to_vec()), Outcome::Rejected(1));
        let again = Outcome::Again(Some(Duration::from_secs(7)));
        assert_eq!(of(StatusCode::SERVICE_UNAVAILABLE, b""), again);
        assert_eq!(of(StatusCode::BAD_REQUEST, b""), Outcome::Refused);
    }
}
