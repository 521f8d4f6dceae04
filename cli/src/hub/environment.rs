//! The environment variables of the Python client `huggingface_hub`, and what they mean here.

use crate::hub::error::HubError;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Uri;

const ENDPOINT: &str = "https://huggingface.co";
/// Seconds without a byte, as in the Python client.
const TIMEOUT: u64 = 10;
/// Attempts after a first one that failed, as in the Python client.
const RETRIES: u32 = 5;
/// The largest file of a token.
const TOKEN_BYTES: u64 = 1 << 12;

/// The variables that are texts. Others are paths, which may have any bytes.
const TEXTS: [&str; 8] = [
    "HF_ENDPOINT",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "SIMDFORMER_HUB_RETRIES",
    "TRANSFORMERS_OFFLINE",
];

/// Where models are, where they are kept, and how patient a download is.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The address of the hub, without `/` at its end.
    pub(crate) endpoint: String,
    /// The folder of `models--ORG--NAME`.
    pub(crate) cache: PathBuf,
    pub(crate) token: Option<Token>,
    pub(crate) offline: bool,
    /// The longest time without a byte.
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    /// A file of certificates to trust instead of Mozilla's.
    pub(crate) certificates: Option<PathBuf>,
}

/// A token, which is never printed.
pub(crate) struct Token {
    pub(crate) secret: String,
    /// The variable or the file that it was read from.
    pub(crate) origin: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token of {}", self.origin)
    }
}

impl Environment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    /// A variable has a value that cannot be used, or the file of the token cannot be read.
    pub(crate) fn of_process() -> Result<Self, HubError> {
        Self::from_variables(&|name| std::env::var_os(name), std::env::home_dir())
    }

    fn from_variables(
        variable: &dyn Fn(&str) -> Option<OsString>,
        user: Option<PathBuf>,
    ) -> Result<Self, HubError> {
        // A variable that is set to nothing is not set.
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        for name in TEXTS {
            if value(name).is_some_and(|value| value.to_str().is_none()) {
                let reason = "expected UTF-8, found other bytes".to_owned();
                return Err(HubError::Environment { variable: name, reason });
            }
        }
        let text = |name: &str| value(name).and_then(|value| value.into_string().ok());
        let flag = |name: &str| {
            let yes = ["1", "on", "yes", "true"];
            text(name).is_some_and(|value| yes.contains(&value.to_ascii_lowercase().as_str()))
        };
        let path = |name: &str| value(name).map(|value| expanded(&value, user.as_deref()));
        let folder = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME");
            Some(cache.or_else(|| Some(user.as_ref()?.join(".cache")))?.join("huggingface"))
        });
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(folder.as_ref()?.join("hub")));
        let Some(cache) = cache else {
            let reason = "expected a folder for models, because there is no home folder".to_owned();
            return Err(HubError::Environment { variable: "HF_HOME", reason });
        };
        let token = if flag("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            None
        } else if let Some(token) = token_of_variable(&text)? {
            Some(token)
        } else {
            let file = path("HF_TOKEN_PATH").or_else(|| Some(folder?.join("token")));
            file.map_or(Ok(None), |file| token_of_file(&file))?
        };
        let number = |name: &'static str, default: u64| match text(name) {
            None => Ok(default),
            Some(found) => found.trim().parse().map_err(|_| {
                let reason = format!("expected a whole number, found {found:?}");
                HubError::Environment { variable: name, reason }
            }),
        };
        let retries = number("SIMDFORMER_HUB_RETRIES", u64::from(RETRIES))?;
        Ok(Self {
            endpoint: endpoint(text("HF_ENDPOINT"))?,
            cache,
            token,
            offline: flag("HF_HUB_OFFLINE") || flag("TRANSFORMERS_OFFLINE"),
            timeout: Duration::from_secs(number("HF_HUB_DOWNLOAD_TIMEOUT", TIMEOUT)?.max(1)),
            retries: u32::try_from(retries).unwrap_or(u32::MAX),
            certificates: path("SSL_CERT_FILE"),
        })
    }
}

/// A path whose `~` is the user's folder.
fn expanded(value: &OsString, user: Option<&Path>) -> PathBuf {
    let path = PathBuf::from(value);
    match (path.strip_prefix("~"), user) {
        (Ok(rest), Some(user)) => user.join(rest),
        _ => path,
    }
}

fn endpoint(found: Option<String>) -> Result<String, HubError> {
    let Some(found) = found else { return Ok(ENDPOINT.to_owned()) };
    let address = found.trim().trim_end_matches('/');
    let uri: Option<Uri> = address.parse().ok();
    let valid = uri.is_some_and(|uri| {
        let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        scheme && authority && uri.query().is_none()
    });
    if valid {
        return Ok(address.to_owned());
    }
    let reason = format!("expected an address such as {ENDPOINT}, found {found:?}");
    Err(HubError::Environment { variable: "HF_ENDPOINT", reason })
}

fn token_of_variable(text: &dyn Fn(&str) -> Option<String>) -> Result<Option<Token>, HubError> {
    for variable in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        let Some(found) = text(variable) else { continue };
        let found = found.trim();
        if found.is_empty() {
            continue;
        }
        // The token itself must not appear in an error.
        let secret = checked(found).ok_or_else(|| HubError::Environment {
            variable,
            reason: "expected a token of printable ASCII, found another character".to_owned(),
        })?;
        return Ok(Some(Token { secret, origin: variable.to_owned() }));
    }
    Ok(None)
}

fn token_of_file(path: &Path) -> Result<Option<Token>, HubError> {
    let io = |error| HubError::Io { path: path.to_owned(), error };
    match fs::metadata(path) {
        Ok(about) if about.is_file() && about.len() <= TOKEN_BYTES => (),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let found = fs::read_to_string(path).map_err(io)?;
    let origin = path.display().to_string();
    Ok(checked(found.trim()).map(|secret| Token { secret, origin }))
}

/// A token that a header can carry.
fn checked(token: &str) -> Option<String> {
    let printable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    printable.then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, HubError> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Environment::from_variables(&variable, Some(PathBuf::from("/user")))
    }

    #[test]
    fn the_cache_is_that_of_the_python_client() {
        for (variables, expected) in [
            (&[][..], "/user/.cache/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/xdg")], "/xdg/huggingface/hub"),
            (&[("HF_HOME", "/home")], "/home/hub"),
            (&[("HF_HOME", "~/models")], "/user/models/hub"),
            (&[("HF_HOME", "/home"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (&[("HF_HUB_CACHE", "/new"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/new"),
            (&[("HF_HUB_CACHE", "")], "/user/.cache/huggingface/hub"),
        ] {
            let found = read(variables).map(|environment| environment.cache).ok();
            assert_eq!(found, Some(PathBuf::from(expected)), "{variables:?}");
        }
    }

    #[test]
    fn other_variables_have_the_meaning_of_the_python_client() {
        let default = read(&[]).unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!((&default.endpoint[..], default.offline), (ENDPOINT, false));
        assert!(default.token.is_none() && default.timeout == Duration::from_secs(10));
        let variables = [
            ("HF_ENDPOINT", "http://127.0.0.1:80/hub/"),
            ("HF_TOKEN", " hf_x\n"),
            ("TRANSFORMERS_OFFLINE", "YES"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "3"),
        ];
        let all = read(&variables).unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!((&all.endpoint[..], all.offline), ("http://127.0.0.1:80/hub", true));
        assert_eq!(all.token.as_ref().map(|token| &token.secret[..]), Some("hf_x"));
        assert!(!format!("{all:?}").contains("hf_x"), "{all:?}");
        assert_eq!(all.timeout, Duration::from_secs(3));
        let none = read(&[("HF_TOKEN", "hf_x"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]);
        assert!(none.is_ok_and(|environment| environment.token.is_none()));
    }

    #[test]
    fn values_that_cannot_be_used_are_errors_without_the_token() {
        for (variable, value, part) in [
            ("HF_ENDPOINT", "hub.example", "HF_ENDPOINT: expected an address"),
            ("HF_ENDPOINT", "ftp://hub.example", "HF_ENDPOINT: expected an address"),
            ("HF_ENDPOINT", "https://a:b@hub.example", "HF_ENDPOINT: expected an address"),
            ("HF_TOKEN", "hf_secret\r\nx: y", "HF_TOKEN: expected a token"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "soon", "HF_HUB_DOWNLOAD_TIMEOUT: expected a whole number"),
            ("SIMDFORMER_HUB_RETRIES", "-1", "SIMDFORMER_HUB_RETRIES: expected a whole number"),
        ] {
            let found = read(&[(variable, value)]).map_err(|error| error.to_string()).err();
            let right = |text: &String| text.contains(part) && !text.contains("secret");
            assert!(found.as_ref().is_some_and(right), "{variable}: {found:?}");
        }
    }
}
