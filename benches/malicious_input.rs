//! How long it takes to reject malicious files. `tests/malicious_input.rs` checks the errors and the memory of the same files.
//!
//! ```sh
//! cargo bench -p simdformer-benches --bench malicious_input
//! ```
//!
//! Prints the slowest, each the best of five runs, and fails if one takes more than 0.1 s.

use simdformer_testing::malicious_input;

use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time that an error may take.
const LONGEST: Duration = Duration::from_millis(100);

fn main() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("directories");
    let all = malicious_input::all();
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for directory in &all {
        let folder = directory.prepare(&root);
        let once = || {
            let start = Instant::now();
            let said = directory.find_error(&folder);
            let time = start.elapsed();
            assert!(said.is_some(), "{} got through", directory.name);
            time
        };
        times.push(((0..5).map(|_| once()).min().unwrap_or_default(), &directory.name));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    times.sort_unstable();
    println!("{} directories; the slowest, best of five:", all.len());
    for (time, name) in times.iter().rev().take(12) {
        println!("{:>10.3} ms  {name}", time.as_secs_f64() * 1e3);
    }
    let (slowest, name) = times.last().copied().unwrap_or_default();
    assert!(slowest <= LONGEST, "{name} took {slowest:?}");
}
