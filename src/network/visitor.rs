//! The network as a tree of parts, and the only traversal of it.
//!
//! The types follow figure 1 of the paper: stacks of layers, layers of blocks, blocks of linear maps, norms and
//! tables. [`walk`] visits the tree once, in the order of use. It passes every tensor to a [`TensorVisitor`]
//! and stores the results. The layout of the weights turns tensors into ranges of memory and a table of
//! parameters; a checkpoint only checks that they exist ([`each_tensor`]). This is the only list of parameters:
//! a new parameter is a [`TensorId`], its shape in [`TensorId::shape`], and one line here.

use super::{Attention, FeedForward as Half, LayerPart, ParamKind, Projection, TensorId};
use crate::config::{Config, Positions, Side};
use core::convert::Infallible;
use core::marker::PhantomData;

/// A tensor of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) role: TensorId,
    /// [`TensorId::shape`] of the role.
    pub(crate) shape: Vec<usize>,
}

/// The tensor of a lookup table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableTensor {
    pub(crate) tensor: Tensor,
    /// Rows before the first row that the model uses.
    pub(crate) skip: usize,
}

/// The tensors of a linear map, or of a norm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AffineTensors {
    pub(crate) weight: Tensor,
    /// `None` if the architecture has none.
    pub(crate) bias: Option<Tensor>,
}

/// Converts the tensors of a network, which [`walk`] passes to it.
pub(crate) trait TensorVisitor {
    /// A lookup table.
    type Table;
    /// A norm over `d_model` elements.
    type Norm;
    /// Linear maps of the same input, concatenated; or a convolution, whose input is a window of frames.
    type Linear;
    /// The linear map to the vocabulary.
    type Output;
    /// The error that ends the traversal.
    type Error;

    /// A lookup table. `same` is an existing table with the same numbers.
    fn table(
        &mut self,
        table: TableTensor,
        same: Option<&Self::Table>,
    ) -> Result<Self::Table, Self::Error>;

    fn norm(&mut self, norm: AffineTensors) -> Result<Self::Norm, Self::Error>;

    /// Linear maps of the same input: the visitor may store them as one matrix.
    fn linear(&mut self, maps: Vec<AffineTensors>) -> Result<Self::Linear, Self::Error>;

    /// The output map. `same` is an existing table whose rows are those of the map's matrix.
    fn output(
        &mut self,
        map: AffineTensors,
        same: Option<&Self::Table>,
    ) -> Result<Self::Output, Self::Error>;
}

/// Both stacks, or only the encoder.
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
    /// Shared by all layers.
    pub(crate) relative_bias: Option<P::Table>,
    pub(crate) layers: Vec<EncoderLayer<P>>,
    pub(crate) final_norm: Option<P::Norm>,
}

/// The input layer of the encoder.
pub(crate) enum Input<P: TensorVisitor> {
    /// Ids: `[vocabulary, d_model]`.
    Table(P::Table),
    /// Features: the two convolutions, in the order of use.
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
    /// Shared by all layers.
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

/// The parts that follow the lookup of ids, or the convolutions.
pub(crate) struct Embedding<P: TensorVisitor> {
    /// Learned positions, `[max_positions, d_model]`; `None` if a formula gives them.
    pub(crate) positions: Option<P::Table>,
    pub(crate) norm: Option<P::Norm>,
}

/// Attention of the tokens of one side to each other.
pub(crate) struct SelfAttention<P: TensorVisitor> {
    /// Query, key and value, concatenated.
    pub(crate) query_key_value: P::Linear,
    pub(crate) output: P::Linear,
    pub(crate) norm: P::Norm,
    /// Only for this layer.
    pub(crate) relative_bias: Option<P::Table>,
}

/// Attention of the target to the source.
pub(crate) struct CrossAttention<P: TensorVisitor> {
    pub(crate) query: P::Linear,
    /// Key and value, concatenated; applied to the encoder output once.
    pub(crate) key_value: P::Linear,
    pub(crate) output: P::Linear,
    pub(crate) norm: P::Norm,
}

/// The position-wise feed-forward block.
pub(crate) struct FeedForward<P: TensorVisitor> {
    /// The gate of a gated block.
    pub(crate) gate: Option<P::Linear>,
    pub(crate) up: P::Linear,
    pub(crate) down: P::Linear,
    pub(crate) norm: P::Norm,
}

/// Visits the network of `config`.
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
        None => Input::ConvFrontend(walk.conv_frontend()?),
    };
    let encoder = walk.encoder(input)?;
    let decoder = target.map(|target| walk.decoder(target)).transpose()?;
    Ok(Network { encoder, decoder })
}

struct Walk<'w, P> {
    config: &'w Config,
    parts: &'w mut P,
}

/// The current layer.
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
    fn conv_frontend(&mut self) -> Result<[P::Linear; 2], P::Error> {
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
            up: self.linear(half(Half::Inner))?,
            down: self.linear(half(Half::Outer))?,
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

    /// Projections of the same input.
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

    /// `skip` rows at the start of the table are never used.
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

    /// A tensor of every network. A role without a shape gets an empty one; the checkpoint then returns an error
    /// that names the role.
    fn tensor(&self, role: TensorId) -> Tensor {
        Tensor { role, shape: role.shape(self.config).unwrap_or_default() }
    }

    /// A tensor that only some networks have.
    fn optional_tensor(&self, role: TensorId) -> Option<Tensor> {
        Some(Tensor { role, shape: role.shape(self.config)? })
    }
}

/// Calls `visit` with every tensor of the network of `config`, in the order of use, until it returns an error.
pub(crate) fn each_tensor<E>(
    config: &Config,
    visit: impl FnMut(Tensor) -> Result<(), E>,
) -> Result<(), E> {
    walk(config, &mut Each { visit, error: PhantomData }).map(|_| ())
}

/// A visitor that stores nothing.
struct Each<F, E> {
    visit: F,
    error: PhantomData<E>,
}

impl<F: FnMut(Tensor) -> Result<(), E>, E> Each<F, E> {
    fn both(&mut self, tensors: AffineTensors) -> Result<(), E> {
        (self.visit)(tensors.weight)?;
        tensors.bias.map_or(Ok(()), &mut self.visit)
    }
}

impl<F: FnMut(Tensor) -> Result<(), E>, E> TensorVisitor for Each<F, E> {
    type Table = ();
    type Norm = ();
    type Linear = ();
    type Output = ();
    type Error = E;

    fn table(&mut self, table: TableTensor, _: Option<&()>) -> Result<(), E> {
        (self.visit)(table.tensor)
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
    /// Every role of a model of this configuration, [`TensorId::OutputBias`] included, in the order of use. With
    /// [`TensorId::shape`] and [`TensorId::names`] this lists all tensors of a checkpoint.
    ///
    /// ```
    /// use simdformer::checkpoint::TensorId;
    /// use simdformer::config::Config;
    ///
    /// let config = Config::base(37_000);
    /// let roles = TensorId::all(&config);
    /// let sizes = roles.map(|role| role.shape(&config).map_or(0, |shape| shape.iter().product()));
    /// let numbers: usize = sizes.sum();
    /// // The 65 million of table 3 of the paper, without the bias and with its three equal matrices counted once.
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
