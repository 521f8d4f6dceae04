//! Plans the memory of a model: the visitor over the network assigns a range to each weight and writes the table of
//! parameters.

use super::packed_weight::{PackedWeight, PruningTableRange};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::Error;
use crate::memory::Planner;
use crate::model::weight_dtypes::{DTYPE, WEIGHTS, WeightDtype, WeightDtypes, shown, unfit};
use crate::network::TensorId;
use crate::network::visitor::{self, AffineTensors, Network, TableTensor, Tensor, TensorVisitor};
use core::fmt;
use core::ops::Range;
use simdformer_kernels::{Dtype, Isa, Quantization};
use std::collections::HashMap;

/// A lookup table, `[rows, columns]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) role: TensorId,
    pub(crate) range: Range<usize>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Scale and shift of a norm.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Option<Range<usize>>,
}

/// `y = x W + b`.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub(crate) matrix: PackedWeight,
    pub(crate) bias: Option<Range<usize>>,
}

impl Linear {
    /// Length of a row of `y`.
    pub(crate) fn columns(&self) -> usize {
        self.matrix.columns
    }
}

/// The linear map to the vocabulary. Greedy search needs only the argmax of its output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) linear: Linear,
    /// The pruning table, where it is profitable.
    pub(crate) pruning_table: Option<PruningTableRange>,
    /// The embedding table if it is tied to the output: its rows are the columns of the matrix.
    pub(crate) by_column: Option<Table>,
}

/// The dtype of each matrix: as requested, or else as in the checkpoint.
#[derive(Clone, Default)]
pub(crate) struct ResolvedDtypes {
    pub(crate) requested: WeightDtypes,
    /// The dtypes of the checkpoint that are not f32.
    pub(crate) stored: HashMap<TensorId, WeightDtype>,
}

impl ResolvedDtypes {
    /// The requested dtypes, and those of `checkpoint`.
    pub(crate) fn for_checkpoint(
        checkpoint: &Checkpoint<'_>,
        requested: &WeightDtypes,
    ) -> Result<Self, Error> {
        let mut stored = HashMap::new();
        for role in TensorId::all(checkpoint.config()) {
            let Some(tensor) = checkpoint.optional(role)? else { continue };
            // As by request, int8 weights of the output are f32 if no exception names it.
            let int8 = tensor.is_int8() && role != TensorId::Output && cfg!(feature = "int8");
            if int8 {
                stored.insert(role, Quantization::W8A8.into());
            } else if tensor.dtype() != Dtype::F32 {
                stored.insert(role, tensor.dtype().into());
            }
        }
        Ok(Self { requested: requested.clone(), stored })
    }

    fn stored(&self, role: TensorId) -> WeightDtype {
        self.stored.get(&role).copied().unwrap_or(Dtype::F32.into())
    }

    fn dtype(&self, role: TensorId) -> WeightDtype {
        self.requested.dtype_of(role).unwrap_or_else(|| self.stored(role))
    }

    /// The common dtype of several maps that share a matrix.
    fn of_all(&self, maps: &[AffineTensors]) -> Result<WeightDtype, Error> {
        let dtypes = maps.iter().map(|map| (map.weight.role, self.dtype(map.weight.role)));
        let Some(first) = dtypes.clone().next() else { return Ok(Dtype::F32.into()) };
        match dtypes.into_iter().find(|&(_, dtype)| dtype != first.1) {
            None => Ok(first.1),
            // The dtypes differ only in the checkpoint, not by request: use f32, which holds all of them exactly.
            Some(_)
                if maps.iter().all(|map| self.requested.dtype_of(map.weight.role).is_none()) =>
            {
                Ok(Dtype::F32.into())
            }
            Some(second) => {
                let expected =
                    format!("one dtype for {} and {}, which are one matrix", first.0, second.0);
                let found = format!("{} and {}", first.1, second.1);
                Err(Error::invalid_option(DTYPE, expected, found))
            }
        }
    }
}

/// Checks that self-attention of the encoder can have int8 products.
fn check_int8_attention(config: &Config) -> Result<(), Error> {
    let (expected, found) = match config.encoder.relative_bias {
        Some(_) => {
            ("an encoder without relative positions", "attention=int8 and relative positions")
        }
        None if !cfg!(feature = "int8") => ("a build with the feature int8", "attention=int8"),
        None => return Ok(()),
    };
    Err(Error::invalid_option(DTYPE, expected, found))
}

/// Assigns ranges of the model's memory and records them.
pub(crate) struct Layout {
    isa: Isa,
    dtypes: ResolvedDtypes,
    planner: Planner,
    parameters: Vec<Parameter>,
}

/// Weights with assigned ranges, before their memory is allocated.
pub(crate) struct Placement {
    pub(crate) isa: Isa,
    pub(super) dtypes: ResolvedDtypes,
    pub(super) network: Network<Layout>,
    /// The table of all parameters.
    pub(crate) parameters: Vec<Parameter>,
    /// Size of the memory in floats.
    pub(super) floats: usize,
}

impl Placement {
    /// Assigns ranges to the network of `config`.
    pub(crate) fn new(config: &Config, isa: Isa, dtypes: ResolvedDtypes) -> Result<Self, Error> {
        let mut layout =
            Layout { isa, dtypes, planner: Planner::default(), parameters: Vec::new() };
        let network = visitor::walk(config, &mut layout)?;
        if layout.dtypes.requested.int8_attention() {
            check_int8_attention(config)?;
        }
        let Layout { dtypes, planner, parameters, .. } = layout;
        let columns = |parameter: &&Parameter| matches!(parameter.place, Place::Columns { .. });
        let matrices: Vec<TensorId> = parameters.iter().filter(columns).map(|p| p.role).collect();
        if let Some(path) = dtypes.requested.unmatched(&matrices) {
            return Err(Error::invalid_option(
                DTYPE,
                "exceptions for matrices of this model",
                format!("one for {}, which names none", shown(path)),
            ));
        }
        Ok(Self { isa, dtypes, network, parameters, floats: planner.floats() })
    }

    /// Size of the weights in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }
}

impl Layout {
    /// Reserves `floats` floats. Returns their range, and the number of floats including the padding after them.
    fn take(&mut self, floats: usize) -> Result<(Range<usize>, usize), Error> {
        let before = self.planner.floats();
        let range = self.planner.take(floats).map_err(Error::of_memory(WEIGHTS))?;
        Ok((range, self.planner.floats() - before))
    }

    fn push(&mut self, tensor: Tensor, place: Place, floats: usize) {
        let Tensor { role, shape } = tensor;
        self.parameters.push(Parameter { role, shape, place, floats });
    }

    /// Adds `floats` of padding to the last parameter.
    fn count(&mut self, floats: usize) {
        if let Some(last) = self.parameters.last_mut() {
            last.floats += floats;
        }
    }

    /// Reserves memory for a tensor in its own layout, without its first `skip` rows.
    fn rows(&mut self, tensor: Tensor, skip: usize) -> Result<Range<usize>, Error> {
        let (rows, columns) = rows_and_columns(&tensor);
        let floats = rows.saturating_sub(skip).checked_mul(columns);
        let (range, floats) = self.take(floats.ok_or(Error::too_large(WEIGHTS))?)?;
        self.push(tensor, Place::Rows { range: range.clone(), skip }, floats);
        Ok(range)
    }
}

impl TensorVisitor for Layout {
    type Table = Table;
    type Norm = Norm;
    type Linear = Linear;
    type Output = Output;
    type Error = Error;

    fn table(&mut self, table: TableTensor, same: Option<&Table>) -> Result<Table, Error> {
        let TableTensor { tensor, skip } = table;
        let role = tensor.role;
        if let Some(same) = same {
            self.push(tensor, Place::Shared(same.role), 0);
            return Ok(same.clone());
        }
        let (rows, columns) = rows_and_columns(&tensor);
        let range = self.rows(tensor, skip)?;
        Ok(Table { role, range, rows: rows.saturating_sub(skip), columns })
    }

    fn norm(&mut self, norm: AffineTensors) -> Result<Norm, Error> {
        let weight = self.rows(norm.weight, 0)?;
        let bias = norm.bias.map(|bias| self.rows(bias, 0)).transpose()?;
        Ok(Norm { weight, bias })
    }

    fn linear(&mut self, maps: Vec<AffineTensors>) -> Result<Linear, Error> {
        let depth = maps.first().map_or(0, |map| rows_and_columns(&map.weight).1);
        let columns = maps.iter().map(|map| rows_and_columns(&map.weight).0).sum();
        let dtype = self.dtypes.of_all(&maps)?;
        let floats = PackedWeight::floats(self.isa, dtype, depth, columns)
            .map_err(|error| unfit(dtype, error))?;
        let (range, mut matrix_left) = self.take(floats)?;
        let matrix = PackedWeight { range, depth, columns, dtype };
        // The floats of one map: the shared matrix is divided in proportion to the outputs.
        let share = |outputs: usize| floats.checked_div(columns).unwrap_or(0) * outputs;
        let has_bias = maps.iter().any(|map| map.bias.is_some());
        let (bias, mut bias_left) = self.take(if has_bias { columns } else { 0 })?;
        let mut first = 0;
        for AffineTensors { weight, bias: shift } in maps {
            let end = first + rows_and_columns(&weight).0;
            // The padding after the matrix is counted for the last map.
            let last = end == columns;
            let floats = if last { matrix_left } else { share(end - first) };
            matrix_left -= floats;
            self.push(weight, Place::Columns { matrix: matrix.clone(), first }, floats);
            if let Some(shift) = shift {
                let range = bias.start + first..bias.start + end;
                self.push(shift, Place::Rows { range, skip: 0 }, end - first);
                bias_left -= end - first;
            }
            first = end;
        }
        self.count(bias_left);
        Ok(Linear { matrix, bias: has_bias.then_some(bias) })
    }

    fn output(&mut self, map: AffineTensors, same: Option<&Table>) -> Result<Output, Error> {
        let tensor = map.weight.clone();
        let role = tensor.role;
        let linear = self.linear(vec![map])?;
        let of = &linear.matrix;
        // The table's rows equal the matrix's columns, unless the matrix was rounded.
        let same =
            same.filter(|_| [Dtype::F32.into(), self.dtypes.stored(role)].contains(&of.dtype));
        let pruning_table = match PruningTableRange::floats(self.isa, of) {
            Some(floats) => {
                let (range, floats) = self.take(floats)?;
                let pruning_table = PruningTableRange { range, of: of.clone() };
                self.push(tensor, Place::PruningTable(pruning_table.clone()), floats);
                Some(pruning_table)
            }
            None => None,
        };
        Ok(Output { linear, pruning_table, by_column: same.cloned() })
    }
}

/// The rows and columns of a tensor as a matrix: a vector has one column.
fn rows_and_columns(tensor: &Tensor) -> (usize, usize) {
    let mut shape = tensor.shape.iter();
    (shape.next().copied().unwrap_or(0), shape.product())
}

/// The storage of a tensor in memory; see [`Parameter::storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Storage {
    /// f32, row-major as in the checkpoint: tables and vectors. Position tables begin with the first position that
    /// the model uses.
    Rows,
    /// A matrix in panels: floats in those of the model's instruction set
    /// ([`PackedMatrix`](simdformer_kernels::PackedMatrix)), int8 in panels that are the same on every instruction set
    /// ([`QuantizedMatrix`](simdformer_kernels::QuantizedMatrix)). Projections of the same input share a matrix.
    Packed(WeightDtype),
    /// int8 copy of a matrix, in addition to its panels, with which the pruned argmax excludes most outputs; see
    /// [`simdformer_kernels::pruned_argmax`].
    PruningTable,
    /// Stored in the memory of this tensor, which has the same numbers.
    SharedWith(TensorId),
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rows => "rows",
            Self::Packed(WeightDtype::Float(Dtype::F32)) => "panels",
            Self::Packed(dtype) => dtype.name(),
            Self::PruningTable => "pruning table",
            Self::SharedWith(_) => "shared",
        })
    }
}

/// A tensor of a model: its role, its shape, its storage and its size. See [`crate::Model::parameters`].
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) role: TensorId,
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
    pub(crate) floats: usize,
}

/// The location of a parameter, in floats of the model's memory.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The rows of the tensor, starting with row `skip`.
    Rows { range: Range<usize>, skip: usize },
    /// The rows of the tensor are the columns of `matrix`, starting with column `first`.
    Columns { matrix: PackedWeight, first: usize },
    /// Built from the matrix of the same tensor.
    PruningTable(PruningTableRange),
    /// Shares the memory of the tensor with this role.
    Shared(TensorId),
}

impl Parameter {
    /// The role of the tensor in the network.
    pub fn role(&self) -> TensorId {
        self.role
    }

    /// The shape in a checkpoint, that of [`TensorId::shape`](crate::checkpoint::TensorId::shape): rows first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The storage of the tensor.
    pub fn storage(&self) -> Storage {
        match self.place {
            Place::Rows { .. } => Storage::Rows,
            Place::Columns { ref matrix, .. } => Storage::Packed(matrix.dtype),
            Place::PruningTable(_) => Storage::PruningTable,
            Place::Shared(role) => Storage::SharedWith(role),
        }
    }

    /// Size in bytes with the padding after the tensor; 0 if it is [`Storage::SharedWith`] another.
    pub fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }
}

impl fmt::Display for Parameter {
    /// `role shape storage bytes`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} {}", self.role, self.shape, self.storage(), self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{LayerPart, ParamKind};

    /// Networks without bias, and with a bias at only one of several maps: the sizes in the table add up.
    #[test]
    fn parts_without_bias_are_placed_and_add_up() {
        use crate::config::Side::Encoder;
        let tensor = |index, affine, shape: &[usize]| Tensor {
            role: TensorId::Layer(Encoder, index, LayerPart::FeedForwardNorm(affine)),
            shape: shape.to_vec(),
        };
        let map = |index, outputs, bias: bool| AffineTensors {
            weight: tensor(index, ParamKind::Weight, &[outputs, 7]),
            bias: bias.then(|| tensor(index, ParamKind::Bias, &[outputs])),
        };
        for isa in Isa::available() {
            let (dtypes, planner) = (ResolvedDtypes::default(), Planner::default());
            let mut layout = Layout { isa, dtypes, planner, parameters: Vec::new() };
            let none = layout.linear(vec![map(0, 5, false), map(1, 3, false)]).expect("placed");
            assert!(none.bias.is_none() && none.columns() == 8);
            let one = layout.linear(vec![map(2, 5, true), map(3, 3, false)]).expect("placed");
            // The maps share one bias vector; the map without bias adds zeros.
            assert_eq!(one.bias.expect("a bias").len(), 8);
            let factor = tensor(4, ParamKind::Weight, &[7]);
            let norm = layout.norm(AffineTensors { weight: factor, bias: None }).expect("placed");
            assert_eq!((norm.weight.len(), norm.bias), (7, None));
            assert_eq!(layout.parameters.len(), 6);
            let all: usize = layout.parameters.iter().map(|parameter| parameter.floats).sum();
            assert_eq!(all, layout.planner.floats(), "{isa}");
        }
    }
}
