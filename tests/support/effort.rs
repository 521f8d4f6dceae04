//! How many cases the tests run. In a normal run a test runs all its cases on the best instruction set of
//! the CPU and a few cases on each other set, because the scalar set takes most of the time and the code of
//! the model layer is the same for all sets. `SIMDFORMER_TESTS=full`, which `.ci/nightly` sets, makes every
//! test run all its cases everywhere.

use simdformer::kernels::Isa;

/// Whether every test runs all its cases.
pub(crate) fn full() -> bool {
    std::env::var_os("SIMDFORMER_TESTS").is_some_and(|value| value == "full")
}

/// Whether a test runs all its cases on `isa`.
pub(crate) fn all_cases_on(isa: Isa) -> bool {
    full() || isa == Isa::best()
}

/// `few` in a normal run, `all` in a full run.
pub(crate) fn choose<T>(few: T, all: T) -> T {
    if full() { all } else { few }
}

/// The numbers of threads that a test tries: one, and a number that divides few sizes.
pub(crate) fn thread_counts() -> &'static [usize] {
    choose(&[1, 3], &[1, 2, 3, 7])
}
