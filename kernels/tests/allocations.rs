//! No kernel allocates: on one thread, on a pool, in a team, on an executor. This program has one test,
//! because the allocator belongs to the process.
#![cfg(feature = "rayon")]

mod support;

use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::pruned_argmax::{Product, PruningTable};
use simdformer_kernels::{
    AttentionOptions, AttentionPrecision, Bias, Cache, CacheMut, CacheShape, CachedSequence,
    Epilogue, Exec, Isa, PackedMatrix, Parallelism, PostOp, Qkv, Quantization,
    QuantizedActivations, QuantizedMatrix, Sequence, SlotTable, Team, ThreadPool, attention,
    attention_cached, attention_decode, attention_scratch, gemm, gemm_int8, gemm_unpacked,
    pruned_argmax,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::*;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The thread that allocated first, which is the test harness: it prints a message after a minute. No
/// thread, after the harness runs the test itself.
static HARNESS: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number that identifies this thread.
fn here() -> usize {
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

fn count() {
    let harness = HARNESS.load(Ordering::SeqCst);
    if harness == 0 {
        HARNESS.store(here(), Ordering::SeqCst);
    }
    if harness != here() {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

/// The number of allocations so far.
fn allocations() -> usize {
    if HARNESS.load(Ordering::SeqCst) == here() {
        HARNESS.store(usize::MAX, Ordering::SeqCst);
    }
    ALLOCATIONS.load(Ordering::SeqCst)
}

// SAFETY: every call goes to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const TOKENS: usize = 96;
const HEADS: usize = 4;
const HEAD_DIM: usize = 40;
const WIDTH: usize = HEADS * HEAD_DIM;

/// Buffers for one call of each kernel, large enough that threads are used.
struct Bench {
    isa: Isa,
    input: Vec<f32>,
    output: Vec<f32>,
    weight: Vec<f32>,
    packed: Vec<f32>,
    unpacked: Vec<f32>,
    bytes: Vec<f32>,
    rounded: Vec<f32>,
    /// A sum and a norm.
    norms: Vec<f32>,
    pruning_table: Vec<f32>,
    scratch: Vec<f32>,
    cache: Vec<f32>,
    columns: Vec<u32>,
    ancestry: Vec<u32>,
    lens: Vec<u32>,
}

const SHAPE: CacheShape = CacheShape::new(2, TOKENS, HEADS, HEAD_DIM);
const SEQUENCES: [Sequence; 2] = [Sequence::packed(0, 60), Sequence::packed(60, 36)];

impl Bench {
    fn new(isa: Isa) -> Self {
        let mut random = Random::new(1);
        Self {
            isa,
            input: random.values(TOKENS * WIDTH),
            output: vec![0.0; TOKENS * WIDTH],
            weight: random.values(WIDTH * WIDTH),
            packed: vec![0.0; PackedMatrix::buffer_len(isa, WIDTH, WIDTH).expect("small")],
            unpacked: vec![0.0; PackedMatrix::buffer_len(isa, WIDTH, WIDTH).expect("small")],
            bytes: vec![0.0; QuantizedMatrix::buffer_len(WIDTH, WIDTH).expect("small")],
            rounded: {
                let length = QuantizedActivations::buffer_len(TOKENS, WIDTH, Quantization::W8A16);
                vec![0.0; length.expect("small")]
            },
            norms: vec![0.0; 2 * TOKENS * WIDTH],
            pruning_table: vec![0.0; PruningTable::buffer_len(WIDTH, WIDTH).expect("small")],
            scratch: {
                let attention = attention_scratch(isa, &SEQUENCES, HEADS, HEAD_DIM);
                let int8 = AttentionOptions {
                    precision: AttentionPrecision::Int8,
                    ..AttentionOptions::new(HEAD_DIM)
                };
                let int8 = int8.scratch(isa, &SEQUENCES, HEADS, HEADS, HEAD_DIM);
                let pruning_table = pruned_argmax::argmax_scratch(TOKENS, WIDTH);
                let most = [attention, int8, pruning_table].map(|floats| floats.expect("small"));
                vec![0.0; most.into_iter().max().expect("three")]
            },
            columns: vec![0; TOKENS],
            cache: vec![0.0; SHAPE.buffer_len(isa).expect("small")],
            ancestry: (0..TOKENS * TOKENS).map(|i| (i / 5 % 2) as u32).collect(),
            lens: vec![TOKENS as u32; TOKENS],
        }
    }

    fn run(&mut self, parallelism: Parallelism<'_>) {
        let isa = self.isa;
        let weight = view_matrix(&self.weight, WIDTH, WIDTH);
        let packed = PackedMatrix::pack(isa, weight, &mut self.packed).expect("space");
        let epilogue = Epilogue {
            bias: Some(&self.weight[..WIDTH]),
            post_op: PostOp::AddOutput,
            ..Epilogue::default()
        };
        let (input, output) = (view_matrix(&self.input, TOKENS, WIDTH), &mut self.output);
        for post_op in [PostOp::AddOutput, PostOp::MultiplyOutput] {
            let (epilogue, to) = (Epilogue { post_op, ..epilogue }, view_rows(output, TOKENS));
            gemm(input, &packed, &epilogue, to, parallelism).expect("a fit");
        }
        let (to, scratch) = (view_rows(output, TOKENS), &mut self.unpacked);
        gemm_unpacked(Exec::new(isa, parallelism), input, weight, &epilogue, to, scratch)
            .expect("a fit");
        let in_bytes = QuantizedMatrix::quantize(isa, weight, &mut self.bytes).expect("space");
        for precision in [Quantization::W8A8, Quantization::W8A16] {
            let words = &mut self.rounded;
            let rows = QuantizedActivations::quantize(
                Exec::new(isa, parallelism),
                input,
                precision,
                words,
            );
            let to = view_rows(output, TOKENS);
            gemm_int8(&rows.expect("space"), &in_bytes, &epilogue, to, parallelism).expect("a fit");
        }
        let x = view_matrix(&self.input, TOKENS, WIDTH);
        let (sum, out) = self.norms.split_at_mut(TOKENS * WIDTH);
        let mut sum = view_matrix_mut(sum, TOKENS, WIDTH);
        let mut out = view_matrix_mut(out, TOKENS, WIDTH);
        let weight_of_norm = &self.weight[..WIDTH];
        let plain = Norm::Layer(LayerNorm { weight: weight_of_norm, bias: None, eps: 1e-5 });
        norm(Exec::new(isa, parallelism), plain, NormInput::Matrix(x), sum.reborrow())
            .expect("a fit");
        let biased = Norm::Layer(LayerNorm {
            weight: weight_of_norm,
            bias: Some(weight_of_norm),
            eps: 1e-5,
        });
        let both = NormInput::AddTo { x, residual: sum.reborrow() };
        norm(Exec::new(isa, parallelism), biased, both, out.reborrow()).expect("a fit");
        let rms = Norm::Rms(RmsNorm { weight: weight_of_norm, eps: 1e-6 });
        norm(Exec::new(isa, parallelism), rms, NormInput::Matrix(x), out.reborrow())
            .expect("a fit");
        norm(Exec::new(isa, parallelism), rms, NormInput::SumWithOutput { x }, sum).expect("a fit");
        let pruning_table = PruningTable::build(&packed, &mut self.pruning_table).expect("space");
        let product = Product {
            weight: &packed,
            pruning_table: &pruning_table,
            bias: epilogue.bias,
            by_column: None,
        };
        let banned = |row: usize, column: u32| (row + column as usize).is_multiple_of(5);
        let (to, scratch) = ((&mut self.columns[..], &mut output[..TOKENS]), &mut self.scratch);
        pruned_argmax::argmax(&product, input, &banned, to, scratch, parallelism).expect("a fit");
        let shape = [TOKENS, HEADS, HEAD_DIM];
        let input = view_heads(&self.input, shape);
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(HEAD_DIM) };
        let zero = TOKENS - 1;
        let bias = Bias::Relative { data: &self.weight, head_stride: TOKENS, zero };
        let biased = AttentionOptions { bias: Some(bias), ..options };
        for options in [&options, &biased] {
            let (qkv, to) =
                (Qkv { query: input, key: input, value: input }, view_heads_mut(output, shape));
            attention(Exec::new(isa, parallelism), qkv, &SEQUENCES, options, to.into(), scratch)
                .expect("a fit");
        }
        for causal in [false, true] {
            let options =
                AttentionOptions { causal, precision: AttentionPrecision::Int8, ..options };
            let (qkv, to) = (
                Qkv { query: input, key: input, value: input },
                view_heads_mut(output, shape).into(),
            );
            attention(Exec::new(isa, parallelism), qkv, &SEQUENCES, &options, to, scratch)
                .expect("a fit");
        }
        let mut cache = CacheMut::new(isa, SHAPE, &mut self.cache).expect("the length");
        for slot in 0..2 {
            cache.write(slot, 0, input, input).expect("a place");
        }
        let cache = Cache::new(isa, SHAPE, &self.cache).expect("the length");
        let whole = CachedSequence { query_start: 0, query_len: TOKENS, slot: 1, key_len: TOKENS };
        let to = view_heads_mut(output, shape).into();
        attention_cached(input, &cache, &[whole], &biased, to, parallelism).expect("a fit");
        let table = SlotTable { lens: &self.lens, slots: &self.ancestry, stride: TOKENS };
        let to = view_heads_mut(output, shape);
        attention_decode(input, &cache, table, &biased, to, parallelism).expect("a fit");
    }
}

/// Each of `threads` threads of the pool waits for the others in a task of its own.
fn meet(threads: usize, barrier: &Barrier) {
    if threads == 1 {
        barrier.wait();
    } else {
        rayon::join(|| barrier.wait(), || meet(threads - 1, barrier));
    }
}

/// A pool in which every thread has stolen a task once: at its first theft a thread registers with the
/// queues of the pool, which allocates.
fn pool(threads: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let stolen = AtomicBool::new(false);
    let barrier = Barrier::new(threads);
    pool.install(|| {
        rayon::join(
            || {
                while !stolen.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            },
            || {
                // On another thread, so that the first thread must steal when it joins the
                // others.
                stolen.store(true, Ordering::Release);
                meet(threads, &barrier);
            },
        )
    });
    pool
}

#[test]
fn no_kernel_allocates_on_any_threads() {
    // The pools live until the end, because the end of a thread allocates.
    let pools = [pool(2), pool(3)];
    let thread_pool = ThreadPool::new(3).expect("threads");
    for isa in all_isas() {
        let mut bench = Bench::new(isa);
        let rounds = if brief() { 5 } else { cases(10, 100) };
        let mut count = |name: &str, work: &mut dyn FnMut(&mut Bench)| {
            work(&mut bench);
            let before = allocations();
            for _ in 0..rounds {
                work(&mut bench);
            }
            let found = allocations() - before;
            assert_eq!(found, 0, "{isa}, {name}: allocations in {rounds} rounds");
        };
        count("serial", &mut |bench| bench.run(SERIAL));
        count("on a thread pool", &mut |bench| {
            bench.run(Parallelism::Executor(&thread_pool));
        });
        for pool in &pools {
            pool.install(|| {
                count("on rayon's pool", &mut |bench| bench.run(Parallelism::Rayon));
                count("in a team", &mut |bench| {
                    Team::form(|team| bench.run(Parallelism::Team(team)));
                });
            });
        }
    }
    // The counter works.
    let before = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(allocations() > before);
}
