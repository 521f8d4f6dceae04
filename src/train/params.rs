//! The parameters of a trainer: one vector that holds every tensor in row order, as in a checkpoint.
//!
//! Gradients and moments are in separate vectors, at the same ranges. So an update is one pass over all of them, a
//! checkpoint is written directly from the vector, and neither depends on the instruction set. The kernels read
//! packed weights, which are repacked from this vector after each update
//! ([`Weights::refresh`](crate::model::weights)); that takes a few per cent of a step. The visitor of the network is
//! the one that loading uses.

use super::frozen;
use crate::config::Config;
use crate::error::Error;
use crate::memory::{MemoryError, Planner};
use crate::model::weights;
use crate::network::TensorId;
use crate::network::visitor::{self, AffineTensors, TableTensor, Tensor, TensorVisitor};
use core::ops::Range;

/// A table of rows that are looked up by index.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// All rows.
    pub(super) range: Range<usize>,
    pub(super) columns: usize,
    /// Rows before the first one that is ever looked up.
    pub(super) skip: usize,
}

/// Factor and shift of a norm.
#[derive(Clone, Debug)]
pub(super) struct Norm {
    pub(super) weight: Range<usize>,
    pub(super) bias: Option<Range<usize>>,
}

/// Linear maps of one input. Their matrices are contiguous and form one matrix, `[outputs, inputs]`.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) weight: Range<usize>,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// The bias of all maps, if any map has one.
    pub(super) bias: Option<Range<usize>>,
    /// The parts of the bias of maps without a bias: zero, and never updated.
    pub(super) without_bias: Vec<Range<usize>>,
}

/// A part of the network: the packed weights that the kernels read, and the ranges of its parameters.
pub(super) struct Part<'l, Weights, Ranges> {
    pub(super) weights: &'l Weights,
    pub(super) ranges: &'l Ranges,
}

impl<Weights, Ranges> Clone for Part<'_, Weights, Ranges> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Weights, Ranges> Copy for Part<'_, Weights, Ranges> {}

impl<'l, Weights, Ranges> Part<'l, Weights, Ranges> {
    /// A part that an architecture may lack.
    pub(super) fn optional(
        weights: &'l Option<Weights>,
        ranges: &'l Option<Ranges>,
    ) -> Option<Self> {
        let (weights, ranges) = weights.as_ref().zip(ranges.as_ref())?;
        Some(Self { weights, ranges })
    }
}

/// A norm of the network.
pub(super) type NormPart<'l> = Part<'l, weights::Norm, Norm>;

/// A linear map of the network.
pub(super) type LinearPart<'l> = Part<'l, weights::Linear, Linear>;

/// The tensor of a tensor id.
#[derive(Clone, Debug)]
pub(super) struct FlatTensor {
    pub(super) role: TensorId,
    pub(super) shape: Vec<usize>,
    pub(super) range: Range<usize>,
    /// Whether the tensor is shared with an earlier tensor id.
    pub(super) shared: bool,
    /// Whether updates change it.
    pub(super) learned: bool,
}

/// Allocates the ranges.
pub(super) struct Flat {
    config: Config,
    planner: Planner,
    tensors: Vec<FlatTensor>,
}

/// The network as ranges of the parameter vector.
pub(super) type Network = visitor::Network<Flat>;

pub(super) type SelfAttention = visitor::SelfAttention<Flat>;
pub(super) type CrossAttention = visitor::CrossAttention<Flat>;
pub(super) type FeedForward = visitor::FeedForward<Flat>;

/// The range of each parameter.
pub(super) struct Placed {
    pub(super) network: Network,
    pub(super) tensors: Vec<FlatTensor>,
    pub(super) floats: usize,
}

/// Allocates ranges for the network of `config`.
pub(super) fn place(config: &Config) -> Result<Placed, Error> {
    let mut flat =
        Flat { config: config.clone(), planner: Planner::default(), tensors: Vec::new() };
    let network = visitor::walk(config, &mut flat)?;
    Ok(Placed { network, tensors: flat.tensors, floats: flat.planner.floats() })
}

impl Flat {
    fn push(&mut self, tensor: Tensor, range: Range<usize>, shared: bool) {
        let Tensor { role, shape } = tensor;
        let learned = !frozen::is_frozen(&self.config, role);
        self.tensors.push(FlatTensor { role, shape, range, shared, learned });
    }

    fn own(&mut self, tensor: Tensor) -> Result<Range<usize>, MemoryError> {
        let range = self.planner.take(floats(&tensor)?)?;
        self.push(tensor, range.clone(), false);
        Ok(range)
    }
}

impl TensorVisitor for Flat {
    type Table = Table;
    type Norm = Norm;
    type Linear = Linear;
    type Output = Linear;
    type Error = Error;

    fn table(&mut self, table: TableTensor, same: Option<&Table>) -> Result<Table, Error> {
        let TableTensor { tensor, skip } = table;
        if let Some(same) = same {
            self.push(tensor, same.range.clone(), true);
            return Ok(same.clone());
        }
        let columns = row(&tensor);
        let range = self.own(tensor)?;
        Ok(Table { range, columns, skip })
    }

    fn norm(&mut self, norm: AffineTensors) -> Result<Norm, Error> {
        let weight = self.own(norm.weight)?;
        let bias = norm.bias.map(|bias| self.own(bias)).transpose()?;
        Ok(Norm { weight, bias })
    }

    fn linear(&mut self, maps: Vec<AffineTensors>) -> Result<Linear, Error> {
        let inputs = maps.first().map_or(0, |map| row(&map.weight));
        let outputs = maps.iter().map(|map| rows(&map.weight)).sum();
        let weight = self.planner.take_product(outputs, inputs)?;
        let has_bias = maps.iter().any(|map| map.bias.is_some());
        let bias = has_bias.then(|| self.planner.take(outputs)).transpose()?;
        let mut without_bias = Vec::new();
        let mut first = 0;
        for AffineTensors { weight: tensor, bias: shift } in maps {
            let end = first + rows(&tensor);
            let range = weight.start + first * inputs..weight.start + end * inputs;
            self.push(tensor, range, false);
            if let Some(bias) = &bias {
                let range = bias.start + first..bias.start + end;
                match shift {
                    Some(shift) => self.push(shift, range, false),
                    None => without_bias.push(range),
                }
            }
            first = end;
        }
        Ok(Linear { weight, outputs, inputs, bias, without_bias })
    }

    fn output(&mut self, map: AffineTensors, same: Option<&Table>) -> Result<Linear, Error> {
        let Some(table) = same else { return self.linear(vec![map]) };
        let AffineTensors { weight, bias } = map;
        let (outputs, inputs) = (rows(&weight), row(&weight));
        self.push(weight, table.range.clone(), true);
        let bias = bias.map(|bias| self.own(bias)).transpose()?;
        let weight = table.range.clone();
        Ok(Linear { weight, outputs, inputs, bias, without_bias: Vec::new() })
    }
}

fn floats(tensor: &Tensor) -> Result<usize, MemoryError> {
    let floats = tensor.shape.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
    floats.ok_or(MemoryError::TooLarge)
}

fn rows(tensor: &Tensor) -> usize {
    tensor.shape.first().copied().unwrap_or(0)
}

/// Values per row of a tensor; a vector has one per row.
fn row(tensor: &Tensor) -> usize {
    tensor.shape.iter().skip(1).product()
}
