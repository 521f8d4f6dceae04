//! How much scratch a call of [`attention`](super::attention()) needs, before the lengths are known and after.

use super::int8::{scratch as int8_scratch, scratch_bound as int8_scratch_bound};
use super::options::{AttentionOptions, AttentionPrecision, Sequence};
use super::panels::head_floats;
use super::tasks::attention_scratch;
use crate::error::Error;
use crate::isa::Isa;

impl AttentionOptions<'_> {
    /// Floats of scratch that [`attention`](super::attention()) needs with these options for `sequences` with `heads` query
    /// heads and `kv_heads` key-value heads of `head_dim` elements: with f32 products, [`attention_scratch`].
    ///
    /// # Errors
    /// The size overflows.
    pub fn scratch(
        &self,
        isa: Isa,
        sequences: &[Sequence],
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> Result<usize, Error> {
        match self.precision {
            AttentionPrecision::F32 => attention_scratch(isa, sequences, kv_heads, head_dim),
            AttentionPrecision::Int8 => int8_scratch(isa, sequences, [heads, kv_heads, head_dim]),
        }
    }

    /// Floats of scratch that suffice with these options for any `sequences` sequences without shared keys of up to `tokens`
    /// tokens in all, padding included, with as many key-value heads as query heads. It is for planning before the lengths are
    /// known.
    ///
    /// ```
    /// use simdformer_kernels::{AttentionOptions, Isa, Sequence, attention_scratch};
    ///
    /// let isa = Isa::best();
    /// let planned = AttentionOptions::new(64).scratch_bound(isa, 2, 40, 8, 64)?;
    /// let sequences = [Sequence::packed(0, 33), Sequence::packed(33, 7)];
    /// assert!(attention_scratch(isa, &sequences, 8, 64)? <= planned);
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    ///
    /// # Errors
    /// The size overflows.
    pub fn scratch_bound(
        &self,
        isa: Isa,
        sequences: usize,
        tokens: usize,
        heads: usize,
        head_dim: usize,
    ) -> Result<usize, Error> {
        match self.precision {
            AttentionPrecision::F32 => sequences
                .checked_mul(isa.lanes())
                .and_then(|rounding| rounding.checked_add(tokens))
                .and_then(|tokens| head_floats(isa.lanes(), tokens, head_dim)?.checked_mul(heads))
                .ok_or(Error::TooLarge { operand: "the scratch" }),
            AttentionPrecision::Int8 => {
                int8_scratch_bound(isa, [sequences, tokens, heads, head_dim])
            }
        }
    }
}
