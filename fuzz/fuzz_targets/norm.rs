//! LayerNorm with and without a bias, and RMSNorm, with any shape, stride and values.
//!
//! Results of rows of moderate size are compared with a sum in f64 under the documented error bound. The
//! fused forms have the bits of the plain one on the rounded sum, in place or not. Three threads give the
//! bits of one, and a row alone has the bits that it has in a batch. Nothing outside of the rows is written
//! or read.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::{GAP, Layout, Rng, Strided, Values, pick_isa, pool, same_bits};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::reference::norm as oracle;
use simdformer_kernels::{Exec, Isa, MatrixMut, Parallelism};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    rows: u8,
    columns: u16,
    layouts: [Layout; 4],
    values: Values,
    mean: i8,
    kind: Kind,
    eps: u8,
    single_row: u8,
    threads: u8,
    seed: u64,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Layer,
    Unbiased,
    Rms,
}

fn run(isa: Isa, of: Norm<'_>, input: NormInput<'_>, out: MatrixMut<'_>, p: Parallelism<'_>) {
    norm(Exec::new(isa, p), of, input, out).expect("shapes that fit");
}

fn assert_same(isa: Isa, what: &str, one: &Strided, other: &Strided) {
    for row in 0..one.rows {
        for column in 0..one.columns {
            let (a, b) = (one.at(row, column), other.at(row, column));
            assert!(same_bits(a, b), "{isa}, {what} at ({row}, {column}): {a:e} and {b:e}");
        }
    }
}

/// Rows whose elements are contiguous, as norms require.
fn rows(layout: Layout) -> Layout {
    Layout { step: 0, by_columns: false, ..layout }
}

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    let (count, columns) = (usize::from(case.rows) % 20, usize::from(case.columns) % 700);
    let mut rng = Rng::new(case.seed);
    let [x_layout, residual_layout, out_layout, wide] = case.layouts;
    let mut filled = |layout| {
        let mut m = Strided::filled(count, columns, rows(layout), case.values, &mut rng);
        for row in 0..count {
            for column in 0..columns {
                let at = m.index(row, column);
                m.data[at] += f32::from(case.mean);
            }
        }
        m
    };
    let (x, residual) = (filled(x_layout), filled(residual_layout));
    let weight: Vec<f32> = (0..columns).map(|_| rng.value(Values::Moderate)).collect();
    let bias: Vec<f32> = (0..columns).map(|_| rng.value(Values::Moderate)).collect();
    let eps = [0.0, 1e-12, 1e-6, 1e-5][usize::from(case.eps % 4)];
    let layer = LayerNorm { weight: &weight, bias: Some(&bias), eps };
    let serial = Parallelism::Serial;
    let of = match case.kind {
        Kind::Layer => Norm::Layer(layer),
        Kind::Unbiased => Norm::Layer(LayerNorm { bias: None, ..layer }),
        Kind::Rms => Norm::Rms(RmsNorm { weight: &weight, eps }),
    };

    let mut out = Strided::empty(count, columns, rows(out_layout));
    run(isa, of, NormInput::Matrix(x.view()), out.view_mut(), serial);
    out.check_gaps();
    if case.values == Values::Moderate {
        bounded(isa, of, &x, &out);
    }

    let mut same = x.clone();
    run(isa, of, NormInput::Output, same.view_mut(), serial);
    same.check_gaps();
    assert_same(isa, "in place", &same, &out);

    let mut sum = residual.clone();
    for row in 0..count {
        for column in 0..columns {
            let at = sum.index(row, column);
            sum.data[at] += x.at(row, column);
        }
    }
    let mut plain = Strided::empty(count, columns, rows(out_layout));
    run(isa, of, NormInput::Matrix(sum.view()), plain.view_mut(), serial);
    let mut out_of_place = Strided::empty(count, columns, rows(out_layout));
    let both = NormInput::Sum { x: x.view(), residual: residual.view() };
    run(isa, of, both, out_of_place.view_mut(), serial);
    out_of_place.check_gaps();
    assert_same(isa, "added", &out_of_place, &plain);
    let mut in_place = residual.clone();
    run(isa, of, NormInput::SumWithOutput { x: x.view() }, in_place.view_mut(), serial);
    in_place.check_gaps();
    assert_same(isa, "added in place", &in_place, &plain);
    let (mut kept, mut normed) = (residual, Strided::empty(count, columns, rows(out_layout)));
    let both = NormInput::AddTo { x: x.view(), residual: kept.view_mut() };
    run(isa, of, both, normed.view_mut(), serial);
    kept.check_gaps();
    normed.check_gaps();
    assert_same(isa, "the sum", &kept, &sum);
    assert_same(isa, "of the sum", &normed, &plain);

    if case.threads.is_multiple_of(8) {
        let mut shared = Strided::empty(count, columns, rows(out_layout));
        pool().install(|| {
            let input = NormInput::Matrix(x.view());
            run(isa, of, input, shared.view_mut(), Parallelism::Rayon);
        });
        assert_same(isa, "three threads", &shared, &out);
    }
    if count > 0 {
        let row = usize::from(case.single_row) % count;
        let (mut one, mut among) = (x.clone(), out.clone());
        for m in [&mut one, &mut among] {
            m.offset += row * m.row_stride;
            m.rows = 1;
        }
        let mut alone = Strided::empty(1, columns, rows(out_layout));
        run(isa, of, NormInput::Matrix(one.view()), alone.view_mut(), serial);
        assert_same(isa, "a row alone", &alone, &among);
    }

    // Any layout: an error and nothing is written, or right.
    let mut any = Strided::empty(count, columns, wide);
    if norm(Exec::serial(isa), of, NormInput::Matrix(x.view()), any.view_mut()).is_ok() {
        any.check_gaps();
        assert_same(isa, "any layout", &any, &out);
    } else {
        assert!(
            any.data.iter().all(|x| x.to_bits() == GAP.to_bits()),
            "{isa}: a refused call wrote"
        );
    }
});

/// The documented bounds.
fn bounded(isa: Isa, norm: Norm<'_>, x: &Strided, y: &Strided) {
    let u = f64::from(f32::EPSILON) / 2.0;
    for row in 0..x.rows {
        let elements: Vec<f64> = (0..x.columns).map(|column| x.at(row, column).into()).collect();
        let chain = |lanes: usize| (x.columns / (lanes * isa.lanes())) as f64;
        for column in 0..x.columns {
            let (exact, bound) = match norm {
                Norm::Layer(norm) => {
                    let weight = f64::from(norm.weight[column]);
                    let z =
                        oracle::standard(oracle::Norm::Layer, &elements, norm.eps.into(), column);
                    let exact = z * weight + norm.bias.map_or(0.0, |bias| bias[column].into());
                    let k = chain(4) + 8.0;
                    (exact, u * (k * (z.abs() + 2.0) * weight.abs() + 2.0 * exact.abs()))
                }
                Norm::Rms(norm) => {
                    let weight = f64::from(norm.weight[column]);
                    let z = oracle::standard(oracle::Norm::Rms, &elements, norm.eps.into(), column);
                    let exact = z * weight;
                    let least = 2f64.powi(-149) * (1.0 + weight.abs());
                    (exact, u * (chain(8) + 12.0) * exact.abs() + least)
                }
            };
            let found = y.at(row, column);
            let error = (f64::from(found) - exact).abs();
            assert!(
                error <= bound,
                "{isa} ({row}, {column}): {found:e} for {exact:e}, off by {error:e}, bound {bound:e}"
            );
        }
    }
}
