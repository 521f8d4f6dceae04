//! The operands of a pruned argmax, and its correct result.

use super::{POISON, Random, Strided};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable, UNDECIDED};
use simdformer_kernels::{Epilogue, Isa, MatrixMut, PackedMatrix, Parallelism, gemm};

/// A column number that no kernel gives.
pub const POISON_COLUMN: u32 = 0xdead_beef;

/// The column and the bits of the largest element of a row, if the row is decided.
pub type RowMaximum = Option<(u32, u32)>;

/// All operands of a product.
pub struct Operands {
    pub x: Strided,
    pub weight: Strided,
    pub bias: Option<Vec<f32>>,
    pub by_column: bool,
    /// `[rows][columns]`.
    pub banned: Vec<bool>,
}

/// The weight of [`Operands`], packed for one instruction set.
pub struct Built {
    pub isa: Isa,
    pub packed: Vec<f32>,
    pub pruning_table: Vec<f32>,
}

impl Operands {
    /// Dense operands without a bias and without bans.
    pub fn dense(
        (rows, depth, columns): (usize, usize, usize),
        x: impl FnMut(usize, usize) -> f32,
        weight: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        Self {
            x: Strided::new(rows, depth, (depth, 1), x),
            weight: Strided::new(depth, columns, (columns, 1), weight),
            bias: None,
            by_column: false,
            banned: vec![false; rows * columns],
        }
    }

    pub fn gaussian(shape: (usize, usize, usize), seed: u64) -> Self {
        let (mut x, mut weight) = (Random::new(seed), Random::new(!seed));
        Self::dense(shape, |_, _| normal(&mut x), |_, _| normal(&mut weight))
    }

    pub fn build(&self, isa: Isa) -> Built {
        let (depth, columns) = (self.weight.rows, self.weight.columns);
        let mut packed =
            vec![POISON; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        let weight = PackedMatrix::pack(isa, self.weight.view(), &mut packed).expect("space");
        let mut pruning_table =
            vec![POISON; PruningTable::buffer_len(depth, columns).expect("small")];
        PruningTable::build(&weight, &mut pruning_table).expect("space");
        Built { isa, packed, pruning_table }
    }

    pub fn x_at(&mut self, row: usize, k: usize) -> &mut f32 {
        &mut self.x.data[row * self.x.row_stride + k * self.x.column_stride]
    }

    pub fn weight_at(&mut self, k: usize, column: usize) -> &mut f32 {
        &mut self.weight.data[k * self.weight.row_stride + column * self.weight.column_stride]
    }

    /// The pruned argmax of rows `first..first + count`.
    pub fn ask(
        &self,
        built: &Built,
        (first, count): (usize, usize),
        parallelism: Parallelism<'_>,
    ) -> Vec<RowMaximum> {
        let (depth, width) = (self.weight.rows, self.weight.columns);
        let weight = PackedMatrix::from_packed(built.isa, depth, width, &built.packed);
        let pruning_table =
            PruningTable::from_built(depth, width, &built.pruning_table).expect("built");
        let product = Product {
            weight: &weight.expect("packed"),
            pruning_table: &pruning_table,
            bias: self.bias.as_deref(),
            by_column: self.by_column.then(|| self.weight.view().transposed()),
        };
        let (mut columns, mut values) = (vec![POISON_COLUMN; count], vec![POISON; count]);
        let mut scratch = vec![POISON; pruned_argmax::argmax_scratch(count, depth).expect("small")];
        pruned_argmax::argmax(
            &product,
            self.x.view().block(first, count).expect("rows"),
            &|row, column| self.banned[(first + row) * width + column as usize],
            (&mut columns, &mut values),
            &mut scratch,
            parallelism,
        )
        .expect("shapes that fit");
        let answer = |(&column, value): (&u32, &f32)| {
            if column == UNDECIDED {
                assert!(value.is_nan() && value.to_bits() != POISON.to_bits());
                return None;
            }
            Some((column, value.to_bits()))
        };
        columns.iter().zip(&values).map(answer).collect()
    }

    /// `x W + b`.
    pub fn product(&self, built: &Built) -> Vec<f32> {
        let (rows, columns) = (self.x.rows, self.weight.columns);
        let weight = PackedMatrix::from_packed(built.isa, self.weight.rows, columns, &built.packed);
        let mut c = vec![POISON; rows * columns];
        gemm(
            self.x.view(),
            &weight.expect("packed"),
            &Epilogue { bias: self.bias.as_deref(), ..Epilogue::default() },
            MatrixMut::new(&mut c, rows, columns).expect("C"),
            Parallelism::Serial,
        )
        .expect("shapes that fit");
        c
    }

    /// The correct result: the first of the largest elements that are not banned, if it is finite.
    pub fn right(&self, built: &Built) -> Vec<RowMaximum> {
        let (rows, columns) = (self.x.rows, self.weight.columns);
        let c = self.product(built);
        let row = |row: usize| {
            let mut best: Option<usize> = None;
            for at in row * columns..(row + 1) * columns {
                let beats = match best {
                    _ if self.banned[at] || c[at].is_nan() => false,
                    None => true,
                    Some(best) => c[at] > c[best],
                };
                best = if beats { Some(at) } else { best };
            }
            let best = best.filter(|&at| c[at].is_finite())?;
            Some(((best - row * columns) as u32, c[best].to_bits()))
        };
        (0..rows).map(row).collect()
    }

    /// Panics if a decided row is wrong on `isa`. Returns which rows are decided.
    pub fn check(&self, isa: Isa) -> Vec<bool> {
        let built = self.build(isa);
        let found = self.ask(&built, (0, self.x.rows), Parallelism::Serial);
        let right = self.right(&built);
        for (row, (found, right)) in found.iter().zip(&right).enumerate() {
            assert!(
                found.is_none() || found == right,
                "{isa}, row {row}: found {found:x?}, right is {right:x?}"
            );
        }
        found.iter().map(Option::is_some).collect()
    }

    /// As [`Operands::check`], and every row must be decided.
    pub fn check_all(&self, isa: Isa) {
        let decided = self.check(isa);
        assert!(decided.iter().all(|&decided| decided), "{isa}: of {decided:?}");
    }
}

/// Approximately normal: variance 1, within 3.5.
pub fn normal(random: &mut Random) -> f32 {
    (0..12).map(|_| random.value()).sum::<f32>() * 0.5
}
