//! Prints a plan: the limits and the bytes of each part.

use super::plan::Plan;
use crate::memory::ByteTable;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::Dtype;

impl fmt::Display for Plan {
    /// The limits, then a table of bytes whose sum is [`Plan::bytes`].
    ///
    /// ```
    /// # use simdformer::config::{Config, Dimensions};
    /// use simdformer::{Limits, Model, Plan};
    ///
    /// # let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// # let model = Model::from_fn(Config::transformer(small), |_, _, _| Ok(()))?;
    /// let plan = Plan::new(&model, Limits { beams: 4, ..Limits::new(8, 64, 64) })?;
    /// println!("{plan}");
    /// assert!(plan.to_string().ends_with("bytes"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits();
        writeln!(
            f,
            "{} sentences of {} source tokens, {} in one call; {} hypotheses each, of {} target tokens",
            limits.sentences,
            limits.source_tokens,
            limits.batch_tokens,
            limits.beams,
            limits.target_tokens
        )?;
        if limits.draft_tokens > 0 {
            writeln!(f, "{} tokens of drafts in one step", limits.draft_tokens)?;
        }
        if self.decodes && self.caches.own.dtype == Dtype::F16 {
            writeln!(f, "keys and values in f16")?;
        }
        let bytes = |ranges: &[&Range<usize>]| {
            ranges.iter().map(|range| range.len()).sum::<usize>() * size_of::<f32>()
        };
        let named = [
            ("keys and values of the targets so far", bytes(&[&self.own_cache])),
            ("keys and values of the sources", bytes(&[&self.cross_cache])),
            (
                "positions",
                bytes(&[
                    &self.source_positions,
                    &self.target_positions,
                    &self.source_relative.range,
                    &self.target_relative.range,
                ]),
            ),
            (
                "activations of one pass",
                bytes(&[&self.x, &self.h, &self.context, &self.qkv, &self.hidden]),
            ),
            ("frames of features", bytes(&[&self.frames])),
            ("rows as bytes", bytes(&[&self.rounded])),
            ("scratch of attention", bytes(&[&self.scratch])),
            ("logits", bytes(&[&self.logits])),
            (
                "best tokens without logits",
                bytes(&[&self.best_tokens, &self.best_values, &self.best_scratch]),
            ),
            ("search", self.search_floats * size_of::<f32>()),
        ];
        let all: usize = named.iter().map(|&(_, bytes)| bytes).sum();
        let rest = ("slots, pasts and padding", self.bytes().saturating_sub(all));
        let [a, b, c, d, e, g, h, i, j, k] = named;
        ByteTable { lines: &[a, b, c, d, e, g, h, i, j, k, rest] }.fmt(f)
    }
}
