//! Malicious files are errors that name what is wrong, and cost little memory: a header, an index or a
//! configuration cannot make a program allocate much more than the size of its files.
//! `benches/malicious_input.rs` measures the time that each takes.

use simdformer_testing::{counting, malicious_input};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// The heap memory that an input may take beyond the size of its files.
const BEYOND: usize = 10_000_000;

/// This is the only test of the program: the counter counts every thread.
#[test]
fn malicious_files_are_errors_and_take_little_memory() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("directories");
    let all = malicious_input::all();
    let names: HashSet<&str> = all.iter().map(|directory| directory.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two directories have one name");
    let mut kinds: HashSet<&str> = HashSet::new();
    let (mut wrong, mut most) = (Vec::new(), (0, ""));
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for directory in &all {
        let folder = directory.prepare(&root);
        let before = counting::bytes();
        counting::forget_peak();
        let start = Instant::now();
        let said = directory.find_error(&folder);
        times.push((start.elapsed(), &directory.name));
        let peak = counting::peak() - before;
        wrong.extend(directory.wrong(said.as_deref()));
        let beyond = peak.saturating_sub(directory.bytes());
        if beyond > BEYOND {
            wrong.push(format!(
                "{}: {beyond} bytes beyond its {}",
                directory.name,
                directory.bytes()
            ));
        }
        most = most.max((beyond, &directory.name));
        // Inputs that are made for every family count once.
        kinds.insert(directory.name.rsplit(": ").next().unwrap_or(""));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    times.sort_unstable();
    let slowest: Vec<String> =
        times.iter().rev().take(5).map(|(time, name)| format!("{name} {time:?}")).collect();
    println!(
        "{} directories, {} of them different; most memory beyond the files: {} bytes, {}; slowest in this build: {}",
        all.len(),
        kinds.len(),
        most.0,
        most.1,
        slowest.join(", ")
    );
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len());
    assert!(kinds.len() >= 120, "{} kinds of directories", kinds.len());
}
