//! Packs every parameter of the table into its range of memory, from a checkpoint or from a function, and unpacks it.

use super::layout::{Parameter, Place, Placement, ResolvedDtypes};
use super::model_weights::{Network, Weights};
use super::packed_weight::{PackedWeight, Weight};
use crate::checkpoint::{Checkpoint, TensorId, TensorView};
use crate::config::Config;
use crate::error::Error;
use crate::memory::zeros;
use crate::model::load_options::LoadOptions;
use crate::model::weight_dtypes::WEIGHTS;
use crate::model::weight_dtypes::{WeightDtype, unfit};
use core::ops::Range;
use simdformer_kernels::{Isa, Matrix, PackOptions, Parallelism, QuantizedMatrix};

/// Rows of a weight matrix that are read from the file at a time: a multiple of every panel width.
const ROWS_PER_READ: usize = 64;

/// Numbers of an unpacked tensor that are read at a time: 4 MB, so that progress is reported often enough.
const FLOATS_PER_READ: usize = 1 << 20;

/// Floats that [`Weights::load`] needs in addition to the packed weights: the rows that are being packed.
pub(crate) fn staged_floats(parameters: &[Parameter]) -> usize {
    let rows = parameters.iter().map(|parameter| match (&parameter.place, &parameter.shape[..]) {
        (Place::Columns { .. }, &[rows, ref of_row @ ..]) => {
            let columns = of_row.iter().product::<usize>();
            rows.min(ROWS_PER_READ)
                .saturating_mul(columns)
                .saturating_add(scratch_len(&parameter.shape))
        }
        _ => 0,
    });
    rows.max().unwrap_or(0)
}

/// Scratch floats for the transposition of one row of a convolution, see [`transpose_taps`].
fn scratch_len(shape: &[usize]) -> usize {
    match *shape {
        [_, inputs, width] => inputs * width,
        _ => 0,
    }
}

/// Stores rows of a linear map or of a convolution of this shape as columns `first..`. The last [`scratch_len`]
/// elements of `block` are scratch.
fn pack(
    matrix: &PackedWeight,
    isa: Isa,
    shape: &[usize],
    block: &mut [f32],
    first: usize,
    memory: &mut [f32],
) -> Result<(), Error> {
    let (rows, row) = block.split_at_mut(block.len().saturating_sub(scratch_len(shape)));
    if let &[_, _, width] = shape {
        rows.chunks_exact_mut(row.len()).for_each(|taps| transpose_taps(taps, width, row));
    }
    pack_rows(matrix, isa, rows, first, &mut memory[matrix.range.clone()], Parallelism::Serial)
}

/// Stores `rows`, `[outputs, depth]` as in a checkpoint, as columns `first..` of `panels`, the memory of the matrix.
fn pack_rows(
    matrix: &PackedWeight,
    isa: Isa,
    rows: &[f32],
    first: usize,
    panels: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let &PackedWeight { depth, columns, dtype, .. } = matrix;
    let rows =
        Matrix::new(rows, rows.len() / depth, depth).map_err(|_| Error::too_large(WEIGHTS))?;
    let (rows, shape) = (rows.transposed(), (depth, columns));
    match dtype {
        WeightDtype::Float(dtype) => {
            PackOptions { dtype, parallelism }.pack_columns(isa, rows, shape, first, panels)
        }
        WeightDtype::Quantized(_) => {
            QuantizedMatrix::quantize_block(isa, rows, shape, first, panels)
        }
    }
    .map_err(|error| unfit(dtype, error))
}

/// Transposes a row of a convolution from `[inputs, width]` to `[width, inputs]`, the order of its window in
/// memory.
fn transpose_taps(taps: &mut [f32], width: usize, row: &mut [f32]) {
    let inputs = taps.len() / width.max(1);
    for (input, taps) in taps.chunks(width.max(1)).enumerate() {
        for (frame, &tap) in taps.iter().enumerate() {
            row[frame * inputs + input] = tap;
        }
    }
    taps.copy_from_slice(row);
}

impl Weights {
    /// Allocates and reads the weights of `checkpoint`, and reports progress after every few rows. Returns them and the
    /// ranges of the network.
    pub(crate) fn load(
        checkpoint: &Checkpoint<'_>,
        isa: Isa,
        options: &mut LoadOptions<'_>,
    ) -> Result<(Self, Network), Error> {
        let dtypes = ResolvedDtypes::for_checkpoint(checkpoint, &options.dtypes)?;
        // The memory holds zeros.
        let (mut weights, network) =
            Placement::new(checkpoint.config(), isa, dtypes)?.allocate()?;
        let (parameters, memory) = weights.parts_mut();
        let tensors: Result<Vec<Option<TensorView<'_>>>, Error> =
            parameters.iter().map(|parameter| tensor_of(checkpoint, parameter)).collect();
        let tensors = tensors?;
        let total = tensors.iter().flatten().map(TensorView::stored_bytes).sum();
        let mut done = 0;
        let mut progress = |rows: &TensorView<'_>| {
            done += rows.stored_bytes();
            options.report(rows.name(), done, total)
        };
        // A few rows of the current tensor.
        let mut block = zeros(staged_floats(parameters)).map_err(Error::of_memory(WEIGHTS))?;
        for (parameter, tensor) in parameters.iter().zip(tensors) {
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
                        let block = &mut block[..rows.len() + scratch_len(&parameter.shape)];
                        rows.read_into(&mut block[..rows.len()])?;
                        pack(matrix, isa, &parameter.shape, block, first + start, memory)?;
                        progress(&rows)?;
                    }
                }
                (Place::PruningTable(table), _) => table.fill(isa, memory)?,
                // A missing tensor is zero, and the memory holds zeros.
                (Place::Rows { .. } | Place::Columns { .. } | Place::Shared(_), _) => {}
            }
        }
        Ok((weights, network))
    }

    /// Allocates the weights of `config` and fills them with the output of `fill`: once for each tensor, except tensors
    /// that are tied to another.
    pub(crate) fn from_fn(
        config: &Config,
        isa: Isa,
        options: &mut LoadOptions<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<(Self, Network), Error> {
        let dtypes =
            ResolvedDtypes { requested: options.dtypes.clone(), ..ResolvedDtypes::default() };
        // The memory holds zeros.
        let (mut weights, network) = Placement::new(config, isa, dtypes)?.allocate()?;
        // The table that is also the output matrix.
        let tied = network.decoder.as_ref().filter(|_| config.ties.target_output);
        let tied = tied.map(|decoder| &decoder.table);
        let (parameters, memory) = weights.parts_mut();
        let is_tied = |parameter: &&Parameter| tied.is_some() && parameter.role == TensorId::Output;
        let own = || parameters.iter().filter(|parameter| !is_tied(parameter));
        let total = own().map(stored_bytes).sum();
        let mut done = 0;
        let mut write = |parameter: &Parameter, out: &mut [f32]| {
            fill(parameter.role, &parameter.shape, out)?;
            finite(parameter.role, out)?;
            done += stored_bytes(parameter);
            options.report(&parameter.role.to_string(), done, total)
        };
        // The staging buffer for tensors whose layout in memory differs from their shape. It is allocated for the
        // largest tensor before the first call of `fill`.
        let floats = own().map(written).max().unwrap_or(0);
        let mut whole = zeros(floats).map_err(Error::of_memory(WEIGHTS))?;
        // Length of the prefix of `whole` that may hold numbers other than zero.
        let mut used = 0;
        for parameter in parameters {
            let Parameter { role, shape, place, .. } = parameter;
            let len = written(parameter) - scratch_len(shape);
            let mut staged = |whole: &mut [f32]| {
                whole[..used.min(len)].fill(0.0);
                used = used.max(len + scratch_len(shape));
                write(parameter, &mut whole[..len])
            };
            match (place, tied) {
                (Place::Rows { range, skip: 0 }, _) => {
                    write(parameter, &mut memory[range.clone()])?
                }
                (Place::Rows { range, skip }, _) => {
                    staged(&mut whole)?;
                    let columns: usize = shape.iter().skip(1).product();
                    memory[range.clone()].copy_from_slice(&whole[skip * columns..len]);
                }
                (Place::Columns { matrix, .. }, Some(table)) if *role == TensorId::Output => {
                    // The planner returns disjoint ranges.
                    let parts =
                        memory.get_disjoint_mut([table.range.clone(), matrix.range.clone()]);
                    let [rows, panels] = parts.map_err(|_| Error::too_large(WEIGHTS))?;
                    pack_rows(matrix, isa, rows, 0, panels, Parallelism::Serial)?;
                }
                (Place::Columns { matrix, first }, _) => {
                    staged(&mut whole)?;
                    pack(
                        matrix,
                        isa,
                        shape,
                        &mut whole[..len + scratch_len(shape)],
                        *first,
                        memory,
                    )?;
                }
                (Place::PruningTable(table), _) => table.fill(isa, memory)?,
                (Place::Shared(_), _) => {}
            }
        }
        Ok((weights, network))
    }

    /// Appends the numbers of a tensor in the order of a checkpoint to `out`. Rows of a table that the model does not use
    /// are zero.
    pub(crate) fn unpack(&self, role: TensorId, out: &mut Vec<f32>) -> Result<(), Error> {
        let (isa, parameters, memory) = (self.isa, &self.parameters, self.memory());
        // A pruning table comes after the matrix of the same role.
        let found = parameters.iter().find(|parameter| parameter.role == role);
        let Some(Parameter { shape, place, .. }) = found else { return Ok(()) };
        match place {
            Place::Shared(role) => self.unpack(*role, out),
            Place::Rows { range, skip } => {
                out.resize(skip * shape.iter().skip(1).product::<usize>(), 0.0);
                out.extend_from_slice(memory.get(range.clone()).unwrap_or(&[]));
                Ok(())
            }
            Place::Columns { matrix, first } => {
                let Weight::Floats(packed) = matrix.weight_in(isa, memory)? else {
                    let (operand, found) =
                        (format!("the weights of {role}"), matrix.dtype.to_string());
                    return Err(Error::unsupported(
                        operand,
                        "f32, bf16 or f16, to be saved",
                        found,
                    ));
                };
                let columns = *first..first + shape.first().copied().unwrap_or(0);
                let start = out.len();
                out.resize(start + columns.len() * matrix.depth, 0.0);
                let mut row = vec![0.0; matrix.columns];
                for k in 0..matrix.depth {
                    packed.unpack_row(k, &mut row)?;
                    let out = out[start..].chunks_exact_mut(matrix.depth);
                    out.zip(&row[columns.clone()]).for_each(|(out, &x)| out[k] = x);
                }
                if let &[_, inputs, width] = &shape[..] {
                    // The inverse of the order in which a convolution is packed.
                    let mut row = vec![0.0; inputs * width];
                    out.chunks_exact_mut(row.len())
                        .for_each(|taps| transpose_taps(taps, inputs, &mut row));
                }
                Ok(())
            }
            Place::PruningTable(_) => Ok(()),
        }
    }

    /// Replaces the weights. `rows_of` returns the numbers of each role, row-major; `scratch` has
    /// [`refresh_floats`] elements. Allocates nothing.
    #[cfg(feature = "train")]
    pub(crate) fn refresh<'r>(
        &mut self,
        rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
        scratch: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        let isa = self.isa;
        let (parameters, memory) = self.parts_mut();
        for Parameter { role, shape, place, .. } in parameters {
            match place {
                Place::Columns { matrix, first } if scratch_len(shape) > 0 => {
                    let per_block = ROWS_PER_READ * scratch_len(shape);
                    for (index, rows) in rows_of(*role).chunks(per_block).enumerate() {
                        let block = scratch.get_mut(..rows.len() + scratch_len(shape));
                        let block = block.ok_or(Error::too_large(WEIGHTS))?;
                        block[..rows.len()].copy_from_slice(rows);
                        pack(matrix, isa, shape, block, first + index * ROWS_PER_READ, memory)?;
                    }
                }
                Place::Rows { range, skip } => {
                    let columns: usize = shape.iter().skip(1).product();
                    let rows =
                        rows_of(*role).get(skip * columns..).ok_or(Error::too_large(WEIGHTS))?;
                    memory[range.clone()].copy_from_slice(rows);
                }
                Place::Columns { matrix, first } => {
                    let panels = &mut memory[matrix.range.clone()];
                    pack_rows(matrix, isa, rows_of(*role), *first, panels, parallelism)?;
                }
                Place::PruningTable(table) => table.fill(isa, memory)?,
                Place::Shared(_) => {}
            }
        }
        Ok(())
    }
}

/// The tensor to read for a parameter, if any.
fn tensor_of<'c>(
    checkpoint: &'c Checkpoint<'_>,
    parameter: &Parameter,
) -> Result<Option<TensorView<'c>>, Error> {
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

/// All rows of a tensor, at most `most` at a time.
fn blocks(tensor: &TensorView<'_>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    (0..rows).step_by(most).map(move |start| start..rows.min(start + most))
}

/// Writes a tensor: its role, its shape, and the output, which holds zeros.
pub(crate) type Fill<'f> = dyn FnMut(TensorId, &[usize], &mut [f32]) -> Result<(), Error> + 'f;

/// Floats of the staging buffer for a tensor that cannot be written directly to its range.
fn written(parameter: &Parameter) -> usize {
    match parameter.place {
        Place::Rows { skip: 0, .. } | Place::PruningTable(_) | Place::Shared(_) => {
            scratch_len(&parameter.shape)
        }
        Place::Rows { .. } | Place::Columns { .. } => {
            let shape = parameter.shape.iter();
            let floats = shape.fold(1usize, |floats, &size| floats.saturating_mul(size));
            floats.saturating_add(scratch_len(&parameter.shape))
        }
    }
}

/// Bytes of the numbers that [`Weights::from_fn`] writes for a parameter.
fn stored_bytes(parameter: &Parameter) -> u64 {
    match parameter.place {
        Place::Rows { .. } | Place::Columns { .. } => {
            let floats: usize = parameter.shape.iter().product();
            (floats * size_of::<f32>()) as u64
        }
        Place::PruningTable(_) | Place::Shared(_) => 0,
    }
}

/// Checks the numbers as for a checkpoint: minus infinity in the output bias is valid and bans a token.
fn finite(role: TensorId, numbers: &[f32]) -> Result<(), Error> {
    let bias = role == TensorId::OutputBias;
    let good = |x: f32| x.is_finite() || bias && x == f32::NEG_INFINITY;
    match numbers.iter().position(|&x| !good(x)) {
        Some(index) => {
            Err(Error::not_finite(format!("the weights of {role}"), index, numbers[index]))
        }
        None => Ok(()),
    }
}

/// Floats of the buffer in which [`Weights::refresh`] transposes rows of convolutions.
#[cfg(feature = "train")]
pub(crate) fn refresh_floats<'s>(shapes: impl Iterator<Item = &'s [usize]>) -> usize {
    let floats = shapes.map(|shape| match *shape {
        [rows, ..] => (rows.min(ROWS_PER_READ) + 1).saturating_mul(scratch_len(shape)),
        [] => 0,
    });
    floats.max().unwrap_or(0)
}
