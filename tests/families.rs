//! Every family, one row of a table each, compared with transformers on a small random model.
//!
//! `generate_families.py` computed the values in `tests/golden/families/*/expected.safetensors`; see
//! `tests/golden/README.md`.

use crate::effort::all_cases_on;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{BeamOptions, Hooks, SearchOptions, Strategy, Timestamps};
use simdformer::{Error, Event, Features, Limits, Model, Session, Source, SourceId};
use std::path::{Path, PathBuf};

/// The largest difference allowed, relative to the largest magnitude of the expected tensor.
const TOLERANCE: f32 = 2e-5;

/// The largest difference allowed in the score of a beam.
const SCORE: f32 = 1e-5;

/// The longest source and target of the goldens.
const LONGEST: usize = 21;

/// Folder, family, and whether there is a decoder.
const FAMILIES: [(&str, Family, bool); 22] = [
    ("bert", Family::Bert, false),
    ("bert_classifier", Family::Bert, false),
    ("roberta", Family::Roberta, false),
    ("xlm_roberta_classifier", Family::XlmRoberta, false),
    ("camembert", Family::Camembert, false),
    ("distilbert_classifier", Family::DistilBert, false),
    ("mpnet", Family::MpNet, false),
    ("pegasus", Family::Pegasus, true),
    ("blenderbot", Family::Blenderbot, true),
    ("blenderbot_small", Family::BlenderbotSmall, true),
    ("mvp", Family::Mvp, true),
    ("plbart", Family::PlBart, true),
    ("fsmt", Family::Fsmt, true),
    ("seamless_m4t", Family::SeamlessM4t, true),
    ("seamless_m4t_v2", Family::SeamlessM4tV2, true),
    ("t5", Family::T5, true),
    ("t5_v1_1", Family::T5, true),
    ("mt5", Family::Mt5, true),
    ("umt5", Family::Umt5, true),
    ("t5_encoder", Family::T5, false),
    ("whisper", Family::Whisper, true),
    ("whisper_english", Family::Whisper, true),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families").join(name)
}

/// The tensors that transformers computed.
pub(crate) struct Expected(Vec<u8>);

impl Expected {
    pub(crate) fn from_folder(folder: &Path) -> Self {
        Self(std::fs::read(folder.join("expected.safetensors")).expect("expected tensors"))
    }

    pub(crate) fn get(&self, name: &str) -> Option<(Vec<usize>, Vec<u8>)> {
        let file = safetensors::SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let tensor = file.tensor(name).ok()?;
        Some((tensor.shape().to_vec(), tensor.data().to_vec()))
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let (_, data) = self.get(name).expect(name);
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        let (_, data) = self.get(name).expect(name);
        let id = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as u32;
        data.chunks_exact(8).map(id).collect()
    }

    /// `features.0` and so on, each with the number of values in a frame.
    fn features(&self) -> Vec<(Vec<f32>, usize)> {
        let names = (0..).map(|i| format!("features.{i}"));
        let one = |name: String| {
            let (shape, _) = self.get(&name)?;
            Some((self.floats(&name), shape[1]))
        };
        names.map_while(one).collect()
    }

    /// `name.0`, `name.1` and so on, as many as there are.
    pub(crate) fn all(&self, name: &str) -> Vec<Vec<u32>> {
        let names = (0..).map(|i| format!("{name}.{i}"));
        names.take_while(|name| self.get(name).is_some()).map(|name| self.ids(&name)).collect()
    }

    /// Rows of ids. A row ends before its first negative value.
    fn rows(&self, name: &str) -> Vec<Vec<u32>> {
        let (shape, _) = self.get(name).expect(name);
        let rows = self.ids(name);
        let rows = rows.chunks(shape[1]);
        rows.map(|row| row.iter().copied().take_while(|&id| id != u32::MAX).collect()).collect()
    }
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0f32, |m, x| if x.is_nan() { f32::INFINITY } else { m.max(x) });
    assert!(worst <= TOLERANCE * largest, "{what}: off by {worst}, largest {largest}");
}

/// What the encoder of a golden reads.
pub(crate) enum Sources {
    Ids(Vec<Vec<u32>>),
    /// Values, and the number of values in a frame.
    Features(Vec<(Vec<f32>, usize)>),
}

impl Sources {
    pub(crate) fn from_expected(expected: &Expected) -> Self {
        match expected.all("input_ids") {
            ids if !ids.is_empty() => Self::Ids(ids),
            _ => Self::Features(expected.features()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.positions().len()
    }

    pub(crate) fn positions(&self) -> Vec<usize> {
        match self {
            Self::Ids(ids) => ids.iter().map(Vec::len).collect(),
            Self::Features(_) => self.features().iter().map(Features::positions).collect(),
        }
    }

    fn features(&self) -> Vec<Features<'_>> {
        match self {
            Self::Ids(_) => Vec::new(),
            Self::Features(all) => {
                all.iter().map(|(values, bins)| Features::new(values, *bins)).collect()
            }
        }
    }

    pub(crate) fn memory<'s>(&self, session: &'s mut Session<'_>) -> &'s [f32] {
        let memory = match self {
            Self::Ids(ids) => session.encoder_output(&borrowed(ids)),
            Self::Features(_) => session.encoder_output_of_features(&self.features()),
        };
        memory.expect("a memory")
    }

    fn encode(&self, session: &mut Session<'_>) -> Vec<SourceId> {
        let mut sentences = vec![SourceId::default(); self.len()];
        let encoded = match self {
            Self::Ids(ids) => session.encode(&borrowed(ids), &mut sentences),
            Self::Features(_) => session.encode_features(&self.features(), &mut sentences),
        };
        encoded.expect("encoded");
        sentences
    }

    pub(crate) fn requests(&self) -> Vec<Source<'_>> {
        match self {
            Self::Ids(ids) => ids.iter().map(|tokens| Source::new(tokens)).collect(),
            Self::Features(_) => self.features().into_iter().map(Source::of_features).collect(),
        }
    }
}

fn borrowed(sources: &[Vec<u32>]) -> Vec<&[u32]> {
    sources.iter().map(Vec::as_slice).collect()
}

fn check(name: &str, family: Family, decodes: bool) {
    let checkpoint = Checkpoint::open(folder(name)).expect(name);
    assert_eq!(checkpoint.config().family, family);
    assert_eq!(checkpoint.unused(), [] as [&str; 0], "{name}");
    let expected = Expected::from_folder(&folder(name));
    let sources = Sources::from_expected(&expected);
    let lengths = sources.positions();
    assert!(lengths.contains(&1) && lengths.contains(&LONGEST), "{name}: {lengths:?}");
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect(name);
        assert_eq!(model.config().decoder.is_some(), decodes, "{name}");
        let what = format!("{name} {isa}");
        check_encoder(&what, &model, &expected, &sources);
        if decodes {
            check_logits(&what, &model, &expected, &sources);
            if all_cases_on(isa) {
                check_searches(&what, &model, &expected, &sources);
            }
            check_languages(&what, &model, &expected, &sources);
        } else {
            decoding_is_an_error(&what, &model);
        }
    }
}

fn limits(model: &Model, sources: &Sources) -> Limits {
    let target = if model.config().decoder.is_some() { LONGEST } else { 0 };
    Limits { beams: 4, ..Limits::new(sources.len(), LONGEST, target) }
}

fn check_encoder(what: &str, model: &Model, expected: &Expected, sources: &Sources) {
    let d = model.config().d_model;
    let mut session = Session::new(model, limits(model, sources)).expect("a session");
    let mut all = vec![("encoder", Vec::new())];
    if expected.get("typed.0").is_some() {
        all.push(("typed", expected.all("token_type_ids")));
    }
    for (kind, types) in all {
        let memory = match (kind, sources) {
            ("typed", Sources::Ids(ids)) => {
                let memory = session.encoder_output_of_types(&borrowed(ids), &borrowed(&types));
                memory.expect("a memory")
            }
            _ => sources.memory(&mut session),
        };
        let mut start = 0;
        for (i, len) in sources.positions().into_iter().enumerate() {
            let end = start + len * d;
            let name = format!("{kind}.{i}");
            assert_close(&format!("{what} {name}"), &memory[start..end], &expected.floats(&name));
            start = end;
        }
    }
}

fn check_logits(what: &str, model: &Model, expected: &Expected, sources: &Sources) {
    let mut session = Session::new(model, limits(model, sources)).expect("a session");
    let sentences = sources.encode(&mut session);
    let targets = expected.all("decoder_input_ids");
    assert_eq!(targets.len(), sources.len());
    for (i, (&sentence, tokens)) in sentences.iter().zip(&targets).enumerate() {
        let row = session.start(sentence).expect("a row");
        let mut found = Vec::new();
        let mut each = |_: usize, logits: &[f32]| found.extend_from_slice(logits);
        session.prefill(row, tokens, Some(&mut each)).expect("prefilled");
        let name = format!("logits.{i}");
        assert_close(&format!("{what} {name}"), &found, &expected.floats(&name));
    }
}

type Answers = Vec<Vec<(Vec<u32>, f32)>>;

fn answers(
    model: &Model,
    requests: &[Source<'_>],
    limits: Limits,
    options: &SearchOptions,
    timestamps: Option<Timestamps>,
) -> Answers {
    let mut session = Session::new(model, limits).expect("a session");
    let mut answers = vec![Vec::new(); requests.len()];
    let options = SearchOptions { timestamps, ..options.clone() };
    session
        .generate(requests, &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                answers[done.source] =
                    done.hypotheses().map(|h| (h.tokens.to_vec(), h.score)).collect();
            }
        })
        .expect("generated");
    answers
}

/// The timestamp processor, if the checkpoint has timestamps.
fn timestamps(model: &Model) -> Option<Timestamps> {
    let config = model.config();
    let transcription = &config.transcription;
    let (no_timestamps, eos) = (transcription.no_timestamps?, *config.tokens.eos.first()?);
    Some(Timestamps { no_timestamps, eos, max_initial: transcription.max_initial_timestamp })
}

fn check_searches(what: &str, model: &Model, expected: &Expected, sources: &Sources) {
    let rule = timestamps(model);
    assert_eq!(rule.is_some(), expected.get("timed.0").is_some(), "{what}");
    check_search(what, model, expected, sources, ["greedy", "beam", "prefix"], None);
    if rule.is_some() {
        let names = ["timed", "timed_beam", "timed_prefix"];
        check_search(what, model, expected, sources, names, rule);
    }
}

fn check_search(
    what: &str,
    model: &Model,
    expected: &Expected,
    sources: &Sources,
    [greedy, beam, prefix]: [&str; 3],
    timestamps: Option<Timestamps>,
) {
    let limits = limits(model, sources);
    let prefixes = expected.all(prefix);
    let mut requests = sources.requests();
    for (request, prefix) in requests.iter_mut().zip(&prefixes) {
        request.prefix = prefix;
    }
    let mut options = model.config().search_options();
    (options.max_new_tokens, options.max_length) = (Some(14), None);
    options.strategy = Strategy::Greedy;
    for scores in [true, false] {
        options.scores = scores;
        let found = answers(model, &requests, limits, &options, timestamps);
        for (i, found) in found.iter().enumerate() {
            let name = format!("{greedy}.{i}");
            assert_eq!(found[0].0, expected.ids(&name), "{what} {name}, scores {scores}");
        }
    }
    options.strategy = Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() });
    options.num_return_sequences = 4;
    let found = answers(model, &requests, limits, &options, timestamps);
    for (i, found) in found.iter().enumerate() {
        let sequences: Vec<Vec<u32>> = found.iter().map(|(tokens, _)| tokens.clone()).collect();
        assert_eq!(sequences, expected.rows(&format!("{beam}.{i}")), "{what} {beam}.{i}");
        let scores = expected.floats(&format!("{beam}_scores.{i}"));
        for ((_, found), expected) in found.iter().zip(scores) {
            assert!((found - expected).abs() <= SCORE, "{what} {beam}.{i}: {found}, {expected}");
        }
    }
}

/// The detected language, and the prefix that follows from it.
fn check_languages(what: &str, model: &Model, expected: &Expected, sources: &Sources) {
    let config = model.config();
    let transcription = &config.transcription;
    let known: Vec<u32> = transcription.languages.iter().map(|&(_, id)| id).collect();
    let detected = expected.all("language");
    assert_eq!(transcription.wants_language(), !detected.is_empty(), "{what}");
    let mut session = Session::new(model, limits(model, sources)).expect("a session");
    let sentences = sources.encode(&mut session);
    let mut found = Vec::new();
    for (&sentence, language) in sentences.iter().zip(&detected) {
        let start = config.tokens.decoder_start.expect("a start");
        found.push(session.detect_language(sentence, start, &known).expect("a language"));
        assert_eq!(found.last(), language.first(), "{what}");
    }
    for (timed, name) in [(false, "prefix"), (true, "timed_prefix")] {
        for (i, prefix) in expected.all(name).iter().enumerate() {
            let language = found.get(i).copied();
            assert_eq!(&transcription.prefix(language, None, timed), prefix, "{what}");
        }
    }
}

/// Every call that needs a decoder is an error that says that there is none.
fn decoding_is_an_error(what: &str, model: &Model) {
    let mut session = Session::new(model, Limits::encoder(2, 5)).expect("a session");
    let options = SearchOptions { max_new_tokens: Some(3), ..model.config().search_options() };
    let source = Source::new(&[3, 4]);
    let refused = Err(Error::NO_DECODER);
    assert_eq!(session.check(&source, &options), refused, "{what}");
    assert_eq!(session.encode(&[&[3, 4]], &mut [SourceId::default()]), refused, "{what}");
    assert_eq!(session.start(SourceId::default()), Err(Error::NO_DECODER), "{what}");
    assert_eq!(session.step(&[]).err(), Some(Error::NO_DECODER), "{what}");
    assert_eq!(session.step_argmax(&[], &|_, _| false).err(), Some(Error::NO_DECODER));
    assert_eq!(session.prefill(Default::default(), &[1], None), refused, "{what}");
    let generated = session.generate(&[source], &options, &mut Hooks::default(), &mut |_| ());
    assert_eq!(generated.err(), Some(Error::NO_DECODER), "{what}");
    let aligned = session.align(SourceId::default(), &[1], (0, &[0]), &mut [], &mut []);
    assert_eq!(aligned, Err(Error::NO_DECODER), "{what}");
    let text = "the model: expected one with a decoder, found no decoder: call `encoder_output`, which gives hidden states";
    assert_eq!(Error::NO_DECODER.to_string(), text);
    let planned = Session::new(model, Limits::new(2, 5, 1)).err();
    let message = planned.map(|error| error.to_string()).unwrap_or_default();
    let expected = "the limit `target_tokens`: expected at most 0, which the model allows, found 1";
    assert_eq!(message, expected, "{what}");
}

#[test]
fn every_family_agrees_with_transformers() {
    for (name, family, decodes) in FAMILIES {
        check(name, family, decodes);
    }
}

/// The same bits alone, in any batch, in any order and on any number of threads, also with token types.
#[test]
fn encoders_give_the_same_bits_alone_and_in_a_batch() {
    for (name, ..) in FAMILIES.into_iter().filter(|&(.., decodes)| !decodes) {
        let checkpoint = Checkpoint::open(folder(name)).expect(name);
        let sources = Expected::from_folder(&folder(name)).all("input_ids");
        let all = Sources::Ids(sources.clone());
        let known = checkpoint.config().token_types.max(1) as u32;
        let types: Vec<Vec<u32>> = sources
            .iter()
            .map(|source| (0..source.len() as u32).map(|i| i / 2 % known).collect())
            .collect();
        for isa in Isa::available() {
            let model = Model::load(&checkpoint, isa).expect(name);
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let alone: Vec<Vec<u32>> = sources
                .iter()
                .zip(&types)
                .map(|(source, types)| {
                    // A session with a plan of the size of the source.
                    let limits = Limits::encoder(1, source.len());
                    let mut session = Session::new(&model, limits).expect("a session");
                    bits(session.encoder_output_of_types(&[source], &[types]).expect("a memory"))
                })
                .collect();
            let mut session = Session::new(&model, limits(&model, &all)).expect("a session");
            for shift in 0..sources.len() {
                let order: Vec<usize> =
                    (0..sources.len()).map(|i| (i * 5 + shift) % sources.len()).collect();
                let some: Vec<&[u32]> = order.iter().map(|&i| &sources[i][..]).collect();
                let kinds: Vec<&[u32]> = order.iter().map(|&i| &types[i][..]).collect();
                let expected: Vec<u32> = order.iter().flat_map(|&i| alone[i].clone()).collect();
                let mut found =
                    || bits(session.encoder_output_of_types(&some, &kinds).expect("a memory"));
                assert_eq!(found(), expected, "{name} {isa} {order:?}");
                #[cfg(feature = "rayon")]
                {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
                    session.set_threads(simdformer::Threads::Rayon);
                    let found = pool.expect("a pool").install(|| {
                        bits(session.encoder_output_of_types(&some, &kinds).expect("a memory"))
                    });
                    session.set_threads(simdformer::Threads::Serial);
                    assert_eq!(found, expected, "{name} {isa} {order:?}, three threads");
                }
            }
        }
    }
}

/// Token types that do not fit are errors with what was expected.
#[test]
fn wrong_token_types_are_errors() {
    let model = Model::open(folder("bert")).expect("a model");
    let mut session = Session::new(&model, Limits::encoder(2, 5)).expect("a session");
    let mut said = |types: &[&[u32]]| {
        let result = session.encoder_output_of_types(&[&[3, 4], &[5]], types);
        result.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&[]), "types: expected types for the tokens of all 2 sources, found 0");
    assert_eq!(
        said(&[&[0, 1], &[0, 0]]),
        "source 1: types: expected a type for each of 1 tokens, found 2"
    );
    assert_eq!(
        said(&[&[0, 2], &[0]]),
        "source 0: types: expected one of 2 types of the model (counted from 0) for token 1, found 2"
    );
    assert_eq!(said(&[&[0, 1], &[1]]), "");
}

/// Details of T5 configurations: the logit scale follows from the tie, the gate from the activation's name,
/// and the decoder start may be absent.
#[test]
fn t5_configurations_set_scale_gate_and_start() {
    use simdformer::config::{Activation, Config};
    let read = |kind: &str, more: &str| {
        Config::from_hugging_face(&format!(r#"{{"model_type": "{kind}", "d_model": 64 {more}}}"#))
    };
    let start = r#", "decoder_start_token_id": 0"#;
    for (kind, more, scale) in [
        ("t5", "", 0.125),
        ("t5", r#", "tie_word_embeddings": true"#, 0.125),
        ("t5", r#", "tie_word_embeddings": false"#, 1.0),
        // As version 5 of transformers saves a T5 v1.1.
        ("t5", r#", "tie_word_embeddings": true, "scale_decoder_outputs": false"#, 1.0),
        ("t5", r#", "tie_word_embeddings": false, "scale_decoder_outputs": true"#, 0.125),
        ("mt5", "", 1.0),
        ("umt5", "", 1.0),
    ] {
        let config = read(kind, &format!("{start}{more}")).expect("a configuration");
        assert_eq!(config.logit_scale, scale, "{kind} {more}");
        assert_eq!(config.attention_scale, Some(1.0));
    }
    for (name, activation, gated) in [
        ("relu", Activation::Relu, false),
        ("gated-gelu", Activation::GeluTanh, true),
        ("gelu", Activation::Gelu, false),
        ("gated-silu", Activation::Silu, true),
    ] {
        let more = format!(r#"{start}, "feed_forward_proj": "{name}""#);
        let config = read("t5", &more).expect("a configuration");
        assert_eq!((config.activation, config.gated), (activation, gated), "{name}");
    }
    let said =
        |more: &str| read("t5", more).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(
        said(""),
        "decoder_start_token_id: expected a value, found none: the key is missing"
    );
    let unknown = said(&format!(r#"{start}, "feed_forward_proj": "gated-rope""#));
    assert!(unknown.contains("gated-rope"), "{unknown}");
    let encoder =
        read("t5", r#", "architectures": ["T5EncoderModel"], "is_encoder_decoder": false"#);
    assert!(encoder.expect("an encoder").decoder.is_none());
    assert!(said(r#", "is_encoder_decoder": false"#).contains("is_encoder_decoder: expected true"));
}

/// Some files have the embedding of a T5 under only one of its names. An output matrix that is equal to it
/// is tied.
#[test]
fn the_embedding_of_a_t5_may_have_any_of_its_names() {
    use simdformer::checkpoint::Dtype;
    use simdformer::config::TiedWeights;
    let file = std::fs::read(folder("t5").join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("a safetensors file");
    let given = Checkpoint::open(folder("t5")).expect("a checkpoint");
    let config = given.config();
    let both = TiedWeights { source_target: true, target_output: true };
    assert_eq!(config.ties, both);
    for names in [
        &["shared.weight"][..],
        &["encoder.embed_tokens.weight"],
        &["decoder.embed_tokens.weight"],
        &["shared.weight", "lm_head.weight"],
    ] {
        let find = |name: &str| {
            let name = match names.contains(&name) {
                true => "shared.weight",
                false if name == "shared.weight" => return None,
                false => name,
            };
            let tensor = tensors.tensor(name).ok()?;
            let shape = tensor.shape().to_vec();
            Some((Dtype::F32, shape, tensor.data()))
        };
        let checkpoint = Checkpoint::from_tensors(config.clone(), find).expect("a checkpoint");
        assert_eq!(checkpoint.config().ties, both, "{names:?}");
    }
    let untied = Checkpoint::open(folder("t5_v1_1")).expect("a checkpoint");
    assert_eq!(untied.config().ties, TiedWeights { source_target: true, target_output: false });
}

/// An unsupported architecture is an error with the reason. An unknown one is an error that lists the
/// supported ones.
#[test]
fn unsupported_architectures_are_named() {
    use simdformer::config::Config;
    let said = |name: &str| {
        let text = format!(r#"{{"model_type": "{name}"}}"#);
        Config::from_hugging_face(&text).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (name, part) in [
        ("led", "attention"),
        ("longt5", "attention"),
        ("pegasus_x", "attention"),
        ("bigbird_pegasus", "attention"),
        ("prophetnet", "streams"),
        ("xlm-prophetnet", "streams"),
        ("switch_transformers", "experts"),
        ("nllb-moe", "experts"),
        ("t5gemma", "rotary"),
        ("encoder-decoder", "configuration of its own"),
        ("gpt2", "no encoder"),
        ("llama", "no encoder"),
        ("modernbert", "rotary"),
        ("nomic_bert", "rotary"),
        ("new", "rotary"),
        ("jina_bert", "ALiBi"),
        ("deberta-v2", "disentangled"),
        ("electra", "width"),
        ("albert", "share"),
    ] {
        let message = said(name);
        let start = format!(
            "model_type: expected a supported architecture, found \"{name}\", which is not supported: "
        );
        assert!(message.starts_with(&start) && message.contains(part), "{message}");
    }
    let unknown = said("transfomer");
    assert!(unknown.contains("expected one of marian, bart"), "{unknown}");
}
