//! What the tests and the benches share: seeded tensors in every layout that candle can make, and comparisons.

pub mod checkpoint;

use candle_core::{Device, Result, Tensor};
use simdformer_kernels::Isa;

/// The best instruction set, or the one that the environment names.
pub fn isa() -> Isa {
    Isa::detect().expect("a set that is here")
}

/// xorshift64*, Vigna 2016.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A stream of random numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// From `low` to `high`, both included.
    pub fn from(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.from(1, count) == 1
    }

    /// From -1 to 1.
    pub fn float(&mut self) -> f32 {
        (self.next() % (1 << 24)) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Of [`Self::float`].
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// Contiguous.
    pub fn tensor(&mut self, dims: &[usize]) -> Result<Tensor> {
        let floats = self.floats(dims.iter().product());
        Tensor::from_vec(floats, dims, &Device::Cpu)
    }

    /// A tensor of `dims` in some layout: permuted, narrowed, shifted, and broadcast if that is
    /// allowed.
    pub fn view(&mut self, dims: &[usize], broadcast: bool) -> Result<Tensor> {
        let rank = dims.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if self.one_in(2) {
            for last in (1..rank).rev() {
                order.swap(last, self.from(0, last));
            }
        }
        // The size of each dimension in memory, and the start of the tensor in it.
        let mut places = Vec::new();
        for &dim in dims {
            places.push(match self.from(0, 9) {
                0..2 => (dim + self.from(0, 3), self.from(0, 3)),
                2 if broadcast && dim > 1 => (1, 0),
                _ => (dim, 0),
            });
        }
        let extents: Vec<usize> = places.iter().map(|&(extent, start)| extent + start).collect();
        let mut stored: Vec<usize> = order.iter().map(|&axis| extents[axis]).collect();
        stored.insert(0, 2);
        let offset = self.from(0, 1);
        let mut tensor = self.tensor(&stored)?.narrow(0, offset, 1)?.squeeze(0)?;
        let back: Vec<usize> = (0..rank)
            .map(|axis| order.iter().position(|&stored| stored == axis).expect("a permutation"))
            .collect();
        tensor = tensor.permute(back)?;
        for (axis, (&(extent, start), &dim)) in places.iter().zip(dims).enumerate() {
            tensor = tensor.narrow(axis, start, dim.min(extent))?;
        }
        tensor.broadcast_as(dims)
    }
}

/// The bits of the elements in order.
pub fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(floats(tensor)?.into_iter().map(f32::to_bits).collect())
}

/// The elements in order. candle cannot read an empty tensor that is shifted.
fn floats(tensor: &Tensor) -> Result<Vec<f32>> {
    match tensor.elem_count() {
        0 => Ok(Vec::new()),
        _ => tensor.flatten_all()?.to_vec1::<f32>(),
    }
}

/// Within 2e-5 of the largest magnitude.
#[track_caller]
pub fn close(found: &Tensor, expected: &Tensor, what: &str) -> Result<()> {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let (found, expected) = (floats(found)?, floats(expected)?);
    let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    assert!(expected.iter().all(|x| x.is_finite()), "{what}");
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = (found - expected).abs();
        assert!(
            error <= 2e-5 * largest,
            "{what}: element {index} is {found}, expected {expected}, of at most {largest}"
        );
    }
    Ok(())
}
