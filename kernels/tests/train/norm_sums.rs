//! The gradients of the weight and the bias of a norm: sums over rows, in reduction chunks.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::train::{
    NormGradients, ReductionChunks, WriteMode, norm_parameters_backward,
};
use simdformer_kernels::{Exec, Isa, Matrix, Parallelism};

struct Operands {
    standard: Strided,
    d_out: Strided,
    ends: Vec<u32>,
}

impl Operands {
    fn random(seed: u64, rows: usize, columns: usize, gap: usize, longest: usize) -> Self {
        let mut random = Random::new(seed);
        let mut ends = Vec::new();
        let mut end = 0;
        while end < rows {
            end = rows.min(end + 1 + random.below(longest));
            ends.push(end as u32);
        }
        let mut matrix = |gap: usize| Strided::new(rows, columns, gap, |_, _| random.value());
        Self { standard: matrix(gap), d_out: matrix(gap + 2), ends }
    }

    /// Rows `first..` in as many reduction chunks as `ends` has.
    fn run(
        &self,
        isa: Isa,
        (first, ends): (usize, &[u32]),
        write: WriteMode,
        (d_weight, d_bias): (&mut [f32], &mut [f32]),
        crew: Parallelism<'_>,
    ) {
        let ends: Vec<u32> = ends.iter().map(|end| end - first as u32).collect();
        let chunks = ReductionChunks::new(&ends).expect("chunks");
        let [standard, d_out] = [&self.standard, &self.d_out]
            .map(|m| m.view().block(first, chunks.rows()).expect("rows"));
        let gradients = NormGradients { weight: d_weight, bias: Some(d_bias) };
        norm_parameters_backward(Exec::new(isa, crew), standard, d_out, chunks, write, gradients)
            .expect("shapes that fit");
    }

    fn all(&self, isa: Isa, write: WriteMode, before: f32, crew: Parallelism<'_>) -> [Vec<f32>; 2] {
        let columns = self.d_out.columns;
        let (mut weight, mut bias) = (vec![before; columns], vec![before; columns]);
        self.run(isa, (0, &self.ends), write, (&mut weight, &mut bias), crew);
        [weight, bias]
    }

    /// Sums within chunks and over chunks, one operation after the other.
    fn simulated(&self, column: usize, before: Option<f32>) -> [f32; 2] {
        let (mut total, mut first) = ([before; 2], 0);
        for &end in &self.ends {
            let mut chunk = [0.0f32; 2];
            for row in first..end as usize {
                let (z, d) = (self.standard.at(row, column), self.d_out.at(row, column));
                chunk = [d.mul_add(z, chunk[0]), chunk[1] + d];
            }
            first = end as usize;
            for which in 0..2 {
                total[which] = Some(total[which].map_or(chunk[which], |sum| sum + chunk[which]));
            }
        }
        total.map(|sum| sum.unwrap_or(0.0))
    }

    fn check(&self) {
        let (rows, columns) = (self.d_out.rows, self.d_out.columns);
        let longest =
            ReductionChunks::new(&self.ends).expect("chunks").ranges().map(|r| r.len()).max();
        let chain = longest.unwrap_or(0) + self.ends.len();
        for isa in all_isas() {
            let [weight, bias] = self.all(isa, WriteMode::Store, POISON, SERIAL);
            let [more_weight, more_bias] = self.all(isa, WriteMode::Add, 0.75, SERIAL);
            for j in 0..columns {
                let (mut exact, mut size) = ([0.0f64; 2], [0.0f64; 2]);
                for i in 0..rows {
                    let (z, d) =
                        (f64::from(self.standard.at(i, j)), f64::from(self.d_out.at(i, j)));
                    for (which, term) in [d * z, d].into_iter().enumerate() {
                        exact[which] += term;
                        size[which] += term.abs();
                    }
                }
                let found = [[weight[j], bias[j]], [more_weight[j], more_bias[j]]];
                for (found, before) in found.into_iter().zip([0.0, 0.75]) {
                    for which in 0..2 {
                        let chain = (chain + 1 - which) as f64;
                        let bound = UNIT * chain * (size[which] + before);
                        assert_close(found[which], exact[which] + before, bound, isa);
                    }
                }
                assert_eq!(bits(&found[0]), bits(&self.simulated(j, None)), "{isa}");
                assert_eq!(bits(&found[1]), bits(&self.simulated(j, Some(0.75))), "{isa}");
            }
            // Without the bias.
            let chunks = ReductionChunks::new(&self.ends).expect("chunks");
            let (z, d, mut alone) = (self.standard.view(), self.d_out.view(), poisoned(columns));
            let to = NormGradients { weight: &mut alone, bias: None };
            norm_parameters_backward(Exec::serial(isa), z, d, chunks, WriteMode::Store, to)
                .expect("shapes that fit");
            assert_eq!(difference(&alone, &weight), None, "{isa}");
        }
    }
}

proptest! {
    #[test]
    fn sums_match_the_oracle_and_the_guaranteed_order(
        rows in 0usize..80,
        columns in 0usize..150,
        gap in 0usize..4,
        longest in 1usize..40,
        seed: u64,
    ) {
        Operands::random(seed, rows, columns, gap, longest).check();
    }

    /// Micro-batches of whole reduction chunks: the first stores, the others add.
    #[test]
    fn a_batch_has_the_bits_of_its_micro_batches(
        rows in 1usize..90,
        columns in 1usize..140,
        cut in 0usize..1000,
        seed: u64,
    ) {
        let operands = Operands::random(seed, rows, columns, 1, 20);
        for isa in all_isas() {
            let whole = operands.all(isa, WriteMode::Store, POISON, SERIAL);
            let cut = cut % (operands.ends.len() + 1);
            let (head, tail) = operands.ends.split_at(cut);
            let (mut weight, mut bias) = (vec![POISON; columns], vec![POISON; columns]);
            operands.run(isa, (0, head), WriteMode::Store, (&mut weight, &mut bias), SERIAL);
            let first = head.last().map_or(0, |&end| end as usize);
            operands.run(isa, (first, tail), WriteMode::Add, (&mut weight, &mut bias), SERIAL);
            // Without a chunk at first zeros are stored, and 0 plus a chunk is the chunk.
            prop_assert_eq!(difference(&weight, &whole[0]), None);
            prop_assert_eq!(difference(&bias, &whole[1]), None);
        }
    }
}

#[test]
fn small_integers_are_exact() {
    let mut random = Random::new(3);
    let (rows, columns) = (300, 130);
    let mut matrix = || Strided::new(rows, columns, (columns, 1), |_, _| random.integer(20));
    let operands = Operands { standard: matrix(), d_out: matrix(), ends: vec![1, 64, 299, 300] };
    for isa in all_isas() {
        let [weight, bias] = operands.all(isa, WriteMode::Store, POISON, SERIAL);
        for j in 0..columns {
            let sum = |f: &dyn Fn(usize) -> f32| (0..rows).map(f).sum::<f32>();
            let product = |i| operands.d_out.at(i, j) * operands.standard.at(i, j);
            assert_eq!(weight[j], sum(&product), "{isa}");
            assert_eq!(bias[j], sum(&|i| operands.d_out.at(i, j)), "{isa}");
        }
    }
}

#[test]
fn trap_19_threads_do_not_change_a_bit() {
    for (rows, columns) in [(600, 200), (3, 20_000), (2000, 65)] {
        let operands = Operands::random(8, rows, columns, 1, 300);
        for isa in all_isas() {
            let expected = operands.all(isa, WriteMode::Add, 0.5, SERIAL).concat();
            for crew in CREWS {
                let found = crew
                    .with_parallelism(|crew| operands.all(isa, WriteMode::Add, 0.5, crew))
                    .concat();
                assert_eq!(difference(&found, &expected), None, "{isa} {crew:?}");
            }
        }
    }
}

/// NaN in a column stays in it.
#[test]
fn columns_do_not_affect_each_other() {
    let mut operands = Operands::random(8, 40, 71, 0, 9);
    let all = |operands: &Operands| operands.all(Isa::best(), WriteMode::Store, POISON, SERIAL);
    let clean = all(&operands);
    *operands.d_out.at_mut(3, 20) = f32::NAN;
    let spoilt = all(&operands);
    for which in 0..2 {
        for j in 0..71 {
            let (a, b) = (clean[which][j], spoilt[which][j]);
            assert!(if j == 20 { b.is_nan() } else { a.to_bits() == b.to_bits() }, "column {j}");
        }
    }
}

#[test]
fn wrong_calls_are_errors_and_write_nothing() {
    let data = [0.0; 12];
    let (m, turned) = (view_matrix(&data, 3, 4), view_matrix(&data, 4, 3));
    let call = |standard: Matrix<'_>, ends: &[u32], weight: usize, bias: usize| {
        let chunks = ReductionChunks::new(ends).expect("chunks");
        let (mut d_weight, mut d_bias) = ([POISON; 5], [POISON; 5]);
        let (w, b) = (&mut d_weight[..weight], &mut d_bias[..bias]);
        let (isa, store) = (Isa::best(), WriteMode::Store);
        let gradients = NormGradients { weight: w, bias: Some(b) };
        let found =
            norm_parameters_backward(Exec::serial(isa), standard, m, chunks, store, gradients);
        assert_eq!(bits(&[d_weight, d_bias].concat()), bits(&[POISON; 10]));
        found.expect_err("a wrong call")
    };
    assert_eq!(call(turned, &[3], 4, 4), errors::shape("standard", [3, 4], [4, 3]));
    assert_eq!(call(turned.transposed(), &[3], 4, 4), errors::strided("standard", 3));
    assert_eq!(call(m, &[3], 5, 4), errors::len("d_weight", 4, 5));
    assert_eq!(call(m, &[3], 4, 3), errors::len("d_bias", 4, 3));
    let error = call(m, &[1, 2], 4, 4);
    assert_eq!(error.to_string(), "rows of chunks: expected 3, found 2");
}
