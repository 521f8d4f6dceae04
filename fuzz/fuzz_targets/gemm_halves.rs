//! Products with weights in f16 and bf16, with any shape, layout, epilogue and values.
//!
//! The result has the bits of the product with the widened weights, on every instruction set, by one thread
//! and by three, for a row in the product and alone. A weight packed in two parts equals one packed at
//! once. A weight that would become infinite is an error, and nothing is written. Arbitrary words are
//! multiplied as weights. Nothing outside of the output is written.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::{Add, GAP, Layout, Rng, Strided, Values, pick_isa, pool, same_bits};
use simdformer_kernels::reference::dtype::stored;
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Error, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix,
    Parallelism, PostOp, gemm,
};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    f16: bool,
    rows: u8,
    /// A few rows have kernels of their own.
    few: bool,
    depth: u16,
    columns: u8,
    layouts: [Layout; 4],
    /// Values of the rows and the weight.
    values: [Values; 2],
    scale: Option<i8>,
    bias: bool,
    relu: bool,
    residual: Add,
    /// Where the weight is cut in two.
    cut: u8,
    single_row: u8,
    threads: u8,
    seed: u64,
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    let dtype = if case.f16 { Dtype::F16 } else { Dtype::Bf16 };
    product(isa, dtype, &case);
    foreign(isa, dtype, &case);
});

fn rows(case: &Case) -> usize {
    usize::from(case.rows) % if case.few { 9 } else { 110 }
}

/// The words of `w`, packed in two parts.
fn pack(
    isa: Isa,
    dtype: Dtype,
    w: &Strided,
    cut: usize,
    parallelism: Parallelism<'_>,
) -> Result<Vec<f32>, Error> {
    let shape = (w.rows, w.columns);
    let words = PackOptions::new(dtype).buffer_len(isa, w.rows, w.columns).expect("a small matrix");
    let mut buffer = vec![GAP; words];
    for range in [0..cut, cut..w.columns] {
        let from = w.data.get(w.offset + range.start * w.column_stride..).unwrap_or_default();
        let (row_stride, column_stride) = (w.row_stride, w.column_stride);
        let block = Matrix::strided(from, w.rows, range.len(), row_stride, column_stride);
        let (block, first) = (block.expect("a view"), range.start);
        let before: Vec<u32> = buffer.iter().map(|word| word.to_bits()).collect();
        let packed =
            PackOptions { dtype, parallelism }.pack_columns(isa, block, shape, first, &mut buffer);
        if let Err(error) = packed {
            assert!(buffer.iter().map(|word| word.to_bits()).eq(before), "{isa}: written");
            return Err(error);
        }
    }
    Ok(buffer)
}

fn product(isa: Isa, dtype: Dtype, case: &Case) {
    let rows = rows(case);
    let depth = usize::from(case.depth) % 300;
    let columns = usize::from(case.columns) % 160;
    let mut rng = Rng::new(case.seed);
    let [a_layout, w_layout, c_layout, r_layout] = case.layouts;
    let a = Strided::filled(rows, depth, a_layout, case.values[0], &mut rng);
    let mut w = Strided::filled(depth, columns, w_layout, case.values[1], &mut rng);
    let r = Strided::filled(rows, columns, r_layout, case.values[0], &mut rng);
    let bias: Vec<f32> = (0..columns).map(|_| rng.value(case.values[0])).collect();
    let before = if matches!(case.residual, Add::Output | Add::Gate) {
        Strided::filled(rows, columns, c_layout, case.values[0], &mut rng)
    } else {
        Strided::empty(rows, columns, c_layout)
    };
    let epilogue = Epilogue {
        scale: case.scale.map_or(1.0, |scale| f32::from(scale) / 16.0),
        bias: case.bias.then_some(&bias[..]),
        activation: if case.relu { Activation::Relu } else { Activation::Identity },
        post_op: PostOp::None,
    };

    // A value that overflows the dtype is an error that names the first one. The product has infinities
    // in its place.
    let mut too_large = None;
    for row in 0..depth {
        for column in 0..columns {
            let (x, at) = (w.at(row, column), w.index(row, column));
            if x.is_finite() && stored(dtype, x).is_infinite() {
                too_large = too_large.or(Some(([row, column], x)));
                w.data[at] = f32::INFINITY.copysign(x);
            }
        }
    }
    if let Some((at, x)) = too_large {
        let index = w.index(at[0], at[1]);
        let kept = std::mem::replace(&mut w.data[index], x);
        let found = pack(isa, dtype, &w, 0, Parallelism::Serial);
        assert_eq!(found, Err(Error::ValueTooLarge { dtype, at, found: x }), "{isa}");
        w.data[index] = kept;
    }

    let whole = pack(isa, dtype, &w, 0, Parallelism::Serial).expect("numbers of the form");
    let halves = PackOptions::new(dtype).from_packed(isa, depth, columns, &whole);
    let halves = halves.expect("words of that length");
    let mut wide = w.clone();
    for row in 0..depth {
        for column in 0..columns {
            let at = w.index(row, column);
            wide.data[at] = stored(dtype, w.data[at]);
        }
    }
    let mut buffer =
        vec![GAP; PackedMatrix::buffer_len(isa, depth, columns).expect("a small matrix")];
    let floats = PackedMatrix::pack(isa, wide.view(), &mut buffer).expect("that length");
    let multiply = |weight: &PackedMatrix<'_>, threads: Parallelism<'_>| {
        let mut c = before.clone();
        let epilogue = Epilogue { post_op: case.residual.post_op(&r), ..epilogue };
        gemm(a.view(), weight, &epilogue, c.view_mut(), threads).expect("shapes that fit");
        c
    };
    let expected = multiply(&floats, Parallelism::Serial);
    let compare = |found: &Strided, what: &str| {
        found.check_gaps();
        for row in 0..rows {
            for column in 0..columns {
                let (found, expected) = (found.at(row, column), expected.at(row, column));
                assert!(
                    same_bits(found, expected),
                    "{isa} {dtype:?} [{rows}, {depth}] x [{depth}, {columns}] at ({row}, {column}), \
                     {what}: {found:e} instead of {expected:e}"
                );
            }
        }
    };
    compare(&multiply(&halves, Parallelism::Serial), "on one thread");

    let cut = usize::from(case.cut) % (columns + 1);
    let same = |pieces: &[f32]| {
        let whole = whole.iter().map(|word| word.to_bits());
        assert!(pieces.iter().map(|word| word.to_bits()).eq(whole), "{isa}: cut at {cut}");
    };
    same(&pack(isa, dtype, &w, cut, Parallelism::Serial).expect("numbers of the form"));
    if case.threads.is_multiple_of(8) {
        pool().install(|| {
            same(&pack(isa, dtype, &w, cut, Parallelism::Rayon).expect("numbers of the form"));
            compare(&multiply(&halves, Parallelism::Rayon), "on three threads");
        });
    }

    if rows > 0 {
        let row = usize::from(case.single_row) % rows;
        let one = |m: &Strided| {
            let offset = m.offset + row * m.row_stride;
            Strided { offset, rows: 1, ..m.clone() }
        };
        let (mut alone, a, r) = (one(&before), one(&a), one(&r));
        let epilogue = Epilogue { post_op: case.residual.post_op(&r), ..epilogue };
        gemm(a.view(), &halves, &epilogue, alone.view_mut(), Parallelism::Serial)
            .expect("shapes that fit");
        for column in 0..columns {
            let (single, expected) = (alone.at(0, column), expected.at(row, column));
            assert!(
                same_bits(single, expected),
                "{isa} {dtype:?}: row {row} of {rows}, column {column}: {single:e} alone, \
                 {expected:e} in the batch"
            );
        }
    }
}

/// Words of arbitrary bits.
fn foreign(isa: Isa, dtype: Dtype, case: &Case) {
    let (rows, columns) = (rows(case) % 15, usize::from(case.columns) % 70);
    let depth = usize::from(case.depth) % 100;
    let mut rng = Rng::new(!case.seed);
    let length = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("a small matrix");
    let words: Vec<f32> = (0..length).map(|_| f32::from_bits(rng.bits() as u32)).collect();
    let short = &words[..length.saturating_sub(usize::from(case.cut))];
    let fits = PackOptions::new(dtype).from_packed(isa, depth, columns, short).is_ok();
    assert_eq!(fits, short.len() == length);
    let longer = [&words[..], &[0.0]].concat();
    assert!(PackOptions::new(dtype).from_packed(isa, depth, columns, &longer).is_err());
    let weight = PackOptions::new(dtype).from_packed(isa, depth, columns, &words);
    let x: Vec<f32> = (0..rows * depth).map(|_| rng.value(case.values[0])).collect();
    let x = Matrix::new(&x, rows, depth).expect("a dense matrix");
    let mut c = vec![GAP; rows * columns];
    let out = MatrixMut::new(&mut c, rows, columns).expect("a dense matrix");
    gemm(x, &weight.expect("that length"), &Epilogue::default(), out, Parallelism::Serial)
        .expect("a fit");
    assert!(c.iter().all(|y| y.to_bits() != GAP.to_bits()), "{isa}: an element was left out");
}
