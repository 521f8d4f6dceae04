//! How much the tests do: what each change can wait for, everything at night, or little where an emulator runs them.
//!
//! The unit tests, and through `tests/support` the test programs, ask here and nowhere else.
#![allow(dead_code)]

/// Whether `SIMDFORMER_TESTS=full` asks for all cases of every sweep, as `.ci/nightly` does.
pub(crate) fn full() -> bool {
    std::env::var("SIMDFORMER_TESTS").is_ok_and(|tests| tests == "full") && !brief()
}

/// Whether an emulator runs the tests: it asks for fewer than 64 cases of each property.
pub(crate) fn brief() -> bool {
    asked_for().is_some_and(|cases| cases < 64)
}

/// The number of cases of a sweep: `usual`, or `all` at night.
pub(crate) fn cases<T>(usual: T, all: T) -> T {
    if full() { all } else { usual }
}

/// The number of random cases of a property: what `PROPTEST_CASES` says, else `usual`, or 256 at night.
pub(crate) fn properties(usual: u32) -> u32 {
    asked_for().unwrap_or(cases(usual, 256))
}

fn asked_for() -> Option<u32> {
    std::env::var("PROPTEST_CASES").ok()?.parse().ok()
}
