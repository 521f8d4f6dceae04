//! Products with int8 weights, with any shape, layout, epilogue and values.
//!
//! The result has the bits of the oracle on every instruction set, with and without int8 dot products.
//! Three threads give the bits of one. Weights quantized in two parts equal those quantized at once.
//! Arbitrary words are an error or are multiplied. Nothing outside of the output is written.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::{Add, GAP, Layout, Rng, Strided, Values, pick_isa, pool};
use simdformer_kernels::reference::gemm_int8::gemm_int8 as oracle;
use simdformer_kernels::{
    Activation, Epilogue, Exec, Isa, Matrix, MatrixMut, Parallelism, Quantization,
    QuantizedActivations, QuantizedMatrix, gemm_int8,
};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    plain: bool,
    rows: u8,
    depth: u16,
    columns: u8,
    layouts: [Layout; 4],
    /// Values of the rows and the weight.
    values: [Values; 2],
    sixteen: bool,
    scale: Option<i8>,
    bias: bool,
    relu: bool,
    residual: Add,
    /// Where the weight is cut in two.
    cut: u8,
    threads: u8,
    seed: u64,
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    let isa = if case.plain { isa.without_dot_products() } else { isa };
    product(isa, &case);
    foreign(isa, &case);
});

fn precision(case: &Case) -> Quantization {
    if case.sixteen { Quantization::W8A16 } else { Quantization::W8A8 }
}

/// Equal, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn product(isa: Isa, case: &Case) {
    let rows = usize::from(case.rows) % 40;
    let depth = usize::from(case.depth) % 300;
    let columns = usize::from(case.columns) % 140;
    let precision = precision(case);
    let mut rng = Rng::new(case.seed);
    let [x_layout, w_layout, c_layout, r_layout] = case.layouts;
    let x = Strided::filled(rows, depth, x_layout, case.values[0], &mut rng);
    let w = Strided::filled(depth, columns, w_layout, case.values[1], &mut rng);
    let r = Strided::filled(rows, columns, r_layout, Values::Wide, &mut rng);
    let bias: Vec<f32> = (0..columns).map(|_| rng.value(Values::Wide)).collect();
    let before = if matches!(case.residual, Add::Output | Add::Gate) {
        Strided::filled(rows, columns, c_layout, Values::Wide, &mut rng)
    } else {
        Strided::empty(rows, columns, c_layout)
    };
    let epilogue = Epilogue {
        scale: case.scale.map_or(1.0, |scale| f32::from(scale) / 16.0),
        bias: case.bias.then_some(&bias[..]),
        activation: if case.relu { Activation::Relu } else { Activation::Identity },
        post_op: case.residual.post_op(&r),
    };

    let length = QuantizedMatrix::buffer_len(depth, columns).expect("a small matrix");
    let mut words = vec![GAP; length];
    let weight = QuantizedMatrix::quantize(isa, w.view(), &mut words).expect("that length");
    let mut expected = vec![0.0; rows * columns];
    oracle(x.view(), w.view(), precision, &epilogue, Some(before.view()), &mut expected)
        .expect("shapes that fit");
    let multiply = |parallelism: Parallelism<'_>| {
        let mut buffer =
            vec![GAP; QuantizedActivations::buffer_len(rows, depth, precision).expect("small")];
        let read = QuantizedActivations::quantize(
            Exec::new(isa, parallelism),
            x.view(),
            precision,
            &mut buffer,
        )
        .expect("that length");
        let mut c = before.clone();
        gemm_int8(&read, &weight, &epilogue, c.view_mut(), parallelism).expect("shapes that fit");
        c.check_gaps();
        for row in 0..rows {
            for column in 0..columns {
                let (found, expected) = (c.at(row, column), expected[row * columns + column]);
                assert!(
                    same(found, expected),
                    "{isa} [{rows}, {depth}] x [{depth}, {columns}] at ({row}, {column}): \
                     {found:e} instead of {expected:e}"
                );
            }
        }
    };
    multiply(Parallelism::Serial);
    if case.threads.is_multiple_of(8) {
        pool().install(|| multiply(Parallelism::Rayon));
    }

    let cut = usize::from(case.cut) % (columns + 1);
    let mut pieces = vec![GAP; length];
    for range in [0..cut, cut..columns] {
        let from = w.data.get(w.offset + range.start * w.column_stride..).unwrap_or_default();
        let (row_stride, column_stride) = (w.row_stride, w.column_stride);
        let n = range.len();
        let block = Matrix::strided(from, depth, n, row_stride, column_stride).expect("a view");
        let shape = (depth, columns);
        QuantizedMatrix::quantize_block(isa, block, shape, range.start, &mut pieces)
            .expect("a fit");
    }
    let whole = words.iter().map(|word| word.to_bits());
    assert!(pieces.iter().map(|word| word.to_bits()).eq(whole), "{isa}: cut at {cut}");
}

/// Words of arbitrary bits.
fn foreign(isa: Isa, case: &Case) {
    let (rows, columns) = (usize::from(case.rows) % 15, usize::from(case.columns) % 70);
    let depth = usize::from(case.depth) % 100;
    let mut rng = Rng::new(!case.seed);
    let length = QuantizedMatrix::buffer_len(depth, columns).expect("a small matrix");
    let words: Vec<f32> = (0..length).map(|_| f32::from_bits(rng.bits() as u32)).collect();
    let short = &words[..length.saturating_sub(usize::from(case.cut))];
    let fits = QuantizedMatrix::from_quantized(depth, columns, short).is_ok();
    assert_eq!(fits, short.len() == length);
    let longer = [&words[..], &[0.0]].concat();
    assert!(QuantizedMatrix::from_quantized(depth, columns, &longer).is_err());
    let weight = QuantizedMatrix::from_quantized(depth, columns, &words).expect("that length");
    let x: Vec<f32> = (0..rows * depth).map(|_| rng.value(case.values[0])).collect();
    let x = Matrix::new(&x, rows, depth).expect("a dense matrix");
    let precision = precision(case);
    let mut buffer =
        vec![GAP; QuantizedActivations::buffer_len(rows, depth, precision).expect("small")];
    let read = QuantizedActivations::quantize(Exec::serial(isa), x, precision, &mut buffer)
        .expect("that length");
    let mut c = vec![GAP; rows * columns];
    let out = MatrixMut::new(&mut c, rows, columns).expect("a dense matrix");
    gemm_int8(&read, &weight, &Epilogue::default(), out, Parallelism::Serial).expect("a fit");
    assert!(c.iter().all(|y| y.to_bits() != GAP.to_bits()), "{isa}: an element was left out");
}
