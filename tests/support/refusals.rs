//! What is said of mistakes, each in words of its own.

use std::collections::HashMap;

/// What an error says; `None` if there was none.
pub(crate) fn said<T, E: std::error::Error>(result: Result<T, E>) -> Option<String> {
    result.err().map(|error| error.to_string())
}

/// Messages that have been seen, and the mistakes they were about.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) HashMap<String, String>);

impl Seen {
    /// Checks that `mistake` was refused with words that hold all of `expected` and that no other
    /// mistake got.
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
