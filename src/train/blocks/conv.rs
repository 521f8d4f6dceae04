//! The backward pass of the two convolutions of an encoder that reads features, some positions at a time.
//!
//! Contiguous rows already form windows, so each convolution is one product over a view whose rows overlap. Let `dy` be the gradient of a result `y`, and `W_0`, `W_1`
//! and `W_2` the matrices of the three taps, in the order of the frames of a window: `dPre = dX * gelu'(pre)`, `dW_t
//! = dPre^T (row t of each window)`. A frame with an even number is in the middle of one window. A frame with an odd
//! number is the last of one window and the first of the next: `dHidden[2 p] = dPre[p] W_1` and `dHidden[2 p + 1] =
//! dPre[p] W_2 + dPre[p + 1] W_0`, in this order. So no scatter is needed: each term is a product that writes every
//! second row. The padding frames before and after the sound have no gradient rows.
//!
//! The output of the first convolution is recomputed from the caller's features, including the position after the
//! last, because the gradient of the last frame needs it. Sums are computed in reduction chunks of [`CONV_ROWS`]
//! positions of one source, source after source. In the checkpoint, the three taps of an output are adjacent, so a
//! matrix of one tap has a stride of three values.

use crate::error::Error;
use crate::input_features::Features;
use crate::model::blocks::{CONV_ROWS, WIDTH, first_rows, reach, second_windows};
use crate::model::weights::{Backward, Linear};
use crate::train::params;
use crate::train::pass_context::{Pass, cut, views};
use simdformer_kernels::train::{self as kernels, ReductionChunks, WriteMode, activation_backward};
use simdformer_kernels::{Activation, Input, Matrix, MatrixMut, PostOp, activation};

/// Frames between successive positions.
const STRIDE: usize = Features::STRIDE;

/// Some positions of one source.
#[derive(Clone, Copy)]
struct Piece<'f> {
    features: &'f Features<'f>,
    /// The first position within the source.
    start: usize,
    count: usize,
    /// The row of the first position in the pass.
    row: usize,
}

impl Piece<'_> {
    /// The number of positions, including the one after the last if it exists.
    fn with_next(&self) -> usize {
        (self.count + 1).min(self.features.positions() - self.start)
    }

    /// The numbers of even frames (in the middle of windows) and of odd frames (between windows).
    fn frames(&self) -> [usize; 2] {
        let left = self.features.frames() - STRIDE * self.start;
        let frames = left.min(STRIDE * self.count);
        [frames.div_ceil(STRIDE), frames / STRIDE]
    }
}

impl Pass<'_> {
    /// The sources of the pass, cut into pieces of some positions.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut first = 0;
        let sources = self.pairs.iter().filter_map(|pair| pair.features.as_ref());
        sources.flat_map(move |features| {
            let (positions, row) = (features.positions(), first);
            first += positions;
            (0..positions).step_by(CONV_ROWS).map(move |start| {
                let count = CONV_ROWS.min(positions - start);
                Piece { features, start, count, row: row + start }
            })
        })
    }

    /// `pre = windows W + b` of the second convolution.
    fn second(&self, second: &Linear, hidden: &[f32], pre: &mut [f32]) -> Result<(), Error> {
        let d = self.run.config.d_model;
        let windows = second_windows(hidden, pre.len() / d, d)?;
        let after = (Activation::Identity, PostOp::None);
        Ok(self.run.linear_of(second, windows, &mut [], after, pre)?)
    }

    /// Computes the parameter gradients of both convolutions from the gradient of their output, in the encoder's
    /// `d_x`.
    pub(in crate::train) fn conv_backward(
        &self,
        ([first, second], flat): (&[Linear; 2], &[params::Linear; 2]),
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let d = self.run.config.d_model;
        let (exec, parallelism) = (self.run.exec(), self.run.parallelism);
        let conv = &self.plan.conv;
        views! { memory =>
            d_x: self.plan.encoder.d_x,
            window: conv.window,
            hidden: conv.hidden,
            pre: conv.first,
            second_pre: conv.second,
            d_second: conv.d_second,
            d_first: conv.d_first,
            scratch: self.plan.weight_gradient,
            p0: conv.taps[0],
            p1: conv.taps[1],
            p2: conv.taps[2],
        }
        let taps =
            [self.taps(&flat[1], 0, p0)?, self.taps(&flat[1], 1, p1)?, self.taps(&flat[1], 2, p2)?];
        let mut write = self.write;
        for piece in self.pieces() {
            let with_next = piece.with_next();
            let (rows, frames) = reach(with_next);
            let window = &mut window[..frames * piece.features.bins];
            let (pre, hidden) = (&mut pre[..rows * d], &mut hidden[..rows * d]);
            let (source, between) = (piece.features, (&mut *window, &mut *pre));
            let activation = Activation::Identity;
            first_rows(&self.run, first, source, piece.start, activation, &mut [], between)?;
            let made = Self::matrix_mut(hidden, d)?;
            activation::apply(exec, Activation::Gelu, Input::Matrix(Self::matrix(pre, d)?), made)?;
            let second_pre = match conv.saves_second {
                true => &second_pre[piece.row * d..][..with_next * d],
                false => {
                    let recomputed = &mut second_pre[..with_next * d];
                    self.second(second, hidden, recomputed)?;
                    recomputed
                }
            };
            let d_pre = &mut d_second[..with_next * d];
            d_pre.copy_from_slice(&d_x[piece.row * d..][..with_next * d]);
            let (of, to) = (Self::matrix(second_pre, d)?, Self::matrix_mut(d_pre, d)?);
            activation_backward(exec, Activation::Gelu, of, to)?;

            let (d_pre, own) = (&*d_pre, &d_pre[..piece.count * d]);
            let read = (Self::matrix(own, d)?, &*hidden, STRIDE * d);
            self.taps_gradient(&flat[1], write, read, gradients, scratch)?;

            let [middle, between] = piece.frames();
            let d_first = &mut d_first[..(middle + between) * d];
            let even = Matrix::new(d_pre, middle, d)?;
            let to = MatrixMut::strided(d_first, middle, d, STRIDE * d, 1)?;
            taps[1].multiply(even, PostOp::None, to, parallelism)?;
            let odd = d_first.get_mut(d..).unwrap_or(&mut []);
            let to = MatrixMut::strided(odd, between, d, STRIDE * d, 1)?;
            taps[2].multiply(Matrix::new(d_pre, between, d)?, PostOp::None, to, parallelism)?;
            let next = Matrix::new(&d_pre[d..], with_next - 1, d)?;
            let to = MatrixMut::strided(odd, with_next - 1, d, STRIDE * d, 1)?;
            taps[0].multiply(next, PostOp::AddOutput, to, parallelism)?;
            // The first row belongs to the frame before.
            let of = Matrix::new(&pre[d..], middle + between, d)?;
            let to = Self::matrix_mut(d_first, d)?;
            activation_backward(exec, Activation::Gelu, of, to)?;
            let bins = piece.features.bins;
            let read = (Self::matrix(d_first, d)?, &window[bins..], bins);
            self.taps_gradient(&flat[0], write, read, gradients, scratch)?;
            write = WriteMode::Add;
        }
        Ok(())
    }

    /// The matrix of one tap, `[outputs, inputs]`, packed for the gradient of its input.
    fn taps<'b>(
        &self,
        flat: &params::Linear,
        tap: usize,
        buffer: &'b mut [f32],
    ) -> Result<Backward<'b>, Error> {
        let (outputs, inputs) = (flat.outputs, flat.inputs / WIDTH);
        let weight = &self.values[flat.weight.clone()];
        let weight = Matrix::strided(&weight[tap..], outputs, inputs, WIDTH * inputs, WIDTH)?;
        Ok(Backward::pack(self.run.isa(), weight, buffer, self.run.parallelism)?)
    }

    /// The gradients of a convolution's taps and bias. `d_y` is `[rows, outputs]`; successive windows are `step`
    /// floats apart.
    fn taps_gradient(
        &self,
        flat: &params::Linear,
        write: WriteMode,
        (d_y, windows, step): (Matrix<'_>, &[f32], usize),
        gradients: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Error> {
        let exec = self.run.exec();
        let (outputs, inputs) = (flat.outputs, flat.inputs / WIDTH);
        let ends = [d_y.rows() as u32];
        let chunk = ReductionChunks::new(&ends)?;
        let [weight, bias] = match &flat.bias {
            Some(bias) => cut(gradients, [&flat.weight, bias])?,
            None => [&mut gradients[flat.weight.clone()], &mut []],
        };
        let mut bias = flat.bias.is_some().then_some(bias);
        for tap in 0..WIDTH {
            let x = Matrix::strided(&windows[tap * inputs..], d_y.rows(), inputs, step, 1)?;
            let to = &mut weight[tap..];
            let to = MatrixMut::strided(to, outputs, inputs, WIDTH * inputs, WIDTH)?;
            let bias = bias.take();
            kernels::weight_gradient(exec, d_y, x, chunk, write, to, bias, scratch)?;
        }
        Ok(())
    }
}
