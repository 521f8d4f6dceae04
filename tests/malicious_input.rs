//! Files that lie are refused in words that say what is wrong, and take little memory: a header, an index or a
//! configuration cannot make a program hold much more than itself. `benches/attacks.rs` says how long each takes.

#[path = "support/counting.rs"]
#[allow(dead_code, reason = "calls are counted for other tests")]
mod counting;
#[path = "support/malicious_input.rs"]
mod malicious_input;
#[path = "support/random_model.rs"]
#[allow(dead_code, reason = "not every test draws numbers")]
mod random_model;

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Heap that an attack may take beyond what its files have.
const BEYOND: usize = 10_000_000;

/// One test only: the counter sees every thread of the process.
#[test]
fn files_that_lie_are_refused_and_take_little_memory() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacks");
    let all = malicious_input::all();
    let names: HashSet<&str> = all.iter().map(|attack| attack.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two attacks have one name");
    let mut kinds: HashSet<&str> = HashSet::new();
    let (mut wrong, mut most) = (Vec::new(), (0, ""));
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for attack in &all {
        let folder = attack.prepare(&root);
        let before = counting::bytes();
        counting::forget_peak();
        let start = Instant::now();
        let said = attack.run(&folder);
        times.push((start.elapsed(), &attack.name));
        let peak = counting::peak() - before;
        wrong.extend(attack.wrong(said.as_deref()));
        let beyond = peak.saturating_sub(attack.bytes());
        if beyond > BEYOND {
            wrong.push(format!("{}: {beyond} bytes beyond its {}", attack.name, attack.bytes()));
        }
        most = most.max((beyond, &attack.name));
        // Those that every family is spared none of count once.
        kinds.insert(attack.name.rsplit(": ").next().unwrap_or(""));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    times.sort_unstable();
    let slowest: Vec<String> =
        times.iter().rev().take(5).map(|(time, name)| format!("{name} {time:?}")).collect();
    println!(
        "{} attacks, {} of them different; most memory beyond the files: {} bytes, {}; slowest in this build: {}",
        all.len(),
        kinds.len(),
        most.0,
        most.1,
        slowest.join(", ")
    );
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len());
    assert!(kinds.len() >= 120, "{} kinds of attacks", kinds.len());
}
