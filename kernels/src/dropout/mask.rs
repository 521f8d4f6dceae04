//! Dropout of the elements of rows.

use super::philox::{GROUP, Philox};
use crate::error::Error;
use crate::float_mode::in_default_mode;
use crate::input::Input;
use crate::matrix::MatrixMut;
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::simd::simd_op;
use crate::train::WriteMode;
use core::ops::Range;

/// Decisions in one block.
pub(super) const DECISIONS: usize = 8;
/// Blocks that are computed at once.
const BLOCKS: usize = 64;
/// The number of this use in the table of the module `dropout`.
const OF_ROWS: u32 = 1;
/// Decisions that are made at once.
const CHUNK: usize = DECISIONS * BLOCKS;

/// Selects the elements that are dropped at one site of a model in one step.
///
/// ```
/// use simdformer_kernels::train::Dropout;
///
/// let dropout = Dropout { seed: 42, step: 1000, site: 3, probability: 0.1 };
/// // The probability is rounded to a multiple of 1/65536.
/// assert_eq!(dropout.keep()?, 58982.0 / 65536.0);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the update.
    pub step: u64,
    /// The number of the place in the model. Places that drop independently have different numbers.
    pub site: u32,
    /// The probability that an element is dropped, rounded to a multiple of 1/65536; less than 1.
    pub probability: f32,
}

/// The number of decisions of 65,536 that drop an element, and the factor of the other elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) dropped: u16,
    factor: f32,
}

impl Dropout {
    /// The probability that an element is not dropped. The elements that are not dropped are divided by it.
    ///
    /// # Errors
    /// The probability is negative, NaN, or so near to 1 that no element remains.
    pub fn keep(&self) -> Result<f64, Error> {
        let dropped = self.share()?.dropped;
        Ok(in_default_mode(|| 1.0 - f64::from(dropped) / 65536.0))
    }

    pub(super) fn share(&self) -> Result<Share, Error> {
        let found = self.probability;
        in_default_mode(|| {
            let dropped = libm::round(f64::from(found) * 65536.0);
            let (value, fits) = (f64::from(found), found >= 0.0 && dropped < 65536.0);
            Error::check_setting("dropout probability", value, fits, "at least 0 and below 1")?;
            Ok(Share { dropped: dropped as u16, factor: (65536.0 / (65536.0 - dropped)) as f32 })
        })
    }

    /// The random function for use number `purpose`.
    pub(super) const fn philox(&self, purpose: u32) -> Philox {
        let step = [self.step as u32, (self.step >> 32) as u32];
        Philox::new(self.seed).branch([purpose, self.site, step[0], step[1]])
    }
}

simd_op!(
    /// Drops elements of the rows of `from`, or of `to` if there is no `from`, and stores them in `to` or adds them. `of`
    /// are the sentence and the position of each row.
    fn drop_rows<S: SimdF32>(
        _s: S,
        random: (Philox, Share),
        of: (&[u32], &[u32]),
        rows: Range<usize>,
        columns: usize,
        from: Option<RowPtrs<'_>>,
        to: RowPtrs<'_>,
        write: WriteMode,
    ) {
        let (philox, share) = random;
        let mut blocks = [[0u64; 2]; BLOCKS];
        for row in rows {
            // SAFETY: `dropout` checked with `RowPtrs` that the matrices have these rows of `columns` floats; `for_rows`
            // gives each task its own rows.
            let (x, out) = unsafe {
                let out = core::slice::from_raw_parts_mut(to.row(row), columns);
                (from.map(|from| core::slice::from_raw_parts(from.row(row), columns)), out)
            };
            let (sentence, position) = (of.0[row], of.1[row]);
            let first = u64::from(position).wrapping_mul(columns as u64);
            let mut done = 0;
            while done < columns {
                let element = first.wrapping_add(done as u64);
                // The first decision of a block belongs to an element whose index is a multiple of 8.
                let skipped = (element % DECISIONS as u64) as usize;
                let count = (columns - done).min(CHUNK - skipped);
                // If no element is dropped, no random numbers are needed.
                if share.dropped > 0 {
                    let groups = (skipped + count).div_ceil(DECISIONS * GROUP);
                    let blocks = &mut blocks[..groups * GROUP];
                    philox.blocks(element / DECISIONS as u64, sentence, blocks);
                }
                // SAFETY: a 64-bit word has the size of four 16-bit numbers and sufficient alignment.
                let decisions =
                    unsafe { core::slice::from_raw_parts(blocks.as_ptr().cast::<u16>(), CHUNK) };
                let decisions = &decisions[skipped..skipped + count];
                let out = &mut out[done..done + count];
                let x = x.map(|x| &x[done..done + count]);
                match write {
                    WriteMode::Store => drop_each(share, x, decisions, out, |out, x| *out = x),
                    WriteMode::Add => drop_each(share, x, decisions, out, |out, x| *out += x),
                }
                done += count;
            }
        }
    }
);

/// Writes each element of `x`, or of `out` without `x`, after its decision.
#[inline(always)]
fn drop_each(
    share: Share,
    x: Option<&[f32]>,
    decisions: &[u16],
    out: &mut [f32],
    write: impl Fn(&mut f32, f32),
) {
    let each = out.iter_mut().zip(decisions);
    match x {
        Some(x) => each.zip(x).for_each(|((out, &d), &x)| write(out, share.apply(x, d))),
        None => each.for_each(|(out, &d)| write(out, share.apply(*out, d))),
    }
}

impl Share {
    #[inline(always)]
    pub(super) fn apply(self, x: f32, decision: u16) -> f32 {
        if u16::from_le(decision) >= self.dropped { x * self.factor } else { 0.0 }
    }
}

/// Each element of `x` `[rows, columns]` becomes 0 or is divided by the probability that it is not dropped. `out` gets the
/// result, or its sum with the result: a residual connection in one pass, with the bits of a store and an addition. With
/// [`Input::Output`] `x` is the content of `out`. The same call on the gradient of the result makes it the gradient of
/// `x`.
///
/// Whether column `c` of a row is dropped depends only on `dropout`, on the row's sentence (`sentences[row]`, its
/// number in the corpus), and on the row's position in the sentence (`positions[row]`), through the element number
/// `position * columns + c`. So the backward pass computes the same mask as the forward pass, on every instruction
/// set, with any number of threads and in any batch. A dropped element is 0 whatever its value was. With a probability
/// of 0, `x` is not changed.
///
/// Error: one rounding, and half a ULP of the factor; another rounding if it is added.
///
/// # Errors
/// The number of sentences or positions differs from the number of rows, shapes differ, the elements of a row are not
/// contiguous, or the probability is not in its range.
///
/// ```
/// use simdformer_kernels::train::{Dropout, WriteMode, dropout};
/// use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut};
///
/// let (exec, of) = (Exec::serial(Isa::best()), [7, 7]);
/// let half = Dropout { seed: 1, step: 1, site: 0, probability: 0.5 };
/// let mut x = [1.0; 16];
/// let view = MatrixMut::new(&mut x, 2, 8)?;
/// dropout(exec, &half, &of, &[0, 1], Input::Output, WriteMode::Store, view)?;
/// assert!(x.iter().all(|&x| x == 0.0 || x == 2.0));
///
/// let mut sum = [10.0; 16];
/// let (ones, out) = (Matrix::new(&[1.0; 16], 2, 8)?, MatrixMut::new(&mut sum, 2, 8)?);
/// dropout(exec, &half, &of, &[0, 1], Input::Matrix(ones), WriteMode::Add, out)?;
/// assert_eq!(sum, x.map(|x| 10.0 + x));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dropout(
    exec: Exec<'_>,
    dropout: &Dropout,
    sentences: &[u32],
    positions: &[u32],
    x: Input<'_>,
    write: WriteMode,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let out = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let from = match &x {
        Input::Matrix(x) => Some(RowPtrs::from_matrix("x", x, shape)?),
        Input::Output => None,
    };
    Error::check_len("sentences", rows, sentences)?;
    Error::check_len("positions", rows, positions)?;
    let (share, philox) = (dropout.share()?, dropout.philox(OF_ROWS));
    let unchanged = share.dropped == 0 && from.is_none() && write == WriteMode::Store;
    if !unchanged {
        for_rows(exec, shape, |rows| {
            drop_rows((philox, share), (sentences, positions), rows, columns, from, out, write)
        });
    }
    Ok(())
}
