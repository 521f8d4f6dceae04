//! The weights of a model: every tensor of the network in the form in which kernels read it.
//!
//! `layout.rs` gives each tensor a place and writes the table of [`Parameter`]s; `load.rs` goes over the
//! table and fills them, from a checkpoint or a function; `finite.rs` checks what was packed elsewhere; blocks ask here for what their part of the network holds. In which form that
//! is stored, `packed_weight.rs` knows. Gradients and moments of a trainer would lie at the ranges of the same
//! table, in a buffer of their own.

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
use simdformer_kernels::pruned_argmax::{PrunedArgmaxError, PruningTable};
use simdformer_kernels::{GemmError, Isa, Matrix, ViewError};
use std::collections::HashMap;

/// Where the parts of each block are: the network as [`Layout`] placed it.
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

/// Weights that have places, and no memory yet.
pub(crate) struct Planned {
    isa: Isa,
    chosen: Chosen,
    placed: Placement,
}

impl Planned {
    /// Places the weights of `config`.
    pub(crate) fn new(config: &Config, isa: Isa, chosen: Chosen) -> Result<Self, ModelError> {
        let placed = layout::place(config, isa, chosen.clone())?;
        Ok(Self { isa, chosen, placed })
    }

    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.placed.parameters
    }

    /// Bytes that the weights take.
    pub(crate) fn bytes(&self) -> usize {
        self.placed.floats * size_of::<f32>()
    }

    /// Memory for them, all zeros, and where the parts of the network are.
    pub(crate) fn allocate(self) -> Result<(Weights, Network), ModelError> {
        let Self { isa, chosen, placed: Placement { network, parameters, floats } } = self;
        Ok((Weights { isa, chosen, memory: Buffer::owned(floats)?, parameters }, network))
    }
}

/// What the weights of a configuration take, without any of them.
pub(crate) struct Needed {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) bytes: usize,
    /// Bytes beside them while they are read from a checkpoint.
    pub(crate) staged: usize,
}

/// Places the weights of `checkpoint` in memory that is not there.
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

/// The forms of `forms` for the weights of `checkpoint`.
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
    /// Places and reads the weights of `checkpoint`; says where the parts of the network are.
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

    /// Places the weights of `config`: zeros.
    fn empty(config: &Config, isa: Isa, chosen: Chosen) -> Result<(Self, Network), ModelError> {
        Planned::new(config, isa, chosen)?.allocate()
    }

    /// Places the weights of `config` and has them written.
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

    /// Stores other numbers in the same places, as [`load::refresh`] does.
    #[cfg(feature = "train")]
    pub(crate) fn refresh<'r>(
        &mut self,
        rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
        room: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), ModelError> {
        let memory = self.memory.floats_mut();
        load::refresh(self.isa, &self.parameters, memory, rows_of, room, parallelism)
    }

    /// The instruction set that they are stored for.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// What was asked for.
    pub(crate) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// All of it.
    pub(crate) fn memory(&self) -> &[f32] {
        self.memory.floats()
    }

    /// The table of parameters, and all of the memory.
    pub(crate) fn parts_mut(&mut self) -> (&[Parameter], &mut [f32]) {
        (&self.parameters, self.memory.floats_mut())
    }

    /// The first scale of a matrix in bytes that is not finite. [`FiniteCheck`] is for everything else.
    pub(crate) fn bad_scale(&self) -> Option<NotFinite> {
        finite::bad_scale(&self.parameters, self.memory.floats())
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.memory.floats())
    }

    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Floats of the memory in which the input of any matrix is rounded, if the one of a role has `rows(role)` rows.
    pub(crate) fn rounded(&self, rows: &dyn Fn(TensorId) -> usize) -> Result<usize, GemmError> {
        let mut most = 0;
        for parameter in &self.parameters {
            if let Place::Columns { matrix, .. } = &parameter.place {
                most = most.max(matrix.rounded(rows(parameter.role))?);
            }
        }
        Ok(most)
    }

    /// All rows of a table, end to end.
    pub(crate) fn rows(&self, table: &Table) -> &[f32] {
        &self.memory.floats()[table.range.clone()]
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Matrix<'_>, ViewError> {
        Matrix::new(self.rows(table), table.rows, table.columns)
    }

    /// Factor and shift.
    pub(crate) fn norm(&self, norm: &Norm) -> (&[f32], Option<&[f32]>) {
        let all = self.memory.floats();
        (&all[norm.weight.clone()], norm.bias.clone().map(|range| &all[range]))
    }

    pub(crate) fn matrix(&self, linear: &Linear) -> Result<Weight<'_>, GemmError> {
        linear.matrix.read(self.isa, self.memory.floats())
    }

    pub(crate) fn bias(&self, linear: &Linear) -> Option<&[f32]> {
        linear.bias.clone().map(|range| &self.memory.floats()[range])
    }

    /// The bytes of the output's matrix, where there are any.
    pub(crate) fn screen(
        &self,
        output: &Output,
    ) -> Result<Option<PruningTable<'_>>, PrunedArgmaxError> {
        output.screen.as_ref().map(|screen| screen.read(self.memory.floats())).transpose()
    }
}
