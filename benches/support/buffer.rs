//! Floats to compute on, aligned to cache lines as a planned workspace is.

use std::ops::{Deref, DerefMut};

/// Floats in one cache line.
const LINE: usize = 16;

/// `len` floats that start at a multiple of 64 bytes.
pub(crate) struct Buffer {
    floats: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeros, written once, so that no page is mapped for the first time during a measurement.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut floats = vec![1.0f32; len + LINE];
        floats.fill(0.0);
        let start = floats.as_ptr().align_offset(4 * LINE).min(LINE);
        Self { floats, start, len }
    }

    /// Uniform in `[-1, 1)`, the same for the same `seed`, without subnormal numbers and zeros.
    pub(crate) fn random(len: usize, seed: u64) -> Self {
        let mut buffer = Self::zeros(len);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for x in buffer.iter_mut() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *x = ((state >> 40) as f32 + 0.5) / (1u64 << 23) as f32 - 1.0;
        }
        buffer
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats[self.start..self.start + self.len]
    }
}
