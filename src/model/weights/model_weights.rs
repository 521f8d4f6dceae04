//! [`Weights`]: the memory of all weights and the table of what is in it, and the network as ranges of it.

use super::layout::{
    Layout, Linear, Norm, Output, Parameter, Place, Placement, ResolvedDtypes, Table,
};
use super::packed_weight::Weight;
use crate::error::Error;
use crate::memory::{Buffer, SharedBytes};
use crate::model::weight_dtypes::WEIGHTS;
use crate::network::{TensorId, visitor};
use core::ops::Range;
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::{AttentionPrecision, Error as KernelError, Isa, Matrix};

/// The ranges of each block: the network as [`Layout`] placed it.
pub(crate) type Network = visitor::Network<Layout>;
pub(crate) type Encoder = visitor::Encoder<Layout>;
pub(crate) type Decoder = visitor::Decoder<Layout>;
pub(crate) type Bottom = visitor::Input<Layout>;
pub(crate) type Embedding = visitor::Embedding<Layout>;
pub(crate) type SelfAttention = visitor::SelfAttention<Layout>;
pub(crate) type CrossAttention = visitor::CrossAttention<Layout>;
pub(crate) type FeedForward = visitor::FeedForward<Layout>;

/// All weights, for one instruction set.
pub(crate) struct Weights {
    pub(super) isa: Isa,
    dtypes: ResolvedDtypes,
    memory: Buffer<'static>,
    pub(super) parameters: Vec<Parameter>,
}

impl Placement {
    /// Allocates the memory, filled with zeros. Returns the weights, and the ranges of the network.
    pub(crate) fn allocate(self) -> Result<(Weights, Network), Error> {
        let memory = Buffer::owned(self.floats).map_err(Error::of_memory(WEIGHTS))?;
        Ok(self.with(memory))
    }

    /// The weights that are in `memory` from byte `start` on, and the ranges of the network. Gives itself back if they do
    /// not start on a cache line.
    pub(crate) fn share(
        self,
        memory: SharedBytes,
        start: usize,
    ) -> Result<(Weights, Network), Box<Self>> {
        match Buffer::shared(memory, start, self.floats) {
            Some(memory) => Ok(self.with(memory)),
            None => Err(Box::new(self)),
        }
    }

    fn with(self, memory: Buffer<'static>) -> (Weights, Network) {
        let Self { isa, dtypes, network, parameters, .. } = self;
        (Weights { isa, dtypes, memory, parameters }, network)
    }
}

impl Weights {
    /// Makes the weights writable: weights in shared memory are copied.
    #[cfg(feature = "train")]
    pub(crate) fn own(&mut self) -> Result<(), Error> {
        self.memory.own().map_err(Error::of_memory(WEIGHTS))
    }

    /// Whether the weights are in memory that the caller shares.
    pub(crate) fn is_shared(&self) -> bool {
        self.memory.is_shared()
    }

    /// The instruction set for which the weights are stored.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The precision of the products in self-attention of the encoder.
    pub(crate) fn attention_precision(&self) -> AttentionPrecision {
        match self.dtypes.requested.int8_attention() {
            true => AttentionPrecision::Int8,
            false => AttentionPrecision::F32,
        }
    }

    /// The requested dtypes, and those of the checkpoint.
    pub(crate) fn dtypes(&self) -> &ResolvedDtypes {
        &self.dtypes
    }

    /// The whole memory.
    pub(crate) fn memory(&self) -> &[f32] {
        self.memory.floats()
    }

    /// The table of parameters, and the whole memory.
    pub(crate) fn parts_mut(&mut self) -> (&[Parameter], &mut [f32]) {
        (&self.parameters, self.memory.floats_mut())
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.memory.floats())
    }

    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Floats of the buffer for quantized activations, if the input of the matrix `role` has `rows(role)` rows: the
    /// maximum over all matrices.
    pub(crate) fn rounded(&self, rows: &dyn Fn(TensorId) -> usize) -> Result<usize, KernelError> {
        let mut most = 0;
        for parameter in &self.parameters {
            if let Place::Columns { matrix, .. } = &parameter.place {
                most = most.max(matrix.rounded(rows(parameter.role))?);
            }
        }
        Ok(most)
    }

    /// All rows of a table, contiguous.
    pub(crate) fn rows(&self, table: &Table) -> &[f32] {
        self.range(&table.range)
    }

    /// Floats of the memory; none if its owner, which shares it, now returns other bytes. The kernels check all lengths.
    fn range(&self, range: &Range<usize>) -> &[f32] {
        self.memory.floats().get(range.clone()).unwrap_or(&[])
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Matrix<'_>, KernelError> {
        Matrix::new(self.rows(table), table.rows, table.columns)
    }

    /// Scale and shift.
    pub(crate) fn norm(&self, norm: &Norm) -> (&[f32], Option<&[f32]>) {
        (self.range(&norm.weight), norm.bias.as_ref().map(|range| self.range(range)))
    }

    pub(crate) fn matrix(&self, linear: &Linear) -> Result<Weight<'_>, KernelError> {
        linear.matrix.weight_in(self.isa, self.memory.floats())
    }

    pub(crate) fn bias(&self, linear: &Linear) -> Option<&[f32]> {
        linear.bias.as_ref().map(|range| self.range(range))
    }

    /// The pruning table of the output, if there is one.
    pub(crate) fn pruning_table(
        &self,
        output: &Output,
    ) -> Result<Option<PruningTable<'_>>, KernelError> {
        output
            .pruning_table
            .as_ref()
            .map(|pruning_table| pruning_table.table_in(self.memory.floats()))
            .transpose()
    }
}
