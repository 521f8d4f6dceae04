//! Malicious files of `torch.save` are errors that say what is wrong, take less than a tenth of a second, and little memory.
//! Nothing in them is executed: the reader has no function that could.

mod wrong_torch_files;

use cpu_time::cpu_time;
use simdformer::Model;
use simdformer_testing::{counting, cpu_time, random_model, torch_file};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// The heap memory that a file may take beyond its size.
const BEYOND: usize = 10_000_000;

/// The longest time that an error may take.
const LONGEST: Duration = Duration::from_millis(100);

/// This is the only test of the program: the counter counts every thread.
#[test]
fn malicious_torch_files_are_errors_and_take_little_time_and_memory() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("malicious_torch_files");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let json = wrong_torch_files::dims().json();
    std::fs::write(folder.join("config.json"), json).expect("a configuration");
    let all = wrong_torch_files::all();
    let names: HashSet<&str> = all.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two files have one name");
    let (mut wrong, mut most) = (Vec::new(), (0, ""));
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for file in &all {
        let name = &file.name;
        std::fs::write(folder.join("pytorch_model.bin"), &file.bytes).expect("a file");
        let before = counting::bytes();
        counting::forget_peak();
        let mut start = cpu_time();
        let said = Model::open(&folder).err().map(|error| error.to_string());
        let mut time = cpu_time() - start;
        let beyond = (counting::peak() - before).saturating_sub(file.bytes.len());
        // Where the time is that of a clock, other programs may take the processor.
        for _ in 0..4 {
            if time > LONGEST {
                start = cpu_time();
                assert!(Model::open(&folder).is_err(), "{name}: it got through");
                time = time.min(cpu_time() - start);
            }
        }
        times.push((time, name));
        most = most.max((beyond, name));
        if beyond > BEYOND {
            wrong.push(format!("{name}: {beyond} bytes beyond its {}", file.bytes.len()));
        }
        if time > LONGEST {
            wrong.push(format!("{name}: {time:?}"));
        }
        let Some(said) = said else {
            wrong.push(format!("{name}: it got through"));
            continue;
        };
        if let Some(words) = file.words.iter().find(|words| !said.contains(*words)) {
            wrong.push(format!("{name}: expected {words:?} in: {said}"));
        }
        let hidden = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        if said.len() > 1500 || said.contains(hidden) {
            wrong.push(format!("{name}: not for a person to read: {said:?}"));
        }
    }
    times.sort_unstable();
    let slowest: Vec<String> =
        times.iter().rev().take(5).map(|(time, name)| format!("{name} {time:?}")).collect();
    println!(
        "{} files; most memory beyond a file: {} bytes, {}; slowest in this build: {}",
        all.len(),
        most.0,
        most.1,
        slowest.join(", ")
    );
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len());
    assert!(all.len() >= 150, "{} files", all.len());
}
