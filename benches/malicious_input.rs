//! How long files that lie take to be refused: the same that `tests/malicious_input.rs` holds to words and memory.
//!
//! ```sh
//! cargo bench -p simdformer-benches --bench attacks
//! ```
//!
//! Prints the slowest, each the best of five, and fails if one takes more than a tenth of a second.

#[path = "../tests/support/malicious_input.rs"]
#[allow(dead_code, reason = "words and memory are the test's")]
mod malicious_input;
#[path = "../tests/support/random_model.rs"]
#[allow(dead_code, reason = "models are for other benches")]
mod random_model;

use std::path::Path;
use std::time::{Duration, Instant};

/// The longest that a refusal may take.
const LONGEST: Duration = Duration::from_millis(100);

fn main() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacks");
    let all = malicious_input::all();
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for attack in &all {
        let folder = attack.prepare(&root);
        let once = || {
            let start = Instant::now();
            let said = attack.run(&folder);
            let time = start.elapsed();
            assert!(said.is_some(), "{} got through", attack.name);
            time
        };
        times.push(((0..5).map(|_| once()).min().unwrap_or_default(), &attack.name));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    times.sort_unstable();
    println!("{} attacks; the slowest, best of five:", all.len());
    for (time, name) in times.iter().rev().take(12) {
        println!("{:>10.3} ms  {name}", time.as_secs_f64() * 1e3);
    }
    let (slowest, name) = times.last().copied().unwrap_or_default();
    assert!(slowest <= LONGEST, "{name} took {slowest:?}");
}
