//! Kernels on threads of the caller: a thread pool, and executors that break the contract in every way that
//! safe code can. All give the bits of one thread.

use crate::support::{POISON, Random, all_isas, bits, chosen};
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::embed;
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer_kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{
    AttentionOptions, Bias, Cache, CacheMut, CacheShape, CachedSequence, Epilogue, Executor, Heads,
    HeadsMut, Input, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Qkv, Sequence, SlotTable,
    ThreadPool, attention, attention_cached, attention_decode, attention_scratch, gemm,
    gemm_unpacked, gemm_unpacked_scratch,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

type Task<'t> = &'t (dyn Fn(usize) + Sync);

const TOKENS: usize = 48;
const HEADS: usize = 4;
const HEAD_DIM: usize = 40;
const WIDTH: usize = HEADS * HEAD_DIM;
/// Columns of logits.
const COLUMNS: usize = 3000;

/// The bits of one call of each kernel. Each call is large enough to be split into tasks.
fn everything(isa: Isa, parallelism: Parallelism<'_>) -> Vec<(&'static str, Vec<u32>)> {
    let mut random = Random::new(14);
    let x = random.values(TOKENS * WIDTH);
    let w = random.values(WIDTH * COLUMNS);
    let matrix = |data, rows, columns| Matrix::new(data, rows, columns).expect("a matrix");
    let mut all = Vec::new();

    let weight = matrix(&w, WIDTH, COLUMNS);
    let mut packed = vec![POISON; PackedMatrix::buffer_len(isa, WIDTH, COLUMNS).expect("small")];
    let packed = PackedMatrix::pack(isa, weight, &mut packed).expect("the length");
    let plain = Epilogue::default();
    for rows in [1, 7, TOKENS] {
        let a = matrix(&x[..rows * WIDTH], rows, WIDTH);
        let mut logits = vec![POISON; rows * COLUMNS];
        let c = MatrixMut::new(&mut logits, rows, COLUMNS).expect("C");
        gemm(a, &packed, &plain, c, parallelism).expect("a fit");
        all.push(("gemm", bits(&logits)));
        let mut again = vec![POISON; rows * COLUMNS];
        let floats = gemm_unpacked_scratch(isa, WIDTH, COLUMNS).expect("small");
        let mut scratch = vec![POISON; floats];
        let c = MatrixMut::new(&mut again, rows, COLUMNS).expect("C");
        gemm_unpacked(isa, a, weight, &plain, c, &mut scratch, parallelism).expect("a fit");
        assert_eq!(bits(&logits), bits(&again), "{isa}: {rows} rows not packed");
    }

    let mut built = vec![POISON; PruningTable::buffer_len(WIDTH, COLUMNS).expect("small")];
    let pruning_table = PruningTable::build(&packed, &mut built).expect("the length");
    let product =
        Product { weight: &packed, pruning_table: &pruning_table, bias: None, by_column: None };
    let (mut columns, mut values) = (vec![0; TOKENS], vec![POISON; TOKENS]);
    let mut scratch = vec![POISON; pruned_argmax::argmax_scratch(TOKENS, WIDTH).expect("small")];
    pruned_argmax::argmax(
        &product,
        matrix(&x, TOKENS, WIDTH),
        &|row, column| (row + column as usize).is_multiple_of(3),
        (&mut columns, &mut values),
        &mut scratch,
        parallelism,
    )
    .expect("a fit");
    all.push(("pruned argmax", [bits(&values), columns.clone()].concat()));

    let shape = [TOKENS, HEADS, HEAD_DIM];
    let heads = Heads::new(&x, shape).expect("tokens");
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(HEAD_DIM) };
    let mut out = vec![POISON; TOKENS * WIDTH];
    // Many heads, and few heads for the number of threads: the two ways in which keys are packed.
    for sequences in [
        &[Sequence::packed(0, TOKENS)][..],
        &[Sequence::packed(0, 20), Sequence::packed(20, 5), Sequence::packed(25, 23)],
    ] {
        let floats = attention_scratch(isa, sequences, HEADS, HEAD_DIM).expect("small");
        let mut scratch = vec![POISON; floats];
        let qkv = Qkv { query: heads, key: heads, value: heads };
        let to = HeadsMut::new(&mut out, shape).expect("space").into();
        attention(isa, qkv, sequences, &options, to, &mut scratch, parallelism).expect("a fit");
        all.push(("attention", bits(&out)));
    }
    let zero = TOKENS - 1;
    let relative = Bias::Relative { data: &w, head_stride: 2 * TOKENS - 1, zero };
    let biased = AttentionOptions { bias: Some(relative), ..options };
    let floats = attention_scratch(isa, &[Sequence::packed(0, TOKENS)], HEADS, HEAD_DIM);
    let mut scratch = vec![POISON; floats.expect("small")];
    let qkv = Qkv { query: heads, key: heads, value: heads };
    let to = HeadsMut::new(&mut out, shape).expect("space").into();
    let whole = [Sequence::packed(0, TOKENS)];
    attention(isa, qkv, &whole, &biased, to, &mut scratch, parallelism).expect("a fit");
    all.push(("attention with a relative bias", bits(&out)));
    let slots = CacheShape::new(2, TOKENS, HEADS, HEAD_DIM);
    let mut data = vec![POISON; slots.len(isa).expect("small")];
    let mut cache = CacheMut::new(isa, slots, &mut data).expect("the length");
    for slot in 0..2 {
        cache.write(slot, 0, heads, heads).expect("a place");
    }
    let cache = Cache::new(isa, slots, &data).expect("the length");
    let whole = CachedSequence { query_start: 0, query_len: TOKENS, slot: 1, key_len: TOKENS };
    let to = HeadsMut::new(&mut out, shape).expect("space").into();
    attention_cached(heads, &cache, &[whole], &options, to, parallelism).expect("a fit");
    all.push(("attention_cached", bits(&out)));
    let past: Vec<u32> = (0..TOKENS as u32).map(|j| j / 5 % 2).collect();
    let ancestry = SlotTable { lens: &[TOKENS as u32; TOKENS], slots: &past, stride: 0 };
    let to = HeadsMut::new(&mut out, shape).expect("space");
    attention_decode(heads, &cache, ancestry, &options, to, parallelism).expect("a fit");
    all.push(("attention_decode", bits(&out)));

    // Rows of 3,000 elements in tasks of five rows.
    let logits: Vec<f32> = (0..TOKENS * COLUMNS).map(|i| w[i % w.len()]).collect();
    let scores = matrix(&logits, TOKENS, COLUMNS);
    let mut p = vec![POISON; TOKENS * COLUMNS];
    let (weight_of_norm, bias) = (&w[..COLUMNS], Some(&w[COLUMNS..2 * COLUMNS]));
    let layer = Norm::Layer(LayerNorm { weight: weight_of_norm, bias, eps: 1e-5 });
    let rms = Norm::Rms(RmsNorm { weight: weight_of_norm, eps: 1e-6 });
    let buffer = |p: &'_ mut Vec<f32>| -> MatrixMut<'static> {
        // SAFETY: each view ends before the next one, or `p`, is used.
        unsafe {
            MatrixMut::from_raw_parts(p.as_mut_ptr(), TOKENS, COLUMNS, COLUMNS, 1).expect("space")
        }
    };
    for (name, logarithm) in [("softmax", false), ("log_softmax", true)] {
        let options = SoftmaxOptions { logarithm, ..SoftmaxOptions::default() };
        softmax(isa, Input::Matrix(scores), options, buffer(&mut p), parallelism).expect("a fit");
        all.push((name, bits(&p)));
    }
    let mut sum = logits.clone();
    for (names, of) in [(["layer", "layer of a sum"], layer), (["rms", "rms of a sum"], rms)] {
        norm(isa, of, NormInput::Matrix(scores), buffer(&mut p), parallelism).expect("a fit");
        all.push((names[0], bits(&p)));
        let input = NormInput::AddTo { x: scores, residual: buffer(&mut sum) };
        norm(isa, of, input, buffer(&mut p), parallelism).expect("a fit");
        all.push((names[1], [bits(&p), bits(&sum)].concat()));
    }
    activation::apply(isa, Activation::Gelu, buffer(&mut p), parallelism).expect("a fit");
    all.push(("activation", bits(&p)));
    let ids: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7 % WIDTH as u32).collect();
    embed(isa, weight, &ids, 2.0, None, buffer(&mut p), parallelism).expect("a fit");
    all.push(("embed", bits(&p)));
    log_sum_exp(isa, scores, None, &mut values, parallelism).expect("a fit");
    all.push(("log_sum_exp", bits(&values)));
    argmax(isa, scores, &mut columns, parallelism).expect("a fit");
    all.push(("argmax", columns));
    let (mut values, mut columns) = (vec![POISON; TOKENS * 4], vec![0; TOKENS * 4]);
    top_k(isa, scores, 4, &mut values, &mut columns, parallelism).expect("a fit");
    all.push(("top_k", [bits(&values), columns].concat()));
    all
}

fn check(isa: Isa, what: &str, executor: &dyn Executor, serial: &[(&str, Vec<u32>)]) {
    let found = everything(isa, Parallelism::Executor(executor));
    for ((name, found), (_, serial)) in found.iter().zip(serial) {
        assert!(found == serial, "{isa}, {what}: {name}");
    }
}

#[test]
fn a_thread_pool_gives_the_bits_of_one_thread() {
    for isa in all_isas() {
        let serial = everything(isa, Parallelism::Serial);
        for (case, threads) in [1, 2, 3, 7].into_iter().enumerate() {
            if !chosen(isa, case, 4) {
                continue;
            }
            let pool = ThreadPool::new(threads).expect("threads");
            check(isa, &format!("{threads} threads"), &pool, &serial);
        }
    }
}

/// How an executor breaks the contract.
#[derive(Clone, Copy, Debug)]
enum Breach {
    /// Runs every task twice, on two threads at the same time.
    Twice,
    /// Runs all tasks on each of three threads.
    Everywhere,
    /// Runs every second task.
    Half,
    /// Runs nothing.
    Nothing,
    /// Runs the last task first, on the calling thread.
    Backwards,
    /// Also calls task numbers that do not exist.
    Beyond,
    /// Makes the right number of calls, all for task 0.
    Zero,
}

struct Broken(Breach);

impl Executor for Broken {
    fn threads(&self) -> usize {
        3
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        let scoped = |runs: usize, run: &(dyn Fn(usize) + Sync)| {
            std::thread::scope(|scope| {
                for index in 0..runs {
                    scope.spawn(move || run(index));
                }
            });
        };
        match self.0 {
            Breach::Twice => scoped(2, &|_| (0..tasks).for_each(task)),
            Breach::Everywhere => {
                scoped(3, &|first| (0..tasks).for_each(|i| task((first * tasks / 3 + i) % tasks)))
            }
            Breach::Half => scoped(2, &|first| (2 * first..tasks).step_by(4).for_each(task)),
            Breach::Nothing => {}
            Breach::Backwards => (0..tasks).rev().for_each(task),
            Breach::Beyond => scoped(2, &|first| {
                (first..3 * tasks).step_by(2).chain([usize::MAX, 1 << 31, 1024]).for_each(task);
            }),
            Breach::Zero => (0..tasks).for_each(|_| task(0)),
        }
    }
}

#[test]
fn a_broken_executor_changes_no_bit() {
    use Breach::{Backwards, Beyond, Everywhere, Half, Nothing, Twice, Zero};
    for isa in all_isas() {
        let serial = everything(isa, Parallelism::Serial);
        let all = [Twice, Everywhere, Half, Nothing, Backwards, Beyond, Zero];
        for (case, breach) in all.into_iter().enumerate() {
            // The number of tasks does not depend on the instruction set.
            if !chosen(isa, case, 6) {
                continue;
            }
            check(isa, &format!("{breach:?}"), &Broken(breach), &serial);
        }
    }
}

/// Reports one number of threads after the other.
struct Says<'s> {
    threads: &'s [usize],
    asked: AtomicUsize,
}

impl Executor for Says<'_> {
    fn threads(&self) -> usize {
        self.threads[self.asked.fetch_add(1, Ordering::Relaxed) % self.threads.len()]
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        (0..tasks).for_each(task);
    }
}

#[test]
fn every_number_of_threads_is_accepted() {
    let isa = Isa::best();
    let serial = everything(isa, Parallelism::Serial);
    for threads in [&[0][..], &[1], &[usize::MAX], &[5000], &[3, 0, usize::MAX, 1, 2, 100]] {
        let executor = Says { threads, asked: AtomicUsize::new(0) };
        check(isa, &format!("{threads:?} threads"), &executor, &serial);
        let executor = Says { threads, asked: AtomicUsize::new(0) };
        assert!(Parallelism::Executor(&executor).threads() >= 1);
    }
}

/// Records the calls, and fails if a kernel breaks its part of the contract.
struct Witness {
    calls: Mutex<Vec<usize>>,
    busy: AtomicBool,
}

impl Executor for Witness {
    fn threads(&self) -> usize {
        4
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "a call inside another one");
        self.calls.lock().expect("no panic").push(tasks);
        (0..tasks).for_each(task);
        self.busy.store(false, Ordering::SeqCst);
    }
}

#[test]
fn kernels_keep_their_part_of_the_contract() {
    let isa = Isa::best();
    let witness = Witness { calls: Mutex::default(), busy: AtomicBool::new(false) };
    everything(isa, Parallelism::Executor(&witness));
    let calls = core::mem::take(&mut *witness.calls.lock().expect("no panic"));
    assert!(calls.len() >= 15, "{calls:?}");
    // More rows than the largest number of tasks, with a stride of 0: each row is the same memory.
    let row = Random::new(3).values(1 << 14);
    let scores = Matrix::strided(&row, 2500, row.len(), 0, 1).expect("one row");
    let mut columns = vec![u32::MAX; 2500];
    argmax(isa, scores, &mut columns, Parallelism::Executor(&witness)).expect("a fit");
    assert!(columns.iter().all(|&column| column == columns[0]), "every row once");
    let more = witness.calls.lock().expect("no panic");
    assert_eq!(*more, [1024]);
    assert!(calls.iter().all(|&tasks| (2..=1024).contains(&tasks)), "{calls:?}");
    // A small call stays on the calling thread.
    let small = matrix_of_ones();
    argmax(isa, small, &mut [0; 2], Parallelism::Executor(&Never)).expect("a fit");
}

fn matrix_of_ones() -> Matrix<'static> {
    Matrix::new(&[1.0; 4], 2, 2).expect("a matrix")
}

/// An executor that must not be called.
struct Never;

impl Executor for Never {
    fn threads(&self) -> usize {
        64
    }

    fn for_each(&self, tasks: usize, _: Task<'_>) {
        panic!("asked to run {tasks} tasks")
    }
}

/// Catches the panics of tasks without a report.
struct Swallows;

impl Executor for Swallows {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        for index in 0..tasks {
            let _ = catch_unwind(AssertUnwindSafe(|| task(index)));
        }
    }
}

/// Panics after all tasks are done.
struct Panics;

impl Executor for Panics {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        (0..tasks).for_each(task);
        panic!("meant");
    }
}

/// The panic of a small pruned argmax whose `banned` panics for one row.
fn banned_panic(executor: &dyn Executor, panics: bool) -> Option<String> {
    let isa = Isa::best();
    let (rows, depth, columns) = (4, 24, 200);
    let w: Vec<f32> = (0..depth * columns).map(|i| (i % 7) as f32).collect();
    let mut packed = vec![POISON; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
    let weight = Matrix::new(&w, depth, columns).expect("W");
    let packed = PackedMatrix::pack(isa, weight, &mut packed).expect("the length");
    let mut built = vec![POISON; PruningTable::buffer_len(depth, columns).expect("small")];
    let pruning_table = PruningTable::build(&packed, &mut built).expect("the length");
    let product =
        Product { weight: &packed, pruning_table: &pruning_table, bias: None, by_column: None };
    let x = vec![1.0; rows * depth];
    let (mut found, mut values) = (vec![0; rows], vec![POISON; rows]);
    let mut scratch = vec![POISON; pruned_argmax::argmax_scratch(rows, depth).expect("small")];
    let result = catch_unwind(AssertUnwindSafe(|| {
        pruned_argmax::argmax(
            &product,
            Matrix::new(&x, rows, depth).expect("x"),
            &|row, _| {
                assert!(!(panics && row == 2), "meant");
                false
            },
            (&mut found, &mut values),
            &mut scratch,
            Parallelism::Executor(executor),
        )
    }));
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
}

#[test]
fn panics_reach_the_caller() {
    for threads in [1, 2, 3] {
        let pool = ThreadPool::new(threads).expect("threads");
        assert_eq!(banned_panic(&pool, true).as_deref(), Some("meant"), "{threads} threads");
        assert_eq!(banned_panic(&pool, false), None, "{threads} threads: it can be used again");
    }
    assert_eq!(banned_panic(&Broken(Breach::Nothing), true).as_deref(), Some("meant"));
    assert_eq!(banned_panic(&Swallows, false), None);
    let lost = banned_panic(&Swallows, true).expect("a lost panic is noticed");
    assert!(lost.contains("did not pass it on"), "{lost}");
    assert_eq!(banned_panic(&Panics, false).as_deref(), Some("meant"));
}
