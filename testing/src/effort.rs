//! How many cases the tests run: the default, all of them (nightly), or few under an emulator.
//!
//! Only this file reads the environment variables that select it.

/// Whether `SIMDFORMER_TESTS=full` selects all cases of every test, as `.ci/nightly` does.
pub fn full() -> bool {
    std::env::var("SIMDFORMER_TESTS").is_ok_and(|tests| tests == "full") && !brief()
}

/// Whether an emulator runs the tests: `PROPTEST_CASES` is below 64.
pub fn brief() -> bool {
    asked_for().is_some_and(|cases| cases < 64)
}

/// The number of cases of a test: `usual`, or `all` in nightly runs.
pub fn cases<T>(usual: T, all: T) -> T {
    if full() { all } else { usual }
}

/// The number of random cases of a property: `PROPTEST_CASES` if it is set, else `usual`, or 256 in nightly runs.
pub fn properties(usual: u32) -> u32 {
    asked_for().unwrap_or(cases(usual, 256))
}

fn asked_for() -> Option<u32> {
    std::env::var("PROPTEST_CASES").ok()?.parse().ok()
}

/// The numbers of threads that a test tries: one, and a number that divides few sizes.
pub fn thread_counts() -> &'static [usize] {
    cases(&[1, 3], &[1, 2, 3, 7])
}

/// Whether a test of the model runs all its cases on `isa`: the scalar set takes most of the time, and the code of the
/// model is the same for all sets.
#[cfg(feature = "model")]
pub fn all_cases_on(isa: simdformer::kernels::Isa) -> bool {
    full() || isa == simdformer::kernels::Isa::best()
}
