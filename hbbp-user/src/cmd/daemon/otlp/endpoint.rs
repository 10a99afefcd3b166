//! A collector by its URL, and what is sent to it.

use std::str::FromStr;

use hyper::Uri;

/// A collector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Host and port, as in the URL.
    pub(super) authority: String,
    /// Path before that of the signal, without a slash at its end.
    pub(super) prefix: String,
}

/// What is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Signal {
    Profiles,
    Metrics,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || "expected http://HOST:PORT, as http://127.0.0.1:4318".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(
                    "https is not spoken here: send to a collector on this machine, which encrypts"
                        .to_owned(),
                );
            }
            _ => return Err(expected()),
        }
        let authority = uri.authority().ok_or_else(expected)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(expected());
        }
        Ok(Self {
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Signal {
    /// Path of requests (opentelemetry.io/docs/specs/otlp, OTLP/HTTP).
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Profiles => "/v1development/profiles",
            Self::Metrics => "/v1/metrics",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_plain_http() {
        let endpoint: Endpoint = "http://collector:4318/otlp/".parse().unwrap();
        assert_eq!(
            (&*endpoint.authority, &*endpoint.prefix),
            ("collector:4318", "/otlp")
        );
        let https = "https://collector:4318".parse::<Endpoint>().unwrap_err();
        assert!(https.contains("https is not spoken"), "{https}");
        for wrong in [
            "",
            "collector:4318",
            "ftp://x",
            "http://",
            "http://a@b:1",
            "http://a:1/?x",
        ] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
