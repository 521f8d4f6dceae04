//! Requests to a hub: redirects, the token, time limits, and what an answer means.

use crate::hub::environment::Environment;
use crate::hub::error::{HubError, printable};
use crate::hub::model_name::ModelName;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::thread::sleep;
use std::time::Duration;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Error, Timeout};

/// Redirects of one request.
const REDIRECTS: usize = 10;
/// The pause before the second attempt; each further pause is twice as long, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The longest pause that a server may ask for. If it asks for more, that is the error.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The connections to a hub, and to the servers that it redirects to.
pub(crate) struct Client<'e> {
    agent: Agent,
    pub(crate) environment: &'e Environment,
}

/// An answer, with its body still to be read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The address that gave this answer, after redirects.
    pub(crate) url: String,
    headers: HeaderMap,
    body: Body,
    /// Whether the hub gave the answer, and no other server.
    of_hub: bool,
    /// The checksum of the file, as the hub's headers name it.
    pub(crate) etag: Option<String>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the whole body, if the server says it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// How long the server asks to wait: `Retry-After` in seconds, or the rest of the window of `RateLimit`.
    fn wait(&self) -> Option<Duration> {
        let window = || {
            let limit = self.header("ratelimit")?;
            limit.split(';').find_map(|part| part.trim().strip_prefix("t="))
        };
        let seconds = self.header("retry-after").or_else(window)?;
        Some(Duration::from_secs(seconds.trim().parse().ok()?))
    }

    /// The body, and the address for errors.
    pub(crate) fn into_body(self) -> (impl Read, String) {
        (self.body.into_reader(), self.url)
    }
}

impl<'e> Client<'e> {
    /// # Errors
    /// `SSL_CERT_FILE` cannot be read.
    pub(crate) fn new(environment: &'e Environment) -> Result<Self, HubError> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &environment.certificates {
            let pem = fs::read(path).map_err(|error| HubError::file(path, 0, error))?;
            let certificates: Vec<_> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                let reason = format!("{} has no certificate", path.display());
                return Err(HubError::Environment { variable: "SSL_CERT_FILE", reason });
            }
            tls = tls.root_certs(RootCerts::from(certificates));
        }
        let timeout = Some(environment.timeout);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Followed here, because the token may only go to the hub itself.
            .max_redirects(0)
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            // A whole body may take any time, but each wait is limited.
            .timeout_per_read(timeout)
            .timeout_per_write(timeout)
            .user_agent(concat!("simdformer/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(Self { agent: config.new_agent(), environment })
    }

    /// Requests `url` from byte `from` on, and follows redirects. Any status is an answer.
    pub(crate) fn get(&self, url: &str, from: u64) -> Result<Reply, HubError> {
        let (mut url, mut etag) = (url.to_owned(), None);
        for _ in 0..=REDIRECTS {
            let of_hub =
                origin(&url).is_some() && origin(&url) == origin(&self.environment.endpoint);
            // Lengths are those of the files, so nothing may be compressed.
            let mut request = self.agent.get(&url).header("accept-encoding", "identity");
            if from > 0 {
                request = request.header("range", format!("bytes={from}-"));
            }
            if let (true, Some(token)) = (of_hub, &self.environment.token) {
                request = request.header("authorization", format!("Bearer {}", token.secret));
            }
            let response = request.call().map_err(|error| self.failed(&url, error, false))?;
            let status = response.status().as_u16();
            let (parts, body) = response.into_parts();
            let reply = Reply { status, url, headers: parts.headers, body, of_hub, etag };
            let found = match reply.header("x-linked-etag") {
                Some(linked) if of_hub => Some(linked),
                _ if of_hub && status < 300 => reply.header("etag"),
                _ => None,
            };
            let found =
                found.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                let etag = reply.etag.or(found);
                return Ok(Reply { etag, ..reply });
            }
            etag = reply.etag.clone().or(found);
            url = target(&reply)?;
        }
        let reason = format!("it was the {}th", REDIRECTS + 1);
        Err(HubError::Redirect { host: host(&url), reason })
    }

    /// Requests `url` until it answers with a body of at most `most` bytes; at most `attempts` more times.
    ///
    /// Returns the body, and the address of the next page if there is one.
    pub(crate) fn fetch_body(
        &self,
        url: &str,
        most: u64,
        attempts: u32,
        name: &ModelName,
    ) -> Result<(Vec<u8>, Option<String>), HubError> {
        let mut attempts = Attempts::new(attempts);
        loop {
            match self.read_once(url, most, name) {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.wait_after(error)?,
            }
        }
    }

    fn read_once(
        &self,
        url: &str,
        most: u64,
        name: &ModelName,
    ) -> Result<(Vec<u8>, Option<String>), HubError> {
        let reply = self.get(url, 0)?;
        if reply.status != 200 {
            return Err(self.refusal(&reply, name));
        }
        let next = reply.header("link").and_then(next_page).map(str::to_owned);
        let (body, url) = reply.into_body();
        let mut bytes = Vec::new();
        body.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.interrupted(&url, error))?;
        if bytes.len() as u64 > most {
            let reason = format!("expected at most {most} bytes, found more");
            return Err(HubError::Unexpected { url, reason });
        }
        Ok((bytes, next))
    }

    /// What a status means that is not a success.
    pub(crate) fn refusal(&self, reply: &Reply, name: &ModelName) -> HubError {
        let (repository, endpoint) = (name.repository(), self.environment.endpoint.clone());
        let token = self.environment.token.as_ref().map(|token| token.origin.clone());
        let message = printable(reply.header("x-error-message").unwrap_or_default());
        let (status, url) = (reply.status, reply.url.clone());
        let code = reply.header("x-error-code").unwrap_or_default();
        match (status, code) {
            (408 | 429 | 500..=599, _) => {
                HubError::Busy { host: host(&url), status, wait: reply.wait() }
            }
            _ if !reply.of_hub => HubError::Status { url, status, message },
            (401 | 403, "GatedRepo") => HubError::Gated { repository, endpoint, token },
            (404, "RevisionNotFound") => {
                HubError::NoRevision { repository, revision: name.revision().to_owned() }
            }
            (404, "EntryNotFound") => HubError::Status { url, status, message },
            (401, code) if code != "RepoNotFound" && token.is_some() => {
                HubError::TokenRejected { endpoint, token: token.unwrap_or_default() }
            }
            (401 | 404, _) => HubError::NoModel { repository, endpoint, token },
            _ => HubError::Status { url, status, message },
        }
    }

    /// The error of a body whose reading failed.
    pub(crate) fn interrupted(&self, url: &str, error: io::Error) -> HubError {
        self.failed(url, Error::from(error), true)
    }

    /// The error of a connection; `answered` is whether the server had begun to answer.
    fn failed(&self, url: &str, error: Error, answered: bool) -> HubError {
        let host = host(url);
        let seconds = self.environment.timeout.as_secs();
        let unreachable = |reason: String, temporary| HubError::Unreachable {
            host: host.clone(),
            reason: printable(&reason),
            temporary,
        };
        match error {
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                unreachable(format!("no answer in {seconds} s"), true)
            }
            Error::Timeout(_) => HubError::Stalled { host, seconds },
            Error::HostNotFound => unreachable("its name is not known".to_owned(), true),
            Error::Io(error) => match error.kind() {
                // An error of TLS.
                ErrorKind::InvalidData => certificate(&unreachable, &error),
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe => {
                    HubError::Interrupted { host, reason: error.to_string() }
                }
                _ if answered => HubError::Interrupted { host, reason: error.to_string() },
                _ => unreachable(error.to_string(), true),
            },
            Error::Rustls(error) => certificate(&unreachable, &error),
            Error::Protocol(error) => {
                HubError::Interrupted { host, reason: printable(&error.to_string()) }
            }
            Error::ConnectionFailed | Error::ConnectProxyFailed(_) => {
                unreachable(error.to_string(), true)
            }
            other => unreachable(other.to_string(), false),
        }
    }
}

fn certificate(
    unreachable: &dyn Fn(String, bool) -> HubError,
    error: &dyn std::error::Error,
) -> HubError {
    let hint = "SSL_CERT_FILE names the certificates of your organization, if it has its own";
    unreachable(format!("{error}; {hint}"), false)
}

/// The attempts of a request: an error that may pass is waited for, `most` times in a row.
pub(crate) struct Attempts {
    most: u32,
    failed: u32,
}

impl Attempts {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, failed: 0 }
    }

    /// After an attempt that brought something.
    pub(crate) fn reset(&mut self) {
        self.failed = 0;
    }

    /// Waits until the next attempt, or returns the error if there is none.
    pub(crate) fn wait_after(&mut self, error: HubError) -> Result<(), HubError> {
        self.failed += 1;
        match pause(&error, self.failed, self.most) {
            Some(pause) => sleep(pause),
            None => return Err(error),
        }
        Ok(())
    }
}

/// How long to wait after the attempt number `failed`; `None` if no other attempt is made.
fn pause(error: &HubError, failed: u32, attempts: u32) -> Option<Duration> {
    if !error.is_temporary() || failed > attempts {
        return None;
    }
    let own = LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.saturating_pow(failed.min(16) - 1));
    match error {
        HubError::Busy { wait: Some(wait), .. } => (*wait <= LONGEST_WAIT).then(|| own.max(*wait)),
        _ => Some(own),
    }
}

/// Scheme, host and port, which decide whether two addresses are the same server.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// The host of an address, with its port if it has one.
pub(crate) fn host(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    authority.map_or_else(|| printable(url), |authority| authority.as_str().to_owned())
}

/// The address that a redirect names.
fn target(reply: &Reply) -> Result<String, HubError> {
    let wrong = |reason: &str| {
        let reason = format!("{reason}, status {}", reply.status);
        Err(HubError::Redirect { host: host(&reply.url), reason })
    };
    let Some(location) = reply.header("location") else {
        return wrong("it names no address");
    };
    let Some((scheme, ..)) = origin(&reply.url) else { return wrong("its own address is wrong") };
    let base = format!("{scheme}://{}", host(&reply.url));
    let url = match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{base}{location}"),
        _ => location.to_owned(),
    };
    match origin(&url) {
        Some((to, ..)) if to == "https" || (to == "http" && scheme == "http") => Ok(url),
        Some((to, ..)) if to == "http" => wrong("it leads from https to http"),
        _ => wrong(&format!("its address is {:?}", printable(location))),
    }
}

/// The next page of a list, from the header `Link`.
fn next_page(link: &str) -> Option<&str> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0)
}

/// The bytes of a path that an address cannot have are written as `%XX`; with `slash` a `/` stays.
pub(crate) fn encoded(path: &str, slash: bool) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if slash => encoded.push('/'),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_only_to_the_same_scheme_host_and_port() {
        let same = |a: &str, b: &str| origin(a) == origin(b);
        assert!(same("https://Hub.example/a?b", "https://hub.example:443"));
        for other in [
            "http://hub.example",
            "https://hub.example:8443",
            "https://cdn.hub.example",
            "https://hub.example.evil",
            "https://hub.example@evil",
        ] {
            assert!(!same("https://hub.example", other), "{other}");
        }
        assert_eq!(origin("/only/a/path"), None);
    }

    #[test]
    fn pauses_grow_and_a_server_may_ask_for_a_minute() {
        let busy = |seconds: Option<u64>| HubError::Busy {
            host: String::new(),
            status: 429,
            wait: seconds.map(Duration::from_secs),
        };
        let millis =
            |error: &HubError, failed| pause(error, failed, 9).map(|pause| pause.as_millis());
        let pauses: Vec<_> = (1..=8).map(|failed| millis(&busy(None), failed)).collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 8000, 8000].map(Some);
        assert_eq!(pauses, expected);
        assert_eq!(millis(&busy(None), 10), None);
        assert_eq!(millis(&busy(Some(3)), 1), Some(3000));
        assert_eq!(millis(&busy(Some(60)), 1), Some(60_000));
        assert_eq!(millis(&busy(Some(61)), 1), None);
        let refused = HubError::Redirect { host: String::new(), reason: String::new() };
        assert_eq!(millis(&refused, 1), None);
    }

    #[test]
    fn addresses_are_encoded_and_pages_are_found() {
        assert_eq!(encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encoded("1_Pooling/a b?#.json", true), "1_Pooling/a%20b%3F%23.json");
        let link = "<https://h/a?cursor=1>; rel=\"prev\", <https://h/a?cursor=2>; rel=\"next\"";
        assert_eq!(next_page(link), Some("https://h/a?cursor=2"));
        assert_eq!(next_page("<https://h/a>; rel=\"prev\""), None);
    }
}
