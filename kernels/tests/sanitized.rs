//! The tests for Miri (`.ci/sanitize miri`) and ThreadSanitizer (`.ci/sanitize tsan`): every kernel, forward and training, on
//! one thread and on several. Under Miri the set is scalar and shapes are small.

mod calls;
mod support {
    pub(crate) mod data;
}
mod thread_pool;

use calls::{Results, Size, everything, values};
use simdformer_kernels::math::exp_in_place;
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::train::{WriteMode, normal, permutation, uniform};
use simdformer_kernels::{
    Cache, CacheMut, CacheShape, Dtype, Epilogue, Executor, Isa, Matrix, PackOptions, Parallelism,
    ThreadPool, gemm,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::data::{view_heads, view_matrix, view_matrix_mut};

/// Under Miri and ThreadSanitizer: several panels, partial vectors, more rows than one tile.
const SIZE: Size = match (cfg!(miri), cfg!(small_tasks)) {
    (true, _) => Size { tokens: 9, heads: 2, head_dim: 5, columns: 11 },
    (_, true) => Size { tokens: 9, heads: 2, head_dim: 5, columns: 70 },
    _ => Size::SHARED,
};

/// ThreadSanitizer detects races only between threads that run at the same time, so it repeats the calls.
const ROUNDS: usize = if cfg!(small_tasks) { 8 } else { 1 };

fn check(what: &str, found: &Results, serial: &Results) {
    assert_eq!(found.len(), serial.len());
    for ((name, found), (_, serial)) in found.iter().zip(serial) {
        assert!(found == serial, "{what}: {name}");
    }
}

/// Two threads that are started for each call and begin together. Both call every task number, and one of
/// them claims each. `threads` gives another number each time.
struct Scoped(AtomicUsize);

impl Executor for Scoped {
    fn threads(&self) -> usize {
        [1, 3][self.0.fetch_add(1, Ordering::Relaxed) % 2]
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for first in [0, tasks / 2] {
                let both = &both;
                scope.spawn(move || {
                    both.wait();
                    (0..tasks).for_each(|index| task((first + index) % tasks));
                });
            }
        });
    }
}

#[test]
fn every_kernel_on_one_thread_and_on_several() {
    for isa in Isa::available() {
        let serial = everything(isa, SIZE, Parallelism::Serial);
        for first in 0..ROUNDS {
            let scoped = Scoped(AtomicUsize::new(first));
            check("scoped", &everything(isa, SIZE, Parallelism::Executor(&scoped)), &serial);
        }
        let pool = ThreadPool::new(3).expect("threads");
        check("a pool", &everything(isa, SIZE, Parallelism::Executor(&pool)), &serial);
    }
}

/// Several threads call kernels on one pool at the same time.
#[test]
fn a_pool_that_is_shared() {
    let isa = Isa::available().last().expect("a set");
    let serial = everything(isa, SIZE, Parallelism::Serial);
    let pool = ThreadPool::new(2).expect("threads");
    std::thread::scope(|scope| {
        for _ in 0..if cfg!(miri) { 2 } else { 4 } {
            scope.spawn(|| {
                check("shared", &everything(isa, SIZE, Parallelism::Executor(&pool)), &serial);
            });
        }
    });
}

/// Miri reports errors in rayon's own queues.
#[cfg(all(feature = "rayon", not(miri)))]
#[test]
fn the_pools_of_rayon() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
    for isa in Isa::available() {
        let serial = everything(isa, SIZE, Parallelism::Serial);
        check("rayon", &pool.install(|| everything(isa, SIZE, Parallelism::Rayon)), &serial);
        let team = pool.install(|| {
            simdformer_kernels::Team::form(|team| everything(isa, SIZE, Parallelism::Team(team)))
        });
        check("a team", &team, &serial);
    }
}

/// Numbers of rows for each code path of the product (one, few, many), depths of more than one block, and
/// each dtype.
#[test]
fn products_of_every_number_of_rows() {
    let isa = Isa::SCALAR;
    for [rows, depth, columns] in
        [[1, 70, 20], [7, 100, 20], [13, 33, 40], [40, 3, 20], [38, 100, 1]]
    {
        let (x, w) = (values(1, rows * depth), values(2, depth * columns));
        let (x, w) = (Matrix::new(&x, rows, depth), Matrix::new(&w, depth, columns));
        let (x, w) = (x.expect("X"), w.expect("W"));
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let floats = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("small");
            let mut packed = vec![0.0; floats];
            let shape = (depth, columns);
            PackOptions::new(dtype).pack_columns(isa, w, shape, 0, &mut packed).expect("fits");
            let packed = PackOptions::new(dtype).from_packed(isa, depth, columns, &packed);
            let mut c = vec![f32::NAN; rows * columns];
            let to = view_matrix_mut(&mut c, rows, columns);
            gemm(x, &packed.expect("fits"), &Epilogue::default(), to, Parallelism::Serial)
                .expect("fits");
            let last: f64 = (0..depth)
                .map(|k| f64::from(x.at(rows - 1, k)) * f64::from(w.at(k, columns - 1)))
                .sum();
            let error = (f64::from(c[rows * columns - 1]) - last).abs();
            assert!(error < 0.01 * depth as f64, "{rows} x {depth} x {columns}, {dtype:?}");
        }
    }
}

/// Kernels that take no [`Parallelism`].
#[test]
fn the_rest() {
    let isa = Isa::SCALAR;
    let mut x = values(3, 21);
    exp_in_place(isa, &mut x);
    assert!(x.iter().all(|x| (0.3..2.8).contains(x)));
    let mut table = vec![f32::NAN; 5 * 6];
    let to = view_matrix_mut(&mut table, 5, 6);
    encode(PositionEncoding::HalfSplit, 0, to).expect("fits");
    assert!(table.iter().all(|x| x.abs() <= 1.0));

    let buckets = RelativeBuckets::new(8, 16, true).expect("buckets");
    let weight = values(4, 8 * 2);
    let mut distances = vec![f32::NAN; buckets.table_len(2, 7).expect("small")];
    buckets.fill(view_matrix(&weight, 8, 2), 7, &mut distances).expect("fits");
    let mut gradient = vec![f32::NAN; 8 * 2];
    let to = view_matrix_mut(&mut gradient, 8, 2);
    buckets.gradient(7, &distances, WriteMode::Store, to).expect("fits");
    assert!(gradient.iter().all(|x| x.is_finite()));

    let mut numbers = vec![0.0; 11];
    normal(1, 2, 3, 1.0, &mut numbers);
    uniform(1, 2, 3, 1.0, &mut numbers);
    let mut order = vec![0; 11];
    permutation(1, 2, &mut order);
    order.sort_unstable();
    assert!(order.iter().copied().eq(0..11));

    let data = values(5, 3 * 2 * 5);
    let heads = view_heads(&data, [3, 2, 5]);
    for dtype in [Dtype::F32, Dtype::F16] {
        let shape = CacheShape { dtype, ..CacheShape::new(2, 4, 2, 5) };
        let mut buffer = vec![0.0; shape.buffer_len(isa).expect("small")];
        let mut cache = CacheMut::new(isa, shape, &mut buffer).expect("the length");
        cache.append(&[0, 1, 1], &[0, 2, 3], heads, heads).expect("places");
        let cache = Cache::new(isa, shape, &buffer).expect("the length");
        let mut key = [f32::NAN; 5];
        cache.read_key(1, 3, 1, &mut key).expect("a key");
        assert!(key.iter().zip(&data[25..]).all(|(found, x)| (found - x).abs() < 1e-3));
    }
}
