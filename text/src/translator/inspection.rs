//! A second look at finished translations: one teacher-forced pass of the decoder gives the cross-attention of each
//! target token and, for beams, its log-probability.

use super::model_and_tokenizer::Translator;
use crate::error::Error;
use simdformer::search::score_targets;
use simdformer::trace::{Block, Probe, Stage, View};
use simdformer::{Session, SourceId};

/// A translation to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'j> {
    /// The ids of the source.
    pub(super) source: &'j [u32],
    /// The decoder's start token and what else was given.
    pub(super) prefix: &'j [u32],
    /// The tokens that the model wrote.
    pub(super) target: &'j [u32],
}

/// What the pass found.
#[derive(Clone, Debug, Default)]
pub(super) struct Inspected {
    /// The mean of the cross-attention weights of all heads of the middle and later layers, `[target, source]`.
    pub(super) weights: Vec<f32>,
    /// The natural logarithm of the probability of each target token.
    pub(super) log_probabilities: Vec<f32>,
}

impl Translator {
    /// Looks at `jobs`, and calls `each` with the index of each and what was found, in their order.
    pub(super) fn inspect(
        &self,
        jobs: &[Job<'_>],
        each: &mut dyn FnMut(usize, Inspected) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(longest) = jobs.iter().map(|job| job.source.len()).max() else { return Ok(()) };
        let work = self.work.with_sources(jobs.len(), longest);
        let _beside = self.beside_batch();
        self.engine.with_session(&work, |session| inspect_in(session, jobs, each))??;
        Ok(())
    }
}

/// [`Translator::inspect`] in a session.
fn inspect_in(
    session: &mut Session<'_>,
    jobs: &[Job<'_>],
    each: &mut dyn FnMut(usize, Inspected) -> Result<(), Error>,
) -> Result<(), Error> {
    let config = session.model().config();
    let vocabulary = config.target_vocab;
    let (layers, heads) = config.decoder.map_or((0, 0), |decoder| (decoder.layers, decoder.heads));
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let limits = session.plan().limits();
    let mut first = 0;
    while first < jobs.len() {
        // As many sources as are encoded in one call.
        let mut tokens = 0;
        let fit = jobs[first..].iter().take(limits.sentences).take_while(|job| {
            tokens += job.source.len();
            tokens <= limits.batch_tokens
        });
        let count = fit.count().max(1);
        let group = &jobs[first..first + count];
        let sources: Vec<&[u32]> = group.iter().map(|job| job.source).collect();
        let mut slots = vec![SourceId::default(); count];
        session.clear();
        session.encode(&sources, &mut slots)?;
        for (i, (job, &slot)) in group.iter().zip(&slots).enumerate() {
            let (but_last, given) = (job.target.len().saturating_sub(1), job.prefix.len().max(1));
            let input = [job.prefix, &job.target[..but_last]].concat();
            let mut found = Inspected {
                weights: vec![0.0; job.target.len() * job.source.len()],
                log_probabilities: vec![0.0; job.target.len()],
            };
            let mut failed: Result<(), simdformer::Error> = Ok(());
            let scores = &mut found.log_probabilities;
            let mut on_logits = |position: usize, logits: &[f32]| {
                let index = (position + 1).checked_sub(given);
                let pair = index.and_then(|i| Some((job.target.get(i)?, scores.get_mut(i)?)));
                if let Some((&token, score)) = pair {
                    let one = std::slice::from_mut(score);
                    let scored = score_targets(logits, vocabulary, &[token], one);
                    if failed.is_ok() {
                        failed = scored.map(drop);
                    }
                }
            };
            let mut probe = Mean {
                layers,
                first: given - 1,
                keys: job.source.len(),
                heads,
                out: &mut found.weights,
            };
            let hypothesis = session.start(slot)?;
            session.traced(&mut probe, &mut scratch)?.prefill(
                hypothesis,
                &input,
                Some(&mut on_logits),
            )?;
            session.release(hypothesis)?;
            failed?;
            each(first + i, found)?;
        }
        first += count;
    }
    session.clear();
    Ok(())
}

/// The decoder layers whose cross-attention is averaged, of `layers`: those after the middle but the last, which looks
/// more at the next word than at the word it writes (Garg et al. 2019); the last of two.
fn aligning_layers(layers: usize) -> core::ops::Range<usize> {
    layers / 2..(layers - layers.min(1)).max(layers / 2 + 1)
}

/// Averages cross-attention weights over the heads of the aligning layers.
struct Mean<'m> {
    layers: usize,
    heads: usize,
    /// The row of the first token that the model wrote.
    first: usize,
    keys: usize,
    out: &'m mut [f32],
}

impl Probe for Mean<'_> {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Weights
    }

    fn look(&mut self, view: &View<'_>) {
        let (place, aligning) = (view.place, aligning_layers(self.layers));
        let layer = place.layer.filter(|layer| aligning.contains(layer));
        if place.block != Some(Block::Cross) || layer.is_none() {
            return;
        }
        let share = 1.0 / (aligning.len() * self.heads.max(1)) as f32;
        for (row, weights) in (view.position..).zip(view.iter()) {
            let start = row.checked_sub(self.first).map(|row| row * self.keys);
            let out = start.and_then(|start| self.out.get_mut(start..start + self.keys));
            for (out, weight) in out.into_iter().flatten().zip(weights) {
                *out += share * weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::aligning_layers;

    #[test]
    fn some_layers_align() {
        let expected = [0..1, 0..1, 1..2, 1..2, 2..3, 2..4, 3..5];
        for (layers, expected) in expected.into_iter().enumerate() {
            assert_eq!(aligning_layers(layers), expected, "{layers}");
        }
        assert_eq!(aligning_layers(12), 6..11);
    }
}
