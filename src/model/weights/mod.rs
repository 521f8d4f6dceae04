//! The weights of a model: every tensor of the network in the layout that the kernels read.
//!
//! `layout.rs` assigns a range of memory to each tensor and writes the table of [`Parameter`]s. `load.rs` fills
//! the ranges of the table from a checkpoint or a function. `finite.rs` checks weights that were packed
//! elsewhere. The blocks get their weights from [`Weights`]. Only `packed_weight.rs` depends on the storage of
//! a matrix.

#[cfg(feature = "train")]
mod backward;
mod finite;
mod layout;
mod load;
mod packed_weight;
mod parameter;

pub use packed_weight::StorageKind;
pub use parameter::Parameter;

#[cfg(feature = "train")]
pub(crate) use backward::Backward;
pub(crate) use finite::{FiniteCheck, NotFinite};
pub(crate) use layout::{Chosen, Linear, Norm, Output, Table};
pub(crate) use load::Fill;
#[cfg(feature = "train")]
pub(crate) use load::refresh_floats;
pub(crate) use packed_weight::{Input, Weight};

use super::error::ModelError;
use super::progress::OnLoading;
use super::weight_dtypes::{WeightDtype, WeightDtypes};
use crate::checkpoint::{Checkpoint, Dtype};
use crate::config::Config;
use crate::memory::Buffer;
use crate::network::{TensorId, visitor};
use layout::{Layout, Placement};
use parameter::Place;
#[cfg(feature = "train")]
use simdformer_kernels::Parallelism;
use simdformer_kernels::pruned_argmax::PruningTable;
use simdformer_kernels::{Error as KernelError, Isa, Matrix};
use std::collections::HashMap;

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
    chosen: Chosen,
    memory: Buffer<'static>,
    parameters: Vec<Parameter>,
}

/// Weights with assigned ranges, before their memory is allocated.
pub(crate) struct Planned {
    isa: Isa,
    chosen: Chosen,
    placed: Placement,
}

impl Planned {
    /// Assigns ranges to the weights of `config`.
    pub(crate) fn new(config: &Config, isa: Isa, chosen: Chosen) -> Result<Self, ModelError> {
        let placed = layout::place(config, isa, chosen.clone())?;
        Ok(Self { isa, chosen, placed })
    }

    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.placed.parameters
    }

    /// Size of the weights in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.placed.floats * size_of::<f32>()
    }

    /// Allocates the memory, filled with zeros. Returns the weights, and the ranges of the network.
    pub(crate) fn allocate(self) -> Result<(Weights, Network), ModelError> {
        let Self { isa, chosen, placed: Placement { network, parameters, floats } } = self;
        Ok((Weights { isa, chosen, memory: Buffer::owned(floats)?, parameters }, network))
    }
}

/// The memory that the weights of a configuration need.
pub(crate) struct Needed {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) bytes: usize,
    /// Bytes needed in addition while the weights are read from a checkpoint.
    pub(crate) staged: usize,
}

/// Computes the memory for the weights of `checkpoint` without allocating it.
pub(crate) fn needed(
    checkpoint: &Checkpoint<'_>,
    isa: Isa,
    forms: &WeightDtypes,
) -> Result<Needed, ModelError> {
    let config = checkpoint.config();
    let Placement { parameters, floats, .. } =
        layout::place(config, isa, chosen(checkpoint, forms)?)?;
    let staged = load::staged(&parameters).saturating_mul(size_of::<f32>());
    Ok(Needed { parameters, bytes: floats * size_of::<f32>(), staged })
}

/// The requested dtypes, and the dtypes of `checkpoint`.
fn chosen(checkpoint: &Checkpoint<'_>, forms: &WeightDtypes) -> Result<Chosen, ModelError> {
    let mut stored = HashMap::new();
    for role in TensorId::all(checkpoint.config()) {
        let form = match checkpoint.optional(role)?.map(|tensor| tensor.dtype()) {
            Some(Dtype::Bf16) => WeightDtype::Bf16,
            Some(Dtype::F16) => WeightDtype::F16,
            _ => continue,
        };
        stored.insert(role, form);
    }
    Ok(Chosen { forms: forms.clone(), stored })
}

impl Weights {
    /// Allocates and reads the weights of `checkpoint`. Returns them and the ranges of the network.
    pub(crate) fn load(
        checkpoint: &Checkpoint<'_>,
        isa: Isa,
        forms: &WeightDtypes,
        on_progress: &mut OnLoading<'_>,
    ) -> Result<(Self, Network), ModelError> {
        let chosen = chosen(checkpoint, forms)?;
        let (mut weights, network) = Self::empty(checkpoint.config(), isa, chosen)?;
        let Self { memory, parameters, .. } = &mut weights;
        load::load(checkpoint, isa, parameters, memory.floats_mut(), on_progress)?;
        Ok((weights, network))
    }

    /// Allocates the weights of `config`, filled with zeros.
    fn empty(config: &Config, isa: Isa, chosen: Chosen) -> Result<(Self, Network), ModelError> {
        Planned::new(config, isa, chosen)?.allocate()
    }

    /// Allocates the weights of `config` and fills them with `fill`.
    pub(crate) fn from_fn(
        config: &Config,
        isa: Isa,
        forms: &WeightDtypes,
        fill: &mut Fill<'_>,
    ) -> Result<(Self, Network), ModelError> {
        let chosen = Chosen { forms: forms.clone(), ..Chosen::default() };
        let (mut weights, network) = Self::empty(config, isa, chosen)?;
        let tied = network.decoder.as_ref().filter(|_| config.ties.target_output);
        let tied = tied.map(|decoder| &decoder.table);
        let Self { memory, parameters, .. } = &mut weights;
        load::fill(fill, isa, parameters, tied, memory.floats_mut())?;
        Ok((weights, network))
    }

    /// Replaces the weights, as [`load::refresh`] does.
    #[cfg(feature = "train")]
    pub(crate) fn refresh<'r>(
        &mut self,
        rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
        scratch: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), ModelError> {
        let memory = self.memory.floats_mut();
        load::refresh(self.isa, &self.parameters, memory, rows_of, scratch, parallelism)
    }

    /// The instruction set for which the weights are stored.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The requested dtypes.
    pub(crate) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The whole memory.
    pub(crate) fn memory(&self) -> &[f32] {
        self.memory.floats()
    }

    /// The table of parameters, and the whole memory.
    pub(crate) fn parts_mut(&mut self) -> (&[Parameter], &mut [f32]) {
        (&self.parameters, self.memory.floats_mut())
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
        &self.memory.floats()[table.range.clone()]
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Matrix<'_>, KernelError> {
        Matrix::new(self.rows(table), table.rows, table.columns)
    }

    /// Scale and shift.
    pub(crate) fn norm(&self, norm: &Norm) -> (&[f32], Option<&[f32]>) {
        let all = self.memory.floats();
        (&all[norm.weight.clone()], norm.bias.clone().map(|range| &all[range]))
    }

    pub(crate) fn matrix(&self, linear: &Linear) -> Result<Weight<'_>, KernelError> {
        linear.matrix.read(self.isa, self.memory.floats())
    }

    pub(crate) fn bias(&self, linear: &Linear) -> Option<&[f32]> {
        linear.bias.clone().map(|range| &self.memory.floats()[range])
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
