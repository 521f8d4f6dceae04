//! What a mapped model costs and saves: the time to open it, the memory of one and of several processes, and the speed of
//! greedy search beside a model with its own copy of the weights.
//!
//! ```sh
//! cargo bench -p simdformer-text --bench packed
//! ```
//!
//! Transformer-base with random weights (512 wide, 8 heads, 6 + 6 layers, 32,000 tokens) in int8 and f32, from files in
//! the cache of the system. Times are medians. Those of computing are, on Linux, the CPU time, so that other programs disturb
//! less. The memory is that of Linux, `/proc/PID/smaps_rollup`: `Rss` counts every
//! page of a process, `Pss` divides a page by the number of processes that have it.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use simdformer::config::{Config, Dimensions};
use simdformer::search::Hooks;
use simdformer::{Event, Limits, LoadOptions, Model, Session, Source, WeightDtypes};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

const OPENINGS: usize = 20;
const RUNS: usize = 9;
const PROCESSES: usize = 8;
/// Tokens of the source, and new tokens.
const TOKENS: usize = 32;

/// The CPU time of this thread in seconds; where it is not known, the time since the first call.
fn now() -> f64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = nanoseconds.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(
        || FIRST.get_or_init(Instant::now).elapsed().as_secs_f64(),
        |nanoseconds| nanoseconds / 1e9,
    )
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--child") {
        return child(Path::new(&arguments[at + 1]), arguments[at + 2] == "mapped");
    }
    for dtypes in ["int8", "f32"] {
        measure(dtypes);
    }
}

fn measure(dtypes: &str) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packed-{dtypes}"));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).unwrap();
    let base = Dimensions { d_model: 512, heads: 8, layers: 6, ffn_dim: 2048, vocabulary: 32_000 };
    let parsed: WeightDtypes = dtypes.parse().unwrap();
    let mut seed = 1u32;
    let model = Model::from_fn_with(Config::transformer(base), parsed, |role, shape, out| {
        let norm = role.to_string().ends_with("norm.weight");
        let scale = if norm { 0.0 } else { (*shape.last().unwrap() as f32).sqrt().recip() };
        out.fill_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((seed >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale + f32::from(u8::from(norm))
        });
        Ok(())
    })
    .unwrap();
    let megabytes = model.bytes() as f64 / 1e6;
    println!("{dtypes}: {megabytes:.1} MB packed for {}", model.isa());
    let start = now();
    let fingerprint = model.fingerprint();
    let seconds = now() - start;
    println!("  fingerprint of loaded weights {:9.1} ms", seconds * 1e3);
    std::fs::write(root.join("config.json"), model.config().to_json().unwrap()).unwrap();
    model.save_packed(root.join(Model::packed_name(model.isa()))).unwrap();

    let options =
        |verify_packed| LoadOptions { map_packed: true, verify_packed, ..LoadOptions::default() };
    let open = |name: &str, open: &dyn Fn() -> Model| {
        let mut times: Vec<f64> = (0..OPENINGS)
            .map(|_| {
                // The clock of the CPU time is too coarse.
                let start = Instant::now();
                let opened = open();
                let seconds = start.elapsed().as_secs_f64();
                assert_eq!(opened.fingerprint(), fingerprint);
                seconds
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("  open, {name:24} {:9.2} ms", times[OPENINGS / 2] * 1e3);
    };
    open("mapped", &|| Model::open_with(&root, options(false)).unwrap());
    open("mapped and verified", &|| Model::open_with(&root, options(true)).unwrap());
    open("copied and verified", &|| Model::open(&root).unwrap());

    let mapped = Model::open_with(&root, options(false)).unwrap();
    for batch in [1, 16] {
        let runs = [&mapped, &model].map(|model| Run::new(model, batch));
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..=RUNS {
            for (run, times) in runs.iter().zip(&mut times) {
                let seconds = run.seconds();
                // The first run reads the pages.
                if turn > 0 {
                    times.push(seconds);
                }
            }
        }
        let ratios = times[0].iter().zip(&times[1]).map(|(mapped, loaded)| loaded / mapped);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[RUNS / 2];
        println!("  speed of mapped / loaded, batch {batch:2}   {ratio:9.3}");
    }
    drop((mapped, model));
    if cfg!(target_os = "linux") {
        for (how, count) in
            [("loaded", 1), ("mapped", 1), ("loaded", PROCESSES), ("mapped", PROCESSES)]
        {
            memory(&root, how, count);
        }
    }
    std::fs::remove_dir_all(&root).unwrap();
}

/// Greedy search for sentences of [`TOKENS`] tokens.
struct Run<'m> {
    model: &'m Model,
    sources: Vec<Vec<u32>>,
}

impl<'m> Run<'m> {
    fn new(model: &'m Model, batch: u32) -> Self {
        let source = |row| (0..TOKENS as u32).map(|x| (x * 997 + row * 31) % 31_000 + 1).collect();
        Self { model, sources: (0..batch).map(source).collect() }
    }

    fn seconds(&self) -> f64 {
        let limits = Limits::new(self.sources.len(), TOKENS, TOKENS);
        let mut session = Session::new(self.model, limits).unwrap();
        let sources: Vec<Source<'_>> = self.sources.iter().map(|ids| Source::new(ids)).collect();
        let mut options = session.search_options();
        options.max_new_tokens = Some(TOKENS);
        options.start = 1;
        let start = now();
        let mut done = 0;
        let on_event = &mut |event: Event<'_>| {
            if let Event::Done(_) = event {
                done += 1;
            }
        };
        session.generate(&sources, &options, &mut Hooks::default(), on_event).unwrap();
        assert_eq!(done, sources.len());
        now() - start
    }
}

/// Starts processes that open the model and run it, and prints their memory while all of them exist.
fn memory(root: &Path, how: &str, count: usize) {
    let mut children: Vec<Child> = (0..count)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--child", root.to_str().unwrap(), how])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut children {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    let sums = ["Rss:", "Pss:"].map(|key| {
        let of = |child: &Child| kilobytes(child.id(), key);
        children.iter().map(of).sum::<f64>() / 1e3
    });
    println!("  {count} {how}: Rss {:8.1} MB, Pss {:8.1} MB, of all", sums[0], sums[1]);
    for mut child in children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

fn kilobytes(process: u32, key: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1.024
}

fn child(root: &Path, mapped: bool) {
    let options = LoadOptions { map_packed: mapped, ..LoadOptions::default() };
    let model = Model::open_with(root, options).unwrap();
    assert_eq!(model.is_shared(), mapped);
    Run::new(&model, 1).seconds();
    println!("ready");
    std::io::stdout().flush().unwrap();
    // Until the parent closes the pipe.
    let _ = std::io::stdin().read_line(&mut String::new());
}
