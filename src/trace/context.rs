//! Selects the tensors of a pass for a probe, with their stages and order.
//!
//! The stacks call [`LayerObserver`] after each block. Queries, keys, context, residual sum and norm are read from the
//! workspace after the block.

use super::probe::{Block, Place, Probe, Stage, View};
use crate::config::{NormPlacement, Side};
use crate::model::blocks::{ExecContext, sum_and_norm};
use crate::model::forward::LayerObserver;
use crate::model::pass_input::{At, Past, Rows, SourcePass, TargetPass, Tokens, Workspace};
use crate::model::weights::{Linear, Table};
use simdformer_kernels::{
    Bias, CacheMut, Exec, Heads, Input, Isa, MatrixMut, Qkv, SoftmaxOptions, softmax::softmax,
};
use simdformer_kernels::{Error as KernelError, Expected};

/// A probe and its scratch.
pub(crate) struct TraceObserver<'w> {
    pub(crate) probe: &'w mut dyn Probe,
    pub(crate) scratch: &'w mut [f32],
}

/// The rows of a pass and their place in the architecture.
#[derive(Clone, Copy)]
struct TraceContext<'r> {
    rows: Rows<'r>,
    place: Place,
}

impl<'r> TraceContext<'r> {
    /// A place outside all layers.
    fn outside_layers(rows: Rows<'r>) -> Self {
        let side = match rows {
            Rows::Source { .. } => Side::Encoder,
            Rows::Target { .. } => Side::Decoder,
        };
        Self { rows, place: Place { side, layer: None, block: None, head: None } }
    }

    /// A place in a block of a layer.
    fn block(at: At<'r>, block: Block) -> Self {
        let Self { rows, place } = Self::outside_layers(at.rows);
        Self { rows, place: Place { layer: Some(at.layer), block: Some(block), ..place } }
    }
}

/// A matrix whose rows start `stride` floats apart.
#[derive(Clone, Copy)]
struct Strided<'d> {
    data: &'d [f32],
    columns: usize,
    stride: usize,
}

impl<'d> Strided<'d> {
    /// A matrix without gaps between rows.
    fn dense(data: &'d [f32], columns: usize) -> Self {
        Self { data, columns, stride: columns }
    }

    /// Part `index` of rows that have `parts` parts of `columns` floats each.
    fn part(data: &'d [f32], columns: usize, index: usize, parts: usize) -> Self {
        let data = data.get(index * columns..).unwrap_or(&[]);
        Self { data, columns, stride: parts * columns }
    }
}

/// The keys of the spans of a pass.
struct Keys<'k, C, K> {
    /// A query does not see the keys of later positions.
    causal: bool,
    /// Added to the scores.
    bias: Option<Bias<'k>>,
    /// `count(span)` is the number of keys of a span.
    count: C,
    /// `key(span, j, head, out)` writes key `j` to `out`.
    key: K,
}

impl LayerObserver for TraceObserver<'_> {
    fn embedding(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        table: Option<&Table>,
        tokens: &Tokens<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        let context = TraceContext::outside_layers(rows);
        self.emit_input_terms(run, &context, table.map(|table| run.weights.rows(table)), tokens)?;
        self.emit(Stage::Input, &context, 0, Strided::dense(work.x, run.config.d_model));
        Ok(())
    }

    fn self_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        (layer, output): (usize, &Linear),
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        let context = TraceContext::block(pass.at(layer), Block::Own);
        self.emit_norm_before(run, &context, work);
        self.query_key_value(run, &context, work);
        let inner = run.config.attention_dim(Side::Encoder);
        let shape @ [rows, ..] = run.heads(Side::Encoder, work.x.len() / run.config.d_model);
        let Qkv { query, key: keys, .. } = Qkv::fused(&work.qkv[..3 * rows * inner], shape)?;
        let keys = Keys {
            causal: false,
            bias: pass.relative.of_layer(layer),
            count: |span: &SequenceSpan| span.len,
            key: |span: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                out.copy_from_slice(keys.row(span.start + j, head).unwrap_or(&[]));
                Ok(())
            },
        };
        self.attention(run, &context, query, &keys)?;
        self.emit_projection(run, &context, output, work)
    }

    fn cached_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        (layer, output): (usize, &Linear),
        cache: &CacheMut<'_>,
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        let context = TraceContext::block(pass.at(layer), Block::Own);
        self.emit_norm_before(run, &context, work);
        self.query_key_value(run, &context, work);
        let inner = run.config.attention_dim(Side::Decoder);
        let shape @ [rows, ..] = run.heads(Side::Decoder, pass.tokens.ids.len());
        let Qkv { query, .. } = Qkv::fused(&work.qkv[..3 * rows * inner], shape)?;
        let cache = cache.as_view();
        let keys = Keys {
            causal: true,
            bias: pass.relative.of_layer(layer),
            count: |span: &SequenceSpan| span.position + span.len,
            key: |span: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                let slot = match pass.past {
                    // The last token of a draft attends to the keys of all earlier tokens.
                    Past::SlotTable { ancestry, stride, .. } => {
                        ancestry[(span.start + span.len - 1) * stride + j] as usize
                    }
                    Past::Slot { slot, .. } => slot,
                };
                cache.read_key(slot, j, head, out)
            },
        };
        self.attention(run, &context, query, &keys)?;
        self.emit_projection(run, &context, output, work)
    }

    fn cross_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        (layer, output): (usize, &Linear),
        cache: &CacheMut<'_>,
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        let context = TraceContext::block(pass.at(layer), Block::Cross);
        self.emit_norm_before(run, &context, work);
        let inner = run.config.attention_dim(Side::Decoder);
        let shape @ [rows, ..] = run.heads(Side::Decoder, pass.tokens.ids.len());
        let query = &work.qkv[..rows * inner];
        self.emit(Stage::Query, &context, 0, Strided::dense(query, inner));
        let cache = cache.as_view();
        let keys = Keys {
            causal: false,
            bias: None,
            count: |span: &SequenceSpan| pass.source_lens[span.sentence as usize] as usize,
            key: |span: &SequenceSpan, j: usize, head: usize, out: &mut [f32]| {
                cache.read_key(span.sentence as usize, j, head, out)
            },
        };
        self.attention(run, &context, Heads::new(query, shape)?, &keys)?;
        self.emit_projection(run, &context, output, work)
    }

    fn hidden(
        &mut self,
        run: &ExecContext<'_>,
        at: At<'_>,
        first: usize,
        input: &[f32],
        hidden: &[f32],
    ) {
        let context = TraceContext::block(at, Block::FeedForward);
        // With pre-norm, the norm is the input of the block, so it comes first.
        if first == 0 && run.config.norm == NormPlacement::Pre {
            self.emit(Stage::Norm, &context, 0, Strided::dense(input, run.config.d_model));
        }
        let columns = run.config.stack(context.place.side).map_or(0, |stack| stack.ffn_dim);
        self.emit(Stage::FeedForward, &context, first, Strided::dense(hidden, columns));
    }

    fn feed_forward(&mut self, run: &ExecContext<'_>, at: At<'_>, work: &Workspace<'_>) {
        self.emit_residual(run, &TraceContext::block(at, Block::FeedForward), work);
    }

    fn stack(&mut self, run: &ExecContext<'_>, rows: Rows<'_>, work: &Workspace<'_>) {
        let context = TraceContext::outside_layers(rows);
        let stage = match context.place.side {
            Side::Encoder => Stage::Memory,
            Side::Decoder => Stage::Output,
        };
        self.emit(stage, &context, 0, Strided::dense(work.x, run.config.d_model));
    }

    fn memory(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        layer: usize,
        key_value: &[f32],
    ) {
        let TraceContext { rows, place } = TraceContext::block(pass.at(layer), Block::Cross);
        let context = TraceContext { rows, place: Place { side: Side::Decoder, ..place } };
        for (index, stage) in [Stage::Key, Stage::Value].into_iter().enumerate() {
            let inner = run.config.attention_dim(Side::Decoder);
            self.emit(stage, &context, 0, Strided::part(key_value, inner, index, 2));
        }
    }

    fn logits(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        logits: &[f32],
    ) -> Result<(), KernelError> {
        let (context, vocabulary) = (TraceContext::outside_layers(rows), run.config.target_vocab);
        self.emit(Stage::Logits, &context, 0, Strided::dense(logits, vocabulary));
        self.probabilities(run.isa(), &context, logits, vocabulary)
    }
}

impl TraceObserver<'_> {
    /// With pre-norm: emits the norm before the block.
    fn emit_norm_before(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        work: &Workspace<'_>,
    ) {
        if run.config.norm == NormPlacement::Pre {
            let (_, norm) = sum_and_norm(run, work);
            self.emit(Stage::Norm, context, 0, Strided::dense(norm, run.config.d_model));
        }
    }

    /// Emits the context of attention, its projection without the residual, and the residual stream after it. The
    /// block adds the residual as it stores the product, so the product is computed again.
    fn emit_projection(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        output: &Linear,
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        let (inner, d) = (output.matrix.depth, run.config.d_model);
        self.emit(Stage::Context, context, 0, Strided::dense(work.context, inner));
        if self.probe.wants(Stage::Projection) {
            for span in spans(context.rows) {
                let heads = &work.context[span.start * inner..][..span.len * inner];
                let rows = scratch(self.scratch, span.len * d)?;
                run.project(output, heads, work.rounded, rows)?;
                view(self.probe, Stage::Projection, context.place, &span, Strided::dense(rows, d));
            }
        }
        self.emit_residual(run, context, work);
        Ok(())
    }

    /// Emits the residual stream after the block and, with post-norm, its norm.
    fn emit_residual(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        work: &Workspace<'_>,
    ) {
        let (sum, norm) = sum_and_norm(run, work);
        self.emit(Stage::Residual, context, 0, Strided::dense(sum, run.config.d_model));
        if run.config.norm == NormPlacement::Post {
            self.emit(Stage::Norm, context, 0, Strided::dense(norm, run.config.d_model));
        }
    }

    fn query_key_value(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        work: &Workspace<'_>,
    ) {
        for (index, stage) in [Stage::Query, Stage::Key, Stage::Value].into_iter().enumerate() {
            let inner = run.config.attention_dim(context.place.side);
            self.emit(stage, context, 0, Strided::part(work.qkv, inner, index, 3));
        }
    }

    /// Emits a matrix with one row per token of the pass, from token `first` on.
    fn emit(
        &mut self,
        stage: Stage,
        context: &TraceContext<'_>,
        first: usize,
        matrix: Strided<'_>,
    ) {
        if !self.probe.wants(stage) || matrix.stride == 0 {
            return;
        }
        let last = first + matrix.data.len().div_ceil(matrix.stride);
        for span in spans(context.rows) {
            let start = span.start.max(first);
            let end = (span.start + span.len).min(last);
            if start >= end {
                continue;
            }
            let data = &matrix.data[(start - first) * matrix.stride..];
            let position = span.position + start - span.start;
            let part = SequenceSpan { start, len: end - start, position, ..span };
            view(self.probe, stage, context.place, &part, Strided { data, ..matrix });
        }
    }

    /// Emits the terms of the input: scaled rows of `table`, if there is one, and the position encodings.
    fn emit_input_terms(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        table: Option<&[f32]>,
        tokens: &Tokens<'_>,
    ) -> Result<(), KernelError> {
        let (d, scale) = (run.config.d_model, run.config.embedding_scale);
        for span in spans(context.rows) {
            if let Some(table) = table
                && self.probe.wants(Stage::Embedding)
            {
                let rows = scratch(self.scratch, span.len * d)?;
                for (row, &token) in rows.chunks_mut(d).zip(&tokens.ids[span.start..]) {
                    let weights = table.get(token as usize * d..).unwrap_or(&[]);
                    for (x, weight) in row.iter_mut().zip(weights) {
                        *x = scale * weight;
                    }
                }
                let matrix = Strided::dense(rows, d);
                view(self.probe, Stage::Embedding, context.place, &span, matrix);
            }
            if self.probe.wants(Stage::Position) {
                let rows = scratch(self.scratch, span.len * d)?;
                for (row, &at) in rows.chunks_mut(d).zip(&tokens.positions[span.start..]) {
                    match tokens.position_table.get(at as usize * d..) {
                        Some(table) if !table.is_empty() => row.copy_from_slice(&table[..d]),
                        _ => row.fill(0.0),
                    }
                }
                let matrix = Strided::dense(rows, d);
                view(self.probe, Stage::Position, context.place, &span, matrix);
            }
        }
        Ok(())
    }

    /// Emits scores and weights, head by head. `query` has a row for each token of the pass.
    fn attention(
        &mut self,
        run: &ExecContext<'_>,
        context: &TraceContext<'_>,
        query: Heads<'_>,
        keys: &Keys<
            '_,
            impl Fn(&SequenceSpan) -> usize,
            impl Fn(&SequenceSpan, usize, usize, &mut [f32]) -> Result<(), KernelError>,
        >,
    ) -> Result<(), KernelError> {
        if ![Stage::Scores, Stage::Weights].iter().any(|&stage| self.probe.wants(stage)) {
            return Ok(());
        }
        let head_dim = query.head_dim();
        let scale = run.attention_options(context.place.side).scale;
        for span in spans(context.rows) {
            let columns = (keys.count)(&span);
            let floats = scratch(self.scratch, span.len * columns + head_dim)?;
            let (one, scores) = floats.split_at_mut(head_dim);
            for head in 0..query.heads() {
                let place = Place { head: Some(head), ..context.place };
                let wanted = [Stage::Scores, Stage::Weights]
                    .map(|stage| self.probe.wants(stage) && self.probe.wants_at(stage, place));
                if wanted == [false; 2] {
                    continue;
                }
                for j in 0..columns {
                    (keys.key)(&span, j, head, one)?;
                    for i in 0..span.len {
                        let query = query.row(span.start + i, head).unwrap_or(&[]);
                        let dot = dot(query, one);
                        let bias = relative_bias(keys.bias, head, span.position + i, j);
                        scores[i * columns + j] = scale * dot + bias;
                    }
                }
                if wanted[0] {
                    let matrix = Strided::dense(scores, columns);
                    view(self.probe, Stage::Scores, place, &span, matrix);
                }
                if !wanted[1] {
                    continue;
                }
                for (i, row) in scores.chunks_mut(columns.max(1)).enumerate() {
                    let masked = if keys.causal { span.len - 1 - i } else { 0 };
                    softmax_row(run.isa(), row, columns - masked)?;
                }
                view(self.probe, Stage::Weights, place, &span, Strided::dense(scores, columns));
            }
        }
        Ok(())
    }

    /// Emits the softmax of the logits, row by row.
    fn probabilities(
        &mut self,
        isa: Isa,
        context: &TraceContext<'_>,
        logits: &[f32],
        vocabulary: usize,
    ) -> Result<(), KernelError> {
        if !self.probe.wants(Stage::Probabilities) {
            return Ok(());
        }
        for span in spans(context.rows) {
            for i in 0..span.len {
                let Some(from) = logits.get((span.start + i) * vocabulary..) else { break };
                let Some(from) = from.get(..vocabulary) else { break };
                let row = scratch(self.scratch, vocabulary)?;
                row.copy_from_slice(from);
                softmax_row(isa, row, vocabulary)?;
                let (start, position) = (span.start + i, span.position + i);
                let one = SequenceSpan { start, len: 1, position, ..span };
                let matrix = Strided::dense(row, vocabulary);
                view(self.probe, Stage::Probabilities, context.place, &one, matrix);
            }
        }
        Ok(())
    }
}

/// The sum of the products, in lanes that the compiler can vectorize; the same on every instruction set.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (left, last) = left.as_chunks::<LANES>();
    let (right, rest) = right.as_chunks::<LANES>();
    for (left, right) in left.iter().zip(right) {
        for ((sum, a), b) in sums.iter_mut().zip(left).zip(right) {
            *sum += a * b;
        }
    }
    let rest: f32 = last.iter().zip(rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// The relative position bias of key `j` for the query at `position`.
fn relative_bias(bias: Option<Bias<'_>>, head: usize, position: usize, j: usize) -> f32 {
    match bias {
        Some(Bias::Relative { data, head_stride, zero }) => {
            let index = (head * head_stride + zero + j).checked_sub(position);
            index.and_then(|index| data.get(index)).copied().unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

/// Softmax of the first `len` scores of a row; sets the others to 0.
fn softmax_row(isa: Isa, row: &mut [f32], len: usize) -> Result<(), KernelError> {
    let columns = row.len();
    let options = SoftmaxOptions { lengths: Some(&[len]), ..SoftmaxOptions::default() };
    let row = MatrixMut::new(row, 1, columns)?;
    softmax(Exec::serial(isa), Input::Output, options, row)
}

fn scratch(all: &mut [f32], floats: usize) -> Result<&mut [f32], KernelError> {
    let found = all.len();
    all.get_mut(..floats).ok_or(KernelError::Size {
        property: "length",
        operand: "the scratch of the probe",
        index: None,
        expected: Expected::AtLeast(floats),
        found,
    })
}

fn view(
    probe: &mut dyn Probe,
    stage: Stage,
    place: Place,
    span: &SequenceSpan,
    matrix: Strided<'_>,
) {
    let Strided { data, columns, stride } = matrix;
    let &SequenceSpan { len, sentence, hypothesis, position, .. } = span;
    probe.look(&View {
        stage,
        place,
        sentence,
        hypothesis,
        position,
        rows: len,
        columns,
        stride,
        data,
    });
}

/// Consecutive tokens of a pass that belong to one sequence.
#[derive(Clone, Copy)]
struct SequenceSpan {
    start: usize,
    len: usize,
    sentence: u32,
    hypothesis: Option<u32>,
    position: usize,
}

/// The span that starts at token `start`; it has number `index` in `rows`.
fn span_at(rows: Rows<'_>, index: usize, start: usize) -> Option<SequenceSpan> {
    match rows {
        Rows::Source { lengths, slots } => Some(SequenceSpan {
            start,
            len: *lengths.get(index)? as usize,
            sentence: slots.map_or(Some(index as u32), |slots| slots.get(index).copied())?,
            hypothesis: None,
            position: 0,
        }),
        Rows::Target { hypotheses, sentences, positions } => {
            let hypothesis = *hypotheses.get(start)?;
            Some(SequenceSpan {
                start,
                len: hypotheses[start..].iter().take_while(|&&other| other == hypothesis).count(),
                sentence: *sentences.get(start)?,
                hypothesis: Some(hypothesis),
                position: *positions.get(start)? as usize,
            })
        }
    }
}

/// All spans in order.
fn spans(rows: Rows<'_>) -> impl Iterator<Item = SequenceSpan> {
    let (mut index, mut start) = (0, 0);
    core::iter::from_fn(move || {
        let span = span_at(rows, index, start)?;
        index += 1;
        start += span.len;
        Some(span)
    })
}
