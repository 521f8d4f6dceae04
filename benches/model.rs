//! Tokens per second of the whole model: Transformer-base with random weights (512 wide, 8 heads, 6 + 6
//! layers, 2048, vocabulary 32,000), source 32, exactly 64 new tokens.
//!
//! `--weights DTYPES` stores the matrices in other dtypes than f32, such as `int8`. `--cache f32` and
//! `--cache f16` select the dtype of the KV cache.
//!
//! `--json` prints one line for each measurement instead of criterion's report, in the format of
//! `benches/peers/peers.py`, for `benches/peers/compare_model.py`. `--threads N` (default 1), `--encode`
//! for the encoder alone, `--decode 32x1` for only 32 sentences of one hypothesis each. With `--sentences
//! DIR` it measures `support/sentences.rs` instead, with `--pool N` `support/session_pool.rs`. `--mixed`
//! decodes eight sentences greedily and eight with beams, as two batches and as one.
#![allow(unsafe_code, reason = "the counting allocator")]

mod support {
    pub(crate) mod sentences;
    pub(crate) mod session_pool;
}

use criterion::{BenchmarkId, Criterion, Throughput};
use random_model::{Dims, Random};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SearchOptions, Strategy};
use simdformer::{Dtype, Limits, LoadOptions, Model, Session, Source, SourceId, Threads};
use simdformer_testing::{counting, random_model};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

const SOURCE: usize = 32;
const TARGET: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let threads = arguments
        .iter()
        .position(|argument| argument == "--threads")
        .and_then(|at| arguments.get(at + 1)?.parse().ok())
        .unwrap_or(1);
    let cache = match arguments.iter().position(|argument| argument == "--cache") {
        None => None,
        Some(at) => {
            let name = arguments.get(at + 1);
            Some(name.and_then(|name| Dtype::from_name(name)).expect("--cache f32 or f16"))
        }
    };
    let forms = arguments.iter().position(|argument| argument == "--weights");
    let forms = forms.map_or("f32", |at| arguments.get(at + 1).expect("a form").as_str());
    if let Some(at) = arguments.iter().position(|argument| argument == "--sentences") {
        let directory = arguments.get(at + 1).expect("a directory");
        return support::sentences::lines(directory.as_ref(), forms, threads);
    }
    let model = base(forms);
    if let Some(at) = arguments.iter().position(|argument| argument == "--pool") {
        let count = arguments.get(at + 1).and_then(|count| count.parse().ok());
        return support::session_pool::lines(
            &model,
            forms,
            threads,
            count.expect("a number of sentences"),
        );
    }
    if arguments.iter().any(|argument| argument == "--mixed") {
        return mixed(&model, forms);
    }
    if json {
        return lines(&model, forms, cache, threads);
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    encode(&mut criterion, &model);
    decode(&mut criterion, &model, cache);
    criterion.final_summary();
}

fn base(forms: &str) -> Model {
    let dims = Dims {
        d_model: 512,
        layers: [6, 6],
        heads: [8, 8],
        ffn: [2048, 2048],
        vocabulary: 32_000,
        positions: 512,
        ..Dims::small(Family::Marian)
    };
    let isa = Isa::detect().expect("the set that the environment names");
    let forms = forms.parse().expect("a form");
    Model::load(&dims.checkpoint(1), LoadOptions { dtypes: forms, ..isa.into() })
        .expect("a random model")
}

fn sources(count: usize, len: usize) -> Vec<Vec<u32>> {
    let mut random = Random(7);
    (0..count).map(|_| random.ids(len, 31_000)).collect()
}

fn encode(criterion: &mut Criterion, model: &Model) {
    let mut group = criterion.benchmark_group("model/encode");
    for (batch, len) in [(1, 32), (8, 128)] {
        let sources = sources(batch, len);
        let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        let mut session = Session::new(model, Limits::new(batch, len, 2)).expect("a session");
        group.throughput(Throughput::Elements((batch * len) as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("{batch}x{len}")), |bencher| {
            bencher.iter(|| session.encoder_output(&borrowed).expect("a memory")[0]);
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("model/prefill");
    let source = sources(1, SOURCE);
    let mut session = Session::new(model, Limits::new(1, SOURCE, TARGET)).expect("a session");
    group.throughput(Throughput::Elements(TARGET as u64));
    group.bench_function(BenchmarkId::from_parameter(TARGET), |bencher| {
        bencher.iter(|| {
            session.clear();
            let mut sentence = [SourceId::default()];
            session.encode(&[&source[0]], &mut sentence).expect("encoded");
            let row = session.start(sentence[0]).expect("a row");
            session.prefill(row, &source[0], None).expect("filled");
        });
    });
    group.finish();
}

fn decode(criterion: &mut Criterion, model: &Model, cache: Option<Dtype>) {
    let mut group = criterion.benchmark_group("model/decode");
    for (batch, beams, scores) in DECODES {
        let mut work = Decode::new(model, batch, (beams, scores), cache, Threads::Serial);
        group.throughput(Throughput::Elements((batch * TARGET) as u64));
        let name = format!("batch {batch}, {}", strategy_name(beams, scores));
        let name = BenchmarkId::from_parameter(name);
        group.bench_function(name, |bencher| bencher.iter(|| work.decode_batch()));
    }
    group.finish();
}

/// Batch, beams, and whether greedy search computes scores, which needs all logits. The peers compute no
/// scores.
const DECODES: [(usize, usize, bool); 8] = [
    (1, 1, false),
    (8, 1, false),
    (32, 1, false),
    (1, 1, true),
    (8, 1, true),
    (32, 1, true),
    (1, 4, true),
    (8, 4, true),
];

fn strategy_name(beams: usize, scores: bool) -> String {
    let scored = if beams == 1 && scores { ", with scores" } else { "" };
    format!("{beams} beam(s){scored}")
}

/// One batch to decode.
struct Decode<'m> {
    session: Session<'m>,
    options: SearchOptions,
    sources: Vec<Vec<u32>>,
}

impl<'m> Decode<'m> {
    fn new(
        model: &'m Model,
        batch: usize,
        (beams, scores): (usize, bool),
        cache: Option<Dtype>,
        threads: Threads<'m>,
    ) -> Self {
        let limits = Limits { beams, cache, ..Limits::new(batch, SOURCE, TARGET + 1) };
        let mut session = Session::new(model, limits).expect("a session");
        session.set_threads(threads);
        let strategy = if beams > 1 {
            Strategy::Beam(BeamOptions { beams, ..BeamOptions::default() })
        } else {
            Strategy::Greedy
        };
        let options = SearchOptions {
            strategy,
            min_new_tokens: TARGET,
            max_new_tokens: Some(TARGET),
            max_length: None,
            forced_eos: Vec::new(),
            scores,
            ..model.config().search_options()
        };
        Self { session, options, sources: sources(batch, SOURCE) }
    }

    fn decode_batch(&mut self) {
        let sources: Vec<Source<'_>> = self.sources.iter().map(|ids| Source::new(ids)).collect();
        self.session
            .generate(&sources, &self.options, &mut Hooks::default(), &mut |_| {})
            .expect("generated");
    }
}

/// Half of the requests of a batch are greedy and need only the best token, the other half have four beams: the seconds of
/// each half alone and of one batch of both, in turn, the medians of seven rounds.
fn mixed(model: &Model, forms: &str) {
    const HALF: usize = 8;
    let mut greedy = Decode::new(model, HALF, (1, false), None, Threads::Serial);
    let mut beams = Decode::new(model, HALF, (4, true), None, Threads::Serial);
    let mut both = Decode::new(model, 2 * HALF, (4, true), None, Threads::Serial);
    let halves = [&greedy.options, &beams.options].map(Clone::clone);
    let mut seconds = [const { Vec::new() }; 3];
    for _ in 0..8 {
        let run_both = || {
            let requests = both.sources.iter().enumerate();
            let requests = requests.map(|(i, ids)| Source::new(ids).with_options(&halves[i % 2]));
            let requests: Vec<Source<'_>> = requests.collect();
            let search = both.options.clone();
            both.session
                .generate(&requests, &search, &mut Hooks::default(), &mut |_| {})
                .expect("generated");
        };
        let works: [&mut dyn FnMut(); 3] =
            [&mut || greedy.decode_batch(), &mut || beams.decode_batch(), &mut { run_both }];
        for (work, seconds) in works.into_iter().zip(&mut seconds) {
            let start = Instant::now();
            work();
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let [greedy, beams, both] = seconds.map(|mut seconds| {
        // The first round warms up.
        seconds.remove(0);
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    println!(
        "{{\"engine\": \"simdformer\", \"what\": \"mixed {forms}\", \"greedy\": {greedy}, \"beams\": {beams}, \
         \"both\": {both}, \"ratio\": {:.3}}}",
        (greedy + beams) / both
    );
}

/// The median seconds of `work`, and the calls of the allocator in one run.
fn measure(mut work: impl FnMut()) -> (f64, u64) {
    work();
    let mut seconds = Vec::with_capacity(5);
    let mut allocations = 0;
    for _ in 0..5 {
        let before = counting::allocations();
        let start = Instant::now();
        work();
        seconds.push(start.elapsed().as_secs_f64());
        allocations = counting::allocations() - before;
    }
    seconds.sort_by(f64::total_cmp);
    (seconds[2], allocations)
}

fn lines(model: &Model, forms: &str, cache: Option<Dtype>, threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let kind = if threads > 1 { Threads::Rayon } else { Threads::Serial };
    let say = |what: &str,
               shape: &[usize],
               seconds: f64,
               tokens: usize,
               allocations: u64,
               bytes| {
        println!(
            "{{\"engine\": \"simdformer\", \"what\": \"{what}\", \"shape\": {shape:?}, \"threads\": {threads}, \
             \"seconds\": {seconds}, \"rate\": {:.2}, \"unit\": \"tok/s\", \"allocations\": {allocations}, \
             \"plan_bytes\": {bytes}}}",
            tokens as f64 / seconds
        );
    };
    let only = std::env::args().skip_while(|argument| argument != "--decode").nth(1);
    let encodes = if only.is_some() { &[][..] } else { &[(1, 32), (8, 128)] };
    for &(batch, len) in encodes {
        let sources = sources(batch, len);
        let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        let mut session = Session::new(model, Limits::new(batch, len, 2)).expect("a session");
        session.set_threads(kind.clone());
        let bytes = session.plan().bytes();
        let (seconds, allocations) = pool.install(|| {
            measure(|| {
                session.encoder_output(&borrowed).expect("a memory");
            })
        });
        let what = format!("encode {forms}");
        say(&what, &[batch, len], seconds, batch * len, allocations, bytes);
    }
    if std::env::args().any(|argument| argument == "--encode") {
        return;
    }
    let wanted = |&(batch, beams, _): &(usize, usize, bool)| {
        only.as_ref().is_none_or(|only| *only == format!("{batch}x{beams}"))
    };
    assert!(DECODES.iter().any(wanted), "--decode: {only:?} is none of {DECODES:?}");
    for (batch, beams, scores) in DECODES.into_iter().filter(wanted) {
        let mut work = Decode::new(model, batch, (beams, scores), cache, kind.clone());
        let bytes = work.session.plan().bytes();
        // The only allocation is the vector of sources that `run` makes.
        let (seconds, allocations) = pool.install(|| measure(|| work.decode_batch()));
        let kept = match cache {
            None => "",
            Some(Dtype::F16) => " with keys and values in f16",
            Some(_) => " with keys and values in f32",
        };
        let what = format!("decode {forms}{kept}, {}", strategy_name(beams, scores));
        let shape = [batch, SOURCE, TARGET];
        say(&what, &shape, seconds, batch * TARGET, allocations - 1, bytes);
    }
}
