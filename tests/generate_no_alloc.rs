//! What the examples print under "allocations" is 0. Without the test harness: the counter counts
//! every thread's, and the harness has one of its own.

#[allow(dead_code, reason = "tests call what `main` calls")]
#[path = "../examples/generate.rs"]
mod example;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Threads of this process, where the system tells.
fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

/// A pool's threads end after the pool is gone, and allocate as they do: waits until they have.
fn wait_for_the_end_of_pools(alone: Option<usize>) {
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(if alone.is_some() { 1 } else { 200 }));
        if threads() <= alone {
            return;
        }
    }
}

fn main() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en");
    let input = "\
        {\"input_ids\": [954, 1388, 1444, 774, 2040, 2315, 375, 0]}\n\
        {\"input_ids\": [1635, 509, 1107, 229, 13, 0], \"decoder_input_ids\": [2230, 554]}\n\
        {\"input_ids\": [682, 1966, 2262, 1071, 1190, 0], \"decoder_input_ids\": [2317, 1823]}\n\
        {\"input_ids\": [585, 0], \"decoder_input_ids\": []}\n";
    let before = example::counting::allocations();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(example::counting::allocations() - before, 1, "the counter counts");
    let alone = threads();
    for options in [
        "",
        "--beams 5 --num-return-sequences 3 --no-repeat-ngram-size 3 --repetition-penalty 1.2",
        "--ngrams 1 --min-new-tokens 20",
        "--sample --num-return-sequences 4 --top-p 0.9 --min-p 0.01 --temperature 1.5",
    ] {
        for threads in if cfg!(feature = "rayon") { &["1", "2", "3"][..] } else { &["1"] } {
            let words = options.split_whitespace().chain(["--repeat", "3", "--threads", threads]);
            let mut arguments = vec![OsString::from("--model"), model.clone().into()];
            arguments.extend(words.map(OsString::from));
            let statistics = example::run(arguments, &mut input.as_bytes(), &mut Vec::new(), None);
            let statistics = statistics.expect("a run").expect("statistics");
            let statistics: serde_json::Value = serde_json::from_str(&statistics).expect("JSON");
            assert_eq!(statistics["allocations"], 0, "{options} on {threads} threads");
            assert!(statistics["new_tokens"].as_u64().is_some_and(|tokens| tokens > 10));
            wait_for_the_end_of_pools(alone);
        }
    }
}
