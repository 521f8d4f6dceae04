//! The network as a tree of parts, and the one walk over it.
//!
//! Figure 1 of the paper as types: stacks of layers, layers of blocks, blocks of linear maps, norms and
//! tables. [`walk`] goes over the tree once, in the order of use, hands every tensor to a [`TensorVisitor`] and
//! keeps what that makes of it. The weights' room makes ranges of memory of them, and thereby its table
//! of parameters; a checkpoint only looks whether they are there ([`each_tensor`]). Nobody else lists
//! parameters: a new one is a [`TensorId`], its shape in [`TensorId::shape`], and one line here.

use super::{Attention, FeedForward as Half, LayerPart, ParamKind, Projection, TensorId};
use crate::config::{Config, Positions, Side};
use core::convert::Infallible;
use core::marker::PhantomData;

/// A tensor of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) role: TensorId,
    /// Of [`TensorId::shape`].
    pub(crate) shape: Vec<usize>,
}

/// The tensor of rows that are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableTensor {
    pub(crate) tensor: Tensor,
    /// Rows before the first that is ever looked up.
    pub(crate) skip: usize,
}

/// The tensors of a linear map, or of a norm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AffineTensors {
    pub(crate) weight: Tensor,
    /// Absent where the architecture has none.
    pub(crate) bias: Option<Tensor>,
}

/// What a walk makes of the parts of a network.
pub(crate) trait TensorVisitor {
    /// Rows that are looked up by number.
    type Table;
    /// A norm over the width of the model.
    type Norm;
    /// Linear maps of one input, side by side; or a convolution, whose input is a window of frames.
    type Linear;
    /// The linear map to the vocabulary.
    type Output;
    /// Why the walk ends before its time.
    type Error;

    /// `same` holds the same numbers already.
    fn table(
        &mut self,
        table: TableTensor,
        same: Option<&Self::Table>,
    ) -> Result<Self::Table, Self::Error>;

    fn norm(&mut self, norm: AffineTensors) -> Result<Self::Norm, Self::Error>;

    /// The maps read the same input: their matrices may be one.
    fn linear(&mut self, maps: Vec<AffineTensors>) -> Result<Self::Linear, Self::Error>;

    /// `same` holds the rows of the map's matrix already.
    fn output(
        &mut self,
        map: AffineTensors,
        same: Option<&Self::Table>,
    ) -> Result<Self::Output, Self::Error>;
}

/// Both stacks, or the encoder alone.
pub(crate) struct Network<P: TensorVisitor> {
    pub(crate) encoder: Encoder<P>,
    pub(crate) decoder: Option<Decoder<P>>,
}

/// The left half of figure 1.
pub(crate) struct Encoder<P: TensorVisitor> {
    pub(crate) input: Input<P>,
    pub(crate) embedding: Embedding<P>,
    /// `[token_types, d_model]`.
    pub(crate) token_types: Option<P::Table>,
    /// Of all layers.
    pub(crate) relative_bias: Option<P::Table>,
    pub(crate) layers: Vec<EncoderLayer<P>>,
    pub(crate) final_norm: Option<P::Norm>,
}

/// What the encoder reads through.
pub(crate) enum Input<P: TensorVisitor> {
    /// Ids: `[vocabulary, d_model]`.
    Table(P::Table),
    /// Features: the convolutions, the first below the second.
    ConvFrontend([P::Linear; 2]),
}

pub(crate) struct EncoderLayer<P: TensorVisitor> {
    pub(crate) self_attention: SelfAttention<P>,
    pub(crate) feed_forward: FeedForward<P>,
}

/// The right half of figure 1.
pub(crate) struct Decoder<P: TensorVisitor> {
    /// `[vocabulary, d_model]`.
    pub(crate) table: P::Table,
    pub(crate) embedding: Embedding<P>,
    /// Of all layers.
    pub(crate) relative_bias: Option<P::Table>,
    pub(crate) layers: Vec<DecoderLayer<P>>,
    pub(crate) final_norm: Option<P::Norm>,
    pub(crate) output: P::Output,
}

pub(crate) struct DecoderLayer<P: TensorVisitor> {
    pub(crate) self_attention: SelfAttention<P>,
    pub(crate) cross_attention: CrossAttention<P>,
    pub(crate) feed_forward: FeedForward<P>,
}

/// What follows the lookup of ids, or the convolutions.
pub(crate) struct Embedding<P: TensorVisitor> {
    /// Learned positions, `[max_positions, d_model]`; none where a formula gives them.
    pub(crate) positions: Option<P::Table>,
    pub(crate) norm: Option<P::Norm>,
}

/// Attention of the tokens of one side to each other.
pub(crate) struct SelfAttention<P: TensorVisitor> {
    /// Query, key and value side by side.
    pub(crate) query_key_value: P::Linear,
    pub(crate) output: P::Linear,
    pub(crate) norm: P::Norm,
    /// Of this layer alone.
    pub(crate) relative_bias: Option<P::Table>,
}

/// Attention of the target to the source.
pub(crate) struct CrossAttention<P: TensorVisitor> {
    pub(crate) query: P::Linear,
    /// Key and value side by side, applied to the encoder's memory once.
    pub(crate) key_value: P::Linear,
    pub(crate) output: P::Linear,
    pub(crate) norm: P::Norm,
}

/// The position-wise feed-forward block.
pub(crate) struct FeedForward<P: TensorVisitor> {
    /// Of a gated block.
    pub(crate) gate: Option<P::Linear>,
    pub(crate) inner: P::Linear,
    pub(crate) outer: P::Linear,
    pub(crate) norm: P::Norm,
}

/// Walks over the network of `config`.
pub(crate) fn walk<P: TensorVisitor>(
    config: &Config,
    parts: &mut P,
) -> Result<Network<P>, P::Error> {
    let mut walk = Walk { config, parts };
    let source = walk.optional_table(TensorId::SourceEmbedding, 0)?;
    let decodes = config.decoder.is_some();
    let same = source.as_ref().filter(|_| config.ties.source_target);
    let target = decodes.then(|| walk.table(TensorId::TargetEmbedding, same)).transpose()?;
    let input = match source {
        Some(table) => Input::Table(table),
        None => Input::ConvFrontend(walk.stem()?),
    };
    let encoder = walk.encoder(input)?;
    let decoder = target.map(|target| walk.decoder(target)).transpose()?;
    Ok(Network { encoder, decoder })
}

struct Walk<'w, P> {
    config: &'w Config,
    parts: &'w mut P,
}

/// Which layer the walk is in.
#[derive(Clone, Copy)]
struct Layer {
    side: Side,
    index: usize,
}

impl Layer {
    fn role(self, part: LayerPart) -> TensorId {
        TensorId::Layer(self.side, self.index, part)
    }
}

impl<P: TensorVisitor> Walk<'_, P> {
    fn stem(&mut self) -> Result<[P::Linear; 2], P::Error> {
        let mut convolution = |index| self.linear(|affine| TensorId::Convolution(index, affine));
        Ok([convolution(0)?, convolution(1)?])
    }

    fn encoder(&mut self, input: Input<P>) -> Result<Encoder<P>, P::Error> {
        let side = Side::Encoder;
        let embedding = self.embedding(side)?;
        let token_types = self.optional_table(TensorId::TokenTypes, 0)?;
        let relative_bias = self.optional_table(TensorId::RelativeBias(side), 0)?;
        let layers = (0..self.config.encoder.layers).map(|index| {
            let layer = Layer { side, index };
            Ok(EncoderLayer {
                self_attention: self.self_attention(layer)?,
                feed_forward: self.feed_forward(layer)?,
            })
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = self.optional_norm(|affine| TensorId::FinalNorm(side, affine))?;
        Ok(Encoder { input, embedding, token_types, relative_bias, layers, final_norm })
    }

    fn decoder(&mut self, table: P::Table) -> Result<Decoder<P>, P::Error> {
        let side = Side::Decoder;
        let embedding = self.embedding(side)?;
        let relative_bias = self.optional_table(TensorId::RelativeBias(side), 0)?;
        let layers = self.config.decoder.map_or(0, |stack| stack.layers);
        let layers = (0..layers).map(|index| {
            let layer = Layer { side, index };
            Ok(DecoderLayer {
                self_attention: self.self_attention(layer)?,
                cross_attention: self.cross_attention(layer)?,
                feed_forward: self.feed_forward(layer)?,
            })
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = self.optional_norm(|affine| TensorId::FinalNorm(side, affine))?;
        let output = self.output(self.config.ties.target_output.then_some(&table))?;
        Ok(Decoder { table, embedding, relative_bias, layers, final_norm, output })
    }

    fn embedding(&mut self, side: Side) -> Result<Embedding<P>, P::Error> {
        Ok(Embedding {
            positions: self.positions(side)?,
            norm: self.optional_norm(|affine| TensorId::EmbeddingNorm(side, affine))?,
        })
    }

    fn positions(&mut self, side: Side) -> Result<Option<P::Table>, P::Error> {
        let skip = match self.config.positions {
            Positions::Learned { offset } => offset,
            _ => 0,
        };
        self.optional_table(TensorId::Positions(side), skip)
    }

    fn self_attention(&mut self, layer: Layer) -> Result<SelfAttention<P>, P::Error> {
        use Projection::{Key, Output, Query, Value};
        let own = Attention::Own;
        Ok(SelfAttention {
            query_key_value: self.projections(layer, own, &[Query, Key, Value])?,
            output: self.projections(layer, own, &[Output])?,
            norm: self.norm(|affine| layer.role(LayerPart::AttentionNorm(own, affine)))?,
            relative_bias: self.optional_table(layer.role(LayerPart::RelativeBias), 0)?,
        })
    }

    fn cross_attention(&mut self, layer: Layer) -> Result<CrossAttention<P>, P::Error> {
        use Projection::{Key, Output, Query, Value};
        let cross = Attention::Cross;
        Ok(CrossAttention {
            query: self.projections(layer, cross, &[Query])?,
            key_value: self.projections(layer, cross, &[Key, Value])?,
            output: self.projections(layer, cross, &[Output])?,
            norm: self.norm(|affine| layer.role(LayerPart::AttentionNorm(cross, affine)))?,
        })
    }

    fn feed_forward(&mut self, layer: Layer) -> Result<FeedForward<P>, P::Error> {
        let half = |half| move |affine| layer.role(LayerPart::FeedForward(half, affine));
        let gated = self.config.gated;
        Ok(FeedForward {
            gate: gated.then(|| self.linear(half(Half::Gate))).transpose()?,
            inner: self.linear(half(Half::Inner))?,
            outer: self.linear(half(Half::Outer))?,
            norm: self.norm(|affine| layer.role(LayerPart::FeedForwardNorm(affine)))?,
        })
    }

    fn output(&mut self, same: Option<&P::Table>) -> Result<P::Output, P::Error> {
        let map = self.affine(|affine| match affine {
            ParamKind::Weight => TensorId::Output,
            ParamKind::Bias => TensorId::OutputBias,
        });
        self.parts.output(map, same)
    }

    /// Projections of one input.
    fn projections(
        &mut self,
        layer: Layer,
        attention: Attention,
        projections: &[Projection],
    ) -> Result<P::Linear, P::Error> {
        let role =
            |projection, affine| layer.role(LayerPart::Attention(attention, projection, affine));
        let maps = projections.iter().map(|&p| self.affine(|affine| role(p, affine))).collect();
        self.parts.linear(maps)
    }

    fn table(&mut self, role: TensorId, same: Option<&P::Table>) -> Result<P::Table, P::Error> {
        let tensor = self.tensor(role);
        self.parts.table(TableTensor { tensor, skip: 0 }, same)
    }

    /// `skip` rows are never looked up.
    fn optional_table(
        &mut self,
        role: TensorId,
        skip: usize,
    ) -> Result<Option<P::Table>, P::Error> {
        let tensor = self.optional_tensor(role);
        tensor.map(|tensor| self.parts.table(TableTensor { tensor, skip }, None)).transpose()
    }

    fn linear(&mut self, role: impl Fn(ParamKind) -> TensorId) -> Result<P::Linear, P::Error> {
        self.parts.linear(vec![self.affine(role)])
    }

    fn norm(&mut self, role: impl Fn(ParamKind) -> TensorId) -> Result<P::Norm, P::Error> {
        self.parts.norm(self.affine(role))
    }

    fn optional_norm(
        &mut self,
        role: impl Fn(ParamKind) -> TensorId,
    ) -> Result<Option<P::Norm>, P::Error> {
        let present = role(ParamKind::Weight).shape(self.config).is_some();
        present.then(|| self.norm(role)).transpose()
    }

    fn affine(&self, role: impl Fn(ParamKind) -> TensorId) -> AffineTensors {
        AffineTensors {
            weight: self.tensor(role(ParamKind::Weight)),
            bias: self.optional_tensor(role(ParamKind::Bias)),
        }
    }

    /// What every network has. A role without a shape would be refused by name when it is read.
    fn tensor(&self, role: TensorId) -> Tensor {
        Tensor { role, shape: role.shape(self.config).unwrap_or_default() }
    }

    /// What this network may have.
    fn optional_tensor(&self, role: TensorId) -> Option<Tensor> {
        Some(Tensor { role, shape: role.shape(self.config)? })
    }
}

/// Calls `look` with every tensor of the network of `config`, in the order of use, until it refuses one.
pub(crate) fn each_tensor<E>(
    config: &Config,
    look: impl FnMut(Tensor) -> Result<(), E>,
) -> Result<(), E> {
    walk(config, &mut Each { look, error: PhantomData }).map(|_| ())
}

/// Keeps nothing.
struct Each<F, E> {
    look: F,
    error: PhantomData<E>,
}

impl<F: FnMut(Tensor) -> Result<(), E>, E> Each<F, E> {
    fn both(&mut self, tensors: AffineTensors) -> Result<(), E> {
        (self.look)(tensors.weight)?;
        tensors.bias.map_or(Ok(()), &mut self.look)
    }
}

impl<F: FnMut(Tensor) -> Result<(), E>, E> TensorVisitor for Each<F, E> {
    type Table = ();
    type Norm = ();
    type Linear = ();
    type Output = ();
    type Error = E;

    fn table(&mut self, table: TableTensor, _: Option<&()>) -> Result<(), E> {
        (self.look)(table.tensor)
    }

    fn norm(&mut self, norm: AffineTensors) -> Result<(), E> {
        self.both(norm)
    }

    fn linear(&mut self, maps: Vec<AffineTensors>) -> Result<(), E> {
        maps.into_iter().try_for_each(|map| self.both(map))
    }

    fn output(&mut self, map: AffineTensors, _: Option<&()>) -> Result<(), E> {
        self.both(map)
    }
}

impl TensorId {
    /// Every role that a model of this configuration has, [`TensorId::OutputBias`] included, in the order of use. With
    /// [`TensorId::shape`] and [`TensorId::names`] this is the list of all tensors that a checkpoint holds.
    ///
    /// ```
    /// use simdformer::checkpoint::TensorId;
    /// use simdformer::config::Config;
    ///
    /// let config = Config::base(37_000);
    /// let roles = TensorId::all(&config);
    /// let sizes = roles.map(|role| role.shape(&config).map_or(0, |shape| shape.iter().product()));
    /// let numbers: usize = sizes.sum();
    /// // The 65 million of the paper's table 3, its three equal matrices and the bias counted apart.
    /// assert_eq!(numbers - 2 * 37_000 * 512 - 37_000, 63_082_496);
    /// ```
    pub fn all(config: &Config) -> impl Iterator<Item = Self> + use<> {
        let mut roles = Vec::new();
        let walked = each_tensor(config, |tensor| {
            roles.push(tensor.role);
            Ok::<(), Infallible>(())
        });
        match walked {
            Ok(()) => roles.into_iter(),
        }
    }
}
