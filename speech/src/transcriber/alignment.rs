//! When each token of a window was said: cross-attention and dynamic time warping.
//!
//! After the text of a window is decided, its tokens go through the decoder once more, all in one pass, while the encoder
//! output is still in its slot. Attention of a few heads follows the speech. Its weights are normalized over the tokens,
//! smoothed by a median over time, and averaged over the heads; the cheapest monotonic path through them says where each
//! token begins. This is `find_alignment` of OpenAI's `whisper/timing.py`, which transformers and faster-whisper follow.

use super::warping::{Warping, add_median, padded_len};
use crate::error::Error;
use core::ops::Range;
use simdformer::config::Config;
use simdformer::search::score_targets;
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{Plan, Session, SourceId};

/// The heads of the checkpoints that OpenAI published, for directories whose `generation_config.json` lacks
/// `alignment_heads`: by vocabulary, layers and heads of the decoder, and mel bins. Those of large-v2 stand for large-v1, too.
type Published = ([usize; 4], &'static [(usize, usize)]);
const ENGLISH: usize = 51_864;
const SEVERAL: usize = 51_865;
const SEVERAL_AND_CANTONESE: usize = 51_866;
#[rustfmt::skip]
const PUBLISHED: [Published; 11] = [
    ([ENGLISH, 4, 6, 80], &[(1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)]),
    ([SEVERAL, 4, 6, 80], &[(2, 2), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5)]),
    ([ENGLISH, 6, 8, 80], &[(3, 3), (4, 7), (5, 1), (5, 5), (5, 7)]),
    ([SEVERAL, 6, 8, 80], &[(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)]),
    ([ENGLISH, 12, 12, 80], &[
        (6, 6), (7, 0), (7, 3), (7, 8), (8, 2), (8, 5), (8, 7), (9, 0), (9, 4), (9, 8), (9, 10), (10, 0), (10, 1), (10, 2),
        (10, 3), (10, 6), (10, 11), (11, 2), (11, 4),
    ]),
    ([SEVERAL, 12, 12, 80], &[
        (5, 3), (5, 9), (8, 0), (8, 4), (8, 7), (8, 8), (9, 0), (9, 7), (9, 9), (10, 5),
    ]),
    ([ENGLISH, 24, 16, 80], &[
        (11, 4), (14, 1), (14, 12), (14, 14), (15, 4), (16, 0), (16, 4), (16, 9), (17, 12), (17, 14), (18, 7), (18, 10),
        (18, 15), (20, 0), (20, 3), (20, 9), (20, 14), (21, 12),
    ]),
    ([SEVERAL, 24, 16, 80], &[(13, 15), (15, 4), (15, 15), (16, 1), (20, 0), (23, 4)]),
    ([SEVERAL, 32, 20, 80], &[
        (10, 12), (13, 17), (16, 11), (16, 12), (16, 13), (17, 15), (17, 16), (18, 4), (18, 11), (18, 19), (19, 11), (21, 2),
        (21, 3), (22, 3), (22, 9), (22, 12), (23, 5), (23, 7), (23, 13), (25, 5), (26, 1), (26, 12), (27, 15),
    ]),
    ([SEVERAL_AND_CANTONESE, 32, 20, 128], &[
        (7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6),
    ]),
    ([SEVERAL_AND_CANTONESE, 4, 20, 128], &[(2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14)]),
];

/// The layers and heads that follow the speech: those of the checkpoint, the published ones, or all heads of the upper half
/// of the layers, as in OpenAI's `whisper`.
pub(super) fn alignment_heads(config: &Config) -> Result<Vec<(usize, usize)>, Error> {
    let stack = config.decoder.ok_or(simdformer::Error::NO_DECODER)?;
    let bins = config.bins.unwrap_or(0);
    let given = &config.transcription.alignment_heads;
    let outside = |&&(layer, head): &&(usize, usize)| layer >= stack.layers || head >= stack.heads;
    if let Some((layer, head)) = given.iter().find(outside) {
        let expected = format!("layers below {} and heads below {}", stack.layers, stack.heads);
        let found = format!("layer {layer}, head {head}");
        return Err(Error::invalid_option("alignment_heads", expected, found));
    }
    if !given.is_empty() {
        return Ok(given.clone());
    }
    let dimensions = [config.target_vocab, stack.layers, stack.heads, bins];
    if let Some((_, heads)) = PUBLISHED.iter().find(|(known, _)| *known == dimensions) {
        return Ok(heads.to_vec());
    }
    let upper = stack.layers / 2..stack.layers;
    Ok(upper.flat_map(|layer| (0..stack.heads).map(move |head| (layer, head))).collect())
}

/// The text of a window to align.
pub(super) struct AlignmentRequest<'r> {
    pub(super) source: SourceId,
    /// What the decoder reads: a prompt that asks for text without timestamps, the text, the end token.
    pub(super) tokens: &'r [u32],
    /// Which of them are text.
    pub(super) text: Range<usize>,
    /// The positions of the encoder that have sound of the window.
    pub(super) positions: usize,
    /// The tokens of texts are below it.
    pub(super) end: u32,
}

/// The planned memory of alignments, and the last result.
pub(super) struct Aligner {
    heads: Vec<(usize, usize)>,
    /// Positions of the encoder, and the most tokens of a request.
    positions: usize,
    most: usize,
    /// Of the probe.
    scratch: Vec<f32>,
    attention: Attention,
    warping: Warping,
    starts: Vec<u32>,
    probabilities: Vec<f32>,
}

/// Attention of all heads, as it is summed up.
struct Attention {
    /// `[tokens, positions]`: the weights of one head.
    head: Vec<f32>,
    /// `[tokens, positions]`: the sum over all heads, of rows from the last token before the text on.
    sum: Vec<f32>,
    /// `[positions]`: mean and standard deviation over the tokens.
    mean: Vec<f32>,
    deviation: Vec<f32>,
    /// Of the median.
    padded: Vec<f32>,
}

impl Aligner {
    /// Memory for requests of up to `most` tokens to a session of this plan.
    pub(super) fn new(config: &Config, plan: &Plan) -> Result<Self, Error> {
        let (positions, most) = (plan.limits().source_tokens, plan.limits().target_tokens);
        Ok(Self {
            heads: alignment_heads(config)?,
            positions,
            most,
            scratch: vec![0.0; plan.trace_floats()],
            attention: Attention {
                head: vec![0.0; most * positions],
                sum: vec![0.0; most * positions],
                mean: vec![0.0; positions],
                deviation: vec![0.0; positions],
                padded: vec![0.0; padded_len(positions)],
            },
            warping: Warping::new(most, positions),
            starts: vec![0; most],
            probabilities: vec![0.0; most],
        })
    }

    /// The most tokens of a request.
    pub(super) fn most_tokens(&self) -> usize {
        self.most
    }

    /// The position at which each token of the text begins, and at the end that at which the last one ends; and the probability
    /// of each token among those of texts. The session needs a free hypothesis slot of the source.
    pub(super) fn align(
        &mut self,
        session: &mut Session<'_>,
        request: &AlignmentRequest<'_>,
    ) -> Result<(&[u32], &[f32]), Error> {
        let Self { heads, scratch, attention, warping, starts, probabilities, .. } = self;
        let &AlignmentRequest { source, tokens, ref text, positions, end } = request;
        let columns = positions.clamp(1, self.positions);
        // The row of a token is that of the prediction of it; the last row predicts the end.
        let rows = text.start.saturating_sub(1)..text.end;
        attention.sum[..rows.len() * columns].fill(0.0);
        let mut failed = None;
        let mut score = |position: usize, logits: &[f32]| {
            let next = position + 1;
            if !text.contains(&next) {
                return;
            }
            let texts = &logits[..(end as usize).min(logits.len())];
            let mut logarithm = [0.0];
            let probability = &mut probabilities[next - text.start];
            // A token that is no text has no probability.
            *probability = 0.0;
            if (tokens[next] as usize) < texts.len() {
                match score_targets(texts, texts.len(), &tokens[next..=next], &mut logarithm) {
                    Ok(_) => *probability = logarithm[0].exp(),
                    Err(error) => failed = Some(error),
                }
            }
        };
        let mut probe = HeadProbe { heads, columns, rows: rows.clone(), attention };
        let hypothesis = session.start(source)?;
        let fed = session
            .traced(&mut probe, scratch)
            .and_then(|mut traced| traced.prefill(hypothesis, tokens, Some(&mut score)));
        session.release(hypothesis)?;
        fed?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let similarity = &mut attention.sum[..rows.len() * columns];
        let share = 1.0 / heads.len() as f32;
        similarity.iter_mut().for_each(|x| *x *= share);
        warping.starts(similarity, columns, &mut starts[..rows.len()]);
        Ok((&starts[..rows.len()], &probabilities[..text.len()]))
    }
}

/// Sums the attention of the chosen heads.
struct HeadProbe<'p> {
    heads: &'p [(usize, usize)],
    columns: usize,
    rows: Range<usize>,
    attention: &'p mut Attention,
}

impl Probe for HeadProbe<'_> {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Weights
    }

    fn wants_at(&self, _: Stage, place: Place) -> bool {
        let (Some(Block::Cross), Some(layer), Some(head)) = (place.block, place.layer, place.head)
        else {
            return false;
        };
        self.heads.contains(&(layer, head))
    }

    fn look(&mut self, view: &View<'_>) {
        let Self { columns, rows, attention, .. } = self;
        let Attention { head, sum, mean, deviation, padded } = &mut **attention;
        let columns = *columns;
        let (mean, deviation) = (&mut mean[..columns], &mut deviation[..columns]);
        let head = &mut head[..view.rows * columns];
        // Softmax over the positions with sound.
        for (out, row) in head.chunks_exact_mut(columns).zip(view.iter()) {
            let row = &row[..columns.min(row.len())];
            let total: f32 = row.iter().sum();
            let scale = if total > 0.0 { 1.0 / total } else { 0.0 };
            out.iter_mut().zip(row).for_each(|(out, weight)| *out = scale * weight);
        }
        let share = 1.0 / view.rows as f32;
        mean.fill(0.0);
        for row in head.chunks_exact(columns) {
            mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += share * x);
        }
        deviation.fill(0.0);
        for row in head.chunks_exact(columns) {
            for ((deviation, mean), x) in deviation.iter_mut().zip(&*mean).zip(row) {
                *deviation += share * (x - mean) * (x - mean);
            }
        }
        for deviation in &mut *deviation {
            *deviation = if *deviation > 0.0 { 1.0 / deviation.sqrt() } else { 0.0 };
        }
        let head = head.chunks_exact_mut(columns).skip(rows.start).take(rows.len());
        for (row, sum) in head.zip(sum.chunks_exact_mut(columns)) {
            for ((x, mean), deviation) in row.iter_mut().zip(&*mean).zip(&*deviation) {
                *x = (*x - mean) * deviation;
            }
            add_median(row, padded, sum);
        }
    }
}
