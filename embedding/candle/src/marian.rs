//! OPUS-MT on the ops of this crate: Marian with the checkpoints and the [`Config`] of
//! [`candle_transformers::models::marian`], and with features that it lacks.
//!
//! * **Batches of sentences of different lengths**, padded: candle's model has no padding mask. Each
//!   sentence has the bits that it has alone, whatever the padding is.
//! * Keys and values of the source are projected once for a sentence, not once for a token. Those of the
//!   target are appended to memory that is allocated at the start.
//! * Key and value are one product, the activation is a part of the product before it, and sum and norm are
//!   one pass in place.
//!
//! It also shows how to port a model to the ops: [`SimdLinear`] replaces `Linear`, [`AddLayerNorm`]
//! replaces `+` and `LayerNorm`, and no `contiguous()` is needed.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use candle_nn::VarBuilder;
//! use candle_transformers::models::marian::Config;
//! use simdformer_candle::marian::Marian;
//! use simdformer_kernels::Isa;
//!
//! let bytes = std::fs::read("model.safetensors")?; // of Helsinki-NLP/opus-mt-fr-en
//! let vb = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?;
//! let model = Marian::load(Isa::detect()?, &Config::opus_mt_fr_en(), vb)?;
//! let translations = model.translate(&[&[10, 20, 30, 0], &[40, 0]], 64)?;
//! assert_eq!(translations.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::attention::{HeadLayout, SimdAttention};
use crate::linear::{SimdLinear, activation};
use crate::norm::AddLayerNorm;
use crate::op_error::OpError;
use crate::threads::Threads;
use candle_core::{DType, Device, Error, Module, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::marian::Config;
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::{Activation, Isa, MatrixMut};

/// The epsilon of the norms.
const EPS: f64 = 1e-5;

/// The instruction set and the threads of projections, attention and norms.
#[derive(Clone, Copy, Debug)]
struct Place {
    isa: Isa,
    threads: Threads,
}

/// The projections of one attention.
#[derive(Clone, Debug)]
struct Attention {
    place: Place,
    heads: usize,
    query: SimdLinear,
    key_value: SimdLinear,
    output: SimdLinear,
}

impl Attention {
    fn load(place: Place, width: usize, heads: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            let found = format!("a width of {width} with {heads} heads");
            return Err(OpError::Unsupported { found, expected: "heads that divide it" }.into());
        }
        let parts = ["k_proj", "v_proj"].map(|name| {
            let vb = vb.pp(name);
            Ok::<_, Error>((vb.get((width, width), "weight")?, vb.get(width, "bias")?))
        });
        let [key, value] = parts;
        let (key, value) = (key?, value?);
        let parts = [(&key.0, Some(&key.1)), (&value.0, Some(&value.1))];
        Ok(Self {
            place,
            heads,
            query: linear(place, width, width, vb.pp("q_proj"))?,
            key_value: SimdLinear::side_by_side(place.isa, &parts)?.threads(place.threads),
            output: linear(place, width, width, vb.pp("out_proj"))?,
        })
    }

    /// Keys and values of `[batch, tokens, width]`: `[batch, tokens, 2, heads, head_dim]`.
    fn keys_values(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, tokens, width) = x.dims3()?;
        let shape = (batch, tokens, 2, self.heads, width / self.heads);
        self.key_value.forward(x)?.reshape(shape)
    }

    /// Applies `op` to tensors with tokens first.
    fn op<'a>(&self) -> SimdAttention<'a> {
        SimdAttention::new(self.place.isa, HeadLayout::TokensFirst).threads(self.place.threads)
    }

    /// `[batch, tokens, width]` from queries of the same shape. Key and value are read in place.
    fn attend(&self, op: SimdAttention<'_>, x: &Tensor, keys_values: &Tensor) -> Result<Tensor> {
        let (batch, tokens, width) = x.dims3()?;
        let shape = (batch, tokens, self.heads, width / self.heads);
        let query = self.query.forward(x)?.reshape(shape)?;
        let key = keys_values.narrow(2, 0, 1)?.squeeze(2)?;
        let value = keys_values.narrow(2, 1, 1)?.squeeze(2)?;
        let context = op.attend(&query, &key, &value)?;
        self.output.forward(&context.reshape((batch, tokens, width))?)
    }
}

/// The two products of a feed-forward block, with the activation between them.
#[derive(Clone, Debug)]
struct FeedForward {
    expand: SimdLinear,
    contract: SimdLinear,
}

impl FeedForward {
    fn load(
        place: Place,
        [width, inner]: [usize; 2],
        activation: Activation,
        vb: &VarBuilder<'_>,
    ) -> Result<Self> {
        let expand = linear(place, width, inner, vb.pp("fc1"))?.activated(activation);
        Ok(Self { expand, contract: linear(place, inner, width, vb.pp("fc2"))? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.contract.forward(&self.expand.forward(x)?)
    }
}

#[derive(Clone, Debug)]
struct EncoderLayer {
    attention: Attention,
    attention_norm: AddLayerNorm,
    feed_forward: FeedForward,
    feed_forward_norm: AddLayerNorm,
}

impl EncoderLayer {
    /// Updates `x`, `[batch, tokens, width]`.
    fn forward(&self, x: &Tensor, lengths: &[usize]) -> Result<()> {
        let op = self.attention.op().lengths(lengths);
        let context = self.attention.attend(op, x, &self.attention.keys_values(x)?)?;
        self.attention_norm.add(x, &context)?;
        self.feed_forward_norm.add(x, &self.feed_forward.forward(x)?)
    }
}

#[derive(Clone, Debug)]
struct DecoderLayer {
    attention: Attention,
    attention_norm: AddLayerNorm,
    cross: Attention,
    cross_norm: AddLayerNorm,
    feed_forward: FeedForward,
    feed_forward_norm: AddLayerNorm,
}

impl DecoderLayer {
    /// Updates `x`, `[batch, tokens, width]`. `cache` has the keys and values of this layer for these
    /// and earlier tokens, `source` those of the source.
    fn forward(
        &self,
        x: &Tensor,
        cache: &Tensor,
        source: &Tensor,
        lengths: &[usize],
    ) -> Result<()> {
        let context = self.attention.attend(self.attention.op().causal(), x, cache)?;
        self.attention_norm.add(x, &context)?;
        let context = self.cross.attend(self.cross.op().key_lengths(lengths), x, source)?;
        self.cross_norm.add(x, &context)?;
        self.feed_forward_norm.add(x, &self.feed_forward.forward(x)?)
    }
}

/// Encoded source sentences, as the decoder reads them.
#[derive(Clone, Debug)]
pub struct EncoderOutput {
    states: Tensor,
    lengths: Vec<usize>,
    /// The keys and values of each decoder layer, `[batch, tokens, 2, heads, head_dim]`.
    keys_values: Vec<Tensor>,
}

impl EncoderOutput {
    /// The encoder output, `[batch, tokens, d_model]`. Rows of padding have no meaning.
    pub const fn states(&self) -> &Tensor {
        &self.states
    }
}

/// The KV cache of the target.
#[derive(Debug)]
pub struct KvCache {
    /// The keys and values of each decoder layer, `[batch, capacity, 2, heads, head_dim]`.
    keys_values: Vec<Tensor>,
    len: usize,
}

impl KvCache {
    /// Tokens decoded so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no token has been decoded.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A Marian model in which encoder, decoder and output share one embedding, as all of OPUS-MT do.
#[derive(Clone, Debug)]
pub struct Marian {
    config: Config,
    /// `[vocabulary, d_model]`.
    embedding: Tensor,
    /// `[positions, d_model]`.
    positions: Tensor,
    encoder: Vec<EncoderLayer>,
    decoder: Vec<DecoderLayer>,
    output: SimdLinear,
}

impl Marian {
    /// Packs the tensors of `vb`, named as in Hugging Face. Computes on the rayon pool that the caller
    /// is in.
    ///
    /// # Errors
    /// A tensor is missing or has another shape, the embeddings are not shared, or the width is not a
    /// multiple of the heads.
    pub fn load(isa: Isa, config: &Config, vb: VarBuilder<'_>) -> Result<Self> {
        Self::load_for(isa, Threads::Rayon, config, vb)
    }

    /// As [`Marian::load`], computed by `threads`.
    ///
    /// # Errors
    /// As [`Marian::load`].
    pub fn load_for(
        isa: Isa,
        threads: Threads,
        config: &Config,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
        if !config.share_encoder_decoder_embeddings {
            let found = "share_encoder_decoder_embeddings: false".into();
            let expected = "one embedding; the crate simdformer runs the others";
            return Err(OpError::Unsupported { found, expected }.into());
        }
        let place = Place { isa, threads };
        let width = config.d_model;
        let activation = activation(config.activation_function)?;
        let norm = |vb: VarBuilder<'_>| {
            Ok::<_, Error>(AddLayerNorm::load(isa, width, EPS, &vb)?.threads(threads))
        };
        let model = vb.pp("model");
        let encoder = (0..config.encoder_layers).map(|index| {
            let vb = model.pp("encoder").pp("layers").pp(index);
            let (heads, inner) = (config.encoder_attention_heads, config.encoder_ffn_dim);
            Ok(EncoderLayer {
                attention: Attention::load(place, width, heads, &vb.pp("self_attn"))?,
                attention_norm: norm(vb.pp("self_attn_layer_norm"))?,
                feed_forward: FeedForward::load(place, [width, inner], activation, &vb)?,
                feed_forward_norm: norm(vb.pp("final_layer_norm"))?,
            })
        });
        let decoder = (0..config.decoder_layers).map(|index| {
            let vb = model.pp("decoder").pp("layers").pp(index);
            let (heads, inner) = (config.decoder_attention_heads, config.decoder_ffn_dim);
            Ok(DecoderLayer {
                attention: Attention::load(place, width, heads, &vb.pp("self_attn"))?,
                attention_norm: norm(vb.pp("self_attn_layer_norm"))?,
                cross: Attention::load(place, width, heads, &vb.pp("encoder_attn"))?,
                cross_norm: norm(vb.pp("encoder_attn_layer_norm"))?,
                feed_forward: FeedForward::load(place, [width, inner], activation, &vb)?,
                feed_forward_norm: norm(vb.pp("final_layer_norm"))?,
            })
        });
        let (encoder, decoder) = (encoder.collect::<Result<_>>()?, decoder.collect::<Result<_>>()?);
        let embedding = model.pp("shared").get((config.vocab_size, width), "weight")?;
        let embedding = embedding.to_dtype(DType::F32)?;
        let outputs = config.decoder_vocab_size.unwrap_or(config.vocab_size);
        let bias = vb.get((1, outputs), "final_logits_bias")?;
        let output = SimdLinear::new(isa, &embedding, Some(&bias))?.threads(threads);
        let positions = positions(config.max_position_embeddings, width)?;
        Ok(Self { config: config.clone(), embedding, positions, encoder, decoder, output })
    }

    /// Encodes sentences of `lengths` tokens. `ids`, `[batch, tokens]`, are padded on the right with
    /// any ids of the vocabulary.
    ///
    /// # Errors
    /// The number of lengths is not the number of sentences, a length exceeds `tokens`, there are more
    /// tokens than positions, or an id is outside of the vocabulary.
    pub fn encode(&self, ids: &Tensor, lengths: &[usize]) -> Result<EncoderOutput> {
        let states = self.embed(ids, 0)?;
        for layer in &self.encoder {
            layer.forward(&states, lengths)?;
        }
        let keys_values = self.decoder.iter().map(|layer| layer.cross.keys_values(&states));
        let keys_values = keys_values.collect::<Result<_>>()?;
        Ok(EncoderOutput { states, lengths: lengths.to_vec(), keys_values })
    }

    /// A KV cache for `capacity` target tokens of each of `batch` sentences.
    ///
    /// # Errors
    /// candle cannot allocate a tensor of this size.
    pub fn kv_cache(&self, batch: usize, capacity: usize) -> Result<KvCache> {
        let keys_values = self.decoder.iter().map(|layer| {
            let heads = layer.attention.heads;
            let shape = (batch, capacity, 2, heads, self.config.d_model / heads);
            Tensor::zeros(shape, DType::F32, &Device::Cpu)
        });
        Ok(KvCache { keys_values: keys_values.collect::<Result<_>>()?, len: 0 })
    }

    /// Decodes the next tokens of every sentence, `ids` `[batch, tokens]`, and appends their keys and
    /// values to `cache`. Returns the logits after each of them, `[batch, tokens, vocabulary]`, with the
    /// same bits for one token at a time and for all at once.
    ///
    /// # Errors
    /// The batch is not that of the encoded sources and the cache, the cache is full, there are more
    /// tokens than positions, or an id is outside of the vocabulary. After an error the cache has its
    /// old length.
    pub fn decode(
        &self,
        ids: &Tensor,
        encoded: &EncoderOutput,
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        let tokens = ids.dim(1)?;
        let x = self.embed(ids, cache.len)?;
        let layers = self.decoder.iter().zip(&cache.keys_values).zip(&encoded.keys_values);
        for ((layer, past_layer), source) in layers {
            past_layer.slice_set(&layer.attention.keys_values(&x)?, 1, cache.len)?;
            let seen = past_layer.narrow(1, 0, cache.len + tokens)?;
            layer.forward(&x, &seen, source, &encoded.lengths)?;
        }
        cache.len += tokens;
        self.output.forward(&x)
    }

    /// Translates sentences greedily as one padded batch. Returns the tokens of each, at most `limit`
    /// with the end token. The padding token is never chosen, as the checkpoints require.
    ///
    /// # Errors
    /// A sentence or `limit` exceeds the number of positions, or an id is outside of the vocabulary.
    pub fn translate(&self, sources: &[&[u32]], limit: usize) -> Result<Vec<Vec<u32>>> {
        let mut targets = vec![Vec::new(); sources.len()];
        let longest = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        if longest == 0 || limit == 0 {
            return Ok(targets);
        }
        let pad = self.config.pad_token_id;
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        let padded = sources.iter().flat_map(|source| {
            source.iter().copied().chain(std::iter::repeat_n(pad, longest - source.len()))
        });
        let ids = Tensor::from_iter(padded, &Device::Cpu)?.reshape((sources.len(), longest))?;
        let encoded = self.encode(&ids, &lengths)?;

        let mut cache = self.kv_cache(sources.len(), limit)?;
        let mut last = vec![self.config.decoder_start_token_id; sources.len()];
        while cache.len() < limit {
            let ids = Tensor::from_slice(&last, (sources.len(), 1), &Device::Cpu)?;
            let logits = self.decode(&ids, &encoded, &mut cache)?.squeeze(1)?.to_vec2::<f32>()?;
            let mut living = false;
            for ((target, last), logits) in targets.iter_mut().zip(&mut last).zip(&logits) {
                if target.last() == Some(&self.config.eos_token_id) {
                    continue; // An ended sentence stays in the batch, and its tokens are ignored.
                }
                *last = best(logits, pad);
                target.push(*last);
                living |= *last != self.config.eos_token_id;
            }
            if !living {
                break;
            }
        }
        Ok(targets)
    }

    /// Embeddings and positions from `first` on, in memory of their own, because the layers change it.
    fn embed(&self, ids: &Tensor, first: usize) -> Result<Tensor> {
        let (batch, tokens) = ids.dims2()?;
        let rows = self.embedding.embedding(&ids.flatten_all()?)?;
        let rows = match self.config.scale_embedding {
            true => (rows * (self.config.d_model as f64).sqrt())?,
            false => rows,
        };
        let rows = rows.reshape((batch, tokens, self.config.d_model))?;
        rows.broadcast_add(&self.positions.narrow(0, first, tokens)?)
    }
}

/// The index of the first of the largest logits, never `banned`.
fn best(logits: &[f32], banned: u32) -> u32 {
    let mut best = (banned, f32::NEG_INFINITY);
    for (id, &logit) in (0..).zip(logits) {
        if id != banned && logit > best.1 {
            best = (id, logit);
        }
    }
    best.0
}

fn linear(place: Place, inputs: usize, outputs: usize, vb: VarBuilder<'_>) -> Result<SimdLinear> {
    Ok(SimdLinear::load(place.isa, inputs, outputs, &vb)?.threads(place.threads))
}

/// Sines, then cosines, as in Hugging Face's Marian.
fn positions(count: usize, width: usize) -> Result<Tensor> {
    let mut table = vec![0.0; count * width];
    let view = MatrixMut::new(&mut table, count, width).map_err(Error::wrap)?;
    encode(PositionEncoding::HalfSplit, 0, view).map_err(Error::wrap)?;
    Tensor::from_vec(table, (count, width), &Device::Cpu)
}
