//! Scaled dot-product attention, `softmax(scale * Q K^T + bias, masked) V`, without storing the matrix of scores.
//!
//! Three functions share one online softmax (`online_softmax.rs`). The first two also share one inner loop
//! (`flash.rs`):
//!
//! * [`attention`]: queries, keys and values in strided views, any number of sequences, packed or padded. It first
//!   copies keys into panels and values into rows in the caller's scratch.
//! * [`attention_cached`]: keys and values in a [`Cache`], which already has that layout: cross-attention, and prefills
//!   that continue a cache.
//! * [`attention_decode`]: one query per row, whose keys and values are in several slots of the cache.
//!
//! Masks are by length (`key_len` of each sequence) and by causality, aligned to the end of the keys: query `i` of
//! `query_len` sees keys `0..i + 1 + key_len - query_len`. An additive [`Bias`] of minus infinity hides the key for
//! every score. A hidden key contributes exactly 0, whatever its memory contains. All other keys are visible: the value
//! of a visible key is multiplied with its weight even if the weight is too small for f32 and is 0, so a value that is
//! NaN or infinite reaches the output.
//!
//! A query is fully masked if it sees no key, or only keys with a score of minus infinity. Its output is zeros, or with
//! [`FullyMasked::Uniform`](crate::FullyMasked::Uniform) the mean of all values of its sequence: of `padded_len` values
//! for [`attention`], of `key_len` values in a cache.
//!
//! A call uses at most 32 KiB of the caller's stack in an optimized build, for the scores and the queries of one tile.
//! It allocates nothing.
//!
//! Error: with `u = 2^-24`, each output is within
//! `8 u (head_dim scale max|q| max|k| + max|bias| + key_len / 8 + 8) max|v|` of the exact value. For a cache of
//! [`Dtype::F16`](crate::Dtype::F16), the exact value is that for the rounded keys and values in the cache.
//!
//! Source: Vaswani et al. 2017, equation 1. The online softmax is from Milakov and Gimelshein 2018, its use in
//! attention from Rabe and Staats 2021 and Dao et al. 2022.

#[cfg(feature = "train")]
mod backward;
mod bias;
mod cache;
mod cached;
mod decode;
mod decode_group;
mod flash;
mod head_views;
mod int8;
mod kv_f16;
mod one_head;
mod online_softmax;
mod options;
mod panels;
mod scratch;
mod tasks;

#[cfg(feature = "train")]
pub use backward::{
    AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
    attention_backward_scratch, attention_backward_scratch_bound, attention_forward_save,
};
pub use cache::{Cache, CacheMut, CacheShape};
pub use cached::{CachedSequence, attention_cached};
pub use decode::{SlotTable, attention_decode};
pub use head_views::{Heads, HeadsMut, Qkv};
pub use options::{
    AttentionOptions, AttentionOutput, AttentionPrecision, AttentionWeights, Bias, Sequence,
};
pub use tasks::attention_scratch;

use crate::error::Error;
use crate::parallel::Exec;

/// Attention of every sequence. The query and the output are `[tokens, heads, head_dim]`, key and value
/// `[tokens, kv_heads, head_dim]`. `heads` is a multiple of `kv_heads`: query head `h` reads key-value head
/// `h / (heads / kv_heads)`. Output rows of queries that are in no sequence are not written.
///
/// Sequences are in order of `query_start`, and their queries do not overlap; they may share keys. `scratch` needs
/// [`AttentionOptions::scratch`] floats.
///
/// The bits of an output row depend on its own query, on the keys and values that the query may see, and on the
/// options. They do not depend on the rest of the batch or on threads.
///
/// # Tensors of other engines
///
/// * `[batch, tokens, heads, head_dim]`: used directly, with one [`Sequence`] per batch element.
/// * `[batch, heads, tokens, head_dim]`: [`Heads::heads_first`] and [`HeadsMut::heads_first`], with one [`Sequence`]
///   per batch element, from token `batch element * tokens` on; the lengths may differ. For a cache with more capacity
///   than tokens, `tokens` is the capacity.
/// * The causal mask is aligned to the end of the keys, as in flash attention and with KV caches. A mask that is
///   aligned to the start, as PyTorch's `is_causal`, is the same if there are as many queries as keys. Otherwise, use a
///   bias.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, Exec, HeadsMut, Isa, Qkv, Sequence, attention, attention_scratch,
/// };
///
/// let isa = Isa::detect()?;
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let fused = [0.25; 3 * 3 * 8]; // [tokens, (query, key, value), heads, head_dim]
/// let sequences = [Sequence::packed(0, tokens)];
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, heads, head_dim)?];
/// let mut out = [0.0; 3 * 8];
/// attention(
///     Exec::serial(isa),
///     Qkv::fused(&fused, [tokens, heads, head_dim])?,
///     &sequences,
///     &AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) },
///     HeadsMut::new(&mut out, [tokens, heads, head_dim])?.into(),
///     &mut scratch,
/// )?;
/// assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention(
    exec: Exec<'_>,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    output: AttentionOutput<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    match options.precision {
        AttentionPrecision::F32 => {
            tasks::attend(isa, qkv, sequences, options, (output, None), scratch, threads)
        }
        AttentionPrecision::Int8 => int8::attend(exec, qkv, sequences, options, output, scratch),
    }
}
