//! Cross-entropy with any shape, stride, values, targets and smoothing.
//!
//! Targets that are no columns are an error, and nothing is written. Ignored rows are not read and become
//! 0. The gradient of any other row sums to 0, or is NaN together with its loss. The losses are those of
//! logits that are only read. Three threads give the bits of one. Nothing outside of the rows is written.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use simdformer_fuzz::{GAP, Layout, Rng, Strided, Values, pick_isa, pool};
use simdformer_kernels::train::{
    IGNORED, RowLoss, Smoothing, SmoothingOver, cross_entropy, cross_entropy_loss,
};
use simdformer_kernels::{Error, Exec, Isa, Matrix, Parallelism};

#[derive(Arbitrary, Debug)]
struct Case {
    isa: u8,
    rows: u8,
    columns: u16,
    layout: Layout,
    values: Values,
    /// The target of each row: a column, `IGNORED`, or neither.
    targets: Vec<u32>,
    /// Whether targets that are no columns stay so.
    wild: bool,
    epsilon: Epsilon,
    others: bool,
    scale: f32,
    threads: u8,
    seed: u64,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Epsilon {
    None,
    Some(u8),
    Any(f32),
}

/// The contents of a result before anything is written to it.
const UNTOUCHED: RowLoss = RowLoss { loss: 7.0, nll: 7.0, correct: true };

fuzz_target!(|case: Case| {
    let isa = pick_isa(case.isa);
    let rows = usize::from(case.rows) % 40;
    let columns = usize::from(case.columns) % 2500;
    let mut rng = Rng::new(case.seed);
    let mut logits = Strided::filled(rows, columns, case.layout, case.values, &mut rng);
    let targets: Vec<u32> = (0..rows)
        .map(|row| match case.targets.get(row) {
            Some(&target) if case.wild => target,
            Some(&target) if columns > 0 && target % 5 > 0 => target % columns as u32,
            _ => IGNORED,
        })
        .collect();
    let epsilon = match case.epsilon {
        Epsilon::None => 0.0,
        Epsilon::Some(part) => f32::from(part) / 256.0,
        Epsilon::Any(epsilon) => epsilon,
    };
    let over = if case.others { SmoothingOver::Others } else { SmoothingOver::All };
    let smoothing = Smoothing { epsilon, over };
    for (row, &target) in targets.iter().enumerate() {
        for column in 0..columns {
            if target == IGNORED {
                let at = logits.index(row, column);
                logits.data[at] = GAP;
            }
        }
    }

    let run = |parallelism: Parallelism<'_>| {
        let mut gradient = logits.clone();
        let mut losses = vec![UNTOUCHED; rows];
        let view = gradient.view_mut();
        let result = cross_entropy(
            Exec::new(isa, parallelism),
            view,
            &targets,
            smoothing,
            case.scale,
            &mut losses,
        );
        gradient.check_gaps();
        (result, gradient, losses)
    };
    let (result, gradient, losses) = run(Parallelism::Serial);
    let mut again = vec![UNTOUCHED; rows];
    let data = logits.data.get(logits.offset..).unwrap_or_default();
    let view = Matrix::strided(data, rows, columns, logits.row_stride, logits.column_stride)
        .expect("a valid view");
    let read = cross_entropy_loss(Exec::serial(isa), view, &targets, smoothing, &mut again);
    assert_eq!(read.is_ok(), result.is_ok());
    if let Err(error) = result {
        assert_eq!(bits(&gradient), bits(&logits));
        assert!(losses.iter().chain(&again).all(|loss| *loss == UNTOUCHED));
        refused(error, &logits, &targets, smoothing);
        return;
    }
    check(isa, &case, &targets, (&gradient, &losses));
    assert!(losses.iter().zip(&again).all(|(one, other)| same(one, other)));
    if case.threads.is_multiple_of(8) {
        let (result, shared, others) = pool().install(|| run(Parallelism::Rayon));
        assert!(result.is_ok() && bits(&shared) == bits(&gradient));
        assert!(losses.iter().zip(&others).all(|(one, other)| same(one, other)));
    }
});

fn bits(m: &Strided) -> Vec<u32> {
    m.data.iter().map(|x| x.to_bits()).collect()
}

fn same(one: &RowLoss, other: &RowLoss) -> bool {
    let bits = |loss: &RowLoss| (loss.loss.to_bits(), loss.nll.to_bits(), loss.correct);
    bits(one) == bits(other)
}

/// The error names a mistake that the call has.
fn refused(error: Error, logits: &Strided, targets: &[u32], smoothing: Smoothing) {
    match error {
        Error::Size { property: "target", index: Some(row), found, .. } => {
            assert_eq!(targets[row] as usize, found);
            assert!(targets[row] != IGNORED && found >= logits.columns);
        }
        Error::Size { property: "column stride", found, .. } => {
            assert!(logits.columns > 1 && found == logits.column_stride && found != 1);
        }
        Error::Setting { name: "label smoothing", .. } => {
            assert!(!(0.0..1.0).contains(&smoothing.epsilon));
        }
        Error::Size { property: "columns", found, .. } => {
            assert!(found == logits.columns && found < 2);
        }
        other => panic!("{other}"),
    }
}

fn check(isa: Isa, case: &Case, targets: &[u32], (gradient, losses): (&Strided, &[RowLoss])) {
    for (row, (&target, loss)) in targets.iter().zip(losses).enumerate() {
        let row: Vec<f32> = (0..gradient.columns).map(|column| gradient.at(row, column)).collect();
        if target == IGNORED {
            assert!(row.iter().all(|x| x.to_bits() == 0) && *loss == RowLoss::default());
        } else if loss.nll.is_nan() {
            assert!(loss.loss.is_nan() && !loss.correct && row.iter().all(|x| x.is_nan()));
        } else {
            // If other columns have nearly all the probability, the rest may be lost in
            // rounding.
            assert!(loss.nll >= 0.0 && !loss.loss.is_nan(), "{isa}: {loss:?}");
            assert!(loss.loss >= 0.0 || case.others, "{isa}: {loss:?}");
            if case.scale.is_normal() && case.scale.abs() < 1e30 {
                let sum: f64 = row.iter().map(|&x| f64::from(x)).sum();
                let bound = 1e-4 * f64::from(case.scale.abs()) + 1e-33;
                assert!(sum.abs() <= bound, "{isa}: {sum:e} at {:e}", case.scale);
            }
        }
    }
}
