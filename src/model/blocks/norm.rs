//! "Add & Norm" around a block, and the norm after the last layer.

use super::ExecContext;
use crate::config::NormPlacement;
use crate::error::Error;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::Workspace;
use crate::model::weights::Norm;
use simdformer_kernels::{Matrix, PostOp};

/// The paper's "Add & Norm" around `f`: `x = norm(x + f(x))`, or `x = x + f(norm(x))` in pre-norm.
///
/// `x` is the residual stream; `h` has the same shape. `f(ops, input, residual, out)` must set
/// `out = residual + f(input)`. The intermediate tensors stay in `x` and `h`: see [`sum_and_norm`].
pub(crate) fn add_and_norm<'b, O: BlockOps<'b>>(
    run: &ExecContext<'_>,
    norm: &Norm,
    [x, h]: [&mut [f32]; 2],
    ops: &mut O,
    f: impl FnOnce(&mut O, &[f32], PostOp<'_>, &mut [f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let d = run.config.d_model;
    let output = ops.dropout_buffer();
    match run.config.norm {
        NormPlacement::Pre => {
            ops.norm(norm, x, h)?;
            let Some(output) = output else { return f(ops, h, PostOp::AddOutput, x) };
            f(ops, h, PostOp::None, output)?;
            ops.dropout_add(output, x)
        }
        NormPlacement::Post => {
            if let Some(output) = output {
                f(ops, x, PostOp::None, output)?;
                h.copy_from_slice(x);
                ops.dropout_add(output, h)?;
            } else {
                f(ops, x, PostOp::Add(Matrix::new(x, x.len() / d, d)?), h)?;
            }
            ops.norm(norm, h, x)
        }
    }
}

/// After a block: the residual sum (the residual stream plus the output of the block) and the norm of the
/// block.
pub(crate) fn sum_and_norm<'w>(
    run: &ExecContext<'_>,
    work: &'w Workspace<'_>,
) -> (&'w [f32], &'w [f32]) {
    match run.config.norm {
        NormPlacement::Pre => (work.x, work.h),
        NormPlacement::Post => (work.h, work.x),
    }
}

/// Applies the norm after the last layer to `work.x`, if the architecture has one.
pub(crate) fn final_norm<M: ForwardMode>(norm: Option<&Norm>, mode: &mut M) -> Result<(), Error> {
    let (Workspace { x, h, .. }, mut ops) = mode.block(BlockId::FinalNorm)?;
    if let Some(norm) = norm {
        ops.norm_in_place(norm, [x, h])?;
    }
    drop(ops);
    mode.after(BlockId::FinalNorm)
}
