//! The memory that a checkpoint needs, computed before its weights are read.

use super::packed_header::Described;
use super::weight_dtypes::WeightDtypes;
use super::weights::{Parameter, Placement, ResolvedDtypes, Storage, staged_floats};
use crate::checkpoint::{Checkpoint, TensorId};
use crate::config::TiedWeights;
use crate::error::Error;
use core::fmt;
use simdformer_kernels::Isa;
use std::collections::BTreeMap;

/// The memory that a model needs, computed from the headers of its files: [`crate::Model::requirements`].
///
/// ```
/// use simdformer::Model;
/// use simdformer::checkpoint::Checkpoint;
/// use simdformer::kernels::Isa;
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
///
/// let checkpoint = Checkpoint::open("models/fr-en")?;
/// let needed = Model::requirements(&checkpoint, Isa::best())?;
/// println!("{needed}"); // before any weight is read
/// let model = Model::load(&checkpoint, Isa::best())?;
/// assert_eq!(model.bytes(), needed.model_bytes);
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requirements {
    /// The instruction set to pack the weights for; the padding depends on it.
    pub isa: Isa,
    /// Number of trained parameters; a matrix with two roles counts once.
    pub parameters: usize,
    /// Bytes of the packed weights: the later value of [`crate::Model::bytes`].
    pub model_bytes: usize,
    /// Peak bytes during loading: the packed weights and the rows that are being packed. The lists of tensors need
    /// some hundred bytes more for each tensor.
    pub peak_bytes: usize,
    /// Size in bytes of the files, or of the memory, that contain the weights.
    pub file_bytes: u64,
    /// The dtypes of the tensors in the checkpoint, in safetensors spelling (of packed weights: how they are stored), and the number of tensors of each;
    /// sorted by name.
    pub dtypes: Vec<(String, usize)>,
}

impl Requirements {
    /// The memory of packed weights, if they are read: the weights and nothing else.
    pub(super) fn of_packed(described: &Described) -> Self {
        let Described { placed, begin, .. } = described;
        let mut dtypes = BTreeMap::new();
        for parameter in &placed.parameters {
            match parameter.storage() {
                Storage::SharedWith(_) | Storage::PruningTable => {}
                storage => *dtypes.entry(storage.to_string()).or_default() += 1,
            }
        }
        Self {
            isa: placed.isa,
            parameters: trained(&placed.parameters, described.config.ties),
            model_bytes: placed.bytes(),
            peak_bytes: placed.bytes(),
            file_bytes: (begin + placed.bytes()) as u64,
            dtypes: dtypes.into_iter().collect(),
        }
    }

    pub(super) fn for_checkpoint(
        checkpoint: &Checkpoint<'_>,
        isa: Isa,
        dtypes: &WeightDtypes,
    ) -> Result<Self, Error> {
        let config = checkpoint.config();
        let placed =
            Placement::new(config, isa, ResolvedDtypes::for_checkpoint(checkpoint, dtypes)?)?;
        let staged = staged_floats(&placed.parameters).saturating_mul(size_of::<f32>());
        Ok(Self {
            isa,
            parameters: trained(&placed.parameters, config.ties),
            model_bytes: placed.bytes(),
            peak_bytes: placed.bytes().saturating_add(staged),
            file_bytes: checkpoint.bytes(),
            dtypes: checkpoint.dtypes(),
        })
    }
}

/// Number of trained parameters: a matrix with two roles counts once, even if it is stored twice.
pub(super) fn trained(parameters: &[Parameter], ties: TiedWeights) -> usize {
    let tied = |role| role == TensorId::Output && ties.target_output;
    let own = parameters
        .iter()
        .filter(|p| !matches!(p.storage(), Storage::SharedWith(_) | Storage::PruningTable));
    own.filter(|p| !tied(p.role())).map(|p| p.shape().iter().product::<usize>()).sum()
}

impl fmt::Display for Requirements {
    /// One line, bytes in millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: f64| bytes / 1e6;
        write!(
            f,
            "{} parameters, {:.1} MB packed for {}, {:.1} MB at once while loading, from {:.1} MB (tensors:",
            self.parameters,
            megabytes(self.model_bytes as f64),
            self.isa,
            megabytes(self.peak_bytes as f64),
            megabytes(self.file_bytes as f64),
        )?;
        for (index, (dtype, count)) in self.dtypes.iter().enumerate() {
            write!(f, "{} {count} {dtype}", if index == 0 { "" } else { "," })?;
        }
        f.write_str(")")
    }
}
