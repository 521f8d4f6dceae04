//! The texts of errors, which must differ from each other.

use std::collections::HashMap;

/// The tables of mistakes with the smallest number of entries of each. `error_texts.rs` adds them up.
pub(crate) const TABLES: [(&str, usize); 11] = [
    ("calls of a session", 62),
    ("limits", 11),
    ("operands", 42),
    ("weights in a file", 22),
    ("directories and configurations", 21),
    ("files", 53),
    ("every word: kernels", 41),
    ("every word: searches", 38),
    ("every word: configurations", 30),
    ("every word: weights", 12),
    ("every word: sessions", 19),
];

/// A table has at least as many mistakes as [`TABLES`] states.
pub(crate) fn has_enough(table: &str, found: usize) {
    let expected = TABLES.iter().find(|(name, _)| *name == table).map(|&(_, least)| least);
    assert!(expected.is_some_and(|least| found >= least), "{table}: {found} of {expected:?}");
}

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
