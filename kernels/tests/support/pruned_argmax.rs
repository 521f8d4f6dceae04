//! The operands of a pruned argmax, and its correct result.

use super::gemm::Packed;
use super::{POISON, Random, SERIAL, Strided, poisoned};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable, UNDECIDED};
use simdformer_kernels::{Epilogue, Isa, Matrix, Parallelism};

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

/// A weight packed for one instruction set, and its pruning table, in buffers that held poison.
pub struct Built {
    pub packed: Packed,
    pub pruning_table: Vec<f32>,
}

impl Built {
    pub fn new(packed: Packed) -> Self {
        let floats = PruningTable::buffer_len(packed.depth, packed.columns).expect("small");
        let mut pruning_table = poisoned(floats);
        PruningTable::build(&packed.get(), &mut pruning_table).expect("space");
        Self { packed, pruning_table }
    }

    /// Calls `then` with the product, without a bias and without the weight by column.
    pub fn with_product<R>(&self, then: impl FnOnce(Product<'_>) -> R) -> R {
        let Packed { depth, columns, .. } = self.packed;
        let table = PruningTable::from_built(depth, columns, &self.pruning_table).expect("built");
        let weight = &self.packed.get();
        then(Product { weight, pruning_table: &table, bias: None, by_column: None })
    }

    /// The columns and the values of the product without a bias.
    pub fn argmax(
        &self,
        x: Matrix<'_>,
        banned: Banned<'_>,
        parallelism: Parallelism<'_>,
    ) -> (Vec<u32>, Vec<f32>) {
        self.with_product(|product| argmax(&product, x, banned, parallelism))
    }
}

pub type Banned<'b> = &'b (dyn Fn(usize, u32) -> bool + Sync);

/// The columns and the values, which held poison, with a scratch of exactly the documented length.
pub fn argmax(
    product: &Product<'_>,
    x: Matrix<'_>,
    banned: Banned<'_>,
    parallelism: Parallelism<'_>,
) -> (Vec<u32>, Vec<f32>) {
    let (mut columns, mut values) = (vec![POISON_COLUMN; x.rows()], poisoned(x.rows()));
    let mut scratch =
        poisoned(pruned_argmax::argmax_scratch(x.rows(), x.columns()).expect("small"));
    let to = (&mut columns[..], &mut values[..]);
    pruned_argmax::argmax(product, x, banned, to, &mut scratch, parallelism).expect("a fit");
    (columns, values)
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
        Self::dense(shape, |_, _| x.normal(), |_, _| weight.normal())
    }

    pub fn build(&self, isa: Isa) -> Built {
        Built::new(Packed::new(isa, self.weight.view()))
    }

    pub fn x_at(&mut self, row: usize, k: usize) -> &mut f32 {
        self.x.at_mut(row, k)
    }

    pub fn weight_at(&mut self, k: usize, column: usize) -> &mut f32 {
        self.weight.at_mut(k, column)
    }

    /// The pruned argmax of rows `first..first + count`.
    pub fn ask(
        &self,
        built: &Built,
        (first, count): (usize, usize),
        parallelism: Parallelism<'_>,
    ) -> Vec<RowMaximum> {
        let banned = |row: usize, column: u32| {
            self.banned[(first + row) * self.weight.columns + column as usize]
        };
        let (columns, values) = built.with_product(|product| {
            let by_column = self.by_column.then(|| self.weight.view().transposed());
            let product = Product { bias: self.bias.as_deref(), by_column, ..product };
            argmax(&product, self.x.view().block(first, count).expect("rows"), &banned, parallelism)
        });
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
        let epilogue = Epilogue { bias: self.bias.as_deref(), ..Epilogue::default() };
        built.packed.times(self.x.view(), &epilogue, SERIAL)
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
        let found = self.ask(&built, (0, self.x.rows), SERIAL);
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
