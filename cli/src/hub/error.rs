//! Why a model could not be had from a hub, and what to do about it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most characters of a server's own words in an error.
const SHOWN: usize = 200;

#[derive(Debug)]
pub(crate) enum HubError {
    /// An environment variable has a value that cannot be used.
    Environment { variable: &'static str, reason: String },
    /// There is no connection. `temporary` is whether another attempt may succeed.
    Unreachable { host: String, reason: String, temporary: bool },
    /// Nothing arrived for a time.
    Stalled { host: String, seconds: u64 },
    /// A connection ended before the whole answer had arrived.
    Interrupted { host: String, reason: String },
    /// The server asks for fewer requests, or has an error of its own.
    Busy { host: String, status: u16, wait: Option<Duration> },
    /// Redirected in a circle, to no address, or from https to http.
    Redirect { host: String, reason: String },
    /// 401 or 404 for the model: it does not exist, or is private.
    NoModel { repository: String, endpoint: String, token: Option<String> },
    /// The model has no such branch, tag or commit.
    NoRevision { repository: String, revision: String },
    /// The server refused the token itself.
    TokenRejected { endpoint: String, token: String },
    /// The owner's terms must be accepted first.
    Gated { repository: String, endpoint: String, token: Option<String> },
    /// Any other answer.
    Status { url: String, status: u16, message: String },
    /// An answer that is not what the hub's interface defines.
    Unexpected { url: String, reason: String },
    /// The files of the model cannot be used: none has weights that are read, or one names a file outside of the
    /// directory.
    Files { name: String, reason: String },
    /// The server sent more or fewer bytes than its own list of files says.
    Size { file: String, expected: u64, found: String },
    /// The bytes are not those that the list of files promised.
    Checksum { file: String, expected: String, found: String },
    /// The list of files and the file itself have different checksums.
    Changed { file: String, expected: String, found: String },
    /// The disk is full.
    Full { path: PathBuf, more: u64 },
    /// Another error of a file.
    Io { path: PathBuf, error: io::Error },
    /// The network is switched off and the cache does not have the model.
    Offline { name: String, cache: PathBuf },
}

impl HubError {
    /// The error of a file of which `more` bytes were still to be written.
    pub(crate) fn file(path: &Path, more: u64, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::Full { path, more }
            }
            _ => Self::Io { path, error },
        }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { temporary, .. } => *temporary,
            Self::Stalled { .. } | Self::Interrupted { .. } | Self::Busy { .. } => true,
            _ => false,
        }
    }

    /// Whether a copy in the cache is to be used instead: the hub does not answer, or does not show the model to this
    /// user any more.
    pub(crate) fn permits_cached(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Stalled { .. }
                | Self::Interrupted { .. }
                | Self::Busy { .. }
                | Self::NoModel { .. }
                | Self::TokenRejected { .. }
                | Self::Gated { .. }
        )
    }
}

/// A server's own words: without control characters, and not long.
pub(crate) fn printable(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = printable.take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown += "...";
    }
    shown
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CONTINUES: &str = "the same command continues where it stopped";
        match self {
            Self::Environment { variable, reason } => write!(f, "{variable}: {reason}"),
            Self::Unreachable { host, reason, .. } => write!(
                f,
                "cannot reach {host}: {reason}; check the connection, and HTTPS_PROXY if there is a proxy; a model in \
                 the cache needs no network"
            ),
            Self::Stalled { host, seconds } => write!(
                f,
                "{host} sent nothing for {seconds} s, several times; {CONTINUES}; HF_HUB_DOWNLOAD_TIMEOUT sets the \
                 seconds"
            ),
            Self::Interrupted { host, reason } => {
                write!(f, "the connection to {host} ended, several times: {reason}; {CONTINUES}")
            }
            Self::Busy { host, status: 429, wait } => {
                write!(f, "{host} takes no more requests from here for now (429); try again ")?;
                match wait {
                    Some(wait) => write!(f, "in {} s", wait.as_secs())?,
                    None => f.write_str("later")?,
                }
                f.write_str("; with HF_TOKEN more are allowed")
            }
            Self::Busy { host, status, wait } => {
                write!(f, "{host} cannot answer now ({status}); try again ")?;
                match wait {
                    Some(wait) => write!(f, "in {} s", wait.as_secs()),
                    None => f.write_str("later"),
                }
            }
            Self::Redirect { host, reason } => {
                write!(f, "a redirect of {host} was not followed: {reason}; check HF_ENDPOINT")
            }
            Self::NoModel { repository, endpoint, token } => match token {
                None => write!(
                    f,
                    "{endpoint} has no public model {repository}; check the spelling; for a private model set HF_TOKEN \
                     to a token that may read it"
                ),
                Some(token) => write!(
                    f,
                    "{endpoint} has no model {repository} that the token of {token} may read; check the spelling and \
                     the rights of the token"
                ),
            },
            Self::NoRevision { repository, revision } => write!(
                f,
                "{repository} has no revision {revision}; a revision is a branch, a tag, a whole commit, or refs/pr/N"
            ),
            Self::TokenRejected { endpoint, token } => write!(
                f,
                "{endpoint} does not accept the token of {token}; make a new one at {endpoint}/settings/tokens, or \
                 remove it: public models need none"
            ),
            Self::Gated { repository, endpoint, token } => match token {
                None => write!(
                    f,
                    "{repository} is gated: accept its terms at {endpoint}/{repository}, then set HF_TOKEN to a \
                         token of that account"
                ),
                Some(token) => write!(
                    f,
                    "{repository} is gated and the account of the token of {token} may not read it: accept its \
                         terms at {endpoint}/{repository}, and wait if the owner must agree"
                ),
            },
            Self::Status { url, status, message } => {
                write!(f, "{url}: status {status}")?;
                if message.is_empty() { Ok(()) } else { write!(f, ", {message}") }
            }
            Self::Unexpected { url, reason } => {
                write!(f, "{url}: {reason}; check that HF_ENDPOINT is a hub")
            }
            Self::Files { name, reason } => write!(f, "{name}: {reason}"),
            Self::Size { file, expected, found } => write!(
                f,
                "{file}: expected {expected} bytes, found {found}; the server contradicts its list of files, try again \
                 later"
            ),
            Self::Checksum { file, expected, found } => write!(
                f,
                "{file}: expected the checksum {expected}, found {found}; it was damaged on the way and was deleted, \
                 try again"
            ),
            Self::Changed { file, expected, found } => write!(
                f,
                "{file}: the list of files says {expected}, the server now has {found}; it changed meanwhile, try again"
            ),
            Self::Full { path, more } => {
                write!(f, "no space left for {}", path.display())?;
                if *more > 0 {
                    write!(f, ": {more} bytes more are needed")?;
                }
                write!(f, "; with more space {CONTINUES}; HF_HOME selects another disk")
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Offline { name, cache } => write!(
                f,
                "{name} is not complete in {}, and HF_HUB_OFFLINE forbids the network; unset it once",
                cache.display()
            ),
        }
    }
}

impl std::error::Error for HubError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can fill a disk.
    #[test]
    fn a_full_disk_and_a_full_quota_have_an_error_of_their_own() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
            let error = HubError::file(Path::new("x"), 12, kind.into());
            assert!(error.to_string().starts_with("no space left for x: 12 bytes more"), "{error}");
        }
        let other = HubError::file(Path::new("x"), 12, ErrorKind::PermissionDenied.into());
        assert_eq!(other.to_string(), "x: permission denied");
    }

    #[test]
    fn words_of_a_server_cannot_control_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a [2Jb c");
        assert_eq!(printable(&"x".repeat(300)).len(), 203);
    }
}
