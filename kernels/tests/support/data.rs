//! Values that are the same in every run, memory that shows when it was accessed, and views of dense data. This module
//! needs only std, so that programs under Miri and sanitizers can include it.
#![allow(dead_code, missing_docs, unreachable_pub)]

use simdformer_kernels::{Heads, HeadsMut, Matrix, MatrixMut, Parallelism};

pub const SERIAL: Parallelism<'static> = Parallelism::Serial;

/// A NaN with a payload that no kernel computes. Memory that still has it was not written.
pub const POISON: f32 = f32::from_bits(0x7fc0_dead);

/// `count` floats that a kernel must write before it reads them.
pub fn poisoned(count: usize) -> Vec<f32> {
    vec![POISON; count]
}

/// Whether no kernel has written to `data`, which held [`POISON`].
pub fn is_poison(data: &[f32]) -> bool {
    data.iter().all(|x| x.to_bits() == POISON.to_bits())
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[track_caller]
pub fn view_matrix(data: &[f32], rows: usize, columns: usize) -> Matrix<'_> {
    Matrix::new(data, rows, columns).expect("as many numbers")
}

#[track_caller]
pub fn view_matrix_mut(data: &mut [f32], rows: usize, columns: usize) -> MatrixMut<'_> {
    MatrixMut::new(data, rows, columns).expect("as many numbers")
}

/// `data` in `rows` rows.
#[track_caller]
pub fn view_rows(data: &mut [f32], rows: usize) -> MatrixMut<'_> {
    let columns = data.len() / rows;
    view_matrix_mut(data, rows, columns)
}

/// A view of `[tokens, heads, head_dim]`.
#[track_caller]
pub fn view_heads(data: &[f32], shape: [usize; 3]) -> Heads<'_> {
    Heads::new(data, shape).expect("as many numbers")
}

#[track_caller]
pub fn view_heads_mut(data: &mut [f32], shape: [usize; 3]) -> HeadsMut<'_> {
    HeadsMut::new(data, shape).expect("as many numbers")
}

/// SplitMix64 (Steele, Lea and Flood 2014), reproducible from the seed that a failing test prints.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `0..n`, and 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// `0.0..1.0`
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// `-1.0..1.0`
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Approximately normal: variance 1, within 6.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    /// An integer of `-bound..=bound`.
    pub fn integer(&mut self, bound: usize) -> f32 {
        self.below(2 * bound + 1) as f32 - bound as f32
    }

    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }

    pub fn integers(&mut self, n: usize, bound: usize) -> Vec<f32> {
        (0..n).map(|_| self.integer(bound)).collect()
    }
}
