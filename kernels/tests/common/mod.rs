//! Test data with NaN wherever a kernel may neither read nor write.

#![allow(dead_code, unreachable_pub)]

use simdformer_kernels::{Matrix, MatrixMut};

/// xorshift64*, reproducible from the seed that a failing test prints.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Approximately normal: variance 1, within 3.5.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

/// A matrix whose rows are `gap` elements apart, with one more gap before the first row and after the last.
/// The gaps hold a NaN whose payload arithmetic does not produce.
#[derive(Clone)]
pub struct Grid {
    data: Vec<f32>,
    pub rows: usize,
    pub columns: usize,
    pub gap: usize,
}

const POISON: u32 = 0x7fc1_2345;

impl Grid {
    pub fn nan(rows: usize, columns: usize, gap: usize) -> Self {
        let data = vec![f32::from_bits(POISON); rows * (columns + gap) + gap];
        Self { data, rows, columns, gap }
    }

    pub fn new(
        rows: usize,
        columns: usize,
        gap: usize,
        mut f: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let mut grid = Self::nan(rows, columns, gap);
        for i in 0..rows {
            for j in 0..columns {
                grid.row_mut(i)[j] = f(i, j);
            }
        }
        grid
    }

    fn start(&self, row: usize) -> usize {
        self.gap + row * (self.columns + self.gap)
    }

    pub fn row(&self, row: usize) -> &[f32] {
        let start = self.start(row);
        &self.data[start..start + self.columns]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let start = self.start(row);
        &mut self.data[start..start + self.columns]
    }

    pub fn view(&self) -> Matrix<'_> {
        let stride = self.columns + self.gap;
        Matrix::strided(&self.data[self.gap..], self.rows, self.columns, stride, 1).unwrap()
    }

    pub fn view_mut(&mut self) -> MatrixMut<'_> {
        let stride = self.columns + self.gap;
        let data = &mut self.data[self.gap..];
        MatrixMut::strided(data, self.rows, self.columns, stride, 1).unwrap()
    }

    /// Every element outside of the rows is unchanged.
    pub fn assert_gaps_untouched(&self) {
        let inside: Vec<_> =
            (0..self.rows).map(|r| self.start(r)..self.start(r) + self.columns).collect();
        for (i, x) in self.data.iter().enumerate() {
            if !inside.iter().any(|range| range.contains(&i)) {
                assert_eq!(x.to_bits(), POISON, "element {i} outside the rows was written");
            }
        }
    }

    /// The same bits in every row, whatever the gaps hold.
    pub fn assert_same_rows(&self, other: &Self) {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns));
        for row in 0..self.rows {
            for (column, (a, b)) in self.row(row).iter().zip(other.row(row)).enumerate() {
                assert_eq!(a.to_bits(), b.to_bits(), "({row}, {column}): {a} and {b}");
            }
        }
    }
}

/// `|found - exact| <= bound`, false for NaN.
#[track_caller]
pub fn assert_close(found: f32, exact: f64, bound: f64, what: &str) {
    let error = (f64::from(found) - exact).abs();
    assert!(error <= bound, "{what}: {found} for {exact}, off by {error:e}, bound {bound:e}");
}

#[cfg(feature = "rayon")]
/// Rayon pools of 1, 2, 3 and 7 threads.
pub fn pools() -> Vec<rayon::ThreadPool> {
    [1, 2, 3, 7]
        .into_iter()
        .map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap())
        .collect()
}
