//! Brings every parameter of the table to its place: from a checkpoint, or from whoever writes it.

use super::layout::Table;
use super::packed_weight::PackedWeight;
use super::parameter::{Parameter, Place};
use crate::checkpoint::{Checkpoint, TensorId, TensorView};
use crate::memory::zeros;
use crate::model::error::ModelError;
use crate::model::progress::{Loading, OnLoading};
use core::ops::{ControlFlow, Range};
use simdformer_kernels::{Isa, Parallelism};

/// Rows of a weight matrix that are read from the file at a time: a multiple of every panel.
const ROWS_PER_READ: usize = 64;

/// Numbers of what is stored as it is that are read at a time: 4 MB, so that somebody who waits sees it go on.
const FLOATS_PER_READ: usize = 1 << 20;

/// Floats beside the packed weights that [`load`] needs: the rows that are being packed.
pub(crate) fn staged(parameters: &[Parameter]) -> usize {
    let rows = parameters.iter().map(|parameter| match (&parameter.place, &parameter.shape[..]) {
        (Place::Columns { .. }, &[rows, ref of_row @ ..]) => {
            let columns = of_row.iter().product::<usize>();
            rows.min(ROWS_PER_READ).saturating_mul(columns).saturating_add(spare(&parameter.shape))
        }
        _ => 0,
    });
    rows.max().unwrap_or(0)
}

/// Floats that it takes to put a row of a convolution into the order of a window.
fn spare(shape: &[usize]) -> usize {
    match *shape {
        [_, inputs, width] => inputs * width,
        _ => 0,
    }
}

/// Stores rows of a linear map or of a convolution of this shape as the columns from `first` on; the last
/// [`spare`] numbers of `block` are free to use.
fn pack(
    matrix: &PackedWeight,
    isa: Isa,
    shape: &[usize],
    block: &mut [f32],
    first: usize,
    memory: &mut [f32],
) -> Result<(), ModelError> {
    let (rows, row) = block.split_at_mut(block.len().saturating_sub(spare(shape)));
    if let &[_, _, width] = shape {
        rows.chunks_exact_mut(row.len()).for_each(|taps| in_order_of_frames(taps, width, row));
    }
    matrix.fill(isa, rows, first, memory, Parallelism::Serial)
}

/// `[inputs, width]`, as a convolution keeps its taps, to `[width, inputs]`, frame after frame, as its window lies in
/// memory.
fn in_order_of_frames(taps: &mut [f32], width: usize, row: &mut [f32]) {
    let inputs = taps.len() / width.max(1);
    for (input, taps) in taps.chunks(width.max(1)).enumerate() {
        for (frame, &tap) in taps.iter().enumerate() {
            row[frame * inputs + input] = tap;
        }
    }
    taps.copy_from_slice(row);
}

/// Fills `memory`, which holds zeros, from a checkpoint, and says after every few rows how far it is.
pub(crate) fn load(
    checkpoint: &Checkpoint<'_>,
    isa: Isa,
    parameters: &[Parameter],
    memory: &mut [f32],
    on_progress: &mut OnLoading<'_>,
) -> Result<(), ModelError> {
    let mut total = 0;
    for parameter in parameters {
        total += tensor_of(checkpoint, parameter)?.map_or(0, |tensor| tensor.stored_bytes());
    }
    let mut done = 0;
    let mut progress = |rows: &TensorView<'_>| {
        done += rows.stored_bytes();
        match on_progress(Loading { tensor: rows.name(), done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ModelError::Stopped { done, total }),
        }
    };
    // A few rows of the tensor that is being stored.
    let mut block = zeros(staged(parameters))?;
    for parameter in parameters {
        let tensor = tensor_of(checkpoint, parameter)?;
        match (&parameter.place, tensor) {
            (Place::Rows { range, .. }, Some(tensor)) => {
                let per_read = (FLOATS_PER_READ / tensor.row_len().max(1)).max(1);
                let mut left = &mut memory[range.clone()];
                for rows in blocks(&tensor, per_read) {
                    let rows = tensor.rows(rows)?;
                    let (now, later) = left.split_at_mut(rows.len());
                    rows.read_into(now)?;
                    left = later;
                    progress(&rows)?;
                }
            }
            (Place::Columns { matrix, first }, Some(tensor)) => {
                for rows in blocks(&tensor, ROWS_PER_READ) {
                    let start = rows.start;
                    let rows = tensor.rows(rows)?;
                    let block = &mut block[..rows.len() + spare(&parameter.shape)];
                    rows.read_into(&mut block[..rows.len()])?;
                    pack(matrix, isa, &parameter.shape, block, first + start, memory)?;
                    progress(&rows)?;
                }
            }
            (Place::PruningTable(screen), _) => screen.fill(isa, memory)?,
            // What is absent is zero, as the memory is.
            (Place::Rows { .. } | Place::Columns { .. } | Place::Shared(_), _) => {}
        }
    }
    Ok(())
}

/// What is to be read for a parameter.
fn tensor_of<'c>(
    checkpoint: &'c Checkpoint<'_>,
    parameter: &Parameter,
) -> Result<Option<TensorView<'c>>, ModelError> {
    let role = parameter.role;
    let tensor = match (&parameter.place, role.may_be_absent()) {
        (Place::PruningTable(_) | Place::Shared(_), _) => None,
        (_, true) => checkpoint.optional(role)?,
        (_, false) => Some(checkpoint.tensor(role)?),
    };
    match (&parameter.place, tensor) {
        (Place::Rows { skip, .. }, Some(tensor)) => {
            let rows = tensor.shape().first().copied().unwrap_or(0);
            Ok(Some(tensor.rows(*skip..rows)?))
        }
        (_, tensor) => Ok(tensor),
    }
}

/// All rows of a tensor, so many at a time.
fn blocks(tensor: &TensorView<'_>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    (0..rows).step_by(most).map(move |start| start..rows.min(start + most))
}

/// Writes a tensor: what for, its shape, and where to, which holds zeros.
pub(crate) type Fill<'f> = dyn FnMut(TensorId, &[usize], &mut [f32]) -> Result<(), ModelError> + 'f;

/// Floats of the memory in which a tensor is written that is stored in another form than its shape.
fn written(parameter: &Parameter) -> usize {
    match parameter.place {
        Place::Rows { skip: 0, .. } | Place::PruningTable(_) | Place::Shared(_) => {
            spare(&parameter.shape)
        }
        Place::Rows { .. } | Place::Columns { .. } => {
            let shape = parameter.shape.iter();
            let floats = shape.fold(1usize, |floats, &size| floats.saturating_mul(size));
            floats.saturating_add(spare(&parameter.shape))
        }
    }
}

/// Fills `memory`, which holds zeros, with what `fill` writes. It is asked for each tensor once, but for those that are
/// tied to another; `tied` is the table that is the output's matrix too.
pub(crate) fn fill(
    fill: &mut Fill<'_>,
    isa: Isa,
    parameters: &[Parameter],
    tied: Option<&Table>,
    memory: &mut [f32],
) -> Result<(), ModelError> {
    // A tensor whose form in memory is not that of its shape. Memory for the largest is there before the first is
    // written.
    let is_tied = |parameter: &&Parameter| tied.is_some() && parameter.role == TensorId::Output;
    let own = parameters.iter().filter(|parameter| !is_tied(parameter));
    let mut whole = zeros(own.map(written).max().unwrap_or(0))?;
    // Numbers of it that may not be zero.
    let mut used = 0;
    for parameter in parameters {
        let Parameter { role, shape, place, .. } = parameter;
        let len = written(parameter) - spare(shape);
        let mut staged = |whole: &mut [f32]| {
            whole[..used.min(len)].fill(0.0);
            used = used.max(len + spare(shape));
            fill(*role, shape, &mut whole[..len])?;
            finite(*role, &whole[..len])
        };
        match (place, tied) {
            (Place::Rows { range, skip: 0 }, _) => {
                let rows = &mut memory[range.clone()];
                fill(*role, shape, rows)?;
                finite(*role, rows)?;
            }
            (Place::Rows { range, skip }, _) => {
                staged(&mut whole)?;
                let columns: usize = shape.iter().skip(1).product();
                memory[range.clone()].copy_from_slice(&whole[skip * columns..len]);
            }
            (Place::Columns { matrix, .. }, Some(table)) if *role == TensorId::Output => {
                matrix.fill_from(isa, table.range.clone(), memory)?;
            }
            (Place::Columns { matrix, first }, _) => {
                staged(&mut whole)?;
                pack(matrix, isa, shape, &mut whole[..len + spare(shape)], *first, memory)?;
            }
            (Place::PruningTable(screen), _) => screen.fill(isa, memory)?,
            (Place::Shared(_), _) => {}
        }
    }
    Ok(())
}

/// The same numbers that a checkpoint may hold: minus infinity is a way to ban a token.
fn finite(role: TensorId, numbers: &[f32]) -> Result<(), ModelError> {
    let bias = role == TensorId::OutputBias;
    let good = |x: f32| x.is_finite() || bias && x == f32::NEG_INFINITY;
    match numbers.iter().position(|&x| !good(x)) {
        Some(index) => Err(ModelError::NotFinite { role, index, found: numbers[index] }),
        None => Ok(()),
    }
}

/// Floats of the memory in which [`refresh`] puts rows of convolutions into the order of windows.
#[cfg(feature = "train")]
pub(crate) fn refresh_floats<'s>(shapes: impl Iterator<Item = &'s [usize]>) -> usize {
    let floats = shapes.map(|shape| match *shape {
        [rows, ..] => (rows.min(ROWS_PER_READ) + 1).saturating_mul(spare(shape)),
        [] => 0,
    });
    floats.max().unwrap_or(0)
}

/// Stores other numbers in the same places: `rows_of` has those of each role, row after row, and `room` is of
/// [`refresh_floats`]. Allocates nothing.
#[cfg(feature = "train")]
pub(crate) fn refresh<'r>(
    isa: Isa,
    parameters: &[Parameter],
    memory: &mut [f32],
    rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
    room: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), ModelError> {
    for Parameter { role, shape, place, .. } in parameters {
        match place {
            Place::Columns { matrix, first } if spare(shape) > 0 => {
                let per_block = ROWS_PER_READ * spare(shape);
                for (index, rows) in rows_of(*role).chunks(per_block).enumerate() {
                    let block = room.get_mut(..rows.len() + spare(shape));
                    let block = block.ok_or(ModelError::TooLarge)?;
                    block[..rows.len()].copy_from_slice(rows);
                    pack(matrix, isa, shape, block, first + index * ROWS_PER_READ, memory)?;
                }
            }
            Place::Rows { range, skip } => {
                let columns: usize = shape.iter().skip(1).product();
                let rows = rows_of(*role).get(skip * columns..).ok_or(ModelError::TooLarge)?;
                memory[range.clone()].copy_from_slice(rows);
            }
            Place::Columns { matrix, first } => {
                matrix.fill(isa, rows_of(*role), *first, memory, parallelism)?;
            }
            Place::PruningTable(screen) => screen.fill(isa, memory)?,
            Place::Shared(_) => {}
        }
    }
    Ok(())
}
