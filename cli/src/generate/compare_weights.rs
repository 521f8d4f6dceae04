//! `--compare-weights`: compares the weight dtypes on a checkpoint.
//!
//! The f32 model predicts the next token at every position of some targets. A model with other dtypes is run on the
//! same tokens, and the predictions are compared. The error of each matrix is measured separately, on its input rows
//! in the f32 model. Tables of dtypes are then tried in the order of these errors, from the smallest memory upwards,
//! until the agreement is as high as requested.

use super::encoder_inputs::Sources;
use super::requests::not_finite;
use crate::streams::Failure;
use simdformer::checkpoint::{
    Attention, Checkpoint, FeedForward, LayerPart, ParamKind, Projection, TensorId,
};
use simdformer::config::Side;
use simdformer::kernels::{
    Epilogue, Exec, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Quantization,
    QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
};
use simdformer::search::SearchOptions;
use simdformer::trace::{Block, Probe, Stage, View};
use simdformer::{
    Dtype, Engine, LoadOptions, Model, Session, SourceId, Threads, WeightDtype, WeightDtypes,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Input rows that are stored per matrix.
const ROWS: usize = 256;

/// The models and sources of a comparison.
pub(crate) struct Comparison<'c> {
    pub(crate) checkpoint: &'c Checkpoint<'c>,
    pub(crate) isa: Isa,
    pub(crate) sources: &'c Sources<'c>,
    /// For each source, the tokens after the decoder start; `None` for the output of the f32 model.
    pub(crate) targets: Vec<Option<Vec<u32>>>,
    pub(crate) options: &'c SearchOptions,
    /// The most tokens that a target begins with.
    pub(crate) prompt: usize,
    pub(crate) cache: Option<Dtype>,
    pub(crate) threads: Threads<'static>,
    /// The required fraction of positions at which the model of a table chooses the same token as f32.
    pub(crate) wanted: f64,
}

/// The predictions of a model at each position of all targets.
struct Predictions {
    bytes: usize,
    cache: Dtype,
    /// The most likely token.
    best: Vec<u32>,
    /// The log-probability of the target's token.
    log_probability: Vec<f64>,
}

/// The differences of another model's predictions.
struct Agreement {
    /// The fraction of positions with the same most likely token.
    same: f64,
    /// Changes of the log-probabilities: the mean absolute value, and the largest.
    mean: f64,
    largest: f64,
}

/// The quantization error of a matrix.
struct QuantizationError {
    tensors: Vec<TensorId>,
    /// The largest element of a row divided by its root mean square; the maximum over all rows.
    crest: f64,
    /// Root mean square of the error divided by that of the exact result, in `int8` and in `int8x16`.
    relative: [f64; 2],
}

impl Comparison<'_> {
    /// Measures everything; returns three tables.
    pub(crate) fn compare_dtypes(mut self) -> Result<String, Failure> {
        let mut out = String::new();
        let f32 = self.model(&WeightDtypes::all(Dtype::F32))?;
        self.complete_targets(&f32)?;
        let gated = self.checkpoint.config().gated;
        let mut inputs = MatrixInputs { gated, ..MatrixInputs::default() };
        let reference = self.predict(&f32, Some(Dtype::F32), Some(&mut inputs))?;
        drop(f32);
        if reference.best.is_empty() {
            return Err("--compare-weights: no line has a token to compare".into());
        }
        let positions = reference.best.len();
        writeln!(out, "{positions} positions of {} targets\n", self.targets.len())?;
        writeln!(
            out,
            "{:<26} {:>9} {:>10} {:>12} {:>12}",
            "dtype", "MB", "agreement", "mean change", "largest"
        )?;
        let row = |dtypes: &str, found: &Predictions, out: &mut String| -> Result<f64, Failure> {
            let agreement = found.agreement(&reference);
            writeln!(
                out,
                "{dtypes:<26} {:>9.1} {:>8.2} % {:>12.5} {:>12.5}",
                found.bytes as f64 / 1e6,
                100.0 * agreement.same,
                agreement.mean,
                agreement.largest
            )?;
            Ok(agreement.same)
        };
        row("f32", &reference, &mut out)?;
        let (cache, f32, f16) = (self.cache, Dtype::F32, Dtype::F16);
        let mut rows = vec![("f32", Some(f16))];
        rows.extend(["bf16", "f16", "int8x16"].map(|dtypes| (dtypes, cache)));
        rows.extend([f32, f16].map(|cache| ("int8", Some(cache))));
        rows.push(("int8,output=int8", cache));
        for (dtypes, cache) in rows {
            match self.predict_as(&dtypes.parse()?, cache) {
                Ok(found) if found.cache == Dtype::F16 => {
                    row(&format!("{dtypes}, cache f16"), &found, &mut out)?;
                }
                Ok(found) => drop(row(dtypes, &found, &mut out)?),
                // For example, a weight that exceeds the range of f16.
                Err(failure) => writeln!(out, "{dtypes:<26} {failure}")?,
            }
        }

        let mut errors = self.errors(inputs)?;
        writeln!(out, "\n{:<52} {:>7} {:>9} {:>9}", "matrix", "crest", "int8", "int8x16")?;
        for matrix in &errors {
            let [eight, sixteen] = matrix.relative.map(|error| 100.0 * error);
            let (name, crest) = (matrix.name(), matrix.crest);
            writeln!(out, "{name:<52} {crest:>7.1} {eight:>7.2} % {sixteen:>7.2} %")?;
        }

        writeln!(out)?;
        match self.cheapest(&reference, &mut errors)? {
            Some((dtypes, found, agreement)) => writeln!(
                out,
                "at least {:.2} %: {:.2} % in {:.1} MB with --weights {dtypes}",
                100.0 * self.wanted,
                100.0 * agreement,
                found.bytes as f64 / 1e6
            )?,
            None => writeln!(out, "at least {:.2} %: no table of dtypes", 100.0 * self.wanted)?,
        }
        Ok(out)
    }

    fn model(&self, dtypes: &WeightDtypes) -> Result<Arc<Model>, Failure> {
        let options = LoadOptions { dtypes: dtypes.clone(), ..self.isa.into() };
        Ok(Arc::new(Model::load(self.checkpoint, options)?))
    }

    /// An engine that runs one sentence at a time.
    fn engine(&self, model: &Arc<Model>, cache: Option<Dtype>) -> Result<Engine, Failure> {
        let builder = Engine::builder(Arc::clone(model)).sessions(1).slots(1).cache(cache);
        Ok(builder.threads(self.threads.clone()).build()?)
    }

    fn predict_as(
        &self,
        dtypes: &WeightDtypes,
        cache: Option<Dtype>,
    ) -> Result<Predictions, Failure> {
        self.predict(&self.model(dtypes)?, cache, None)
    }

    /// Computes the missing targets with greedy search.
    fn complete_targets(&mut self, model: &Arc<Model>) -> Result<(), Failure> {
        let engine = self.engine(model, Some(Dtype::F32))?;
        for index in 0..self.targets.len() {
            if self.targets[index].is_some() {
                continue;
            }
            match engine.generate_with(&self.sources.source(index), self.options) {
                Ok(found) => self.targets[index] = Some(found.tokens().to_vec()),
                Err(simdformer::Error::NotFinite { found: None, .. }) => {
                    return Err(not_finite(index + 1));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The predictions of `model` for every target, sentence by sentence.
    fn predict(
        &self,
        model: &Arc<Model>,
        cache: Option<Dtype>,
        inputs: Option<&mut MatrixInputs>,
    ) -> Result<Predictions, Failure> {
        let engine = self.engine(model, cache)?;
        let (_, work) = engine.fit(self.options, self.prompt);
        let work = work.with_sources(1, self.sources.longest());
        engine.with_session(&work, |session| self.predict_in(session, cache, inputs))?
    }

    fn predict_in(
        &self,
        session: &mut Session<'_>,
        cache: Option<Dtype>,
        mut inputs: Option<&mut MatrixInputs>,
    ) -> Result<Predictions, Failure> {
        let model = session.model();
        let mut scratch = vec![0.0; session.plan().trace_floats()];
        let mut found = Predictions {
            bytes: model.bytes(),
            cache: cache.unwrap_or_else(|| model.cache_storage()),
            best: Vec::new(),
            log_probability: Vec::new(),
        };
        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = target.as_ref().filter(|target| !target.is_empty()) else {
                continue;
            };
            // The decoder start and all target tokens but the last.
            let fed = [&[self.options.start], &target[..target.len() - 1]].concat();
            let mut each = |position: usize, logits: &[f32]| {
                let (best, log_probability) = outcome(logits, target[position] as usize);
                found.best.push(best);
                found.log_probability.push(log_probability);
            };
            let mut slot = [SourceId::default()];
            if let Some(inputs) = inputs.as_deref_mut() {
                let mut traced = session.traced(inputs, &mut scratch)?;
                match self.sources {
                    Sources::Ids(ids) => traced.encode(&ids[index..=index], &mut slot)?,
                    Sources::Features(all) => {
                        traced.encode_features(&all[index..=index], &mut slot)?;
                    }
                }
                let row = traced.start(slot[0])?;
                traced.prefill(row, &fed, Some(&mut each))?;
            } else {
                self.sources.encode(session, index..index + 1, &mut slot)?;
                let row = session.start(slot[0])?;
                session.prefill(row, &fed, Some(&mut each))?;
            }
            session.release_sentence(slot[0])?;
        }
        Ok(found)
    }

    /// The error of every matrix, the largest `int8` error first.
    fn errors(&self, inputs: MatrixInputs) -> Result<Vec<QuantizationError>, Failure> {
        let mut errors = Vec::new();
        for (tensors, Rows { rows, width: depth }) in inputs.of_matrix.into_values() {
            let mut weight = Vec::new();
            let mut outputs = 0;
            for &id in &tensors {
                let tensor = self.checkpoint.tensor(id)?;
                outputs += tensor.shape().first().copied().unwrap_or(0);
                weight.extend(tensor.to_vec()?);
            }
            let x = Matrix::new(&rows, rows.len() / depth.max(1), depth)?;
            let weight = Matrix::new(&weight, outputs, depth)?.transposed();
            let exact = self.product(x, weight)?;
            let mut relative = [0.0; 2];
            for (error, precision) in
                relative.iter_mut().zip([Quantization::W8A8, Quantization::W8A16])
            {
                let rounded = self.int8_product(x, weight, precision)?;
                let square = |x: f64| x * x;
                let lost: f64 = exact
                    .iter()
                    .zip(&rounded)
                    .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
                    .sum();
                let all: f64 = exact.iter().map(|&a| square(f64::from(a))).sum();
                *error = if all > 0.0 { (lost / all).sqrt() } else { 0.0 };
            }
            let crest = rows.chunks(depth).map(crest).fold(0.0, f64::max);
            errors.push(QuantizationError { tensors, crest, relative });
        }
        errors.sort_by(|a, b| b.relative[0].total_cmp(&a.relative[0]));
        Ok(errors)
    }

    fn product(&self, x: Matrix<'_>, weight: Matrix<'_>) -> Result<Vec<f32>, Failure> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let mut packed = vec![0.0; PackedMatrix::buffer_len(self.isa, depth, columns)?];
        let packed = PackedMatrix::pack(self.isa, weight, &mut packed)?;
        let mut out = vec![0.0; x.rows() * columns];
        let c = MatrixMut::new(&mut out, x.rows(), columns)?;
        gemm(x, &packed, &Epilogue::default(), c, Parallelism::Serial)?;
        Ok(out)
    }

    fn int8_product(
        &self,
        x: Matrix<'_>,
        weight: Matrix<'_>,
        precision: Quantization,
    ) -> Result<Vec<f32>, Failure> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let mut bytes = vec![0.0; QuantizedMatrix::buffer_len(depth, columns)?];
        let bytes = QuantizedMatrix::quantize(self.isa, weight, &mut bytes)?;
        let mut buffer = vec![0.0; QuantizedActivations::buffer_len(x.rows(), depth, precision)?];
        let rows =
            QuantizedActivations::quantize(Exec::serial(self.isa), x, precision, &mut buffer)?;
        let mut out = vec![0.0; x.rows() * columns];
        let c = MatrixMut::new(&mut out, x.rows(), columns)?;
        gemm_int8(&rows, &bytes, &Epilogue::default(), c, Parallelism::Serial)?;
        Ok(out)
    }

    /// The smallest table with the required agreement: first all in `int8`; then as few matrices as possible, those
    /// with the largest error, in `int8x16`; then, if all in `int8x16` is not enough, the same with `f32`.
    fn cheapest(
        &self,
        reference: &Predictions,
        errors: &mut [QuantizationError],
    ) -> Result<Option<(WeightDtypes, Predictions, f64)>, Failure> {
        for (dtype, dearer, key) in [
            (Quantization::W8A8, Quantization::W8A16.into(), 0),
            (Quantization::W8A16, WeightDtype::from(Dtype::F32), 1),
        ] {
            errors.sort_by(|a, b| b.relative[key].total_cmp(&a.relative[key]));
            // All matrices but the output, which has no int8 dtype here.
            let inner: Vec<&QuantizationError> =
                errors.iter().filter(|matrix| matrix.tensors != [TensorId::Output]).collect();
            let tried = |count: usize| -> Result<(WeightDtypes, Predictions, f64), Failure> {
                let mut dtypes = WeightDtypes::all(dtype);
                for tensor in inner[..count].iter().flat_map(|matrix| &matrix.tensors) {
                    dtypes = dtypes.with(&tensor.to_string(), dearer)?;
                }
                let found = self.predict_as(&dtypes, self.cache)?;
                let same = found.agreement(reference).same;
                Ok((dtypes, found, same))
            };
            let first = tried(0)?;
            if first.2 >= self.wanted {
                return Ok(Some(first));
            }
            let (mut too_few, mut enough) = (0, inner.len());
            let mut found = tried(enough)?;
            if found.2 < self.wanted {
                continue;
            }
            while enough - too_few > 1 {
                let middle = too_few + (enough - too_few) / 2;
                let next = tried(middle)?;
                if next.2 >= self.wanted {
                    (enough, found) = (middle, next);
                } else {
                    too_few = middle;
                }
            }
            return Ok(Some(found));
        }
        Ok(None)
    }
}

impl Predictions {
    fn agreement(&self, other: &Self) -> Agreement {
        let count = other.best.len() as f64;
        let same = self.best.iter().zip(&other.best).filter(|(a, b)| a == b).count();
        let changes = self.log_probability.iter().zip(&other.log_probability);
        // Both may be minus infinity.
        let changes = changes.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() });
        Agreement {
            same: same as f64 / count,
            mean: changes.clone().sum::<f64>() / count,
            largest: changes.fold(0.0, f64::max),
        }
    }
}

impl QuantizationError {
    /// The name of the first matrix, with the last parts of the others' names.
    fn name(&self) -> String {
        let mut name = String::new();
        for tensor in &self.tensors {
            let path = tensor.to_string();
            let path = path.strip_suffix(".weight").unwrap_or(&path);
            if name.is_empty() {
                name.push_str(path);
            } else {
                name.push('+');
                name.push_str(path.rsplit('.').next().unwrap_or(path));
            }
        }
        name
    }
}

/// The index of the first largest logit, and the log-probability of a token.
fn outcome(logits: &[f32], token: usize) -> (u32, f64) {
    let mut best = 0;
    for (index, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = index;
        }
    }
    let most = f64::from(logits[best]);
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum();
    (best as u32, f64::from(logits[token]) - most - sum.ln())
}

fn crest(row: &[f32]) -> f64 {
    let largest = row.iter().fold(0.0f64, |most, &x| most.max(f64::from(x).abs()));
    let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    if squares > 0.0 { largest / (squares / row.len() as f64).sqrt() } else { 0.0 }
}

/// Input rows of a matrix, and their length.
#[derive(Clone, Default)]
struct Rows {
    rows: Vec<f32>,
    width: usize,
}

/// Stores the input rows of each matrix.
#[derive(Default)]
struct MatrixInputs {
    /// Whether feed-forward blocks have a gate.
    gated: bool,
    /// The input of the next encoder or decoder block: the stack's input or the output of the last norm.
    stream: [Rows; 2],
    encoder_output: Rows,
    /// By the name of the first tensor id.
    of_matrix: BTreeMap<String, (Vec<TensorId>, Rows)>,
}

impl MatrixInputs {
    fn store(&mut self, tensors: &[TensorId], new: &Rows) {
        let stored = self.of_matrix.entry(tensors[0].to_string());
        let (_, stored) = stored.or_insert_with(|| (tensors.to_vec(), Rows::default()));
        stored.width = new.width;
        let free = (ROWS * new.width).saturating_sub(stored.rows.len()).min(new.rows.len());
        stored.rows.extend_from_slice(&new.rows[..free]);
    }
}

impl Probe for MatrixInputs {
    fn wants(&self, stage: Stage) -> bool {
        use Stage::{Context, FeedForward, Input, Key, Memory, Norm, Output, Query};
        matches!(stage, Input | Norm | Query | Key | Context | FeedForward | Memory | Output)
    }

    fn look(&mut self, view: &View<'_>) {
        let place = view.place;
        let rows = Rows { rows: view.iter().flatten().copied().collect(), width: view.columns };
        let tensor = |part| TensorId::Layer(place.side, place.layer.unwrap_or(0), part);
        let attention = |projection| {
            let kind = match place.block {
                Some(Block::Cross) => Attention::Cross,
                _ => Attention::Own,
            };
            tensor(LayerPart::Attention(kind, projection, ParamKind::Weight))
        };
        let feed_forward = |of| tensor(LayerPart::FeedForward(of, ParamKind::Weight));
        let side = usize::from(place.side == Side::Decoder);
        let stream = self.stream[side].clone();
        match (view.stage, place.block) {
            (Stage::Input | Stage::Norm, _) => self.stream[side] = rows,
            (Stage::Query, Some(Block::Own)) => {
                let of = [Projection::Query, Projection::Key, Projection::Value];
                self.store(&of.map(attention), &stream);
            }
            (Stage::Query, _) => self.store(&[attention(Projection::Query)], &stream),
            (Stage::Key, Some(Block::Cross)) => {
                let encoder_output = self.encoder_output.clone();
                self.store(&[Projection::Key, Projection::Value].map(attention), &encoder_output);
            }
            (Stage::Context, _) => self.store(&[attention(Projection::Output)], &rows),
            (Stage::FeedForward, _) => {
                self.store(&[feed_forward(FeedForward::Outer)], &rows);
                // Hidden rows arrive in chunks; the stored input covers all of them.
                if view.position == 0 {
                    self.store(&[feed_forward(FeedForward::Inner)], &stream);
                    if self.gated {
                        self.store(&[feed_forward(FeedForward::Gate)], &stream);
                    }
                }
            }
            (Stage::Memory, _) => self.encoder_output = rows,
            (Stage::Output, _) => self.store(&[TensorId::Output], &rows),
            _ => {}
        }
    }
}
