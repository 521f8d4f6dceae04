//! `generate`: runs any checkpoint on token ids or audio features; reads and writes JSON lines.

mod arguments;
mod compare_weights;
mod drafts;
mod encoder_inputs;
mod frames;
mod requests;
mod statistics;

pub(crate) use arguments::Generate;

use crate::arguments::ReportArguments;
use crate::output_file::{self, cannot_write};
use crate::search_arguments;
use crate::streams::{Failure, Streams};
use drafts::Drafts;
use encoder_inputs::Sources;
use requests::{Request, Response, not_finite};
use safetensors::tensor::{Dtype, TensorView};
use simdformer::atomic_file;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;
use simdformer::kernels::Isa;
use simdformer::search::{Finish, Hooks, SearchOptions, Strategy, score_targets};
use simdformer::{
    DecodeStats, Engine, Event, Features, Model, Session, Source, SourceId, Workload,
};
use simdformer_text::argos::open_checkpoint;
use statistics::{Measured, Statistics, allocations, peak_rss_bytes};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs the requests of the input, writes an answer to each, and reports the statistics; returns the exit code.
pub(crate) fn answer_requests(
    arguments: &Generate,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let start = Instant::now();
    let isa = arguments.model.isa()?;
    let checkpoint = open_checkpoint(&arguments.model.directory.model)?;
    // Compared models are loaded one at a time.
    let model = match arguments.compare_weights {
        true => None,
        false => Some(Arc::new(load(arguments, &checkpoint, streams)?)),
    };
    let load_seconds = start.elapsed().as_secs_f64();

    let config = model.as_ref().map_or(checkpoint.config(), |model| model.config());
    let mut options = arguments.search_options(config)?;
    search_arguments::check(&options, config)?;
    arguments.check(config, &options)?;
    options.timestamps = arguments.timestamp_rule(config)?;
    let mut text = String::new();
    streams.input.read_to_string(&mut text)?;
    let requests = requests::parse(&text, config, arguments.score)?;
    let features = match &arguments.features {
        Some(path) => frames::read_features(path, Some(requests.len()))?,
        None => Vec::new(),
    };
    let sources = match config.bins {
        Some(_) => {
            Sources::Features(features.iter().map(|(x, bins)| Features::new(x, *bins)).collect())
        }
        None => Sources::Ids(requests.iter().map(Request::ids).collect()),
    };
    let drafts = Drafts::from_arguments(arguments, requests.len(), config)?;
    let drafts = drafts.as_ref();
    let batch = Batch { arguments, options, requests: &requests, sources, drafts };
    let Some(model) = &model else {
        let report = arguments.model.in_pool(|| batch.compare(&checkpoint, isa))?;
        streams.out.write_all(report.as_bytes())?;
        return Ok(0);
    };
    let (answers, measured) = arguments.model.in_pool(|| batch.generate_with(model))?;
    for answer in &answers {
        writeln!(streams.out, "{}", serde_json::to_string(answer)?)?;
    }
    streams.out.flush()?;
    let seconds = measured.encode_seconds + measured.decode_seconds;
    let statistics = Statistics {
        load_seconds,
        plan_bytes: measured.plan_bytes,
        encode_seconds: measured.encode_seconds,
        decode_seconds: measured.decode_seconds,
        new_tokens: measured.new_tokens,
        tokens_per_second: if seconds > 0.0 { measured.new_tokens as f64 / seconds } else { 0.0 },
        allocations: measured.allocations,
        steps: measured.counts.map(|counts| counts.steps),
        drafted: measured.counts.map(|counts| counts.drafted),
        accepted: measured.counts.map(|counts| counts.accepted),
        model_bytes: model.bytes(),
        peak_rss_bytes: peak_rss_bytes(),
        isa: isa.name(),
        threads: arguments.model.thread_count(),
        defaults: model.defaults().iter().cloned().collect(),
        unsupported: config.unsupported.clone(),
    };
    writeln!(streams.notes, "{}", serde_json::to_string(&statistics)?)?;
    Ok(0)
}

/// Loads a model from the checkpoint or from packed weights, and saves packed weights if requested.
fn load(
    arguments: &Generate,
    checkpoint: &Checkpoint<'_>,
    streams: &mut Streams<'_>,
) -> Result<Model, Failure> {
    let written = arguments.save_packed.iter().chain(&arguments.logits).map(PathBuf::as_path);
    let read = arguments.packed.iter().chain(&arguments.draft).chain(&arguments.features);
    let read: Vec<&Path> = read.map(PathBuf::as_path).collect();
    let directory = &arguments.model.directory.model;
    output_file::refuse_inputs(&written.collect::<Vec<_>>(), &read, directory)?;
    if let Some(path) = &arguments.packed {
        return Ok(Model::open_packed(checkpoint.config().clone(), path)?);
    }
    let model = arguments.model.load(checkpoint, &ReportArguments::default(), streams)?;
    if let Some(path) = &arguments.save_packed {
        model.save_packed(path)?;
    }
    Ok(model)
}

/// All requests of the run.
struct Batch<'a> {
    arguments: &'a Generate,
    options: SearchOptions,
    requests: &'a [Request],
    /// The encoder input of each request.
    sources: Sources<'a>,
    drafts: Option<&'a Drafts>,
}

impl Batch<'_> {
    fn generate_with(&self, model: &Arc<Model>) -> Result<(Vec<Response>, Measured), Failure> {
        // All requests have a slot, so that encoding is measured apart from decoding.
        let builder = Engine::builder(Arc::clone(model)).sessions(1).slots(self.requests.len());
        let builder = builder.cache(self.arguments.cache.dtype);
        let engine = builder.threads(self.arguments.model.threads()).build()?;
        let prompt = self.longest_prompt(model.config());
        let (fitted, work) = engine.fit(&self.options, prompt);
        // The checkpoint's maximum length is omitted if its positions do not allow it, but not that of the command line.
        let given = self.arguments.search.has("max_new_tokens");
        let options = if given { &self.options } else { &*fitted };
        let work = if self.arguments.score { Workload::targets(1, 1, prompt) } else { work };
        let work = work.with_sources(self.requests.len(), self.sources.longest());
        let work = work.with_drafts(Drafts::tokens(self.drafts));
        engine.with_session(&work, |session| self.generate_in(session, options))?
    }

    fn generate_in(
        &self,
        session: &mut Session<'_>,
        options: &SearchOptions,
    ) -> Result<(Vec<Response>, Measured), Failure> {
        if let Some(path) = &self.arguments.logits {
            self.write_logits(session, path)?;
        }
        if session.model().config().decoder.is_none() {
            self.encode_only(session)
        } else if self.arguments.score {
            self.score(session)
        } else {
            self.search(session, options)
        }
    }

    /// Compares the weight dtypes.
    fn compare(&self, checkpoint: &Checkpoint<'_>, isa: Isa) -> Result<String, Failure> {
        let start = self.options.start;
        let targets = self.requests.iter().map(|request| {
            request.decoder_input_ids.is_some().then(|| request.after_start(start).to_vec())
        });
        let comparison = compare_weights::Comparison {
            checkpoint,
            isa,
            sources: &self.sources,
            targets: targets.collect(),
            options: &self.options,
            prompt: self.longest_prompt(checkpoint.config()),
            cache: self.arguments.cache.dtype,
            threads: self.arguments.model.threads(),
            wanted: self.arguments.agreement,
        };
        comparison.compare_dtypes()
    }

    /// The most tokens that a target begins with, the decoder start included.
    fn longest_prompt(&self, config: &Config) -> usize {
        let prompt = |request: &Request| {
            let given = request.decoder_input_ids.as_ref().map_or(0, Vec::len);
            // Every language is one token.
            given.max(1 + self.prefix(request, config, Some(0)).len())
        };
        self.requests.iter().map(prompt).max().unwrap_or(1)
    }

    /// The tokens after the decoder start: those of the request, or the checkpoint's prompt for `language`.
    fn prefix(&self, request: &Request, config: &Config, language: Option<u32>) -> Vec<u32> {
        if request.decoder_input_ids.is_some() {
            return request.after_start(self.options.start).to_vec();
        }
        let prompt = &config.transcription;
        let default = |name: &Option<String>| name.clone().unwrap_or_default();
        let language = language.or_else(|| prompt.language(&default(&prompt.default_language)));
        let task = prompt.task(&default(&prompt.default_task));
        prompt.prefix(language, task, self.options.timestamps.is_some())
    }

    /// The detected language of line `index`, if the checkpoint detects languages.
    fn language(&self, index: usize, session: &mut Session<'_>) -> Result<Option<u32>, Failure> {
        let prompt = session.model().config().transcription.clone();
        let given = self.requests[index].decoder_input_ids.is_some();
        if given || !prompt.wants_language() || prompt.default_language.is_some() {
            return Ok(None);
        }
        let languages: Vec<u32> = prompt.languages.iter().map(|&(_, id)| id).collect();
        let mut slot = [SourceId::default()];
        self.sources.encode(session, index..index + 1, &mut slot)?;
        let language = session.detect_language(slot[0], self.options.start, &languages)?;
        session.release_sentence(slot[0])?;
        Ok(Some(language))
    }

    fn search(
        &self,
        session: &mut Session<'_>,
        options: &SearchOptions,
    ) -> Result<(Vec<Response>, Measured), Failure> {
        let mut prefixes = Vec::with_capacity(self.requests.len());
        for (index, request) in self.requests.iter().enumerate() {
            let language = self.language(index, session)?;
            prefixes.push(self.prefix(request, session.model().config(), language));
        }
        let requests: Vec<Source> = prefixes
            .iter()
            .enumerate()
            .map(|(i, prefix)| Source { prefix, stream: i as u64, ..self.sources.source(i) })
            .collect();
        let stride = session.plan().limits().target_tokens + 1;
        let mut outputs: Vec<Output> =
            requests.iter().map(|_| Output::new(options.num_return_sequences, stride)).collect();
        let mut slots = vec![SourceId::default(); requests.len()];
        let mut hooks = Hooks::default();
        let expected = Drafts::expected(self.drafts, &requests);
        let mut counts = DecodeStats::default();
        let repeat = self.arguments.repeat;
        let (mut encoding, mut decoding) = (Vec::with_capacity(repeat), Vec::with_capacity(repeat));
        let allocated = allocations();
        for _ in 0..repeat {
            outputs.iter_mut().for_each(Output::clear);
            let start = Instant::now();
            let mut broken = None;
            let mut on_event = |event: Event<'_>| {
                if let Event::Done(done) = event {
                    if done.finish == Finish::NotFinite {
                        broken = broken.max(Some(done.source + 1));
                    }
                    for hypothesis in done.hypotheses() {
                        outputs[done.source].push(hypothesis.tokens, hypothesis.score);
                    }
                }
            };
            let call = (&requests[..], options);
            counts =
                Drafts::generate(self.drafts, &expected, session, call, &mut hooks, &mut on_event)?;
            if let Some(number) = broken {
                return Err(not_finite(number));
            }
            let whole = start.elapsed().as_secs_f64();
            // Measured alone and after the run, so that the cost of cold caches counts as decoding.
            let start = Instant::now();
            session.clear();
            self.sources.encode(session, 0..slots.len(), &mut slots)?;
            let encoded = start.elapsed().as_secs_f64();
            encoding.push(encoded);
            decoding.push((whole - encoded).max(0.0));
        }
        let new_tokens = outputs.iter().map(Output::tokens).sum();
        let times = [&mut encoding[..], &mut decoding];
        let measured = Measured {
            counts: self.drafts.map(|_| counts),
            ..Measured::new(session, times, new_tokens, allocated)
        };
        let answers = outputs.iter().zip(&prefixes).map(|(output, prefix)| {
            let mut answer = output.answer(prefix);
            if let Strategy::Beam(beam) = &options.strategy {
                output.fill(&mut answer, options.num_return_sequences, beam.length_penalty);
            }
            answer
        });
        Ok((answers.collect(), measured))
    }

    /// Runs a model without a decoder; its hidden states are not printed.
    fn encode_only(&self, session: &mut Session<'_>) -> Result<(Vec<Response>, Measured), Failure> {
        let count = self.requests.len();
        let mut encoding = Vec::with_capacity(self.arguments.repeat);
        let allocated = allocations();
        for _ in 0..self.arguments.repeat {
            let start = Instant::now();
            let mut first = 0;
            while first < count {
                let end = self.sources.batch_end(session, first..count);
                self.sources.encoder_output(session, first..end)?;
                first = end;
            }
            encoding.push(start.elapsed().as_secs_f64());
        }
        let measured = Measured::new(session, [&mut encoding, &mut []], 0, allocated);
        Ok((vec![Response::default(); count], measured))
    }

    /// Computes the log-probabilities of the given targets.
    fn score(&self, session: &mut Session<'_>) -> Result<(Vec<Response>, Measured), Failure> {
        let start_token = self.options.start;
        let targets: Vec<&[u32]> =
            self.requests.iter().map(|r| r.after_start(start_token)).collect();
        // The decoder input: the decoder start and all target tokens but the last.
        let inputs: Vec<Vec<u32>> = targets
            .iter()
            .map(|target| {
                let but_last = target.split_last().map_or(&[][..], |(_, rest)| rest);
                [&[start_token], but_last].concat()
            })
            .collect();
        let vocabulary = session.model().config().target_vocab;
        let mut scores: Vec<(f64, Vec<f32>)> =
            targets.iter().map(|target| (0.0, vec![0.0; target.len()])).collect();
        let mut slots = vec![SourceId::default(); targets.len()];

        let repeat = self.arguments.repeat;
        let (mut encoding, mut decoding) = (Vec::with_capacity(repeat), Vec::with_capacity(repeat));
        let allocated = allocations();
        for _ in 0..repeat {
            let start = Instant::now();
            session.clear();
            self.sources.encode(session, 0..slots.len(), &mut slots)?;
            encoding.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            for (((&slot, input), target), (sum, each)) in
                slots.iter().zip(&inputs).zip(&targets).zip(&mut scores)
            {
                *sum = 0.0;
                if target.is_empty() {
                    continue;
                }
                let row = session.start(slot)?;
                let mut result = Ok(());
                let mut score = |position: usize, logits: &[f32]| {
                    let at = position..position + 1;
                    match score_targets(logits, vocabulary, &target[at.clone()], &mut each[at]) {
                        Ok(log_probability) => *sum += log_probability,
                        Err(error) => result = Err(error),
                    }
                };
                session.prefill(row, input, Some(&mut score))?;
                result?;
                session.release(row)?;
            }
            decoding.push(start.elapsed().as_secs_f64());
        }
        let new_tokens = targets.iter().map(|target| target.len()).sum();
        let measured =
            Measured::new(session, [&mut encoding, &mut decoding], new_tokens, allocated);
        let answers = targets.iter().zip(scores).map(|(target, (sum, each))| Response {
            sequences: vec![target.to_vec()],
            scores: vec![sum],
            log_probabilities: Some(vec![each]),
        });
        Ok((answers.collect(), measured))
    }

    /// Writes encoder outputs and teacher-forced logits, one line at a time.
    fn write_logits(&self, session: &mut Session<'_>, path: &Path) -> Result<(), Failure> {
        let config = session.model().config();
        let (d_model, vocabulary) = (config.d_model, config.target_vocab);
        let mut tensors: Vec<(String, [usize; 2], Vec<u8>)> = Vec::new();
        for (i, request) in self.requests.iter().enumerate() {
            let output = bytes(self.sources.encoder_output(session, i..i + 1)?);
            let positions = output.len() / (d_model * size_of::<f32>());
            tensors.push((format!("encoder.{i}"), [positions, d_model], output));
            if let Some(tokens) = &request.decoder_input_ids {
                let mut slot = [SourceId::default()];
                self.sources.encode(session, i..i + 1, &mut slot)?;
                let row = session.start(slot[0])?;
                let mut logits = Vec::with_capacity(tokens.len() * vocabulary * size_of::<f32>());
                let mut each = |_: usize, row: &[f32]| logits.extend(bytes(row));
                session.prefill(row, tokens, Some(&mut each))?;
                session.release_sentence(slot[0])?;
                tensors.push((format!("logits.{i}"), [tokens.len(), vocabulary], logits));
            }
        }
        let views: Result<Vec<_>, _> = tensors
            .iter()
            .map(|(name, shape, data)| {
                TensorView::new(Dtype::F32, shape.to_vec(), data).map(|view| (name, view))
            })
            .collect();
        let content = safetensors::serialize(views?, None)?;
        atomic_file::write(path, &content).map_err(cannot_write(path))
    }
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Buffers for the hypotheses of one sentence, allocated before the time measurement.
struct Output {
    /// `[num_return_sequences, stride]`.
    tokens: Vec<u32>,
    stride: usize,
    /// Length and score of each hypothesis.
    found: Vec<(usize, f32)>,
}

impl Output {
    fn new(sequences: usize, stride: usize) -> Self {
        let found = Vec::with_capacity(sequences);
        Self { tokens: vec![0; sequences * stride], stride, found }
    }

    fn clear(&mut self) {
        self.found.clear();
    }

    fn push(&mut self, tokens: &[u32], score: f32) {
        let start = self.found.len() * self.stride;
        self.tokens[start..start + tokens.len()].copy_from_slice(tokens);
        self.found.push((tokens.len(), score));
    }

    fn tokens(&self) -> usize {
        self.found.iter().map(|(len, _)| len).sum()
    }

    fn answer(&self, prefix: &[u32]) -> Response {
        let rows = self.tokens.chunks(self.stride).zip(&self.found);
        Response {
            sequences: rows.map(|(row, (len, _))| [prefix, &row[..*len]].concat()).collect(),
            scores: self.found.iter().map(|(_, score)| f64::from(*score)).collect(),
            log_probabilities: None,
        }
    }

    /// Repeats the best hypothesis until there are `sequences`, as transformers does. There, all initial beams but
    /// the first are copies with a score of -1e9, and they are returned if rules leave fewer continuations than beams
    /// (a forced token with `max_new_tokens` 1).
    fn fill(&self, answer: &mut Response, sequences: usize, length_penalty: f64) {
        let (Some(&(len, _)), Some(best)) = (self.found.first(), answer.sequences.first().cloned())
        else {
            return;
        };
        let score = -1e9 / (len as f64).powf(length_penalty);
        answer.sequences.resize(sequences, best);
        answer.scores.resize(sequences, score);
    }
}
