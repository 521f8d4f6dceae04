//! GEMM with any shape, layout, epilogue and values.
//!
//! Finite results are compared with a sum in f64 under the documented error bound. Three threads give the
//! bits of one, and so do an executor that breaks the contract and an unpacked weight. A row alone has the
//! bits that it has in the whole product. Nothing outside of the output is written, and nothing outside of
//! the inputs is read. Views of arbitrary strides are an error or right.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::wild::WildProduct;
use simdformer_fuzz::{Add, GAP, Layout, Rng, Strided, Values, pick_isa, pool, same_bits};
use simdformer_kernels::{
    Activation, Epilogue, Exec, Executor, Isa, PackedMatrix, Parallelism, PostOp, gemm,
    gemm_unpacked, gemm_unpacked_scratch,
};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    rows: u8,
    depth: u16,
    columns: u8,
    layouts: [Layout; 4],
    values: Values,
    scale: Option<i8>,
    bias: bool,
    relu: bool,
    residual: Add,
    single_row: u8,
    threads: u8,
    seed: u64,
    wild: WildProduct,
}

/// Runs any task numbers any number of times, on two threads.
struct Arbitrarily(u64);

impl Executor for Arbitrarily {
    fn threads(&self) -> usize {
        (self.0 % 9) as usize
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for seed in [self.0, !self.0] {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    for _ in 0..rng.bits() % (2 * tasks as u64) {
                        task((rng.bits() % (tasks as u64 + 1)) as usize);
                    }
                });
            }
        });
    }
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    case.wild.check_kernel(isa);
    product(isa, &case);
});

fn product(isa: Isa, case: &Case) {
    let rows = usize::from(case.rows) % 40;
    let depth = usize::from(case.depth) % 600;
    let columns = usize::from(case.columns) % 160;
    let mut rng = Rng::new(case.seed);
    let [a_layout, w_layout, c_layout, r_layout] = case.layouts;
    let a = Strided::filled(rows, depth, a_layout, case.values, &mut rng);
    let w = Strided::filled(depth, columns, w_layout, case.values, &mut rng);
    let r = Strided::filled(rows, columns, r_layout, case.values, &mut rng);
    let bias: Vec<f32> = (0..columns).map(|_| rng.value(case.values)).collect();
    let scale = case.scale.map_or(1.0, |scale| f32::from(scale) / 16.0);
    let before = if matches!(case.residual, Add::Output | Add::Gate) {
        Strided::filled(rows, columns, c_layout, case.values, &mut rng)
    } else {
        Strided::empty(rows, columns, c_layout)
    };

    let mut buffer =
        vec![GAP; PackedMatrix::buffer_len(isa, depth, columns).expect("a small matrix")];
    let packed = PackedMatrix::pack(isa, w.view(), &mut buffer).expect("a buffer of that length");
    let epilogue = Epilogue {
        scale,
        bias: case.bias.then_some(&bias[..]),
        activation: if case.relu { Activation::Relu } else { Activation::Identity },
        post_op: case.residual.post_op(&r),
    };
    let mut c = before.clone();
    gemm(a.view(), &packed, &epilogue, c.view_mut(), Parallelism::Serial).expect("shapes that fit");
    c.check_gaps();

    for row in 0..rows {
        for (column, &bias) in bias.iter().enumerate() {
            let (mut sum, mut magnitude) = (0f64, 0f64);
            for k in 0..depth {
                let term = f64::from(a.at(row, k)) * f64::from(w.at(k, column));
                sum += term;
                magnitude += term.abs();
            }
            let mut expected = sum * f64::from(scale);
            // The bound of the sum, then one rounding for each operation of the epilogue.
            let epsilon = f64::from(f32::EPSILON);
            let mut bound = 2.0 * depth as f64 * epsilon * magnitude * f64::from(scale).abs();
            let mut largest = magnitude * f64::from(scale).abs();
            if case.bias {
                expected += f64::from(bias);
                largest += f64::from(bias).abs();
            }
            if case.relu {
                expected = expected.max(0.0);
            }
            let residual = match case.residual {
                Add::Nothing => 0.0,
                Add::Output | Add::Gate => before.at(row, column),
                Add::Matrix => r.at(row, column),
            };
            let residual = f64::from(residual);
            if case.residual == Add::Gate {
                expected *= residual;
                // A gate also multiplies what was lost below the smallest normal number.
                bound = (bound + 4.0 * epsilon * largest + 1e-37) * residual.abs();
                // Here a bias of NaN gives NaN, so only the bits are compared, as without a
                // gate.
                largest = if largest < 1.0 { 1.0 } else { largest } * residual.abs().max(1.0);
                bound += epsilon * expected.abs() + 1e-37;
            } else {
                expected += residual;
                largest += residual.abs();
                bound += 4.0 * epsilon * largest + 1e-30;
            }
            // When f32 overflows, the order of additions decides, also when a scale of 0 turns
            // an infinite sum into NaN. The bits are compared below.
            let small = f64::from(f32::MAX) / 4.0;
            if !(largest < small && magnitude < small) {
                continue;
            }
            // A gate may be NaN, which the maxima above do not show.
            if expected.is_nan() {
                assert!(c.at(row, column).is_nan(), "{isa}: a number instead of NaN");
                continue;
            }
            let error = (f64::from(c.at(row, column)) - expected).abs();
            assert!(
                error <= bound,
                "{isa} [{rows}, {depth}] x [{depth}, {columns}] at ({row}, {column}): \
                 {} instead of {expected}, error {error:e}, bound {bound:e}",
                c.at(row, column)
            );
        }
    }

    if case.threads.is_multiple_of(8) {
        let mut shared = before.clone();
        pool().install(|| {
            gemm(a.view(), &packed, &epilogue, shared.view_mut(), Parallelism::Rayon)
                .expect("shapes that fit");
        });
        for (one, three) in c.data.iter().zip(&shared.data) {
            assert!(same_bits(*one, *three), "{isa}: {one:e} on one thread, {three:e} on three");
        }
    }

    if case.threads % 8 == 1 {
        let mut loose = before.clone();
        let floats = gemm_unpacked_scratch(isa, depth, columns).expect("small");
        let mut scratch = vec![GAP; floats];
        let executor = Arbitrarily(case.seed);
        let parallelism = Parallelism::Executor(&executor);
        let to = loose.view_mut();
        gemm_unpacked(Exec::new(isa, parallelism), a.view(), w.view(), &epilogue, to, &mut scratch)
            .expect("shapes that fit");
        for (one, other) in c.data.iter().zip(&loose.data) {
            assert!(same_bits(*one, *other), "{isa}: {one:e} packed, {other:e} not packed");
        }
    }

    if rows > 0 {
        let row = usize::from(case.single_row) % rows;
        let mut alone = before.clone();
        alone.offset += row * alone.row_stride;
        alone.rows = 1;
        let mut one = a.clone();
        one.offset += row * one.row_stride;
        one.rows = 1;
        let mut residual = r.clone();
        residual.offset += row * residual.row_stride;
        residual.rows = 1;
        let epilogue = Epilogue {
            post_op: match epilogue.post_op {
                PostOp::Add(_) => PostOp::Add(residual.view()),
                other => other,
            },
            ..epilogue
        };
        gemm(one.view(), &packed, &epilogue, alone.view_mut(), Parallelism::Serial)
            .expect("shapes that fit");
        for column in 0..columns {
            let (batch, single) = (c.at(row, column), alone.at(0, column));
            assert!(
                same_bits(batch, single),
                "{isa}: row {row} of {rows}, column {column}: {batch:e} in the batch, {single:e} alone"
            );
        }
    }
}
