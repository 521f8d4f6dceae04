//! The name of a model on a hub, `ORG/NAME[@REVISION]`, and which names are safe as names of files.

use std::fmt;
use std::str::FromStr;

/// The revision that a name without one means.
const MAIN: &str = "main";
/// The longest `ORG/NAME` of the Hugging Face hub.
const LONGEST: usize = 96;
/// The longest revision. File systems take names of up to 255 bytes.
const LONGEST_REVISION: usize = 200;

/// `ORG/NAME` and a revision: a branch, a tag, a commit, or `refs/pr/N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelName {
    organization: String,
    name: String,
    revision: String,
}

impl ModelName {
    /// `ORG/NAME`.
    pub(crate) fn repository(&self) -> String {
        format!("{}/{}", self.organization, self.name)
    }

    pub(crate) fn revision(&self) -> &str {
        &self.revision
    }

    /// The revision if it is a whole commit, whose files never change.
    pub(crate) fn commit(&self) -> Option<&str> {
        Some(&self.revision[..]).filter(|revision| is_hex(revision, 40))
    }

    /// The name of the model's folder in a cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.organization, self.name)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organization, self.name)?;
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected ORG/NAME or ORG/NAME@REVISION";
        if let Some((_, address)) = text.split_once("://") {
            let hint = of_address(address).map(|name| format!("; this address is that of {name}"));
            return Err(format!("{EXPECTED}, found an address{}", hint.unwrap_or_default()));
        }
        let (repository, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let Some((organization, name)) = repository.split_once('/') else {
            let example = "such as Helsinki-NLP/opus-mt-en-fr";
            return Err(format!("{EXPECTED}, {example}; found no organization"));
        };
        if repository.len() > LONGEST {
            return Err(format!(
                "{EXPECTED} of at most {LONGEST} bytes, found {}",
                repository.len()
            ));
        }
        for part in [organization, name] {
            if !is_part(part) {
                return Err(format!(
                    "{EXPECTED} of letters, digits, '-', '_' and '.', found {part:?}"
                ));
            }
        }
        if !is_revision(revision) {
            return Err(format!("expected a branch, a tag or a commit, found {revision:?}"));
        }
        let [organization, name, revision] = [organization, name, revision].map(str::to_owned);
        Ok(Self { organization, name, revision })
    }
}

/// The model of a web address without its scheme: `HOST/ORG/NAME[/tree/REVISION]`.
fn of_address(address: &str) -> Option<ModelName> {
    let path = address.split(['?', '#']).next()?;
    let mut parts = path.split('/').skip(1);
    let repository = format!("{}/{}", parts.next()?, parts.next()?);
    let revision = match (parts.next(), parts.next()) {
        (Some("tree" | "blob" | "resolve"), Some(revision)) => revision,
        _ => MAIN,
    };
    format!("{repository}@{revision}").parse().ok()
}

/// Whether an organization or a model can have this name.
fn is_part(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty()
        && part.chars().all(allowed)
        && !part.starts_with(['-', '.'])
        && !part.ends_with(['-', '.'])
        && !part.contains("--")
        && !part.contains("..")
        && !part.ends_with(".git")
}

/// Whether git accepts the name of a revision, and a file system accepts it as a path.
pub(crate) fn is_revision(revision: &str) -> bool {
    revision.len() <= LONGEST_REVISION
        && !revision.contains(|c: char| c.is_whitespace() || "~^@?*[\"<>|".contains(c))
        && !revision.starts_with('-')
        && is_relative(revision)
        && revision.split('/').all(|part| !part.starts_with('.') && !part.ends_with(".lock"))
}

/// Whether a path leads to a file below its directory, on any operating system. No part is empty, `.` or `..`.
pub(crate) fn is_relative(path: &str) -> bool {
    let outside = |c: char| matches!(c, '\\' | ':') || c.is_control();
    path.split('/').all(|part| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.len() < 256
            && !part.contains(outside)
    })
}

/// Whether a text is `digits` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_organization_and_may_have_a_revision() {
        let parsed = |text: &str| {
            text.parse::<ModelName>().map(|name| {
                (name.repository(), name.revision().to_owned(), name.folder(), name.to_string())
            })
        };
        assert_eq!(
            parsed("Helsinki-NLP/opus-mt-en-fr"),
            Ok((
                "Helsinki-NLP/opus-mt-en-fr".to_owned(),
                "main".to_owned(),
                "models--Helsinki-NLP--opus-mt-en-fr".to_owned(),
                "Helsinki-NLP/opus-mt-en-fr".to_owned()
            ))
        );
        let with_revision =
            parsed("a/b.c_d@refs/pr/26").map(|(_, revision, _, shown)| (revision, shown));
        assert_eq!(with_revision, Ok(("refs/pr/26".to_owned(), "a/b.c_d@refs/pr/26".to_owned())));
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let name: ModelName = format!("a/b@{commit}").parse().unwrap_or_else(|_| unreachable!());
        assert_eq!(name.commit(), Some(commit));
    }

    #[test]
    fn other_texts_are_errors_that_say_what_is_expected() {
        for (text, part) in [
            ("opus-mt-en-fr", "found no organization"),
            ("", "found no organization"),
            ("./a/b", "found \".\""),
            ("/a/b", "found \"\""),
            ("../b", "found \"..\""),
            ("a/b/", "found \"b/\""),
            ("a/b/c", "found \"b/c\""),
            ("a/", "found \"\""),
            ("a/b c", "found \"b c\""),
            ("a/b\\c", "found \"b\\\\c\""),
            ("a/b--c", "found \"b--c\""),
            ("a/.b", "found \".b\""),
            ("a/b.git", "found \"b.git\""),
            ("a/b@", "a branch, a tag or a commit, found \"\""),
            ("a/b@../../x", "found \"../../x\""),
            ("a/b@/etc", "found \"/etc\""),
            ("a/b@x y", "found \"x y\""),
            ("a/b@-f", "found \"-f\""),
            ("a/b@x/.lock", "found \"x/.lock\""),
            ("https://hub.example/a/b", "this address is that of a/b"),
            ("https://hub.example/a/b/tree/v1", "this address is that of a/b@v1"),
            ("https://hub.example", "found an address"),
        ] {
            let found = text.parse::<ModelName>().err();
            assert!(found.as_ref().is_some_and(|error| error.contains(part)), "{text}: {found:?}");
        }
        let long = format!("a/{}", "b".repeat(100));
        assert!(long.parse::<ModelName>().is_err_and(|error| error.contains("at most 96 bytes")));
    }

    #[test]
    fn paths_from_a_server_stay_in_their_directory() {
        for path in ["config.json", "1_Pooling/config.json", "a b.json", "..a/b"] {
            assert!(is_relative(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "a\\b",
            "c:a",
            "a\nb",
        ] {
            assert!(!is_relative(path), "{path}");
        }
    }
}
