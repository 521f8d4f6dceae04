//! What of a pass is shown to a probe, under which name, and in which order.
//!
//! The stacks call after each block, see [`LayerObserver`]; queries, keys, context, sum and norm are found in the
//! workspace, where the block has left them.

use super::probe::{Probe, View};
use super::sequence_span::{SequenceSpan, stretches};
use super::stage::{Block, Place, Stage};
use crate::config::{NormPlacement, Side};
use crate::error::KernelError;
use crate::model::blocks::{ExecContext, sum_and_norm};
use crate::model::layer_observer::LayerObserver;
use crate::model::pass::{At, Past, Rows, SourcePass, TargetPass, Tokens, Workspace};
use crate::model::weights::Table;
use simdformer_kernels::{
    Bias, CacheMut, FullyMasked, Heads, Isa, MatrixMut, Parallelism, Qkv, softmax::softmax_in_place,
};

/// A probe and the scratch it brings.
pub(crate) struct Watch<'w> {
    pub(crate) probe: &'w mut dyn Probe,
    pub(crate) scratch: &'w mut [f32],
}

/// Rows at a place.
#[derive(Clone, Copy)]
struct TraceContext<'r> {
    rows: Rows<'r>,
    place: Place,
}

impl<'r> TraceContext<'r> {
    /// Outside all layers.
    fn of(rows: Rows<'r>) -> Self {
        let side = match rows {
            Rows::Source { .. } => Side::Encoder,
            Rows::Target { .. } => Side::Decoder,
        };
        Self { rows, place: Place { side, layer: None, block: None, head: None } }
    }

    /// In a block of a layer.
    fn block(at: At<'r>, block: Block) -> Self {
        let Self { rows, place } = Self::of(at.rows);
        Self { rows, place: Place { layer: Some(at.layer), block: Some(block), ..place } }
    }
}

/// Rows that lie `stride` apart.
#[derive(Clone, Copy)]
struct Strided<'d> {
    data: &'d [f32],
    columns: usize,
    stride: usize,
}

impl<'d> Strided<'d> {
    /// Rows side by side.
    fn dense(data: &'d [f32], columns: usize) -> Self {
        Self { data, columns, stride: columns }
    }

    /// Part `index` of rows of `parts` parts of `columns` each.
    fn part(data: &'d [f32], columns: usize, index: usize, parts: usize) -> Self {
        let data = data.get(index * columns..).unwrap_or(&[]);
        Self { data, columns, stride: parts * columns }
    }
}

/// The keys that the stretches of a pass see.
struct Keys<'k, C, K> {
    /// No query sees keys after its own.
    causal: bool,
    /// Added to the scores.
    bias: Option<Bias<'k>>,
    /// How many keys a stretch has.
    count: C,
    /// `key(stretch, j, head, out)` writes its key `j`.
    key: K,
}

impl LayerObserver for Watch<'_> {
    fn embedding(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        table: Option<&Table>,
        tokens: &Tokens<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        let scene = TraceContext::of(rows);
        self.summands(run, &scene, table.map(|table| run.weights.rows(table)), tokens)?;
        self.show(Stage::Input, &scene, 0, Strided::dense(work.x, run.config.d_model));
        Ok(())
    }

    fn self_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        layer: usize,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        let scene = TraceContext::block(pass.at(layer), Block::Own);
        self.before(run, &scene, work);
        self.query_key_value(run, &scene, work);
        let inner = run.config.attention_dim(Side::Encoder);
        let shape @ [rows, ..] = run.heads(Side::Encoder, work.x.len() / run.config.d_model);
        let Qkv { query, key: keys, .. } = Qkv::fused(&work.qkv[..3 * rows * inner], shape)?;
        let keys = Keys {
            causal: false,
            bias: pass.relative.of_layer(layer),
            count: |stretch: &SequenceSpan| stretch.len,
            key: |stretch: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                out.copy_from_slice(keys.row(stretch.start + j, head).unwrap_or(&[]));
                Ok(())
            },
        };
        self.attention(run, &scene, query, &keys)?;
        self.show(Stage::Context, &scene, 0, Strided::dense(work.context, inner));
        self.after(run, &scene, work);
        Ok(())
    }

    fn cached_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        layer: usize,
        cache: &CacheMut<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        let scene = TraceContext::block(pass.at(layer), Block::Own);
        self.before(run, &scene, work);
        self.query_key_value(run, &scene, work);
        let inner = run.config.attention_dim(Side::Decoder);
        let shape @ [rows, ..] = run.heads(Side::Decoder, pass.tokens.ids.len());
        let Qkv { query, .. } = Qkv::fused(&work.qkv[..3 * rows * inner], shape)?;
        let cache = cache.read();
        let keys = Keys {
            causal: true,
            bias: pass.relative.of_layer(layer),
            count: |stretch: &SequenceSpan| stretch.position + stretch.len,
            key: |stretch: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                let slot = match pass.past {
                    // The last token of a draft sees all keys of those before it.
                    Past::SlotTable { ancestry, stride, .. } => {
                        ancestry[(stretch.start + stretch.len - 1) * stride + j] as usize
                    }
                    Past::Slot { slot, .. } => slot,
                };
                Ok(cache.read_key(slot, j, head, out)?)
            },
        };
        self.attention(run, &scene, query, &keys)?;
        self.show(Stage::Context, &scene, 0, Strided::dense(work.context, inner));
        self.after(run, &scene, work);
        Ok(())
    }

    fn cross_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        layer: usize,
        cache: &CacheMut<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        let scene = TraceContext::block(pass.at(layer), Block::Cross);
        self.before(run, &scene, work);
        let inner = run.config.attention_dim(Side::Decoder);
        let shape @ [rows, ..] = run.heads(Side::Decoder, pass.tokens.ids.len());
        let query = &work.qkv[..rows * inner];
        self.show(Stage::Query, &scene, 0, Strided::dense(query, inner));
        let cache = cache.read();
        let keys = Keys {
            causal: false,
            bias: None,
            count: |stretch: &SequenceSpan| pass.source_lens[stretch.sentence as usize] as usize,
            key: |stretch: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                Ok(cache.read_key(stretch.sentence as usize, j, head, out)?)
            },
        };
        self.attention(run, &scene, Heads::new(query, shape)?, &keys)?;
        self.show(Stage::Context, &scene, 0, Strided::dense(work.context, inner));
        self.after(run, &scene, work);
        Ok(())
    }

    fn hidden(
        &mut self,
        run: &ExecContext<'_>,
        at: At<'_>,
        first: usize,
        input: &[f32],
        hidden: &[f32],
    ) {
        let scene = TraceContext::block(at, Block::FeedForward);
        // The norm of a pre-norm block comes before all that is inside the block: it is the input.
        if first == 0 && run.config.norm == NormPlacement::Pre {
            self.show(Stage::Norm, &scene, 0, Strided::dense(input, run.config.d_model));
        }
        let columns = run.config.stack(scene.place.side).map_or(0, |stack| stack.ffn_dim);
        self.show(Stage::FeedForward, &scene, first, Strided::dense(hidden, columns));
    }

    fn feed_forward(&mut self, run: &ExecContext<'_>, at: At<'_>, work: &Workspace<'_>) {
        self.after(run, &TraceContext::block(at, Block::FeedForward), work);
    }

    fn stack(&mut self, run: &ExecContext<'_>, rows: Rows<'_>, work: &Workspace<'_>) {
        let scene = TraceContext::of(rows);
        let stage = match scene.place.side {
            Side::Encoder => Stage::Memory,
            Side::Decoder => Stage::Output,
        };
        self.show(stage, &scene, 0, Strided::dense(work.x, run.config.d_model));
    }

    fn memory(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        layer: usize,
        key_value: &[f32],
    ) {
        let TraceContext { rows, place } = TraceContext::block(pass.at(layer), Block::Cross);
        let scene = TraceContext { rows, place: Place { side: Side::Decoder, ..place } };
        for (index, stage) in [Stage::Key, Stage::Value].into_iter().enumerate() {
            let inner = run.config.attention_dim(Side::Decoder);
            self.show(stage, &scene, 0, Strided::part(key_value, inner, index, 2));
        }
    }

    fn logits(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        logits: &[f32],
    ) -> Result<(), KernelError> {
        let (scene, vocabulary) = (TraceContext::of(rows), run.config.target_vocab);
        self.show(Stage::Logits, &scene, 0, Strided::dense(logits, vocabulary));
        self.probabilities(run.isa(), &scene, logits, vocabulary)
    }
}

impl Watch<'_> {
    /// The norm of a pre-norm block, which comes first.
    fn before(&mut self, run: &ExecContext<'_>, scene: &TraceContext<'_>, work: &Workspace<'_>) {
        if run.config.norm == NormPlacement::Pre {
            let (_, norm) = sum_and_norm(run, work);
            self.show(Stage::Norm, scene, 0, Strided::dense(norm, run.config.d_model));
        }
    }

    /// The residual stream with a block added, and in post-norm its norm.
    fn after(&mut self, run: &ExecContext<'_>, scene: &TraceContext<'_>, work: &Workspace<'_>) {
        let (sum, norm) = sum_and_norm(run, work);
        self.show(Stage::Residual, scene, 0, Strided::dense(sum, run.config.d_model));
        if run.config.norm == NormPlacement::Post {
            self.show(Stage::Norm, scene, 0, Strided::dense(norm, run.config.d_model));
        }
    }

    fn query_key_value(
        &mut self,
        run: &ExecContext<'_>,
        scene: &TraceContext<'_>,
        work: &Workspace<'_>,
    ) {
        for (index, stage) in [Stage::Query, Stage::Key, Stage::Value].into_iter().enumerate() {
            let inner = run.config.attention_dim(scene.place.side);
            self.show(stage, scene, 0, Strided::part(work.qkv, inner, index, 3));
        }
    }

    /// Shows a matrix with one row per token of the pass from token `first` on, as many as it holds.
    fn show(&mut self, stage: Stage, scene: &TraceContext<'_>, first: usize, matrix: Strided<'_>) {
        if !self.probe.wants(stage) || matrix.stride == 0 {
            return;
        }
        let last = first + matrix.data.len().div_ceil(matrix.stride);
        for stretch in stretches(scene.rows) {
            let start = stretch.start.max(first);
            let end = (stretch.start + stretch.len).min(last);
            if start >= end {
                continue;
            }
            let data = &matrix.data[(start - first) * matrix.stride..];
            let position = stretch.position + start - stretch.start;
            let part = SequenceSpan { start, len: end - start, position, ..stretch };
            view(self.probe, stage, scene.place, &part, Strided { data, ..matrix });
        }
    }

    /// Shows the summands of the input: scaled rows of `table`, where there is one, and rows of positions.
    fn summands(
        &mut self,
        run: &ExecContext<'_>,
        scene: &TraceContext<'_>,
        table: Option<&[f32]>,
        tokens: &Tokens<'_>,
    ) -> Result<(), KernelError> {
        let (d, scale) = (run.config.d_model, run.config.embedding_scale);
        for stretch in stretches(scene.rows) {
            if let Some(table) = table
                && self.probe.wants(Stage::Embedding)
            {
                let rows = scratch(self.scratch, stretch.len * d)?;
                for (row, &token) in rows.chunks_mut(d).zip(&tokens.ids[stretch.start..]) {
                    for (x, weight) in row.iter_mut().zip(&table[token as usize * d..]) {
                        *x = scale * weight;
                    }
                }
                let matrix = Strided::dense(rows, d);
                view(self.probe, Stage::Embedding, scene.place, &stretch, matrix);
            }
            if self.probe.wants(Stage::Position) {
                let rows = scratch(self.scratch, stretch.len * d)?;
                for (row, &at) in rows.chunks_mut(d).zip(&tokens.positions[stretch.start..]) {
                    match tokens.position_table.get(at as usize * d..) {
                        Some(table) if !table.is_empty() => row.copy_from_slice(&table[..d]),
                        _ => row.fill(0.0),
                    }
                }
                let matrix = Strided::dense(rows, d);
                view(self.probe, Stage::Position, scene.place, &stretch, matrix);
            }
        }
        Ok(())
    }

    /// Shows scores and weights, head by head. `query` has a row for each token of the pass.
    fn attention(
        &mut self,
        run: &ExecContext<'_>,
        scene: &TraceContext<'_>,
        query: Heads<'_>,
        keys: &Keys<
            '_,
            impl Fn(&SequenceSpan) -> usize,
            impl Fn(&SequenceSpan, usize, usize, &mut [f32]) -> Result<(), KernelError>,
        >,
    ) -> Result<(), KernelError> {
        let wanted = [Stage::Scores, Stage::Weights].map(|stage| self.probe.wants(stage));
        if wanted == [false; 2] {
            return Ok(());
        }
        let head_dim = query.head_dim();
        let scale = run.attention_options(scene.place.side).scale;
        for stretch in stretches(scene.rows) {
            let columns = (keys.count)(&stretch);
            let floats = scratch(self.scratch, stretch.len * columns + head_dim)?;
            let (one, scores) = floats.split_at_mut(head_dim);
            for head in 0..query.heads() {
                let place = Place { head: Some(head), ..scene.place };
                for j in 0..columns {
                    (keys.key)(&stretch, j, head, one)?;
                    for i in 0..stretch.len {
                        let query = query.row(stretch.start + i, head).unwrap_or(&[]);
                        let dot: f32 = query.iter().zip(&*one).map(|(q, k)| q * k).sum();
                        let bias = added(keys.bias, head, stretch.position + i, j);
                        scores[i * columns + j] = scale * dot + bias;
                    }
                }
                if wanted[0] {
                    let matrix = Strided::dense(scores, columns);
                    view(self.probe, Stage::Scores, place, &stretch, matrix);
                }
                if !wanted[1] {
                    continue;
                }
                for (i, row) in scores.chunks_mut(columns.max(1)).enumerate() {
                    let hidden = if keys.causal { stretch.len - 1 - i } else { 0 };
                    softmax_row(run.isa(), row, columns - hidden)?;
                }
                view(self.probe, Stage::Weights, place, &stretch, Strided::dense(scores, columns));
            }
        }
        Ok(())
    }

    /// Shows what logits make probable, row by row.
    fn probabilities(
        &mut self,
        isa: Isa,
        scene: &TraceContext<'_>,
        logits: &[f32],
        vocabulary: usize,
    ) -> Result<(), KernelError> {
        if !self.probe.wants(Stage::Probabilities) {
            return Ok(());
        }
        for stretch in stretches(scene.rows) {
            for i in 0..stretch.len {
                let Some(from) = logits.get((stretch.start + i) * vocabulary..) else { break };
                let Some(from) = from.get(..vocabulary) else { break };
                let row = scratch(self.scratch, vocabulary)?;
                row.copy_from_slice(from);
                softmax_row(isa, row, vocabulary)?;
                let (start, position) = (stretch.start + i, stretch.position + i);
                let one = SequenceSpan { start, len: 1, position, ..stretch };
                let matrix = Strided::dense(row, vocabulary);
                view(self.probe, Stage::Probabilities, scene.place, &one, matrix);
            }
        }
        Ok(())
    }
}

/// What a bias of relative positions adds to the score of key `j` for the query at `position`.
fn added(bias: Option<Bias<'_>>, head: usize, position: usize, j: usize) -> f32 {
    match bias {
        Some(Bias::Relative { data, head_stride, zero }) => {
            let index = (head * head_stride + zero + j).checked_sub(position);
            index.and_then(|index| data.get(index)).copied().unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

/// Softmax of the first `len` scores of a row, 0 for the others.
fn softmax_row(isa: Isa, row: &mut [f32], len: usize) -> Result<(), KernelError> {
    let columns = row.len();
    softmax_in_place(
        isa,
        MatrixMut::new(row, 1, columns)?,
        Some(&[len]),
        FullyMasked::Zeros,
        Parallelism::Serial,
    )?;
    Ok(())
}

fn scratch(all: &mut [f32], floats: usize) -> Result<&mut [f32], KernelError> {
    let found = all.len();
    all.get_mut(..floats).ok_or(KernelError::TraceScratch { expected: floats, found })
}

fn view(
    probe: &mut dyn Probe,
    stage: Stage,
    place: Place,
    stretch: &SequenceSpan,
    matrix: Strided<'_>,
) {
    let Strided { data, columns, stride } = matrix;
    let &SequenceSpan { len, sentence, row, position, .. } = stretch;
    probe.look(&View { stage, place, sentence, row, position, rows: len, columns, stride, data });
}
