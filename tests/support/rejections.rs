//! The texts of errors, which must differ from each other.

use std::collections::HashMap;

/// The text of an error; `None` if there is none.
pub(crate) fn error_text<T, E: std::error::Error>(result: Result<T, E>) -> Option<String> {
    result.err().map(|error| error.to_string())
}

/// The texts so far, and the mistake of each.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) HashMap<String, String>);

impl Seen {
    /// Checks that `mistake` was an error, that its text contains all of `expected`, and that no other
    /// mistake has the same text.
    pub(crate) fn check(&mut self, mistake: &str, message: Option<String>, expected: &[&str]) {
        let Some(message) = message else { panic!("{mistake}: accepted") };
        for part in expected {
            assert!(message.contains(part), "{mistake}: \"{message}\" does not say \"{part}\"");
        }
        assert!(message.len() > 12 && message.is_ascii(), "{mistake}: \"{message}\"");
        assert!(
            !message.contains('{') || message.contains('"'),
            "{mistake}: Debug in \"{message}\""
        );
        if let Some(other) = self.0.insert(message.clone(), mistake.to_owned()) {
            panic!("\"{message}\" for {mistake} and for {other}");
        }
    }
}
