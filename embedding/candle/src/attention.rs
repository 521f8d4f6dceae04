//! Attention on candle's tensors of four dimensions, read in place.

use crate::layout::{View, elements};
use crate::op_error::OpError;
use crate::scratch;
use crate::threads::Threads;
use candle_core::{CpuStorage, CustomOp3, Error, Layout, Result, Shape, Tensor};
use simdformer_kernels::{
    AttentionOptions, Exec, Heads, HeadsMut, Isa, Parallelism, Qkv, Sequence, attention,
    attention_scratch,
};

const OP: &str = "attention";

/// Sequences in one call of the kernel. Their ranges are on the stack.
const CHUNK: usize = 64;

/// The order of the dimensions of query, key, value and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadLayout {
    /// `(batch, tokens, heads, head_dim)`: the result of a projection after `reshape`, and the layout
    /// of [`candle_nn::attention::flash_attn`].
    TokensFirst,
    /// `(batch, heads, tokens, head_dim)`: the same after `transpose(1, 2)`, and the layout of batched
    /// products.
    HeadsFirst,
}

/// `softmax(scale Q Kᵀ, masked) V` of every head of every sequence. The matrix of scores is never stored.
///
/// Query, key and value have one [`HeadLayout`], and the result has the shape of the query. Key and value
/// may have fewer heads; each of them serves a group of query heads. The elements of a head should be
/// contiguous. Any strides of batch, tokens and heads are read in place, so pass `transpose`d and
/// `narrow`ed tensors as they are.
///
/// Lengths, not a mask, describe padding: tokens after the length are not read, whatever they hold, and
/// their results are 0. A causal mask is aligned to the end of the keys: query `i` sees keys `0..i + 1 +
/// keys - queries`, as in candle's `flash-attn` and not as in PyTorch's `is_causal`. A query that sees no
/// key gives zeros.
///
/// It is a candle op without a gradient: [`SimdAttention::attend`], or `query.apply_op3_no_bwd(&key,
/// &value, &attention)`. It borrows the lengths and is cheap to create. A call allocates its result.
///
/// The error bound is that of [`attention`](simdformer_kernels::attention).
///
/// ```
/// use candle_core::{Device, Tensor};
/// use simdformer_candle::{HeadLayout, SimdAttention};
/// use simdformer_kernels::Isa;
///
/// // Two sequences of 3 tokens, 2 heads of 8; the second has one token and padding.
/// let fused = Tensor::rand(-1f32, 1.0, (2, 3, 3, 2, 8), &Device::Cpu)?;
/// let part = |index| fused.narrow(2, index, 1)?.squeeze(2); // (2, 3, 2, 8), not contiguous
/// let attention = SimdAttention::new(Isa::detect()?, HeadLayout::TokensFirst).lengths(&[3, 1]);
/// let context = attention.attend(&part(0)?, &part(1)?, &part(2)?)?;
/// assert_eq!(context.dims(), [2, 3, 2, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SimdAttention<'a> {
    isa: Isa,
    layout: HeadLayout,
    scale: Option<f32>,
    causal: bool,
    query_lengths: Option<&'a [usize]>,
    key_lengths: Option<&'a [usize]>,
    threads: Threads,
}

impl<'a> SimdAttention<'a> {
    /// No mask, all tokens of all sequences, scale `1 / sqrt(head_dim)`.
    pub const fn new(isa: Isa, layout: HeadLayout) -> Self {
        let threads = Threads::Rayon;
        let (query_lengths, key_lengths) = (None, None);
        Self { isa, layout, scale: None, causal: false, query_lengths, key_lengths, threads }
    }

    /// Query `i` sees keys `0..i + 1 + keys - queries` only.
    pub const fn causal(self) -> Self {
        Self { causal: true, ..self }
    }

    /// Scores are multiplied by `scale` instead of `1 / sqrt(head_dim)`.
    pub const fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// The number of tokens of each sequence, for queries and keys: self-attention of a padded batch.
    pub const fn lengths(self, lengths: &'a [usize]) -> Self {
        self.query_lengths(lengths).key_lengths(lengths)
    }

    /// The number of query tokens of each sequence. The result of the others is 0.
    pub const fn query_lengths(self, lengths: &'a [usize]) -> Self {
        Self { query_lengths: Some(lengths), ..self }
    }

    /// The number of key tokens of each sequence: cross-attention over a padded batch.
    pub const fn key_lengths(self, lengths: &'a [usize]) -> Self {
        Self { key_lengths: Some(lengths), ..self }
    }

    /// The same attention, computed by `threads`.
    pub const fn threads(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Applies the op without a gradient.
    ///
    /// # Errors
    /// An operand is not f32 or not of four dimensions; batch, tokens, heads or head sizes do not fit
    /// each other; the number of lengths is not the number of sequences, or a length exceeds the
    /// tensor.
    pub fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        query.apply_op3_no_bwd(key, value, self)
    }

    /// The lengths of `operand`, one for each sequence.
    fn checked(
        operand: &'static str,
        lengths: Option<&'a [usize]>,
        [sequences, tokens]: [usize; 2],
    ) -> Result<Lengths<'a>> {
        let Some(lengths) = lengths else { return Ok(Lengths::All(tokens)) };
        if lengths.len() != sequences {
            let found = lengths.len();
            return Err(OpError::Lengths { operand, expected: sequences, found }.into());
        }
        match lengths.iter().enumerate().find(|&(_, &length)| length > tokens) {
            Some((sequence, &found)) => {
                Err(OpError::Length { operand, sequence, expected: tokens, found }.into())
            }
            None => Ok(Lengths::Each(lengths)),
        }
    }
}

/// How many tokens of each sequence are valid.
#[derive(Clone, Copy)]
enum Lengths<'a> {
    All(usize),
    Each(&'a [usize]),
}

impl Lengths<'_> {
    fn length_of(&self, sequence: usize) -> usize {
        match self {
            Self::All(tokens) => *tokens,
            Self::Each(lengths) => lengths.get(sequence).copied().unwrap_or(0),
        }
    }

    /// The length of all sequences, if it is the same.
    fn common(&self) -> Option<usize> {
        match self {
            Self::All(tokens) => Some(*tokens),
            Self::Each(lengths) => {
                let first = *lengths.first()?;
                lengths.iter().all(|&length| length == first).then_some(first)
            }
        }
    }
}

/// Query, key or value: element `(b, t, h, i)` is `data[b * batch_stride + t * token_stride + h *
/// head_stride + i]`.
#[derive(Clone, Copy)]
struct Operand<'a> {
    data: &'a [f32],
    batch: usize,
    tokens: usize,
    heads: usize,
    head_dim: usize,
    batch_stride: usize,
    token_stride: usize,
    head_stride: usize,
}

impl<'a> Operand<'a> {
    /// A tensor of four dimensions, and the number of floats for a copy, which is needed if the
    /// elements of a head are not contiguous. The strides are then those of the copy, which
    /// [`Operand::placed`] makes.
    fn new(view: &View<'a>, operand: &'static str, layout: HeadLayout) -> Result<(Self, usize)> {
        let (&[batch, one, two, head_dim], &[a, b, c, step]) = (view.dims, view.strides) else {
            let expected = match layout {
                HeadLayout::TokensFirst => "(batch, tokens, heads, head_dim)",
                HeadLayout::HeadsFirst => "(batch, heads, tokens, head_dim)",
            };
            return Err(OpError::Rank { op: OP, operand, expected, found: view.dims.len() }.into());
        };
        let scattered = view.elements > 0 && head_dim > 1 && step != 1;
        let (a, b, c) =
            if scattered { (one * two * head_dim, two * head_dim, head_dim) } else { (a, b, c) };
        let (tokens, heads, token_stride, head_stride) = match layout {
            HeadLayout::TokensFirst => (one, two, b, c),
            HeadLayout::HeadsFirst => (two, one, c, b),
        };
        let (data, batch_stride) = (view.data, a);
        let operand =
            Self { data, batch, tokens, heads, head_dim, batch_stride, token_stride, head_stride };
        Ok((operand, if scattered { view.elements } else { 0 }))
    }

    /// The operand, copied from `view` to the first `copied` floats of `buffer` if there are any.
    fn placed<'b>(self, view: &View<'_>, copied: usize, buffer: &mut &'b mut [f32]) -> Operand<'b>
    where
        'a: 'b,
    {
        if copied == 0 {
            return self;
        }
        let (dense, rest) = std::mem::take(buffer).split_at_mut(copied);
        *buffer = rest;
        view.gather(dense);
        Operand { data: dense, ..self }
    }

    /// If all sequences can be read as one long one: the tokens from one sequence to the next, and the
    /// elements from one token to the next.
    fn end_to_end(&self) -> Option<(usize, usize)> {
        if self.batch == 1 {
            Some((self.tokens, self.token_stride))
        } else if self.tokens == 1 {
            Some((1, self.batch_stride))
        } else if self.token_stride == 0 {
            (self.batch_stride == 0).then_some((0, 0))
        } else {
            self.batch_stride
                .is_multiple_of(self.token_stride)
                .then(|| (self.batch_stride / self.token_stride, self.token_stride))
        }
    }

    /// If the heads of all sequences can be read as those of one: the elements from one sequence to the
    /// next.
    fn folded(&self) -> Option<usize> {
        if self.heads == 1 {
            return Some(self.batch_stride);
        }
        (Some(self.batch_stride) == self.heads.checked_mul(self.head_stride))
            .then_some(self.head_stride)
    }

    /// All sequences as one long one, `distance` tokens from one to the next.
    fn long(&self, distance: usize, token_stride: usize) -> Result<Heads<'a>> {
        let tokens = (self.batch - 1) * distance + self.tokens;
        let shape = [tokens, self.heads, self.head_dim];
        Heads::strided(self.data, shape, token_stride, self.head_stride).map_err(Error::wrap)
    }

    /// The heads of all sequences as those of one.
    fn wide(&self, head_stride: usize) -> Result<Heads<'a>> {
        let shape = [self.tokens, self.batch * self.heads, self.head_dim];
        Heads::strided(self.data, shape, self.token_stride, head_stride).map_err(Error::wrap)
    }

    /// One sequence.
    fn sequence_heads(&self, sequence: usize) -> Result<Heads<'a>> {
        let data = self.data.get(sequence * self.batch_stride..).unwrap_or(&[]);
        let shape = [self.tokens, self.heads, self.head_dim];
        Heads::strided(data, shape, self.token_stride, self.head_stride).map_err(Error::wrap)
    }
}

/// How an op becomes calls of the kernel. All ways give the same bits.
#[derive(Clone, Copy)]
enum Plan {
    /// All sequences in one call, laid end to end: the distances in tokens and the token strides of
    /// query and key, and the token stride of the value.
    Long { query: usize, key: (usize, usize), value: usize },
    /// All sequences in one call, as heads of one: the head strides of query, key and value.
    Wide([usize; 3]),
    /// A call for each sequence.
    Each,
}

/// The operands of one call, which are checked and not empty.
struct Call<'a> {
    op: &'a SimdAttention<'a>,
    query: Operand<'a>,
    key: Operand<'a>,
    value: Operand<'a>,
    query_lengths: Lengths<'a>,
    key_lengths: Lengths<'a>,
}

impl Call<'_> {
    fn plan(&self) -> Plan {
        let Self { op, query, key, value, .. } = self;
        let tokens_first = op.layout == HeadLayout::TokensFirst;
        if (tokens_first || query.batch == 1)
            && let (Some(asking), Some(asked), Some(given)) =
                (query.end_to_end(), key.end_to_end(), value.end_to_end())
            && asking.0 == query.tokens
            && asked.0 == given.0
        {
            return Plan::Long { query: asking.1, key: asked, value: given.1 };
        }
        // The result is dense, so its heads can be folded in the layout with heads first.
        if !tokens_first
            && self.query_lengths.common().is_some()
            && self.key_lengths.common().is_some()
            && let (Some(query), Some(key), Some(value)) =
                (query.folded(), key.folded(), value.folded())
        {
            return Plan::Wide([query, key, value]);
        }
        Plan::Each
    }

    /// Floats of scratch that the kernel needs for `plan`.
    fn scratch(&self, plan: Plan) -> Result<usize> {
        let Operand { batch, tokens, heads, head_dim, .. } = self.key;
        let one = attention_scratch(self.op.isa, &[Sequence::packed(0, tokens)], heads, head_dim)
            .map_err(Error::wrap)?;
        let sequences = match plan {
            Plan::Long { .. } => batch.min(CHUNK),
            Plan::Wide(_) => batch,
            Plan::Each => 1,
        };
        one.checked_mul(sequences).ok_or_else(|| OpError::TooLarge { op: OP }.into())
    }

    fn attend_sequences(&self, plan: Plan, out: &mut [f32], scratch: &mut [f32]) -> Result<()> {
        let Self { op, query, key, value, query_lengths, key_lengths } = self;
        let Operand { batch, tokens, heads, head_dim, .. } = *query;
        let usual = AttentionOptions::new(head_dim);
        let scale = op.scale.unwrap_or(usual.scale);
        let options = AttentionOptions { scale, causal: op.causal, ..usual };
        let parallelism: Parallelism<'_> = op.threads.parallelism();
        let mut attend = |qkv: Qkv<'_>, sequences: &[Sequence], out: HeadsMut<'_>| {
            attention(Exec::new(op.isa, parallelism), qkv, sequences, &options, out.into(), scratch)
                .map_err(Error::wrap)
        };
        let sequence = |index: usize, query_start: usize, key_start: usize| Sequence {
            query_start,
            query_len: query_lengths.length_of(index),
            key_start,
            key_len: key_lengths.length_of(index),
            padded_len: key_lengths.length_of(index),
        };
        let (token, head) = match op.layout {
            HeadLayout::TokensFirst => (heads * head_dim, head_dim),
            HeadLayout::HeadsFirst => (head_dim, tokens * head_dim),
        };
        match plan {
            Plan::Long {
                query: query_stride,
                key: (distance, key_stride),
                value: value_stride,
            } => {
                let qkv = Qkv {
                    query: query.long(tokens, query_stride)?,
                    key: key.long(distance, key_stride)?,
                    value: value.long(distance, value_stride)?,
                };
                let shape = [batch * tokens, heads, head_dim];
                let mut sequences = [Sequence::default(); CHUNK];
                for first in (0..batch).step_by(CHUNK) {
                    let count = CHUNK.min(batch - first);
                    for (offset, place) in sequences[..count].iter_mut().enumerate() {
                        let index = first + offset;
                        *place = sequence(index, index * tokens, index * distance);
                    }
                    let out = HeadsMut::strided(out, shape, token, head).map_err(Error::wrap)?;
                    attend(qkv, &sequences[..count], out)?;
                }
            }
            Plan::Wide([query_stride, key_stride, value_stride]) => {
                let qkv = Qkv {
                    query: query.wide(query_stride)?,
                    key: key.wide(key_stride)?,
                    value: value.wide(value_stride)?,
                };
                let shape = [tokens, batch * heads, head_dim];
                let out = HeadsMut::strided(out, shape, token, head).map_err(Error::wrap)?;
                attend(qkv, &[sequence(0, 0, 0)], out)?;
            }
            Plan::Each => {
                for (index, out) in out.chunks_exact_mut(tokens * heads * head_dim).enumerate() {
                    let qkv = Qkv {
                        query: query.sequence_heads(index)?,
                        key: key.sequence_heads(index)?,
                        value: value.sequence_heads(index)?,
                    };
                    let shape = [tokens, heads, head_dim];
                    let out = HeadsMut::strided(out, shape, token, head).map_err(Error::wrap)?;
                    attend(qkv, &[sequence(index, 0, 0)], out)?;
                }
            }
        }
        Ok(())
    }
}

impl CustomOp3 for SimdAttention<'_> {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let views = [
            View::new(OP, "query", s1, l1)?,
            View::new(OP, "key", s2, l2)?,
            View::new(OP, "value", s3, l3)?,
        ];
        let (query, copied_query) = Operand::new(&views[0], "query", self.layout)?;
        let (key, copied_key) = Operand::new(&views[1], "key", self.layout)?;
        let (value, copied_value) = Operand::new(&views[2], "value", self.layout)?;
        check("the batch of the key", (query.batch, "as the query has"), key.batch)?;
        check("the batch of the value", (query.batch, "as the query has"), value.batch)?;
        check("the tokens of the value", (key.tokens, "as the key has"), value.tokens)?;
        check("the heads of the value", (key.heads, "as the key has"), value.heads)?;
        check("the head size of the key", (query.head_dim, "as the query has"), key.head_dim)?;
        check("the head size of the value", (query.head_dim, "as the query has"), value.head_dim)?;
        if query.heads > 0 && (key.heads == 0 || !query.heads.is_multiple_of(key.heads)) {
            return Err(OpError::HeadGroups { query: query.heads, key: key.heads }.into());
        }
        let Operand { batch, tokens, .. } = query;
        let query_lengths = Self::checked("query", self.query_lengths, [batch, tokens])?;
        let key_lengths = Self::checked("key", self.key_lengths, [batch, key.tokens])?;

        let mut out = vec![0.0; elements(OP, views[0].dims)?];
        if !out.is_empty() && key.tokens > 0 {
            let call = Call { op: self, query, key, value, query_lengths, key_lengths };
            let plan = call.plan();
            let floats = [copied_query, copied_key, copied_value, call.scratch(plan)?];
            let floats = floats.iter().try_fold(0usize, |sum, &floats| sum.checked_add(floats));
            scratch::with(floats.ok_or(OpError::TooLarge { op: OP })?, |buffer| {
                let mut buffer = &mut buffer[..];
                let query = query.placed(&views[0], copied_query, &mut buffer);
                let key = key.placed(&views[1], copied_key, &mut buffer);
                let value = value.placed(&views[2], copied_value, &mut buffer);
                Call { query, key, value, ..call }.attend_sequences(plan, &mut out, buffer)
            })?;
        }
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }
}

fn check(dimension: &'static str, expected: (usize, &'static str), found: usize) -> Result<()> {
    if found == expected.0 {
        return Ok(());
    }
    Err(OpError::Dimension { op: OP, dimension, expected, found }.into())
}
