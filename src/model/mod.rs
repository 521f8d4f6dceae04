//! A model: configuration and packed weights, immutable, shared by any number of sessions.

pub(crate) mod blocks;
pub(crate) mod decoder;
pub(crate) mod encoder;

use crate::checkpoint::{
    Affine, Attention, Checkpoint, CheckpointError, FeedForward as Half, LayerPart, Projection,
    Role,
};
use crate::config::{Config, Positions, Side};
use crate::error::{KernelError, SessionError};
use crate::memory::Planner;
use crate::model::blocks::{Embedding, FeedForward, Linear, Norm};
use crate::model::decoder::{Decoder, DecoderLayer};
use crate::model::encoder::{Encoder, EncoderLayer};
use core::fmt;
use core::ops::Range;
use simdformer_kernels::position::{self, PositionEncoding};
use simdformer_kernels::screen::Screen;
use simdformer_kernels::{GemmError, Isa, Matrix, MatrixMut, PackedMatrix};
use std::path::Path;

/// Rows of a weight matrix that are read from the file at a time: a multiple of every panel.
const ROWS_PER_READ: usize = 64;

/// An encoder-decoder Transformer with its weights, packed for one instruction set.
///
/// ```no_run
/// use simdformer::Model;
///
/// let model = Model::open("path/to/checkpoint")?;
/// println!("{} MB", model.bytes() >> 20);
/// # Ok::<(), simdformer::ModelError>(())
/// ```
pub struct Model {
    config: Config,
    isa: Isa,
    weights: crate::memory::Buffer<'static>,
    encoder: Encoder,
    decoder: Decoder,
    /// Learned position tables of both sides, offset rows dropped.
    learned_positions: Option<[Range<usize>; 2]>,
}

/// Why a model could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is missing, broken or of another architecture.
    Checkpoint(CheckpointError),
    /// The environment names an instruction set that is not here.
    Isa(simdformer_kernels::IsaError),
    /// The weights do not fit the address space.
    TooLarge,
    /// The system does not give the memory for the packed weights.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => error.fmt(f),
            Self::Isa(error) => write!(f, "{}: {error}", simdformer_kernels::ISA_VARIABLE),
            Self::TooLarge => f.write_str("the weights do not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give {bytes} bytes for the packed weights")
            }
        }
    }
}

impl core::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Checkpoint(error) => Some(error),
            Self::Isa(error) => Some(error),
            Self::TooLarge | Self::OutOfMemory { .. } => None,
        }
    }
}

impl From<CheckpointError> for ModelError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<SessionError> for ModelError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::OutOfMemory { bytes } => Self::OutOfMemory { bytes },
            _ => Self::TooLarge,
        }
    }
}

impl From<GemmError> for ModelError {
    fn from(_: GemmError) -> Self {
        Self::TooLarge
    }
}

impl Model {
    /// Loads a Hugging Face checkpoint directory for the best instruction set of this machine, or the
    /// one that the environment variable [`simdformer_kernels::ISA_VARIABLE`] names.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        let isa = Isa::from_environment().map_err(ModelError::Isa)?.unwrap_or_else(Isa::best);
        Self::load(&Checkpoint::open(directory)?, isa)
    }

    /// Packs the weights of `checkpoint` for `isa`. Reads a few rows at a time: beside the packed
    /// weights it holds no tensor.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn load(checkpoint: &Checkpoint, isa: Isa) -> Result<Self, ModelError> {
        let config = checkpoint.config().clone();
        let mut layout = Layout { config: &config, isa, planner: Planner::default() };
        let encoder = layout.encoder()?;
        let decoder = layout.decoder(&config)?;
        let learned_positions = match (config.positions, config.max_positions) {
            (Positions::Learned { .. }, Some(max)) => Some([
                layout.planner.take_product(max, config.d_model)?,
                layout.planner.take_product(max, config.d_model)?,
            ]),
            _ => None,
        };
        let decoder = Decoder {
            embedding: Embedding {
                table: if config.ties.source_target {
                    encoder.embedding.table.clone()
                } else {
                    decoder.embedding.table
                },
                ..decoder.embedding
            },
            ..decoder
        };
        let floats = layout.planner.floats();
        let mut weights = crate::memory::Buffer::owned(floats)?;
        let mut loader =
            Loader { checkpoint, isa, weights: weights.floats_mut(), block: Vec::new() };
        loader.encoder(&encoder)?;
        loader.decoder(&decoder, &config)?;
        if let (Some([encoder, decoder]), Positions::Learned { offset }) =
            (&learned_positions, config.positions)
        {
            loader.positions(Side::Encoder, offset, encoder)?;
            loader.positions(Side::Decoder, offset, decoder)?;
        }
        Ok(Self { config, isa, weights, encoder, decoder, learned_positions })
    }

    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The instruction set that the weights are packed for and that every kernel runs on.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        size_of_val(self.weights.floats())
    }

    pub(crate) fn weights(&self, range: Range<usize>) -> &[f32] {
        &self.weights.floats()[range]
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Writes what is added to the embedding at positions `0..tokens`, `[tokens, d_model]`.
    pub(crate) fn write_positions(
        &self,
        side: Side,
        tokens: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let d = self.config.d_model;
        if let Some(tables) = &self.learned_positions {
            let table = &tables[usize::from(side == Side::Decoder)];
            out.copy_from_slice(&self.weights(table.clone())[..tokens * d]);
        } else if let Some(encoding) = position_encoding(self.config.positions) {
            position::encode(encoding, 0, MatrixMut::new(out, tokens, d)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("isa", &self.isa)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// What the position formulas of a configuration are called in the kernels.
fn position_encoding(positions: Positions) -> Option<PositionEncoding<'static>> {
    match positions {
        Positions::HalfSplit => Some(PositionEncoding::HalfSplit),
        Positions::HalfSplitOffset { offset } => Some(PositionEncoding::HalfSplitClosed { offset }),
        Positions::Interleaved => Some(PositionEncoding::Interleaved),
        Positions::Learned { .. } => None,
    }
}

/// Decides where each weight goes.
struct Layout<'a> {
    config: &'a Config,
    isa: Isa,
    planner: Planner,
}

impl Layout<'_> {
    fn linear(&mut self, depth: usize, columns: usize, bias: bool) -> Result<Linear, ModelError> {
        Ok(Linear {
            weight: self.planner.take(PackedMatrix::len(self.isa, depth, columns)?)?,
            bias: if bias { Some(self.planner.take(columns)?) } else { None },
            depth,
            columns,
        })
    }

    fn norm(&mut self) -> Result<Norm, ModelError> {
        let d = self.config.d_model;
        Ok(Norm { weight: self.planner.take(d)?, bias: self.planner.take(d)? })
    }

    fn optional_norm(&mut self, present: bool) -> Result<Option<Norm>, ModelError> {
        present.then(|| self.norm()).transpose()
    }

    fn feed_forward(&mut self, side: Side) -> Result<FeedForward, ModelError> {
        let (d, ffn) = (self.config.d_model, self.config.stack(side).ffn_dim);
        Ok(FeedForward { inner: self.linear(d, ffn, true)?, outer: self.linear(ffn, d, true)? })
    }

    fn embedding(&mut self, side: Side, tied: bool) -> Result<Embedding, ModelError> {
        let vocabulary = self.config.vocab(side);
        let rows = if tied { 0 } else { vocabulary };
        Ok(Embedding {
            table: self.planner.take_product(rows, self.config.d_model)?,
            vocabulary,
            norm: self.optional_norm(self.config.stack(side).embedding_norm)?,
        })
    }

    fn encoder(&mut self) -> Result<Encoder, ModelError> {
        let (d, stack) = (self.config.d_model, self.config.encoder);
        let embedding = self.embedding(Side::Encoder, false)?;
        let mut layers = Vec::with_capacity(stack.layers);
        for _ in 0..stack.layers {
            layers.push(EncoderLayer {
                qkv: self.linear(d, 3 * d, true)?,
                out: self.linear(d, d, true)?,
                attention_norm: self.norm()?,
                feed_forward: self.feed_forward(Side::Encoder)?,
                feed_forward_norm: self.norm()?,
            });
        }
        Ok(Encoder { embedding, layers, final_norm: self.optional_norm(stack.final_norm)? })
    }

    fn decoder(&mut self, config: &Config) -> Result<Decoder, ModelError> {
        let (d, stack) = (config.d_model, config.decoder);
        let embedding = self.embedding(Side::Decoder, config.ties.source_target)?;
        let mut layers = Vec::with_capacity(stack.layers);
        for _ in 0..stack.layers {
            layers.push(DecoderLayer {
                qkv: self.linear(d, 3 * d, true)?,
                out: self.linear(d, d, true)?,
                attention_norm: self.norm()?,
                cross_query: self.linear(d, d, true)?,
                cross_key_value: self.linear(d, 2 * d, true)?,
                cross_out: self.linear(d, d, true)?,
                cross_norm: self.norm()?,
                feed_forward: self.feed_forward(Side::Decoder)?,
                feed_forward_norm: self.norm()?,
            });
        }
        let final_norm = self.optional_norm(stack.final_norm)?;
        let output = self.linear(d, config.target_vocab, true)?;
        // Beyond what a screen can hold there is none, as on a CPU that gains nothing by it.
        let screen = match Screen::len(d, config.target_vocab) {
            Ok(floats) if Screen::pays(self.isa) => Some(self.planner.take(floats)?),
            _ => None,
        };
        Ok(Decoder { embedding, layers, final_norm, output, screen })
    }
}

/// Reads each weight to its place.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    isa: Isa,
    weights: &'a mut [f32],
    /// A few rows of the tensor that is being packed.
    block: Vec<f32>,
}

impl Loader<'_> {
    /// A tensor as it is.
    fn plain(&mut self, role: Role, to: &Range<usize>) -> Result<(), ModelError> {
        self.checkpoint.tensor(role)?.read_into(&mut self.weights[to.clone()])?;
        Ok(())
    }

    /// Rows `offset..` of a table of learned positions.
    fn positions(
        &mut self,
        side: Side,
        offset: usize,
        to: &Range<usize>,
    ) -> Result<(), ModelError> {
        let table = self.checkpoint.tensor(Role::Positions(side))?;
        let rows = table.shape().first().copied().unwrap_or(0);
        table.rows(offset..rows)?.read_into(&mut self.weights[to.clone()])?;
        Ok(())
    }

    /// Weight `role`, `[outputs, inputs]`, as columns `first..first + outputs` of `layer`; returns the
    /// column after its last.
    fn columns(&mut self, role: Role, layer: &Linear, first: usize) -> Result<usize, ModelError> {
        let tensor = self.checkpoint.tensor(role)?;
        let outputs = tensor.shape().first().copied().unwrap_or(0);
        let inputs = tensor.row_len();
        let mut start = 0;
        while start < outputs {
            let rows = (outputs - start).min(ROWS_PER_READ);
            self.block.resize(rows * inputs, 0.0);
            tensor.rows(start..start + rows)?.read_into(&mut self.block)?;
            let block = Matrix::new(&self.block, rows, inputs).map_err(|_| ModelError::TooLarge)?;
            PackedMatrix::pack_block(
                self.isa,
                block.transposed(),
                (layer.depth, layer.columns),
                first + start,
                &mut self.weights[layer.weight.clone()],
            )?;
            start += rows;
        }
        Ok(first + outputs)
    }

    /// Several projections side by side, with their biases.
    fn projections(
        &mut self,
        layer: &Linear,
        parts: &[LayerPart],
        role: impl Fn(LayerPart) -> Role,
    ) -> Result<(), ModelError> {
        let mut column = 0;
        for &part in parts {
            let end = self.columns(role(part), layer, column)?;
            if let Some(bias) = &layer.bias {
                let to = bias.start + column..bias.start + end;
                self.plain(role(bias_of(part)), &to)?;
            }
            column = end;
        }
        Ok(())
    }

    fn norm(&mut self, norm: &Norm, role: impl Fn(Affine) -> Role) -> Result<(), ModelError> {
        self.plain(role(Affine::Weight), &norm.weight)?;
        self.plain(role(Affine::Bias), &norm.bias)
    }

    fn feed_forward(
        &mut self,
        block: &FeedForward,
        role: impl Fn(LayerPart) -> Role + Copy,
    ) -> Result<(), ModelError> {
        for (layer, half) in [(&block.inner, Half::Inner), (&block.outer, Half::Outer)] {
            self.projections(layer, &[LayerPart::FeedForward(half, Affine::Weight)], role)?;
        }
        Ok(())
    }

    fn encoder(&mut self, encoder: &Encoder) -> Result<(), ModelError> {
        let side = Side::Encoder;
        self.plain(Role::SourceEmbedding, &encoder.embedding.table)?;
        if let Some(norm) = &encoder.embedding.norm {
            self.norm(norm, |affine| Role::EmbeddingNorm(side, affine))?;
        }
        for (index, layer) in encoder.layers.iter().enumerate() {
            let role = |part| Role::Layer(side, index, part);
            self.projections(&layer.qkv, &QKV.map(|p| weight(Attention::Own, p)), role)?;
            self.projections(&layer.out, &[weight(Attention::Own, Projection::Output)], role)?;
            self.norm(&layer.attention_norm, |affine| {
                role(LayerPart::AttentionNorm(Attention::Own, affine))
            })?;
            self.feed_forward(&layer.feed_forward, role)?;
            self.norm(&layer.feed_forward_norm, |affine| role(LayerPart::FeedForwardNorm(affine)))?;
        }
        if let Some(norm) = &encoder.final_norm {
            self.norm(norm, |affine| Role::FinalNorm(side, affine))?;
        }
        Ok(())
    }

    fn decoder(&mut self, decoder: &Decoder, config: &Config) -> Result<(), ModelError> {
        let side = Side::Decoder;
        if !config.ties.source_target {
            self.plain(Role::TargetEmbedding, &decoder.embedding.table)?;
        }
        if let Some(norm) = &decoder.embedding.norm {
            self.norm(norm, |affine| Role::EmbeddingNorm(side, affine))?;
        }
        for (index, layer) in decoder.layers.iter().enumerate() {
            let role = |part| Role::Layer(side, index, part);
            let (own, cross) = (Attention::Own, Attention::Cross);
            self.projections(&layer.qkv, &QKV.map(|p| weight(own, p)), role)?;
            self.projections(&layer.out, &[weight(own, Projection::Output)], role)?;
            self.norm(&layer.attention_norm, |affine| role(LayerPart::AttentionNorm(own, affine)))?;
            let [query, key, value] = QKV.map(|p| weight(cross, p));
            self.projections(&layer.cross_query, &[query], role)?;
            self.projections(&layer.cross_key_value, &[key, value], role)?;
            self.projections(&layer.cross_out, &[weight(cross, Projection::Output)], role)?;
            self.norm(&layer.cross_norm, |affine| role(LayerPart::AttentionNorm(cross, affine)))?;
            self.feed_forward(&layer.feed_forward, role)?;
            self.norm(&layer.feed_forward_norm, |affine| role(LayerPart::FeedForwardNorm(affine)))?;
        }
        if let Some(norm) = &decoder.final_norm {
            self.norm(norm, |affine| Role::FinalNorm(side, affine))?;
        }
        self.columns(Role::Output, &decoder.output, 0)?;
        // Absent in some checkpoints: the buffer holds zeros already.
        if let (Some(bias), Some(tensor)) =
            (&decoder.output.bias, self.checkpoint.optional(Role::OutputBias)?)
        {
            tensor.read_into(&mut self.weights[bias.clone()])?;
        }
        if let Some(screen) = &decoder.screen {
            let Linear { weight, depth, columns, .. } = &decoder.output;
            // The planner hands out disjoint ranges.
            let parts = self.weights.get_disjoint_mut([weight.clone(), screen.clone()]);
            let [packed, screen] = parts.map_err(|_| ModelError::TooLarge)?;
            let packed = PackedMatrix::from_packed(self.isa, *depth, *columns, packed)?;
            Screen::build(&packed, screen).map_err(|_| ModelError::TooLarge)?;
        }
        Ok(())
    }
}

const QKV: [Projection; 3] = [Projection::Query, Projection::Key, Projection::Value];

const fn weight(attention: Attention, projection: Projection) -> LayerPart {
    LayerPart::Attention(attention, projection, Affine::Weight)
}

const fn bias_of(part: LayerPart) -> LayerPart {
    match part {
        LayerPart::Attention(attention, projection, _) => {
            LayerPart::Attention(attention, projection, Affine::Bias)
        }
        LayerPart::FeedForward(half, _) => LayerPart::FeedForward(half, Affine::Bias),
        other => other,
    }
}
