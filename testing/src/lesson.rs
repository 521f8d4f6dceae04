//! A lesson: the predictions of an untrained model for two sentences, one update, and the predictions after training.
//! All values come from a trainer and from sessions on its model.

use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Dimensions, SpecialTokens, TiedWeights};
use simdformer::kernels::softmax::softmax;
use simdformer::kernels::train::{IGNORED, RowLoss, cross_entropy};
use simdformer::kernels::{Exec, Input, Matrix, MatrixMut, SoftmaxOptions};
use simdformer::search::{Finish, Hooks};
use simdformer::train::{
    Example, Initial, Schedule, Smoothing, StepOptions, Totals, TrainLimits, Trainer, Update,
};
use simdformer::{Event, Limits, Session, Source, SourceId};
use std::error::Error;

pub const SOURCE_WORDS: [&str; 4] = ["je", "suis", "étudiant", "merci"];
pub const TARGET_WORDS: [&str; 6] = ["a", "am", "I", "thanks", "student", "<eos>"];
/// Source and target. Upper and lower case are one word.
pub const SENTENCES: [[&str; 2]; 2] =
    [["je suis étudiant", "i am a student <eos>"], ["merci", "thanks <eos>"]];
/// Target ids: the end token, and the first token of the decoder input.
pub const EOS: u32 = 5;
pub const SEED: u64 = 2017;
pub const STEPS: u64 = 200;
pub const SCHEDULE: Schedule =
    Schedule::Linear { peak: 0.02, warmup: 20, steps: STEPS + 1, last: 0.0 };

/// The ids of a sentence.
pub fn ids(words: &[&str], text: &str) -> Result<Vec<u32>, String> {
    let id = |word: &str| {
        let at = words.iter().position(|known| known.to_lowercase() == word.to_lowercase());
        at.map(|at| at as u32).ok_or_else(|| format!("expected one of {words:?}; found `{word}`"))
    };
    text.split(' ').map(id).collect()
}

/// The target distribution of a row.
pub fn wanted(smoothing: Smoothing, target: u32) -> Vec<f32> {
    let other = smoothing.epsilon / TARGET_WORDS.len() as f32;
    let of = |word| if word == target { 1.0 - smoothing.epsilon + other } else { other };
    (0..TARGET_WORDS.len() as u32).map(of).collect()
}

/// The minimum of the mean loss: the entropy of the target distribution.
pub fn floor(smoothing: Smoothing) -> f64 {
    let entropy = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    wanted(smoothing, 0).into_iter().map(|p| entropy(f64::from(p))).sum()
}

/// The predictions of a model for both sentences with teacher forcing.
pub struct Predictions {
    /// The distribution over the words after each token of each sentence.
    pub probabilities: Vec<Vec<Vec<f32>>>,
    /// `[sentences][positions of the longest]`; padding rows have no target.
    pub padded: Vec<Vec<RowLoss>>,
    /// The gradient of the mean loss with respect to each logit, in the same shape.
    pub gradients: Vec<Vec<Vec<f32>>>,
    /// The sums that the trainer returns.
    pub totals: Totals,
}

/// Some values of one tensor.
pub struct Numbers {
    pub role: TensorId,
    pub word: &'static str,
    pub before: Vec<f32>,
    pub gradient: Vec<f32>,
    pub after: Vec<f32>,
}

/// The result of a step.
pub struct StepRecord {
    pub step: u64,
    pub rate: f64,
    pub norm: f64,
    /// Before the update.
    pub totals: Totals,
}

pub struct Lesson {
    pub config: Config,
    pub parameters: usize,
    pub sources: Vec<Vec<u32>>,
    pub targets: Vec<Vec<u32>>,
    pub options: StepOptions,
    pub untrained: Predictions,
    pub numbers: Vec<Numbers>,
    pub update: Update,
    /// The trainer's sums after the first update.
    pub then: Totals,
    pub course: Vec<StepRecord>,
    pub trained: Predictions,
    /// The output of greedy search, without teacher forcing.
    pub answers: Vec<Vec<u32>>,
}

fn config() -> Config {
    let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 6 };
    Config {
        source_vocab: SOURCE_WORDS.len(),
        ties: TiedWeights { source_target: false, target_output: false },
        tokens: SpecialTokens { eos: vec![EOS], decoder_start: Some(EOS), ..Default::default() },
        ..Config::transformer(small)
    }
}

/// The decoder input: the target, shifted by one.
pub fn shifted(target: &[u32]) -> Vec<u32> {
    let inputs = target.len().saturating_sub(1);
    core::iter::once(EOS).chain(target[..inputs].iter().copied()).collect()
}

/// Runs the whole lesson in less than a second.
pub fn learn() -> Result<Lesson, Box<dyn Error>> {
    let of = |words, side: usize| SENTENCES.iter().map(move |pair| ids(words, pair[side]));
    let sources: Vec<Vec<u32>> = of(&SOURCE_WORDS[..], 0).collect::<Result<_, _>>()?;
    let targets: Vec<Vec<u32>> = of(&TARGET_WORDS[..], 1).collect::<Result<_, _>>()?;
    let both = sources.iter().zip(&targets).zip(0..);
    let pairs: Vec<Example<'_>> =
        both.map(|((source, target), id)| Example::new(source, target, id)).collect();
    let tokens: u64 = targets.iter().map(|target| target.len() as u64).sum();

    let config = config();
    let first = Initial::Glorot.weights(&config, SEED);
    let mut trainer = Trainer::new(config.clone(), TrainLimits::new(16, 8), first)?;
    let mut options = StepOptions::default();
    options.smoothing.epsilon = 0.1;
    let smoothing = options.smoothing;

    let untrained = predict(&mut trainer, &pairs, smoothing)?;
    options.adam.rate = SCHEDULE.rate(1);
    let totals = trainer.accumulate(&pairs, smoothing, tokens)?;
    let mut numbers = sample_values(&mut trainer)?;
    let update = trainer.update(&options.adam, options.clip_norm)?;
    for Numbers { role, after, before, word, .. } in &mut numbers {
        *after = row(trainer.parameter(*role).unwrap_or_default(), word, before.len());
    }
    let then = trainer.evaluate(&pairs, smoothing)?;

    let rate = options.adam.rate;
    let mut course = vec![StepRecord { step: 1, rate, norm: update.norm, totals }];
    for step in 2..=STEPS {
        let mut options = options;
        options.adam.rate = SCHEDULE.rate(step);
        let made = trainer.step(&pairs, &options)?;
        let (rate, norm, totals) = (options.adam.rate, made.update.norm, made.totals);
        course.push(StepRecord { step, rate, norm, totals });
    }
    let trained = predict(&mut trainer, &pairs, smoothing)?;
    let answers = translate(&trainer, &sources)?;
    let parameters = trainer.parameters().map(|(_, _, numbers)| numbers.len()).sum();
    Ok(Lesson {
        config,
        parameters,
        sources,
        targets,
        options,
        untrained,
        numbers,
        update,
        then,
        course,
        trained,
        answers,
    })
}

/// The logits of a session after each decoder input token, and the resulting losses.
fn predict(
    trainer: &mut Trainer<'_>,
    pairs: &[Example<'_>],
    smoothing: Smoothing,
) -> Result<Predictions, Box<dyn Error>> {
    let totals = trainer.evaluate(pairs, smoothing)?;
    let model = trainer.model();
    let (isa, columns) = (model.isa(), TARGET_WORDS.len());
    let longest = pairs.iter().map(|pair| pair.target.len()).max().unwrap_or(1);
    let mut session = Session::new(model, Limits::new(pairs.len(), longest, longest + 1))?;
    let sources: Vec<&[u32]> = pairs.iter().map(|pair| pair.source).collect();
    let mut sentences = vec![SourceId::default(); pairs.len()];
    session.encode(&sources, &mut sentences)?;

    let mut predicted =
        Predictions { probabilities: vec![], padded: vec![], gradients: vec![], totals };
    for (pair, &sentence) in pairs.iter().zip(&sentences) {
        let row = session.start(sentence)?;
        let mut logits = Vec::new();
        let mut each = |_: usize, after: &[f32]| logits.extend_from_slice(after);
        session.prefill(row, &shifted(pair.target), Some(&mut each))?;

        let rows = pair.target.len();
        let mut out = vec![0.0; logits.len()];
        let to = MatrixMut::new(&mut out, rows, columns)?;
        let from = Input::Matrix(Matrix::new(&logits, rows, columns)?);
        softmax(Exec::serial(isa), from, SoftmaxOptions::default(), to)?;
        predicted.probabilities.push(out.chunks(columns).map(<[f32]>::to_vec).collect());

        // The padded rectangle of textbooks; the padding is NaN, so that any use of it is detected.
        logits.resize(longest * columns, f32::NAN);
        let mut labels = pair.target.to_vec();
        labels.resize(longest, IGNORED);
        let mut losses = vec![RowLoss::default(); longest];
        let scale = 1.0 / totals.tokens as f32;
        let view = MatrixMut::new(&mut logits, longest, columns)?;
        cross_entropy(Exec::serial(isa), view, &labels, smoothing, scale, &mut losses)?;
        predicted.padded.push(losses);
        predicted.gradients.push(logits.chunks(columns).map(<[f32]>::to_vec).collect());
    }
    Ok(predicted)
}

/// The first values of the row of `word`.
fn row(all: &[f32], word: &str, count: usize) -> Vec<f32> {
    let words = if SOURCE_WORDS.contains(&word) { &SOURCE_WORDS[..] } else { &TARGET_WORDS[..] };
    let width = all.len() / words.len().max(1);
    let at = words.iter().position(|known| *known == word).unwrap_or(0);
    all.iter().skip(at * width).take(count.min(width)).copied().collect()
}

/// Some values with their gradients: at the output and at the embeddings.
fn sample_values(trainer: &mut Trainer<'_>) -> Result<Vec<Numbers>, Box<dyn Error>> {
    let wanted = [
        (TensorId::Output, "student"),
        (TensorId::TargetEmbedding, "am"),
        (TensorId::SourceEmbedding, "étudiant"),
    ];
    let mut numbers = Vec::new();
    for (role, word) in wanted {
        let of = trainer.gradients()?.find(|(known, ..)| *known == role);
        let gradient = of.map(|(_, _, all)| row(all, word, 5)).unwrap_or_default();
        let before = row(trainer.parameter(role).unwrap_or_default(), word, 5);
        numbers.push(Numbers { role, word, before, gradient, after: Vec::new() });
    }
    Ok(numbers)
}

/// Greedy search from the sources alone.
fn translate(trainer: &Trainer<'_>, sources: &[Vec<u32>]) -> Result<Vec<Vec<u32>>, Box<dyn Error>> {
    let mut session = Session::new(trainer.model(), Limits::new(sources.len(), 4, 8))?;
    let options = session.search_options();
    let requests: Vec<Source<'_>> = sources.iter().map(|source| Source::new(source)).collect();
    let (mut answers, mut finite) = (vec![Vec::new(); sources.len()], true);
    session.generate(&requests, &options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event
            && let Some(best) = done.hypotheses().next()
        {
            finite &= done.finish != Finish::NotFinite;
            answers[done.source] = best.tokens.to_vec();
        }
    })?;
    if finite { Ok(answers) } else { Err("the scores are NaN or infinite".into()) }
}
