//! Shared code of the fuzz targets: numbers and strided memory made from a seed.
//!
//! The bytes of the fuzzer select shapes, strides, options and seeds. The values come from the seed, so
//! that few bytes reach large shapes. Memory that a kernel may not access holds one particular NaN: a read
//! shows in the result, and [`Strided::check_gaps`] detects a write.
#![deny(unsafe_code)]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use rayon::{ThreadPool, ThreadPoolBuilder};
use simdformer_kernels::pruned_argmax::UNDECIDED;
use simdformer_kernels::{Isa, Matrix, MatrixMut, PostOp};
use std::sync::OnceLock;

pub mod wild;

/// The NaN of memory that belongs to no element. Arithmetic does not produce it.
pub const GAP: f32 = f32::from_bits(0x7fab_cdef);

/// A small reproducible generator (splitmix64; Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next value of a kind.
    pub fn value(&mut self, values: Values) -> f32 {
        let bits = self.bits();
        match values {
            Values::Moderate => (bits >> 40) as f32 / (1 << 22) as f32 - 2.0,
            Values::Wide => {
                let power = (bits & 31) as i32 - 16;
                ((bits >> 40) as f32 / (1 << 23) as f32 - 1.0) * 2f32.powi(power)
            }
            Values::AnyBits => f32::from_bits((bits >> 32) as u32),
        }
    }
}

/// The distribution of values.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Uniform in `-2..2`.
    Moderate,
    /// Both signs, magnitudes over ten decades.
    Wide,
    /// Arbitrary bits: infinities, NaN, subnormal numbers.
    AnyBits,
}

/// The layout of a matrix in memory.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Layout {
    /// Floats before the first element.
    pub offset: u8,
    /// Floats between two neighbors in the direction that would be contiguous without gaps.
    pub step: u8,
    /// Floats after each row (or column).
    pub pad: u8,
    /// Columns are contiguous instead of rows.
    pub by_columns: bool,
}

/// A matrix of values with gaps between them.
#[derive(Clone, Debug)]
pub struct Strided {
    /// The memory, the first element at [`Strided::offset`].
    pub data: Vec<f32>,
    /// Index of the first element.
    pub offset: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one column to the next.
    pub column_stride: usize,
}

impl Strided {
    /// A matrix with this layout, whose gaps and elements are all [`GAP`].
    pub fn empty(rows: usize, columns: usize, layout: Layout) -> Self {
        let step = 1 + usize::from(layout.step % 3);
        let pad = usize::from(layout.pad % 7);
        let offset = usize::from(layout.offset % 17);
        let (outer, inner) = if layout.by_columns { (columns, rows) } else { (rows, columns) };
        let outer_stride = inner * step + pad;
        let (row_stride, column_stride) =
            if layout.by_columns { (step, outer_stride) } else { (outer_stride, step) };
        let data = vec![GAP; offset + outer * outer_stride + pad];
        Self { data, offset, rows, columns, row_stride, column_stride }
    }

    /// The same with values from `rng` in its elements.
    pub fn filled(
        rows: usize,
        columns: usize,
        layout: Layout,
        values: Values,
        rng: &mut Rng,
    ) -> Self {
        let mut matrix = Self::empty(rows, columns, layout);
        for row in 0..rows {
            for column in 0..columns {
                let index = matrix.index(row, column);
                matrix.data[index] = rng.value(values);
            }
        }
        matrix
    }

    /// The index of an element.
    pub fn index(&self, row: usize, column: usize) -> usize {
        self.offset + row * self.row_stride + column * self.column_stride
    }

    /// An element.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.data[self.index(row, column)]
    }

    /// The elements as a matrix.
    ///
    /// # Panics
    /// Never: the memory was made for these strides.
    pub fn view(&self) -> Matrix<'_> {
        let data = self.data.get(self.offset..).unwrap_or_default();
        Matrix::strided(data, self.rows, self.columns, self.row_stride, self.column_stride)
            .expect("a valid view")
    }

    /// The elements as a matrix to write to.
    ///
    /// # Panics
    /// Never: the memory was made for these strides.
    pub fn view_mut(&mut self) -> MatrixMut<'_> {
        let data = self.data.get_mut(self.offset..).unwrap_or_default();
        MatrixMut::strided(data, self.rows, self.columns, self.row_stride, self.column_stride)
            .expect("a valid view")
    }

    /// Fails when memory between the elements does not hold [`GAP`] any more.
    ///
    /// # Panics
    /// A gap was written.
    pub fn check_gaps(&self) {
        let mut element = vec![false; self.data.len()];
        for row in 0..self.rows {
            for column in 0..self.columns {
                element[self.index(row, column)] = true;
            }
        }
        for (index, value) in self.data.iter().enumerate() {
            if !element[index] {
                assert_eq!(value.to_bits(), GAP.to_bits(), "memory outside the view was written");
            }
        }
    }
}

/// What a product is added to.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Add {
    /// Nothing: the output is overwritten.
    Nothing,
    /// The contents of the output.
    Output,
    /// Another matrix.
    Matrix,
    /// The contents of the output, by multiplication.
    Gate,
}

impl Add {
    /// The kernel's residual; `other` is the other matrix.
    pub fn post_op(self, other: &Strided) -> PostOp<'_> {
        match self {
            Self::Nothing => PostOp::None,
            Self::Output => PostOp::AddOutput,
            Self::Matrix => PostOp::Add(other.view()),
            Self::Gate => PostOp::MultiplyOutput,
        }
    }
}

/// One of the instruction sets of the machine.
pub fn pick_isa(choice: u8) -> Isa {
    let sets: Vec<Isa> = Isa::available().collect();
    sets[usize::from(choice) % sets.len()]
}

/// Three threads.
pub fn pool() -> &'static ThreadPool {
    static POOL: OnceLock<ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| ThreadPoolBuilder::new().num_threads(3).build().expect("three threads"))
}

/// Whether two results are equal. The payload of a NaN is not guaranteed.
pub fn same_bits(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Fails when a decided row of a pruned argmax is not the first of the largest elements of the row of
/// `logits` with the same bits. A zero has the sign that the product gives it.
///
/// # Panics
/// A decided row is wrong.
pub fn check_largest(
    isa: Isa,
    logits: &[f32],
    columns: usize,
    banned: &dyn Fn(usize, u32) -> bool,
    (found, values): (&[u32], &[f32]),
) {
    for (row, (&column, &value)) in found.iter().zip(values).enumerate() {
        if column == UNDECIDED {
            assert!(value.is_nan(), "{isa}: row {row} is not decided, and has the value {value:e}");
            continue;
        }
        let mut best = (UNDECIDED, f32::NEG_INFINITY);
        for (j, &logit) in (0u32..).zip(&logits[row * columns..][..columns]) {
            if banned(row, j) {
                continue;
            }
            assert!(!logit.is_nan(), "{isa}: row {row} is decided, column {j} is NaN");
            if logit > best.1 {
                best = (j, logit);
            }
        }
        assert!(
            (column, value.to_bits()) == (best.0, best.1.to_bits()),
            "{isa}: row {row}: column {column}, {value:e}, instead of {best:?}"
        );
    }
}
