//! How many cases the tests run: the default, all of them (nightly), or few under an emulator.
//!
//! Only this file reads the environment variables that select it; `tests/support` includes it in the test programs.
#![allow(dead_code)]

/// Whether `SIMDFORMER_TESTS=full` selects all cases of every test, as `.ci/nightly` does.
pub(crate) fn full() -> bool {
    std::env::var("SIMDFORMER_TESTS").is_ok_and(|tests| tests == "full") && !brief()
}

/// Whether an emulator runs the tests: `PROPTEST_CASES` is below 64.
pub(crate) fn brief() -> bool {
    asked_for().is_some_and(|cases| cases < 64)
}

/// The number of cases of a test: `usual`, or `all` in nightly runs.
pub(crate) fn cases<T>(usual: T, all: T) -> T {
    if full() { all } else { usual }
}

/// The number of random cases of a property: `PROPTEST_CASES` if it is set, else `usual`, or 256 in nightly runs.
pub(crate) fn properties(usual: u32) -> u32 {
    asked_for().unwrap_or(cases(usual, 256))
}

fn asked_for() -> Option<u32> {
    std::env::var("PROPTEST_CASES").ok()?.parse().ok()
}
