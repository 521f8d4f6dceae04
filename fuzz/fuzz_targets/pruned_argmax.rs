//! The pruned argmax of a product compared with the product.
//!
//! A decided row must have the first of the largest elements that GEMM computes, bit for bit, for any
//! shape, values, bias and bans. Three threads give the same result. Pruning tables of arbitrary words and
//! views of arbitrary strides are an error or safe.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::wild::WildPrunedArgmax;
use simdformer_fuzz::{GAP, Layout, Rng, Strided, Values, check_largest, pick_isa, pool};
use simdformer_kernels::pruned_argmax::{Product, PruningTable, argmax, argmax_scratch};
use simdformer_kernels::{Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    rows: u8,
    depth: u16,
    columns: u16,
    layout: Layout,
    /// Values of the rows, the weight and the bias.
    values: [Values; 3],
    /// Powers of two by which the rows and the weight are multiplied.
    scales: [i8; 2],
    /// Some elements have a very different magnitude.
    outliers: Vec<(u16, u16, f32)>,
    /// Columns that repeat another, so that elements are equal.
    repeats: Vec<(u16, u16)>,
    bias: bool,
    by_column: bool,
    /// Every n-th column is banned.
    banned: u8,
    threads: u8,
    seed: u64,
    wild: WildPrunedArgmax,
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    case.wild.check_kernel(isa);
    decides(isa, &case);
});

fn decides(isa: Isa, case: &Case) {
    let rows = usize::from(case.rows) % 30;
    let depth = usize::from(case.depth) % 300;
    let columns = usize::from(case.columns) % 400;
    let mut rng = Rng::new(case.seed);
    let power = |scale: i8| f32::from(scale / 2).exp2();
    let mut x = Strided::filled(rows, depth, case.layout, case.values[0], &mut rng);
    for i in 0..rows {
        for k in 0..depth {
            let at = x.offset + i * x.row_stride + k * x.column_stride;
            x.data[at] *= power(case.scales[0]);
        }
    }
    // By column: `[columns, depth]`.
    let mut weight: Vec<f32> =
        (0..columns * depth).map(|_| rng.value(case.values[1]) * power(case.scales[1])).collect();
    if depth > 0 && columns > 0 {
        for &(column, k, value) in &case.outliers {
            weight[usize::from(column) % columns * depth + usize::from(k) % depth] = value;
        }
        for &(from, to) in &case.repeats {
            let (from, to) = (usize::from(from) % columns, usize::from(to) % columns);
            weight.copy_within(from * depth..(from + 1) * depth, to * depth);
        }
    }
    let bias: Vec<f32> = (0..columns).map(|_| rng.value(case.values[2])).collect();
    let bias = case.bias.then_some(&bias[..]);
    let by_column = Matrix::new(&weight, columns, depth).expect("a dense matrix");

    let mut buffer = vec![GAP; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
    let packed = PackedMatrix::pack(isa, by_column.transposed(), &mut buffer).expect("a fit");
    let mut bytes = vec![GAP; PruningTable::buffer_len(depth, columns).expect("small")];
    let pruning_table = PruningTable::build(&packed, &mut bytes).expect("a fit");
    let mut logits = vec![GAP; rows * columns];
    let c = MatrixMut::new(&mut logits, rows, columns).expect("a fit");
    let epilogue = Epilogue { bias, ..Epilogue::default() };
    gemm(x.view(), &packed, &epilogue, c, Parallelism::Serial).expect("a fit");

    let banned = |row: usize, column: u32| {
        case.banned > 0 && (column as usize + row).is_multiple_of(usize::from(case.banned))
    };
    let product = Product {
        weight: &packed,
        pruning_table: &pruning_table,
        bias,
        by_column: case.by_column.then_some(by_column),
    };
    let decide = |parallelism: Parallelism<'_>| {
        let (mut found, mut values) = (vec![7; rows], vec![GAP; rows]);
        let mut buffer = vec![GAP; argmax_scratch(rows, depth).expect("small")];
        let outputs = (&mut found[..], &mut values[..]);
        argmax(&product, x.view(), &banned, outputs, &mut buffer, parallelism).expect("a fit");
        (found, values)
    };
    let check = |(found, values): (Vec<u32>, Vec<f32>)| {
        check_largest(isa, &logits, columns, &banned, (&found, &values));
    };
    check(decide(Parallelism::Serial));
    if case.threads.is_multiple_of(8) {
        check(pool().install(|| decide(Parallelism::Rayon)));
    }
}
