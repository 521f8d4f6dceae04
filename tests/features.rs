//! Encoders that read features: the convolutions compared with a plain sum, the same bits alone and in a
//! batch, the timestamp processor compared with transformers, and the errors.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use serde_json::Value;
use simdformer::config::{Config, Family, Side};
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Hooks, LogitsProcessor, SearchOptions, Strategy, Timestamps,
};
use simdformer::trace::{Probe, Stage, View};
use simdformer::{Error, Event, Features, Limits, Model, Plan, Session, Source, SourceId, StepRow};

const BINS: usize = 7;

fn dims(positions: usize) -> Dims {
    Dims { positions, layers: [1, 2], ..Dims::small(Family::Whisper) }
}

fn random_frames(random: &mut Random, frames: usize) -> Vec<f32> {
    (0..frames * BINS).map(|_| random.symmetric()).collect()
}

/// A probe that records the values of one stage.
struct StageProbe(Stage, Vec<f32>);

impl Probe for StageProbe {
    fn wants(&self, stage: Stage) -> bool {
        stage == self.0
    }

    fn look(&mut self, view: &View<'_>) {
        view.iter().for_each(|row| self.1.extend_from_slice(row));
    }
}

fn gelu(x: f64) -> f64 {
    // The error function by its series. For arguments near 0 its sum loses digits, but not those that
    // are needed here.
    let z = x / core::f64::consts::SQRT_2;
    if z.abs() > 4.0 {
        return x.max(0.0);
    }
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    0.5 * x * (1.0 + 2.0 / core::f64::consts::PI.sqrt() * sum)
}

/// `gelu(convolution)` of width 3 over `x`, `[frames, inputs]`, by its definition, and the largest sum of
/// magnitudes.
fn convolve(
    x: &[f64],
    inputs: usize,
    stride: usize,
    weight: &[f32],
    bias: &[f32],
) -> (Vec<f64>, f64) {
    let (frames, mut out, mut largest) = (x.len() / inputs, Vec::new(), 0.0f64);
    for t in (0..frames).step_by(stride) {
        for (weight, bias) in weight.chunks(inputs * 3).zip(bias) {
            let (mut sum, mut magnitude) = (f64::from(*bias), f64::from(bias.abs()));
            for (input, taps) in weight.chunks(3).enumerate() {
                for (tap, &w) in taps.iter().enumerate() {
                    let Some(frame) = (t + tap).checked_sub(1).filter(|&frame| frame < frames)
                    else {
                        continue;
                    };
                    let product = f64::from(w) * x[frame * inputs + input];
                    sum += product;
                    magnitude += product.abs();
                }
            }
            out.push(gelu(sum));
            largest = largest.max(magnitude);
        }
    }
    (out, largest)
}

/// Odd and even numbers of frames, one frame alone, and so many that a convolution runs in several parts.
#[test]
fn convolutions_match_their_definition() {
    let dims = dims(600);
    let checkpoint = dims.checkpoint(5);
    let read = |name: &str| checkpoint.named(name).expect(name).to_vec().expect("numbers");
    let [first, second] = ["conv1", "conv2"].map(|name| {
        let part = |part: &str| read(&format!("model.encoder.{name}.{part}"));
        (part("weight"), part("bias"))
    });
    let positions = read("model.encoder.embed_positions.weight");
    let mut random = Random(9);
    for &frames in
        cases(&[1, 2, 3, 8, 511, 512, 513][..], &[1, 2, 3, 8, 511, 512, 513, 514, 1025, 1199])
    {
        let values = random_frames(&mut random, frames);
        let exact: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        let (below, magnitude) = convolve(&exact, BINS, 1, &first.0, &first.1);
        let (above, larger) = convolve(&below, dims.d_model, 2, &second.0, &second.1);
        let expected: Vec<f64> =
            above.iter().zip(&positions).map(|(x, &p)| x + f64::from(p)).collect();
        // Sums of at most 127 and 22 terms, each with an error of half an ulp of the largest sum of
        // magnitudes. The slope of GELU is at most 1.13. The second convolution adds up the errors
        // of the first.
        let eps = f64::from(f32::EPSILON);
        let bound = 2.0 * eps * (127.0 * larger + 22.0 * magnitude * larger);
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect("a model");
            let limits = Limits::new(1, frames.div_ceil(2), 1);
            let mut session = Session::new(&model, limits).expect("a session");
            let mut scratch = vec![0.0; session.plan().trace_floats()];
            let mut look = StageProbe(Stage::Input, Vec::new());
            let mut watched = session.traced(&mut look, &mut scratch).expect("space");
            watched.encoder_output_of_features(&[Features::new(&values, BINS)]).expect("a memory");
            assert_eq!(look.1.len(), expected.len(), "{isa}, {frames} frames");
            for (at, (found, expected)) in look.1.iter().zip(&expected).enumerate() {
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= bound, "{isa}, {frames} frames, {at}: {found}, {expected}");
            }
            assert!(bound < 2e-3, "{bound}");
        }
    }
}

type Answers = Vec<Vec<(Vec<u32>, u32)>>;

fn generate(
    session: &mut Session<'_>,
    requests: &[Source<'_>],
    options: &SearchOptions,
) -> Answers {
    let mut rule = Timestamps { no_timestamps: 60, eos: 50, max_initial: Some(20) };
    let mut rules: [&mut dyn LogitsProcessor; 1] = [&mut rule];
    let mut hooks = Hooks { processors: &mut rules, ..Hooks::default() };
    let mut answers = vec![Vec::new(); requests.len()];
    let mut on_event = |event: Event<'_>| {
        if let Event::Done(done) = event {
            let one = done.hypotheses().map(|h| (h.tokens.to_vec(), h.score.to_bits()));
            answers[done.source] = one.collect();
        }
    };
    session.generate(requests, options, &mut hooks, &mut on_event).expect("generated");
    answers
}

/// Alone in a session of its own size, in a batch, in another order, on three threads, by greedy search and
/// by beam search, prefilled and stepped: the same bits.
#[test]
fn features_give_the_same_bits_alone_and_in_a_batch() {
    let dims = dims(300);
    let checkpoint = dims.checkpoint(8);
    let mut random = Random(4);
    let values = [14, 1, 560, 3, 25].map(|frames| random_frames(&mut random, frames));
    let prefixes = [2, 1, 3, 1, 4].map(|len| random.ids(len, 50));
    let sources: Vec<Features<'_>> = values.iter().map(|x| Features::new(x, BINS)).collect();
    let request = |i: usize| Source { prefix: &prefixes[i], ..Source::of_features(sources[i]) };
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut timed = 0;
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let greedy = SearchOptions { max_new_tokens: Some(9), ..model.config().search_options() };
        let beams = BeamOptions { beams: 3, ..BeamOptions::default() };
        let beam = SearchOptions {
            strategy: Strategy::Beam(beams),
            num_return_sequences: 3,
            ..greedy.clone()
        };
        let with = |count, positions| Limits { beams: 3, ..Limits::new(count, positions, 16) };
        let searches = [&greedy, &beam];
        let alone: Vec<(Vec<u32>, [Answers; 2])> = (0..sources.len())
            .map(|i| {
                let limits = with(1, sources[i].positions());
                let mut session = Session::new(&model, limits).expect("a session");
                let memory =
                    bits(session.encoder_output_of_features(&sources[i..=i]).expect("a memory"));
                (memory, searches.map(|options| generate(&mut session, &[request(i)], options)))
            })
            .collect();
        let mut session = Session::new(&model, with(4, 280)).expect("a session");
        for order in [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]] {
            let some: Vec<Features<'_>> = order[..4].iter().map(|&i| sources[i]).collect();
            let expected: Vec<u32> = order[..4].iter().flat_map(|&i| alone[i].0.clone()).collect();
            let requests = order.map(request);
            let mut check = |session: &mut Session<'_>, how: &str| {
                let memory = bits(session.encoder_output_of_features(&some).expect("a memory"));
                assert!(memory == expected, "{isa} {order:?}, {how}");
                for (which, options) in searches.into_iter().enumerate() {
                    let found = generate(session, &requests, options);
                    for (&i, found) in order.iter().zip(&found) {
                        assert_eq!(found, &alone[i].1[which][0], "{isa} {order:?} {i}, {how}");
                        timed += found.iter().flat_map(|h| &h.0).filter(|&&id| id > 60).count();
                    }
                }
            };
            check(&mut session, "one thread");
            #[cfg(feature = "rayon")]
            {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
                session.set_threads(simdformer::Threads::Rayon);
                pool.expect("a pool").install(|| check(&mut session, "three threads"));
                session.set_threads(simdformer::Threads::Serial);
            }
        }
        prefilled_and_stepped(&model, &sources);
    }
    assert!(timed > 50, "{timed}");
}

fn prefilled_and_stepped(model: &Model, sources: &[Features<'_>]) {
    let mut session =
        Session::new(model, Limits { beams: 2, ..Limits::new(2, 280, 12) }).expect("a session");
    let mut sentences = [SourceId::default(); 2];
    session.encode_features(&sources[2..4], &mut sentences).expect("encoded");
    for sentence in sentences {
        let tokens = [2, 9, 61, 40, 77, 5];
        let (whole, single) = (session.start(sentence), session.start(sentence));
        let (whole, single) = (whole.expect("a row"), single.expect("a row"));
        let mut expected = Vec::new();
        let mut each = |_: usize, logits: &[f32]| expected.push(logits.to_vec());
        session.prefill(whole, &tokens, Some(&mut each)).expect("prefilled");
        for (token, expected) in tokens.into_iter().zip(&expected) {
            let logits = session.step(&[StepRow::new(single, token)]).expect("stepped");
            assert!(logits.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}

/// The logits of one step tell the language, and the sentence does not change.
#[test]
fn the_detected_language_has_the_largest_logit() {
    let model = Model::load(&dims(40).checkpoint(8), Isa::best()).expect("a model");
    let mut session = Session::new(&model, Limits::new(1, 40, 5)).expect("a session");
    let values = random_frames(&mut Random(1), 33);
    let mut sentence = [SourceId::default()];
    session.encode_features(&[Features::new(&values, BINS)], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("a row");
    let logits = session.step(&[StepRow::new(row, 2)]).expect("stepped").to_vec();
    session.release(row).expect("released");
    let named = [90, 7, 44, 130, 61];
    let best = named.into_iter().max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize]));
    for _ in 0..3 {
        assert_eq!(Ok(best.expect("one")), session.detect_language(sentence[0], 2, &named));
    }
    assert_eq!(session.detect_language(sentence[0], 2, &[44]), Ok(44));
    let exp = |id: u32| f64::from(logits[id as usize]).exp();
    let (found, probability) = session.language_probability(sentence[0], 2, &named).expect("one");
    let expected = exp(found) / named.into_iter().map(exp).sum::<f64>();
    assert!((f64::from(probability) - expected).abs() < 1e-6, "{probability} {expected}");
    assert_eq!(session.language_probability(sentence[0], 2, &[44]), Ok((44, 1.0)));
    let none = session.detect_language(sentence[0], 2, &[]);
    let text = "languages: expected at least one language, found none";
    assert_eq!(none.expect_err("none").to_string(), text);
    let outside = session.detect_language(sentence[0], 2, &[7, 131]);
    let text = "token 1: expected a token id below 131, the size of the vocabulary, found 131";
    assert_eq!(outside.expect_err("outside").to_string(), text);
    let start = session.detect_language(sentence[0], 500, &[7]);
    assert!(matches!(start, Err(Error::Token { found: 500, .. })), "{start:?}");
    // A rejected call takes no hypothesis slot.
    assert!(session.start(sentence[0]).is_ok());
    let full = session.detect_language(sentence[0], 2, &named);
    assert!(matches!(full, Err(Error::BeyondLimit { operand: "beams", .. })), "{full:?}");
}

/// Scores that are not finite tell no language, wherever among the languages they are.
#[test]
fn a_language_of_scores_that_are_not_finite_is_an_error() {
    let dims = dims(40);
    let named = [90, 7, 44, 130, 61];
    let (mut refused, mut found) = (0, 0);
    for number in 0..60 {
        let mut random = Random(number);
        let model = Model::from_fn(dims.config(), |_, shape, out: &mut [f32]| {
            out.fill_with(|| random.symmetric());
            if let [131, width] = *shape {
                // Products with this row may overflow, to either side or both.
                let id = named[number as usize % named.len()] as usize;
                let large = [3e38, -3e38][number as usize / named.len() % 2];
                for (i, x) in out[id * width..][..width].iter_mut().enumerate() {
                    *x = if number % 3 == 0 && i % 2 == 0 { -large } else { large };
                }
            }
            Ok(())
        });
        let model = model.expect("a model");
        let mut session = Session::new(&model, Limits::new(1, 40, 5)).expect("a session");
        let values = random_frames(&mut Random(1), 33);
        let mut sentence = [SourceId::default()];
        session.encode_features(&[Features::new(&values, BINS)], &mut sentence).expect("encoded");
        let row = session.start(sentence[0]).expect("a row");
        let step = [StepRow::new(row, 2)];
        let logits = session.step(&step).expect("stepped").to_vec();
        session.release(row).expect("released");
        let scores = named.map(|id| logits[id as usize]);
        let language = session.detect_language(sentence[0], 2, &named);
        if scores.iter().all(|&score| score < f32::INFINITY) {
            let best = (0..named.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            assert_eq!(language, Ok(named[best.expect("one")]), "{scores:?}");
            found += 1;
        } else {
            let error = language.expect_err("not finite");
            assert!(matches!(error, Error::NotFinite { found: None, .. }), "{scores:?}: {error}");
            refused += 1;
        }
        // The slot is free again.
        assert!(session.start(sentence[0]).is_ok());
    }
    assert!(refused >= 15 && found >= 5, "{refused} {found}");
}

#[test]
fn features_that_do_not_fit_are_errors() {
    let model = Model::load(&dims(40).checkpoint(8), Isa::best()).expect("a model");
    let mut session = Session::new(&model, Limits::new(2, 5, 5)).expect("a session");
    let values = random_frames(&mut Random(1), 12);
    let odd = |at: usize, x: f32| {
        let mut values = values[..10 * BINS].to_vec();
        values[at] = x;
        values
    };
    let (nan, infinite) = (odd(3 * BINS + 2, f32::NAN), odd(69, f32::NEG_INFINITY));
    let options = session.search_options();
    for (features, message) in [
        (Features::new(&[], BINS), "expected at least one frame, found none"),
        (
            Features::new(&values, BINS),
            "frames: expected at most 10 in a session that was planned with `source_tokens` = 5, found 12",
        ),
        (
            Features::new(&values[..77], BINS),
            "frames: expected at most 10 in a session that was planned with `source_tokens` = 5, found 11",
        ),
        (
            Features::new(&values[..70], 10),
            "expected frames of 7 numbers, which the encoder reads, found frames of 10",
        ),
        (
            Features::new(&values[..70], 0),
            "expected frames of 7 numbers, which the encoder reads, found frames of 0",
        ),
        (
            Features::new(&values[..69], BINS),
            "expected whole frames of 7 numbers, found 69 numbers",
        ),
        (
            Features::new(&nan, BINS),
            "features: expected a finite number at place 2 of frame 3, found NaN",
        ),
        (
            Features::new(&infinite, BINS),
            "features: expected a finite number at place 6 of frame 9, found -inf",
        ),
    ] {
        let good = Features::new(&values[..70], BINS);
        let expected = format!("source 1: {message}");
        let said = |error: Option<Error>| error.map(|error| error.to_string());
        let memory = session.encoder_output_of_features(&[good, features]).err();
        assert_eq!(said(memory), Some(expected.clone()));
        let mut sentences = [SourceId::default(); 2];
        let encoded = session.encode_features(&[good, features], &mut sentences).err();
        assert_eq!(said(encoded), Some(expected.clone()));
        let sources = [good, features].map(Source::of_features);
        let mut hooks = Hooks::default();
        let generated = session.generate(&sources, &options, &mut hooks, &mut |_| ()).err();
        assert_eq!(said(generated), Some(expected));
        let checked = session.check(&sources[1], &options).err();
        assert_eq!(said(checked), Some(format!("source 0: {message}")));
        assert_eq!(session.free_sentences(), 2);
    }
}

/// Ids for a model that reads features, features for a model that reads ids, and both at once.
#[test]
fn ids_and_features_are_not_confused() {
    let hears = Model::load(&dims(40).checkpoint(8), Isa::best()).expect("a model");
    let reads = Model::load(&Dims::small(Family::Marian).checkpoint(8), Isa::best()).expect("ok");
    let values = [0.5; 2 * BINS];
    let (ids, features) = (Source::new(&[3, 4]), Source::of_features(Features::new(&values, BINS)));
    let both = Source { tokens: &[3, 4], ..features };
    let refused = |model: &Model, source: &Source<'_>| {
        let mut session = Session::new(model, Limits::new(1, 8, 8)).expect("a session");
        let options = session.search_options();
        let checked = session.check(source, &options);
        let generated = session.generate(&[*source], &options, &mut Hooks::default(), &mut |_| ());
        assert_eq!(checked.clone().err(), generated.err());
        checked.err().map(|error| error.to_string())
    };
    let features_expected = "source 0: expected features, frames of 7 numbers, which the encoder reads, found token ids";
    assert_eq!(refused(&hears, &ids).as_deref(), Some(features_expected));
    let one_expected = "source 0: expected token ids or features, found both";
    assert_eq!(refused(&hears, &both).as_deref(), Some(one_expected));
    assert_eq!(refused(&reads, &both).as_deref(), Some(one_expected));
    let ids_expected = "source 0: expected token ids, which the encoder reads, found features";
    assert_eq!(refused(&reads, &features).as_deref(), Some(ids_expected));
    assert_eq!((refused(&hears, &features), refused(&reads, &ids)), (None, None));
    let mut session = Session::new(&hears, Limits::new(1, 8, 8)).expect("a session");
    let error = session.encoder_output(&[&[3, 4]]).expect_err("ids").to_string();
    assert_eq!(error, features_expected);
    let error = session.encoder_output_of_types(&[&[3]], &[&[0]]).expect_err("ids").to_string();
    assert!(error.contains("expected features"), "{error}");
    let mut session = Session::new(&reads, Limits::new(1, 8, 8)).expect("a session");
    let error =
        session.encoder_output_of_features(&[Features::new(&values, BINS)]).expect_err("features");
    assert_eq!(error.to_string(), ids_expected);
}

/// The tables of a model and a plan contain the convolutions and add up.
#[test]
fn convolutions_are_in_the_tables() {
    let dims = dims(40);
    let model = Model::load(&dims.checkpoint(8), Isa::best()).expect("a model");
    let text = model.to_string();
    assert!(text.contains("frames of 7 through two convolutions"), "{text}");
    assert!(text.contains("%  convolutions"), "{text}");
    // No file has a bias of the logits. It is stored as zeros, and counted.
    let written = dims.tensors().iter().map(|(_, s)| s.iter().product::<usize>()).sum::<usize>();
    let trained = written + dims.vocabulary;
    assert!(text.contains(&format!(" {trained} parameters")), "{text}");
    let plan = Plan::new(&model, Limits::new(2, 40, 8)).expect("a plan");
    assert!(plan.to_string().contains("%  frames of features"), "{plan}");
    let beyond = Plan::new(&model, Limits::new(1, 41, 8)).map(|_| ()).expect_err("too many");
    let said = "the limit `source_tokens`: expected at most 40, which the model allows, found 41";
    assert_eq!(beyond.to_string(), said);
    let values = vec![0.25; 4000];
    let printed = format!("{:?}", Source::of_features(Features::new(&values, 80)));
    assert!(printed.len() < 200 && printed.contains("frames: 50"), "{printed}");
}

/// A random history and random scores, made as `generate_timestamps.py` makes them.
fn case(
    random: &mut Random,
    eos: usize,
    first: u32,
    vocabulary: usize,
) -> (usize, Vec<u32>, Option<usize>, Vec<f32>) {
    let prompt = 1 + random.below(4);
    let mut history = random.ids(prompt, vocabulary);
    let mut last = first;
    for _ in 0..random.below(10) {
        match random.below(5) {
            0 => history.push(random.below(vocabulary) as u32),
            1 | 2 => history.push(random.below(eos) as u32),
            _ => {
                last = (last + random.below(4) as u32).min(vocabulary as u32 - 1);
                history.push(last);
            }
        }
    }
    let latest = Some(random.below(8)).filter(|&latest| latest < 7);
    let lift = random.below(9) as f32 - 5.0;
    let scores = (0..vocabulary as u32).map(|token| {
        let score = (random.bits() >> 40) as f32 / (1 << 21) as f32 - 4.0;
        let score = score + if token >= first { lift } else { 0.0 };
        if random.below(8) == 0 { f32::NEG_INFINITY } else { score }
    });
    let scores = scores.collect();
    (prompt, history, latest, scores)
}

#[test]
fn timestamps_agree_with_transformers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/search/timestamps.json");
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("goldens")).expect("JSON");
    let number = |key: &str| golden[key].as_u64().expect(key) as usize;
    let (vocabulary, eos, no_timestamps) =
        (number("vocabulary"), number("eos"), number("no_timestamps") as u32);
    let mut random = Random(number("seed") as u64);
    let allowed = golden["allowed"].as_array().expect("a list");
    assert_eq!(allowed.len(), 2000);
    for (index, expected) in allowed.iter().enumerate() {
        let (prompt_len, history, max_initial, given) =
            case(&mut random, eos, no_timestamps + 1, vocabulary);
        let mut rule = Timestamps { no_timestamps, eos: eos as u32, max_initial };
        let context =
            Context { sentence: 0, source: &[], history: &history, prompt_len, max_length: 40 };
        let mut scores = given.clone();
        rule.process(&context, &mut scores).expect("no scratch needed");
        let expected = expected.as_str().expect("digits");
        let expected = u64::from_str_radix(expected, 16).expect("digits");
        for (token, (&found, given)) in scores.iter().zip(given).enumerate() {
            let kept = if expected >> token & 1 == 1 { given } else { f32::NEG_INFINITY };
            assert_eq!(found, kept, "case {index}, token {token}, after {history:?}");
        }
    }
}

/// Ids outside of the scores, empty scores, a prompt longer than the history: no panic.
#[test]
fn the_timestamp_processor_never_panics() {
    let context = |history, prompt_len| Context {
        sentence: 0,
        source: &[],
        history,
        prompt_len,
        max_length: 40,
    };
    for no_timestamps in [0, 3, 8, u32::MAX] {
        for eos in [0, 5, u32::MAX] {
            for max_initial in [None, Some(0), Some(usize::MAX)] {
                let mut rule = Timestamps { no_timestamps, eos, max_initial };
                for history in [&[][..], &[1, 2], &[u32::MAX, 1, u32::MAX], &[1, u32::MAX]] {
                    for prompt_len in [0, 1, 9] {
                        for len in [0, 1, 9] {
                            let mut scores = vec![0.5; len];
                            let context = context(history, prompt_len);
                            rule.process(&context, &mut scores).expect("never fails");
                        }
                    }
                }
            }
        }
    }
}

/// Keys of Whisper configurations: bins, positions, layers and biases of both stacks, prompts.
#[test]
fn whisper_reads_its_files() {
    let config = Config::from_hugging_face(r#"{"model_type": "whisper"}"#).expect("defaults");
    let bins = config.bins.expect("features");
    assert_eq!((bins, config.source_vocab, config.target_vocab), (80, 0, 51_865));
    assert_eq!(config.max_positions(Side::Encoder), Some(1500));
    assert_eq!(config.max_positions(Side::Decoder), Some(448));
    assert_eq!(
        (config.embedding_scale, config.biases.key, config.biases.value),
        (1.0, false, true)
    );
    assert_eq!(config.settings.options.begin_suppress, [220, 50_256]);
    assert!(config.defaults.contains(&("num_mel_bins", "80".to_owned())));
    assert!(config.defaults.contains(&("begin_suppress_tokens", "[220, 50256]".to_owned())));
    // distil-large-v3, and a key that is not read.
    let distilled = r#"{"model_type": "whisper", "d_model": 1280, "num_mel_bins": 128,
        "encoder_layers": 32, "decoder_layers": 2, "encoder_attention_heads": 20,
        "decoder_attention_heads": 20, "vocab_size": 51866, "scale_embedding": true,
        "begin_suppress_tokens": null, "suppress_tokens": [],
        "forced_decoder_ids": [[1, 50259], [2, 50360], [3, 50364]]}"#;
    let mut config = Config::from_hugging_face(distilled).expect("a configuration");
    assert_eq!(config.bins, Some(128));
    assert_eq!((config.encoder.layers, config.decoder.map(|stack| stack.layers)), (32, Some(2)));
    assert_eq!((config.embedding_scale, config.settings.options.begin_suppress.len()), (1.0, 0));
    let asked = &config.transcription;
    assert_eq!(asked.forced, [Some(50_259), Some(50_360), Some(50_364)]);
    assert_eq!(asked.prefix(None, None, false), [50_259, 50_360, 50_364]);
    assert!(!asked.wants_language());
    // The newer file has the prompt of the older one, and names the parts of it.
    let newer = r#"{"lang_to_id": {"<|en|>": 50259, "<|de|>": 50261}, "no_timestamps_token_id": 50364,
        "task_to_id": {"transcribe": 50360, "translate": 50359}, "prev_sot_token_id": 50362}"#;
    config.set_generation_config(newer).expect("settings");
    let asked = &config.transcription;
    assert_eq!(asked.prefix(None, None, true), [50_259, 50_360]);
    assert_eq!(
        asked.prefix(Some(50_261), asked.task("translate"), false),
        [50_261, 50_359, 50_364]
    );
    assert_eq!((asked.language("de"), asked.language("<|de|>")), (Some(50_261), Some(50_261)));
    assert_eq!(
        (asked.language("tlh"), asked.task("sing"), asked.previous),
        (None, None, Some(50_362))
    );
    // The language is to be detected.
    config.set_generation_config(&newer.replace('}', "")[..]).expect_err("no JSON");
    let detected = newer.replacen('{', r#"{"forced_decoder_ids": [[1, null], [2, 50360]], "#, 1);
    config.set_generation_config(&detected).expect("settings");
    let asked = &config.transcription;
    assert!(asked.wants_language());
    assert_eq!(asked.prefix(Some(50_261), None, false), [50_261, 50_360, 50_364]);
    assert_eq!(asked.prefix(None, None, false), [50_360, 50_364]);
    for (more, said) in [
        (r#""num_mel_bins": 0"#, "bins of a frame: expected at least 1, found 0"),
        (r#""forced_decoder_ids": [[2, 5]]"#, "from 1 on without a gap"),
        (r#""forced_decoder_ids": [[1, 5], [1, 6]]"#, "from 1 on without a gap"),
        (r#""forced_decoder_ids": [[1, -5]]"#, "from 1 on without a gap"),
        (
            r#""forced_decoder_ids": [[1, 99999]]"#,
            "forced_decoder_ids: expected an id below the target",
        ),
        (r#""lang_to_id": [1]"#, "an object of names and token ids"),
        (r#""lang_to_id": {"a": -1}"#, "an object of names and token ids"),
        (r#""task_to_id": {"a": 99999}"#, "task_to_id: expected an id below the target vocabulary"),
        (r#""no_timestamps_token_id": 51865"#, "no_timestamps_token_id: expected an id below"),
        (r#""max_source_positions": 0"#, "max positions of the encoder: expected at least 1"),
        (
            r#""is_encoder_decoder": false"#,
            "is_encoder_decoder: expected true, because only encoder-decoder models are supported, found false",
        ),
    ] {
        let text = format!(r#"{{"model_type": "whisper", {more}}}"#);
        let error = Config::from_hugging_face(&text).expect_err(more).to_string();
        assert!(error.contains(said), "{more}: {error}");
    }
}
