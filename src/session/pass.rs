//! Divides the planned buffer for one decoder pass. A step and a prefill use the same parts.

use super::error::SessionError;
use super::kv_slots::KvSlots;
use super::plan::Plan;
use crate::memory::{Buffer, Caches, cut, words, words_mut};
use crate::model::blocks::Best;
use crate::model::pass::{Relative, Workspace};

/// The inputs, outputs and scratch of a pass of `count` tokens.
pub(super) struct PassMemory<'m> {
    pub(super) position_table: &'m [f32],
    pub(super) relative: Relative<'m>,
    /// For `count` tokens.
    pub(super) work: Workspace<'m>,
    pub(super) caches: Caches<'m>,
    /// `[fed, vocabulary]`.
    pub(super) logits: &'m mut [f32],
    /// For all tokens of a step.
    pub(super) best: Best<'m>,

    /// `[count]`: written by the caller, see [`crate::model::pass::TargetPass`].
    pub(super) tokens: &'m mut [u32],
    pub(super) positions: &'m mut [u32],
    pub(super) hypotheses: &'m mut [u32],
    pub(super) slots: &'m mut [u32],
    pub(super) sentences: &'m mut [u32],
    /// `[count]` and `[fed, target_tokens]`: number of visible keys of each token, and their slots.
    pub(super) step_lens: &'m mut [u32],
    pub(super) step_ancestry: &'m mut [u32],

    /// For all hypotheses.
    pub(super) kv_slots: KvSlots<&'m mut [u32]>,
    /// `[sentences]`.
    pub(super) source_lens: &'m [u32],
}

impl<'m> PassMemory<'m> {
    /// The parts of the buffer for a pass of at most [`Plan::pass`] tokens.
    pub(super) fn cut(
        plan: &Plan,
        buffer: &'m mut Buffer<'_>,
        count: usize,
    ) -> Result<Self, SessionError> {
        let d = plan.d_model;
        let [
            position_table,
            relative,
            x,
            h,
            context,
            qkv,
            hidden,
            rounded,
            logits,
            best_tokens,
            best_values,
            best_scratch,
            own,
            cross,
            tokens,
            positions,
            hypotheses,
            slots,
            sentences,
            step_lens,
            step_ancestry,
            row_len,
            row_ancestry,
            source_lens,
        ] = cut(
            buffer,
            [
                &plan.target_positions,
                &plan.target_relative.range,
                &plan.x,
                &plan.h,
                &plan.context,
                &plan.qkv,
                &plan.hidden,
                &plan.rounded,
                &plan.logits,
                &plan.best_tokens,
                &plan.best_values,
                &plan.best_scratch,
                &plan.own_cache,
                &plan.cross_cache,
                &plan.pass_tokens,
                &plan.pass_positions,
                &plan.pass_hypotheses,
                &plan.pass_slots,
                &plan.pass_sentences,
                &plan.step_lens,
                &plan.step_ancestry,
                &plan.row_len,
                &plan.row_ancestry,
                &plan.sentence_len,
            ],
        )?;
        Ok(Self {
            position_table,
            relative: plan.target_relative.of(relative),
            work: Workspace {
                x: &mut x[..count * d],
                h: &mut h[..count * d],
                context: &mut context[..count * plan.decoder_attention],
                qkv,
                hidden,
                scratch: &mut [],
                frames: &mut [],
                rounded,
            },
            caches: Caches { shape: plan.caches, own, cross },
            logits,
            best: Best {
                tokens: words_mut(best_tokens),
                values: best_values,
                scratch: best_scratch,
            },
            tokens: &mut words_mut(tokens)[..count],
            positions: &mut words_mut(positions)[..count],
            hypotheses: &mut words_mut(hypotheses)[..count],
            slots: &mut words_mut(slots)[..count],
            sentences: &mut words_mut(sentences)[..count],
            step_lens: &mut words_mut(step_lens)[..count],
            step_ancestry: words_mut(step_ancestry),
            kv_slots: KvSlots {
                beams: plan.limits.beams,
                capacity: plan.limits.target_tokens,
                lens: words_mut(row_len),
                ancestry: words_mut(row_ancestry),
            },
            source_lens: words(source_lens),
        })
    }
}
