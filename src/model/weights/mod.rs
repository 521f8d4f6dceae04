//! The weights of a model: every tensor of the network in the layout that the kernels read.
//!
//! `layout.rs` assigns a range of memory to each tensor and writes the table of [`Parameter`]s. `load.rs` fills
//! the ranges of the table from a checkpoint or a function. `finite.rs` checks weights that were packed
//! elsewhere. `canonical.rs` visits all weights in an order that does not depend on the instruction set. The blocks get their weights from [`Weights`]. Only `packed_weight.rs` depends on the storage of
//! a matrix.

mod canonical;
mod finite;
mod layout;
mod load;
mod packed_weight;
mod parameter;

pub use parameter::{Parameter, Storage};

pub(crate) use canonical::Part;
pub(crate) use finite::{FiniteCheck, NotFinite};
pub(crate) use layout::{Linear, Norm, Output, Placement, ResolvedDtypes, Table};
#[cfg(feature = "train")]
pub(crate) use load::refresh_floats;
pub(crate) use load::{Fill, staged_floats};
#[cfg(feature = "train")]
pub(crate) use packed_weight::Backward;
pub(crate) use packed_weight::{Input, Weight};

use super::load_options::LoadOptions;
use super::weight_dtypes::WEIGHTS;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::Error;
use crate::memory::{Buffer, SharedBytes};
use crate::network::{TensorId, visitor};
use core::ops::Range;
use layout::Layout;
use parameter::Place;
#[cfg(feature = "train")]
use simdformer_kernels::Parallelism;
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::{Error as KernelError, Isa, Matrix};

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
    isa: Isa,
    dtypes: ResolvedDtypes,
    memory: Buffer<'static>,
    parameters: Vec<Parameter>,
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
    /// Allocates and reads the weights of `checkpoint`. Returns them and the ranges of the network.
    pub(crate) fn load(
        checkpoint: &Checkpoint<'_>,
        isa: Isa,
        options: &mut LoadOptions<'_>,
    ) -> Result<(Self, Network), Error> {
        let dtypes = ResolvedDtypes::of(checkpoint, &options.dtypes)?;
        let (mut weights, network) =
            Placement::new(checkpoint.config(), isa, dtypes)?.allocate()?;
        let Self { memory, parameters, .. } = &mut weights;
        load::load(checkpoint, isa, options, parameters, memory.floats_mut())?;
        Ok((weights, network))
    }

    /// Allocates the weights of `config` and fills them with `fill`.
    pub(crate) fn from_fn(
        config: &Config,
        isa: Isa,
        options: &mut LoadOptions<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<(Self, Network), Error> {
        let dtypes =
            ResolvedDtypes { requested: options.dtypes.clone(), ..ResolvedDtypes::default() };
        let (mut weights, network) = Placement::new(config, isa, dtypes)?.allocate()?;
        let tied = network.decoder.as_ref().filter(|_| config.ties.target_output);
        let tied = tied.map(|decoder| &decoder.table);
        let Self { memory, parameters, .. } = &mut weights;
        load::fill(fill, isa, options, parameters, tied, memory.floats_mut())?;
        Ok((weights, network))
    }

    /// Replaces the weights, as [`load::refresh`] does.
    #[cfg(feature = "train")]
    pub(crate) fn refresh<'r>(
        &mut self,
        rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
        scratch: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        let memory = self.memory.floats_mut();
        load::refresh(self.isa, &self.parameters, memory, rows_of, scratch, parallelism)
    }

    /// Appends the numbers of a tensor in the order of a checkpoint to `out`.
    pub(crate) fn unpack(&self, role: TensorId, out: &mut Vec<f32>) -> Result<(), Error> {
        load::unpack(self.isa, &self.parameters, role, self.memory.floats(), out)
    }

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

    /// Calls `each` for every part of the weights, in an order that does not depend on the instruction set.
    pub(crate) fn each_part(&self, each: &mut dyn FnMut(Part<'_>)) -> Result<(), KernelError> {
        canonical::each_part(self.isa, &self.parameters, self.memory.floats(), each)
    }

    /// The first scale of an int8 matrix that is not finite. [`FiniteCheck`] checks all other numbers.
    pub(crate) fn bad_scale(&self) -> Option<NotFinite> {
        finite::bad_scale(&self.parameters, self.memory.floats())
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
        linear.matrix.read(self.isa, self.memory.floats())
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
            .map(|pruning_table| pruning_table.read(self.memory.floats()))
            .transpose()
    }
}
