//! Promise 4: bad input is an error that says what was expected and what came, never a panic, and never
//! the same words for two different mistakes. What is refused leaves no trace: a session goes on giving
//! the bits that it gave before.

#[path = "support/random_model.rs"]
#[allow(dead_code, reason = "not every test draws numbers")]
mod random_model;

use random_model::Dims;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Family, Positions};
use simdformer::kernels::embedding::embed;
use simdformer::kernels::norm::{LayerNorm, layer_norm};
use simdformer::kernels::position::{PositionEncoding, encode};
use simdformer::kernels::softmax::{FullyMasked, softmax};
use simdformer::kernels::topk::{argmax, top_k};
use simdformer::kernels::{
    AttentionOptions, CacheMut, CacheShape, CachedSequence, Epilogue, Heads, HeadsMut, Isa, Matrix,
    MatrixMut, PackedMatrix, Parallelism, Residual, Sequence, attention, attention_cached,
    attention_scratch, attention_step, gemm,
};
use simdformer::search::{
    AllowedTokens, BeamOptions, Context, Hooks, LogitsProcessor, SampleOptions, SearchError,
    SearchOptions, Strategy,
};
use simdformer::{Limits, Model, Row, Sentence, Session, Source, StepRow};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What an error says; `None` if there was none.
fn said<T, E: std::error::Error>(result: Result<T, E>) -> Option<String> {
    result.err().map(|error| error.to_string())
}

/// Messages that have been seen, and the mistakes they were about.
#[derive(Default)]
struct Seen(HashMap<String, String>);

impl Seen {
    /// Checks that `mistake` was refused with words that hold all of `expected` and that no other
    /// mistake got.
    fn check(&mut self, mistake: &str, message: Option<String>, expected: &[&str]) {
        let Some(message) = message else { panic!("{mistake}: accepted") };
        for part in expected {
            assert!(message.contains(part), "{mistake}: \"{message}\" does not say \"{part}\"");
        }
        assert!(message.len() > 12 && message.is_ascii(), "{mistake}: \"{message}\"");
        assert!(
            !message.contains('{') || message.contains('"'),
            "{mistake}: Debug in \"{message}\""
        );
        if let Some(other) = self.0.insert(message.clone(), mistake.to_owned()) {
            panic!("\"{message}\" for {mistake} and for {other}");
        }
    }
}

const LIMITS: Limits = Limits {
    sentences: 2,
    source_tokens: 8,
    batch_tokens: 12,
    target_tokens: 5,
    beams: 2,
    end_tokens: 2,
};

fn dims() -> Dims {
    Dims::small(Family::Marian)
}

fn model() -> Model {
    Model::load(&dims().checkpoint(1), Isa::best()).expect("a model")
}

/// Bits of an ordinary use.
fn healthy(session: &mut Session) -> Vec<u32> {
    session.clear();
    let mut sentences = [Sentence::default(); 2];
    session.encode(&[&[5, 6, 7, 0], &[8, 0]], &mut sentences).expect("encoded");
    let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
    session.prefill(rows[0], &[2, 9], None).expect("prefilled");
    let fork = session.fork(rows[0]).expect("a fork");
    let steps = [(rows[0], 3), (rows[1], 4), (fork, 5)].map(|(row, token)| StepRow { row, token });
    let logits = session.step(&steps).expect("stepped");
    let mut bits: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
    let options = SearchOptions { max_new_tokens: Some(3), start: 2, ..SearchOptions::default() };
    session
        .generate(&[Source::new(&[5, 6, 0])], &options, &mut Hooks::default(), &mut |done| {
            bits.extend(done.hypotheses().flat_map(|h| h.tokens.to_vec()));
        })
        .expect("generated");
    session.clear();
    bits
}

/// A sentence and a hypothesis about it.
fn begin(session: &mut Session) -> (Sentence, Row) {
    let mut sentence = [Sentence::default()];
    session.encode(&[&[5, 6, 0]], &mut sentence).expect("encoded");
    (sentence[0], session.start(sentence[0]).expect("a row"))
}

type Wrong = fn(&mut Session) -> Option<String>;

/// Wrong calls of a session with [`LIMITS`].
const CALLS: &[(&str, &[&str], Wrong)] = &[
    ("fewer places than sources", &["1 sources", "found 0"], |s| said(s.encode(&[&[1]], &mut []))),
    ("an empty source", &["source sentence 1"], |s| {
        said(s.encode(&[&[1], &[]], &mut [Sentence::default(); 2]))
    }),
    ("a source that is too long", &["`source_tokens` = 8", "9"], |s| {
        said(s.encode(&[&[1; 9]], &mut [Sentence::default()]))
    }),
    ("sources too long together", &["`batch_tokens` = 12", "14"], |s| {
        said(s.encode(&[&[1; 7], &[1; 7]], &mut [Sentence::default(); 2]))
    }),
    ("a source id outside the vocabulary", &["token 2", "id 131", "131"], |s| {
        said(s.encode(&[&[1, 2, 131]], &mut [Sentence::default()]))
    }),
    ("more sources than slots", &["2 sentence slots", "3"], |s| {
        said(s.encode(&[&[1], &[2], &[3]], &mut [Sentence::default(); 3]))
    }),
    ("more sources than free slots", &["1 sentence slots", "2"], |s| {
        begin(s);
        said(s.encode(&[&[1], &[2]], &mut [Sentence::default(); 2]))
    }),
    ("a memory of too many", &["`sentences` = 2", "3"], |s| said(s.memory(&[&[1], &[2], &[3]]))),
    ("a memory of nothing at all", &["source sentence 0"], |s| said(s.memory(&[&[]]))),
    ("starting about no sentence", &["no such sentence", "slot 0"], |s| {
        said(s.start(Sentence::default()))
    }),
    ("starting about a sentence that another replaced", &["no such sentence", "slot 1"], |s| {
        begin(s);
        let (gone, _) = begin(s);
        s.release_sentence(gone).expect("released");
        begin(s);
        said(s.start(gone))
    }),
    ("a third hypothesis of two", &["2 row slots", "slot 0"], |s| {
        let (sentence, _) = begin(s);
        s.start(sentence).expect("a row");
        said(s.start(sentence))
    }),
    ("a fork with no slot left", &["2 row slots", "slot 1"], |s| {
        begin(s);
        let (sentence, row) = begin(s);
        s.start(sentence).expect("a row");
        said(s.fork(row))
    }),
    ("a fork of no hypothesis", &["no such hypothesis", "slot 0"], |s| {
        said(s.fork(Row::default()))
    }),
    ("releasing twice", &["no such hypothesis", "slot 1"], |s| {
        let (sentence, _) = begin(s);
        let row = s.start(sentence).expect("a row");
        s.release(row).expect("released");
        said(s.release(row))
    }),
    ("a hypothesis that another replaced", &["no such hypothesis", "slot 2"], |s| {
        begin(s);
        let (sentence, row) = begin(s);
        s.release(row).expect("released");
        s.start(sentence).expect("a row");
        said(s.step(&[StepRow { row, token: 1 }]))
    }),
    ("the length of a hypothesis whose sentence has gone", &["hypothesis", "slot 3"], |s| {
        begin(s);
        let (sentence, _) = begin(s);
        let row = s.start(sentence).expect("a row");
        s.release_sentence(sentence).expect("released");
        said(s.row_len(row))
    }),
    ("one row twice in a step", &["row slot 0", "twice"], |s| {
        let step = StepRow { row: begin(s).1, token: 1 };
        said(s.step(&[step, step]))
    }),
    ("a target id outside the vocabulary", &["token 1", "id 4294967295"], |s| {
        let (sentence, row) = begin(s);
        let other = s.start(sentence).expect("a row");
        said(s.step(&[StepRow { row, token: 1 }, StepRow { row: other, token: u32::MAX }]))
    }),
    ("a step past the planned length", &["`target_tokens` = 5", "6"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1; 5], None).expect("prefilled");
        said(s.step(&[StepRow { row, token: 1 }]))
    }),
    ("more rows than slots", &["`sentences * beams` = 4", "5"], |s| {
        said(s.step(&[StepRow::default(); 5]))
    }),
    ("a prefix past the planned length", &["`target_tokens` = 5", "7"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1; 4], None).expect("prefilled");
        said(s.prefill(row, &[1; 3], None))
    }),
    ("a prefix id outside the vocabulary", &["token 2", "id 500"], |s| {
        let (_, row) = begin(s);
        said(s.prefill(row, &[1, 2, 500], None))
    }),
    ("a prefix after a fork", &["row slot 1", "several slots"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1, 2], None).expect("prefilled");
        let fork = s.fork(row).expect("a fork");
        said(s.prefill(fork, &[1], None))
    }),
];

/// What is wrong with a search.
type Change = fn(&mut SearchOptions);

const SEARCHES: &[(&str, &[&str], Change)] = &[
    ("no sequence wanted", &["num_return", "0"], |o| o.num_return = 0),
    ("two greedy sequences", &["num_return", "at most 1", "2"], |o| o.num_return = 2),
    ("more beams than planned", &["sequences", "at most 2", "3"], |o| {
        o.strategy = Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() });
    }),
    ("no beams", &["beams", "0"], |o| {
        o.strategy = Strategy::Beam(BeamOptions { beams: 0, ..BeamOptions::default() });
    }),
    ("groups that do not divide", &["2 beams", "3"], |o| {
        o.strategy = Strategy::Beam(BeamOptions { beams: 2, groups: 3, ..BeamOptions::default() });
    }),
    ("a length penalty of NaN", &["length_penalty", "NaN"], |o| {
        let penalty = f64::NAN;
        o.strategy =
            Strategy::Beam(BeamOptions { beams: 2, length_penalty: penalty, ..Default::default() });
    }),
    ("a temperature of zero", &["temperature", "above 0", "found 0"], |o| {
        o.strategy = Strategy::Sample(SampleOptions { temperature: 0.0, ..Default::default() });
    }),
    ("a top-p above one", &["top_p", "(0, 1]", "1.5"], |o| {
        o.strategy = Strategy::Sample(SampleOptions { top_p: Some(1.5), ..Default::default() });
    }),
    ("a top-k of zero", &["top_k", "0"], |o| {
        o.strategy = Strategy::Sample(SampleOptions { top_k: Some(0), ..Default::default() });
    }),
    ("more end tokens than planned", &["eos", "at most 2", "3"], |o| o.eos = vec![0, 1, 2]),
    ("an end token outside the vocabulary", &["eos", "131", "900"], |o| o.eos = vec![900]),
    ("no new tokens", &["max_new_tokens", "0"], |o| o.max_new_tokens = Some(0)),
    ("a length of zero", &["max_length", "0"], |o| o.max_length = Some(0)),
    ("a length for the start alone", &["prompt", "at most 0", "1"], |o| o.max_length = Some(1)),
    ("n-grams of nothing", &["no_repeat_ngram", "0"], |o| o.no_repeat_ngram = Some(0)),
    ("a negative penalty", &["repetition_penalty", "-1"], |o| o.repetition_penalty = -1.0),
    ("a start outside the vocabulary", &["start", "131"], |o| o.start = 131),
    ("an empty bad word", &["bad_words", "empty"], |o| o.bad_words = vec![vec![]]),
    ("a sequence biased twice", &["entry 1"], |o| {
        o.sequence_bias = vec![(vec![1, 2], 0.5), (vec![1, 2], 1.0)];
    }),
    ("a bias of infinity", &["sequence_bias", "inf"], |o| {
        o.sequence_bias = vec![(vec![1], f32::INFINITY)];
    }),
    ("every token suppressed", &["all suppressed"], |o| o.suppress = (0..131).collect()),
];

/// Answers as it is told.
struct Processor(Result<f32, SearchError>);

impl LogitsProcessor for Processor {
    fn process(
        &mut self,
        _: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), SearchError> {
        scores[7] = self.0?;
        Ok(())
    }
}

struct Nothing;

impl AllowedTokens for Nothing {
    fn allowed(&mut self, _: &Context<'_>) -> &[u32] {
        &[]
    }
}

#[test]
fn wrong_calls_are_errors_and_leave_no_trace() {
    let model = model();
    let mut seen = Seen::default();
    let mut session = Session::new(&model, LIMITS).expect("a session");
    let expected = healthy(&mut session);
    for (mistake, parts, call) in CALLS {
        let message = call(&mut session);
        seen.check(mistake, message, parts);
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    let base = SearchOptions { max_new_tokens: Some(3), start: 2, ..SearchOptions::default() };
    let generate = |session: &mut Session, source: Source, options: &_, hooks: &mut Hooks| {
        said(session.generate(&[Source::new(&[4, 0]), source], options, hooks, &mut |_| ()))
    };
    for (mistake, parts, change) in SEARCHES {
        let mut options = base.clone();
        change(&mut options);
        let source = Source::new(&[5, 6, 0]);
        let message = generate(&mut session, source, &options, &mut Hooks::default());
        seen.check(mistake, message, parts);
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    let mut requests: Vec<(&str, &[&str], Source)> = vec![
        ("an empty source among others", &["source sentence 1"], Source::new(&[])),
        ("a long source among others", &["`source_tokens` = 8", "10"], Source::new(&[1; 10])),
        ("a foreign id among others", &["token 3", "id 200"], Source::new(&[1, 1, 1, 200])),
    ];
    for (mistake, parts, prefix) in [
        ("a foreign id in a prefix", &["prefix", "below 131", "133"][..], &[133][..]),
        ("a prefix that leaves no room", &["prompt", "at most 5", "7"], &[1; 6]),
    ] {
        let mut source = Source::new(&[5, 6, 0]);
        source.request.prefix = prefix;
        requests.push((mistake, parts, source));
    }
    let mut source = Source::new(&[5, 6, 0]);
    source.request.forced_bos = Some(131);
    requests.push(("a foreign language", &["forced_bos", "131"], source));
    for (mistake, parts, source) in requests {
        let message = generate(&mut session, source, &base, &mut Hooks::default());
        // An empty source says the same in every call, and only the number may differ.
        if mistake != "an empty source among others" {
            seen.check(mistake, message, parts);
        } else {
            assert!(message.is_some_and(|said| said.contains(parts[0])));
        }
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    for (mistake, parts, answer) in [
        (
            "a processor that gives up",
            &["no dictionary"][..],
            Err(SearchError::Processor("no dictionary")),
        ),
        ("a processor that makes NaN", &["NaN", "sentence 0", "position 1"], Ok(f32::NAN)),
    ] {
        let mut processor = Processor(answer);
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut processor];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let message = generate(&mut session, Source::new(&[5, 0]), &base, &mut hooks);
        seen.check(mistake, message, parts);
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    let mut nothing = Nothing;
    let mut hooks = Hooks { allowed: Some(&mut nothing), ..Hooks::default() };
    let message = generate(&mut session, Source::new(&[5, 0]), &base, &mut hooks);
    seen.check("nothing allowed", message, &["allowed token", "position 1"]);
    assert_eq!(healthy(&mut session), expected, "after nothing was allowed");
    assert!(seen.0.len() >= 50, "{} mistakes", seen.0.len());
}

/// To ask for nothing is no mistake.
#[test]
fn nothing_asked_is_nothing_done() {
    let model = model();
    let mut session = Session::new(&model, LIMITS).expect("a session");
    let expected = healthy(&mut session);
    session.encode(&[], &mut []).expect("nothing encoded");
    assert!(session.memory(&[]).expect("no memory").is_empty());
    assert!(session.step(&[]).expect("no logits").is_empty());
    let (_, row) = begin(&mut session);
    session.prefill(row, &[], Some(&mut |_, _| panic!("no token"))).expect("nothing filled in");
    assert_eq!(session.row_len(row), Ok(0));
    let options = SearchOptions { start: 2, ..SearchOptions::default() };
    let counts = session
        .generate(&[], &options, &mut Hooks::default(), &mut |_| panic!("no sentence"))
        .expect("nothing generated");
    assert_eq!((counts.steps, counts.rows), (0, 0));
    assert_eq!(healthy(&mut session), expected);
}

/// A callback of the caller may panic; the session is not lost.
#[test]
fn a_panic_of_a_callback_leaves_the_session_usable() {
    let model = model();
    let mut session = Session::new(&model, LIMITS).expect("a session");
    let expected = healthy(&mut session);
    let options = SearchOptions { max_new_tokens: Some(3), start: 2, ..SearchOptions::default() };
    let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let sources = [Source::new(&[5, 0]), Source::new(&[6, 0]), Source::new(&[7, 0])];
        session.generate(&sources, &options, &mut Hooks::default(), &mut |_| {
            std::panic::resume_unwind(Box::new("the caller's own"));
        })
    }));
    assert!(caught.is_err());
    assert_eq!(session.free_sentences(), 2);
    assert_eq!(healthy(&mut session), expected);
}

#[test]
fn wrong_limits_are_errors() {
    let model = model();
    let mut seen = Seen::default();
    let with = |change: fn(&mut Limits)| {
        let mut limits = LIMITS;
        change(&mut limits);
        said(Session::new(&model, limits))
    };
    seen.check("no sentences", with(|l| l.sentences = 0), &["`sentences`", "0"]);
    seen.check("no source tokens", with(|l| l.source_tokens = 0), &["`source_tokens`"]);
    seen.check("no batch", with(|l| l.batch_tokens = 0), &["`batch_tokens`"]);
    seen.check("no target tokens", with(|l| l.target_tokens = 0), &["`target_tokens`"]);
    seen.check("no beams", with(|l| l.beams = 0), &["`beams`"]);
    let long = with(|l| l.source_tokens = 257);
    seen.check("sources beyond the model", long, &["`source_tokens`", "256", "257"]);
    let long = with(|l| l.target_tokens = 1 << 20);
    seen.check("targets beyond the model", long, &["`target_tokens`", "256", "1048576"]);
    seen.check("too much", with(|l| l.sentences = usize::MAX), &["address space"]);
    let mut buffer = [0.0; 100];
    let short = said(Session::with_buffer(&model, LIMITS, &mut buffer));
    seen.check("a short buffer", short, &["floats", "found 100"]);
}

/// A safetensors file whose header was changed.
fn with_header(change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) -> Vec<u8> {
    let bytes = dims().bytes(1);
    let (header, data) = split(&bytes);
    let mut header = serde_json::from_slice(header).expect("a header");
    change(&mut header);
    join(&serde_json::to_vec(&header).expect("a header"), data)
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = bytes.split_at(8);
    rest.split_at(u64::from_le_bytes(len.try_into().expect("8 bytes")) as usize)
}

fn join(header: &[u8], data: &[u8]) -> Vec<u8> {
    let len = (header.len() as u64).to_le_bytes();
    [&len[..], header, data].concat()
}

#[test]
fn broken_weights_are_errors() {
    let mut seen = Seen::default();
    let open = |bytes: Vec<u8>| said(Checkpoint::from_bytes(dims().config(), bytes));
    let whole = dims().bytes(1);
    let (header, data) = split(&whole);
    const KEY: &str = "model.decoder.layers.1.fc1.weight";
    const LOGITS: &str = "final_logits_bias";
    let set = |key: &'static str, field: &'static str, value: serde_json::Value| {
        open(with_header(|header| header[key][field] = value))
    };
    seen.check("an empty file", open(vec![]), &["memory", "0"]);
    seen.check("seven bytes", open(vec![0; 7]), &["7"]);
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    seen.check("a huge header", open(huge), &["18446744073709551615"]);
    seen.check("half a header", open(whole[..100].to_vec()), &["92"]);
    seen.check("half the data", open(whole[..whole.len() / 2].to_vec()), &["truncated"]);
    seen.check("bytes too many", open([&whole[..], &[0; 4]].concat()), &["no tensor"]);
    seen.check("a header of bytes", open(join(&[0xff; 40], data)), &["UTF-8"]);
    seen.check("a header of words", open(join(b"[1, 2, 3] and more", data)), &["memory"]);
    let text = String::from_utf8(header.to_vec()).expect("text");
    let twice = text.trim_end().replacen(
        '{',
        r#"{"final_logits_bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"#,
        1,
    );
    seen.check("a tensor twice", open(join(twice.as_bytes(), data)), &[LOGITS, "twice"]);
    seen.check("integers", set(KEY, "dtype", "I32".into()), &[KEY, "F32", "I32"]);
    seen.check("an unknown type", set(KEY, "dtype", "F33".into()), &["F33"]);
    seen.check(
        "another shape",
        set(KEY, "shape", [42, 59].to_vec().into()),
        &[KEY, "[59, 42]", "[42, 59]"],
    );
    seen.check(
        "too few bytes",
        set(KEY, "shape", [60, 42].to_vec().into()),
        &[KEY, "10080", "9912"],
    );
    seen.check(
        "a shape that overflows",
        set(KEY, "shape", [usize::MAX, 3].to_vec().into()),
        &[KEY, "overflows"],
    );
    seen.check(
        "offsets reversed",
        set(KEY, "data_offsets", [100, 4].to_vec().into()),
        &[KEY, "100", "4"],
    );
    seen.check(
        "offsets past the end",
        set(KEY, "data_offsets", [0, 1u64 << 40].to_vec().into()),
        &[KEY, "1099511627776"],
    );
    let first = open(with_header(|header| {
        let other = header["model.encoder.layers.0.fc1.weight"].clone();
        header["model.encoder.layers.1.fc1.weight"] = other;
    }));
    seen.check("two tensors in one place", first, &["share bytes"]);
    let missing = open(with_header(|header| {
        let tensor = header.remove(KEY).expect("there");
        header.insert("model.decoder.layers.1.fc1.weights".into(), tensor);
    }));
    seen.check("a misspelled tensor", missing, &[KEY, "fc1.weights"]);
    let extra = open(with_header(|header| {
        let tensor = header.remove("model.decoder.layers.0.fc1.weight").expect("there");
        header.insert("model.decoder.layers.2.fc1.weight".into(), tensor);
    }));
    seen.check("a layer too many", extra, &["2 decoder layers", "layers.2"]);
    for (bits, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut poisoned = whole.clone();
        let at = whole.len() - 8;
        poisoned[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        let checkpoint = Checkpoint::from_bytes(dims().config(), poisoned).expect("opened");
        seen.check(word, said(Model::load(&checkpoint, Isa::best())), &[word, "element"]);
    }
    let mut config = dims().config();
    config.positions = Positions::Learned { offset: 2 };
    config.max_positions = None;
    seen.check("a table without end", said(Checkpoint::from_bytes(config, whole)), &["learned"]);
    assert!(seen.0.len() >= 20);
}

fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_input").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

#[test]
fn broken_checkpoint_directories_are_errors() {
    let mut seen = Seen::default();
    let open = |path: PathBuf| said(Model::open(path));
    let good = r#"{"model_type": "marian", "d_model": 8, "vocab_size": 9, "pad_token_id": 8,
        "decoder_start_token_id": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}"#;
    let missing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no such folder");
    seen.check("no directory", open(missing), &["no such folder"]);
    let file = folder("file", &[("a.txt", "text")]).join("a.txt");
    seen.check("a file", open(file), &["a.txt", "directory"]);
    seen.check("an empty directory", open(folder("empty", &[])), &["config.json"]);
    seen.check(
        "no weights",
        open(folder("weightless", &[("config.json", good)])),
        &["model.safetensors"],
    );
    let pickled = folder("pickled", &[("config.json", good), ("pytorch_model.bin", "x")]);
    seen.check("pickled weights", open(pickled), &["save it again as safetensors"]);
    let index = r#"{"weight_map": {"a": "../../secret"}}"#;
    let outside =
        folder("outside", &[("config.json", good), ("model.safetensors.index.json", index)]);
    seen.check("a shard elsewhere", open(outside), &["../../secret"]);
    let index = r#"{"weight_map": {"a": "one.safetensors"}}"#;
    let lost = folder("lost", &[("config.json", good), ("model.safetensors.index.json", index)]);
    seen.check("a lost shard", open(lost), &["one.safetensors"]);
    let list = folder("list", &[("config.json", good), ("model.safetensors.index.json", "[]")]);
    seen.check("an index of nothing", open(list), &["index.json"]);
    seen.check(
        "a config of words",
        open(folder("words", &[("config.json", "hello")])),
        &["line 1"],
    );
    let defaults = folder("defaults", &[("config.json", good), ("generation_config.json", "3")]);
    seen.check("a number of defaults", open(defaults), &["generation_config.json", "object"]);
    let read = |text: &str| said(Config::from_hugging_face(text));
    for (mistake, text, parts) in [
        ("no type", "{}", &["model_type"][..]),
        ("a list", "[]", &["object"]),
        ("another type", r#"{"model_type": "llama"}"#, &["llama", "marian"]),
        (
            "a key twice",
            r#"{"model_type": "marian", "d_model": 8, "d_model": 16}"#,
            &["d_model", "twice"],
        ),
        ("a width of words", r#"{"model_type": "bart", "d_model": "wide"}"#, &["d_model", "wide"]),
        ("a width of zero", r#"{"model_type": "bart", "d_model": 0}"#, &["d_model", "0"]),
        ("odd heads", r#"{"model_type": "bart", "d_model": 24}"#, &["24", "16"]),
        ("a huge vocabulary", r#"{"model_type": "bart", "vocab_size": 1e15}"#, &["vocab"]),
        (
            "a decoder only",
            r#"{"model_type": "bart", "is_encoder_decoder": false}"#,
            &["encoder-decoder"],
        ),
        (
            "an activation",
            r#"{"model_type": "bart", "activation_function": "tan"}"#,
            &["tan", "gelu"],
        ),
        (
            "a foreign pad",
            r#"{"model_type": "bart", "vocab_size": 50, "pad_token_id": 51, "bos_token_id": 1, "eos_token_id": 2}"#,
            &["pad_token_id", "51"],
        ),
    ] {
        seen.check(mistake, read(text), parts);
    }
    assert!(seen.0.len() >= 20);
}

#[test]
fn wrong_operands_of_kernels_are_errors() {
    let mut seen = Seen::default();
    let isa = Isa::best();
    let (serial, data) = (Parallelism::Serial, [0.5f32; 256]);
    let matrix = |rows, columns| Matrix::new(&data, rows, columns).expect("a matrix");
    let mut out = [7.0f32; 256];

    seen.check("a short slice", said(Matrix::new(&data, 17, 16)), &["272", "256"]);
    let wide = said(Matrix::strided(&data, 3, 2, usize::MAX / 2, 1));
    seen.check("strides that overflow", wide, &["overflows"]);
    let overlap = said(MatrixMut::strided(&mut out, 4, 4, 3, 1));
    seen.check("rows that overlap", overlap, &["3", "overlap"]);
    seen.check("too few heads", said(Heads::new(&data, [3, 9, 10])), &["270", "256"]);
    seen.check("rows outside", said(matrix(4, 4).block(3, 2)), &["5", "4"]);

    let mut buffer = vec![0.0; PackedMatrix::len(isa, 8, 6).expect("a length")];
    let short = said(PackedMatrix::pack(isa, matrix(8, 6), &mut [0.0; 3]));
    seen.check("no room to pack", short, &["packed", "has 3"]);
    let columns = said(PackedMatrix::pack_block(isa, matrix(8, 4), (8, 6), 3, &mut buffer));
    seen.check("columns that do not fit", columns, &["(8, 7)", "(8, 6)"]);
    seen.check(
        "a packed matrix without end",
        said(PackedMatrix::len(isa, usize::MAX, 6)),
        &["depth times columns"],
    );
    let packed = PackedMatrix::pack(isa, matrix(8, 6), &mut buffer).expect("packed");
    let plain = Epilogue::default();
    let mut run = |a: [usize; 2], c: [usize; 2], epilogue: &Epilogue| {
        let c = MatrixMut::new(&mut out, c[0], c[1]).expect("a matrix");
        said(gemm(matrix(a[0], a[1]), &packed, epilogue, c, serial))
    };
    seen.check("another depth", run([2, 7], [2, 6], &plain), &["8", "7"]);
    seen.check("other rows", run([2, 8], [3, 6], &plain), &["2 rows", "3"]);
    seen.check("other columns", run([2, 8], [2, 5], &plain), &["6 columns", "5"]);
    let bias = Epilogue { bias: Some(&data[..5]), ..plain };
    seen.check("a short bias", run([2, 8], [2, 6], &bias), &["bias", "6", "5"]);
    let residual = Epilogue { residual: Residual::Matrix(matrix(2, 7)), ..plain };
    seen.check("another residual", run([2, 8], [2, 6], &residual), &["(2, 6)", "(2, 7)"]);

    let heads = |tokens| Heads::new(&data, [tokens, 2, 3]).expect("heads");
    let options = AttentionOptions::new(3);
    let mut run = |tokens: usize, sequences: &[Sequence], floats: usize, rows: usize| {
        let mut scratch = vec![0.0; floats];
        let out = HeadsMut::new(&mut out, [rows, 2, 3]).expect("heads");
        let (query, key) = (heads(tokens), heads(tokens));
        said(attention(isa, query, key, key, sequences, &options, out, None, &mut scratch, serial))
    };
    let packed = Sequence::packed;
    let enough = attention_scratch(isa, &[packed(0, 9)], 2, 3).expect("a size");
    seen.check("another output", run(4, &[packed(0, 4)], enough, 5), &["[4, 2, 3]", "[5, 2, 3]"]);
    seen.check("a sequence outside", run(4, &[packed(2, 3)], enough, 4), &["query 5", "4 queries"]);
    seen.check(
        "sequences that overlap",
        run(4, &[packed(0, 3), packed(2, 2)], enough, 4),
        &["sequence 1", "apart"],
    );
    let keys = Sequence { key_len: 6, padded_len: 6, ..packed(0, 4) };
    seen.check("keys outside", run(4, &[keys], enough, 4), &["key 6", "4 keys"]);
    let valid = Sequence { padded_len: 3, ..packed(0, 4) };
    seen.check("more valid keys than keys", run(4, &[valid], enough, 4), &["3 keys", "4"]);
    seen.check("no scratch", run(4, &[packed(0, 4)], 1, 4), &["scratch", "found 1"]);

    let shape = CacheShape { slots: 2, capacity: 4, heads: 2, head_dim: 3 };
    let len = shape.len(isa).expect("a length");
    let mut memory = vec![f32::NAN; len];
    seen.check(
        "a short cache",
        said(CacheMut::new(isa, shape, &mut memory[..9])),
        &["cache", "has 9"],
    );
    let mut cache = CacheMut::new(isa, shape, &mut memory).expect("a cache");
    seen.check(
        "a foreign slot",
        said(cache.write(2, 0, heads(1), heads(1))),
        &["slot 2", "2 slots"],
    );
    seen.check("a full slot", said(cache.write(0, 3, heads(2), heads(2))), &["5 positions", "4"]);
    seen.check("other values", said(cache.write(0, 0, heads(2), heads(1))), &["2 tokens", "1"]);
    let narrow = Heads::new(&data, [1, 3, 2]).expect("heads");
    seen.check("other heads", said(cache.write(0, 0, narrow, narrow)), &["2 heads of 3", "3 of 2"]);
    let places = said(cache.append(&[0, 1], &[0], heads(2), heads(2)));
    seen.check("a position too few", places, &["2 tokens", "found 1"]);
    cache.write(0, 0, heads(4), heads(4)).expect("written");
    let mut read = |slot, key_len| {
        let sequence = [CachedSequence { query_start: 0, query_len: 1, slot, key_len }];
        let out = HeadsMut::new(&mut out, [1, 2, 3]).expect("heads");
        said(attention_cached(heads(1), &cache.read(), &sequence, &options, out, None, serial))
    };
    seen.check("reading a foreign slot", read(7, 1), &["slot 7"]);
    seen.check("reading past the end", read(0, 9), &["9 positions"]);
    let one = HeadsMut::new(&mut out, [1, 2, 3]).expect("heads");
    let short =
        said(attention_step(heads(1), &cache.read(), &[3], &[0, 0], 2, &options, one, serial));
    seen.check("a short ancestry", short, &["3 entries", "2"]);

    let mut square = |rows, columns, call: &dyn Fn(MatrixMut) -> Option<String>| {
        call(MatrixMut::new(&mut out, rows, columns).expect("a matrix"))
    };
    let norm = |weight, bias| LayerNorm { weight: &data[..weight], bias: &data[..bias], eps: 0.1 };
    let x = matrix(3, 5);
    let (a, b, c) = (norm(4, 5), norm(5, 6), norm(5, 5));
    seen.check(
        "a short weight",
        square(3, 5, &|out| said(layer_norm(isa, a, x, out, serial))),
        &["weight", "5", "4"],
    );
    seen.check(
        "a long bias",
        square(3, 5, &|out| said(layer_norm(isa, b, x, out, serial))),
        &["bias", "5", "6"],
    );
    seen.check(
        "another shape",
        square(2, 5, &|out| said(layer_norm(isa, c, x, out, serial))),
        &["2 x 5", "3 x 5"],
    );
    let transposed = matrix(5, 3).transposed();
    seen.check(
        "strided rows",
        square(3, 5, &|out| said(layer_norm(isa, c, transposed, out, serial))),
        &["stride", "3"],
    );
    let soft = |lengths: &'static [usize]| {
        move |out: MatrixMut| said(softmax(isa, x, Some(lengths), FullyMasked::Zeros, out, serial))
    };
    seen.check("a length too few", square(3, 5, &soft(&[1, 2])), &["3", "2"]);
    seen.check("a length past the row", square(3, 5, &soft(&[1, 2, 6])), &["row 2", "6"]);
    seen.check(
        "a foreign id",
        square(2, 5, &|out| said(embed(isa, x, &[1, 3], 1.0, None, out, serial))),
        &["3"],
    );
    let encoding = PositionEncoding::HalfSplitClosed { offset: 0 };
    seen.check(
        "narrow positions",
        square(2, 3, &|out| said(encode(encoding, 0, out))),
        &["columns", "3"],
    );
    let (mut values, mut indices) = ([0.0; 6], [0; 6]);
    seen.check(
        "more than there are",
        said(top_k(isa, x, 6, &mut values, &mut indices, serial)),
        &["6 entries", "5 columns"],
    );
    seen.check(
        "no room for values",
        said(top_k(isa, x, 2, &mut values[..5], &mut indices, serial)),
        &["values", "6", "5"],
    );
    seen.check(
        "no room for indices",
        said(top_k(isa, x, 2, &mut values, &mut indices[..4], serial)),
        &["indices", "6", "4"],
    );
    seen.check(
        "the best of nothing",
        said(argmax(isa, matrix(3, 0), &mut indices[..3], serial)),
        &["1 entries", "0 columns"],
    );
    seen.check("an unknown set", said(Isa::from_name("sse9")), &["unknown", "scalar"]);
    let elsewhere = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    seen.check("a set of others", said(Isa::from_name(elsewhere)), &[elsewhere, isa.name()]);
    assert!(seen.0.len() >= 40, "{} mistakes", seen.0.len());
}
