//! Guarantees that earlier versions broke. The table is in `main.rs`.

use crate::numbers::{Numbers, checkpoint, config, model, tensors};
use simdformer::config::{Config, Family};
use simdformer::search::{Finish, Hooks, SearchOptions};
use simdformer::{Error, Event, HypothesisId, Limits, Model, Session, Source, SourceId, StepRow};
use simdformer_kernels::{
    Cache, CacheShape, Dtype, Error as KernelError, HeadsMut, Isa, Matrix, PackOptions,
    QuantizedMatrix,
};

fn begin(session: &mut Session<'_>) -> (SourceId, HypothesisId) {
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 6, 0]], &mut sentence).expect("encoded");
    (sentence[0], session.start(sentence[0]).expect("a row"))
}

/// Generates for `tokens`. Returns the ids and the finish.
fn generate(
    session: &mut Session<'_>,
    options: &SearchOptions,
) -> Result<(Vec<u32>, Finish), Error> {
    let mut found = None;
    session.generate(&[Source::new(&[5, 6, 0])], options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            let best = done.hypotheses().next().expect("a hypothesis");
            found = Some((best.tokens.to_vec(), done.finish));
        }
    })?;
    Ok(found.expect("done"))
}

pub(crate) fn handles_are_of_one_session() {
    let (model, limits) = (model(), Limits::new(2, 6, 6));
    let mut a = Session::new(&model, limits).expect("a session");
    let mut b = Session::new(&model, limits).expect("a session");
    let ((sentence, row), (_, other)) = (begin(&mut a), begin(&mut b));
    assert_eq!(row.slot(), other.slot());
    for _ in 0..2 {
        let step = b.step(&[StepRow::new(row, 1)]).err();
        assert!(
            matches!(step, Some(Error::InvalidHandle { operand: "hypothesis", found, .. }) if found == row.slot())
        );
        let start = b.start(sentence).err();
        assert!(
            matches!(start, Some(Error::InvalidHandle { operand: "sentence", found, .. }) if found == sentence.slot())
        );
        b.clear();
        begin(&mut b);
    }
    a.step(&[StepRow::new(row, 1)]).expect("its own");
}

pub(crate) fn a_cut_has_its_own_finish() {
    let mut config = config();
    config.settings.options.max_length = Some(40);
    config.tokens.forced_eos = vec![0];
    let tensors = tensors(&config);
    let checkpoint = checkpoint(&config, &tensors).expect("whole");
    let model = Model::load(&checkpoint, Isa::best()).expect("a model");
    let mut session = Session::new(&model, Limits::new(1, 6, 6)).expect("a session");
    let wanted = config.search_options();
    let refused = generate(&mut session, &wanted).expect_err("40 do not fit 6");
    assert!(refused.to_string().contains("max_length: expected at most 7"), "{refused}");
    let wanted = SearchOptions { max_length: None, max_new_tokens: Some(7), ..wanted };
    let refused = generate(&mut session, &wanted).expect_err("7 do not fit 6");
    assert!(refused.to_string().contains("max_new_tokens: expected at most 6"), "{refused}");
    // Without an end token in the request, the plan cuts the target, and no end token hides the cut.
    let options = SearchOptions { min_new_tokens: 99, ..session.search_options() };
    let (tokens, finish) = generate(&mut session, &options).expect("translated");
    assert_eq!((tokens.len(), finish), (6, Finish::Length));
    assert!(!tokens.contains(&0), "{tokens:?}");
}

pub(crate) fn a_stream_names_its_source() {
    let model = model();
    let mut session = Session::new(&model, Limits::new(2, 6, 9)).expect("a session");
    let options = SearchOptions { max_new_tokens: Some(8), ..session.search_options() };
    let sources = [&[5, 6, 0][..], &[7, 0], &[8, 9, 10, 0], &[11, 0], &[12, 13, 0]];
    let sources = sources.map(Source::new);
    let mut streams = vec![Vec::new(); sources.len()];
    let mut done = vec![false; sources.len()];
    session
        .generate(&sources, &options, &mut Hooks::default(), &mut |event| match event {
            Event::Token { source, token } => streams[source].push(token.id),
            Event::Done(found) => {
                let best = found.hypotheses().next().expect("a hypothesis");
                assert_eq!(best.tokens, streams[found.source], "source {}", found.source);
                done[found.source] = true;
            }
            _ => (),
        })
        .expect("translated");
    assert!(done.into_iter().all(|done| done));
}

/// This program is built without the features `f16` and `int8`. A call that needs one is an error that
/// names it.
pub(crate) fn a_dtype_without_its_feature_is_an_error() {
    for (forms, feature) in [("f16", "f16"), ("bf16", "f16"), ("int8", "int8"), ("int8x16", "int8")]
    {
        let forms: simdformer::WeightDtypes = forms.parse().expect("the name of a form");
        let refused = Model::from_fn_with(config(), forms, |_, _, _| Ok(()));
        match refused.err() {
            Some(simdformer::Error::InvalidOption { found, .. }) => {
                let missing = format!("expected the feature `{feature}`, found none");
                assert!(found.to_string().ends_with(&missing), "{found}");
            }
            other => panic!("expected {feature} to be missing, found {other:?}"),
        }
    }
    let model = model();
    let limits = Limits { cache: Some(Dtype::F16), ..Limits::new(1, 6, 16) };
    let refused = Session::new(&model, limits).expect_err("no kernels for this cache");
    assert!(refused.to_string().contains("`f16`"), "{refused}");
    let refused = QuantizedMatrix::buffer_len(4, 4);
    assert!(
        matches!(refused, Err(KernelError::Unsupported { expected: "the feature `int8`", .. })),
        "{refused:?}"
    );
    let refused = PackOptions::new(Dtype::F16).buffer_len(Isa::best(), 4, 4);
    assert!(
        matches!(refused, Err(KernelError::Unsupported { expected: "the feature `f16`", .. })),
        "{refused:?}"
    );
}

pub(crate) fn a_plan_has_space_for_what_it_states() {
    let model = model();
    let limits = Limits { beams: 2, ..Limits::new(1, 6, 16) };
    let mut session = Session::new(&model, limits).expect("a session");
    let (sentence, parent) = begin(&mut session);
    session.step(&[StepRow::new(parent, 1)]).expect("a step");
    let child = session.fork(parent).expect("a fork");
    session.release(parent).expect("released");
    let second = session.start(sentence).expect("one lives, and two are planned");
    let logits = session.step(&[StepRow::new(second, 1)]).expect("a step").to_vec();
    assert_eq!(session.hypothesis_len(child), Ok(1));

    // In any order.
    let mut random = Numbers(9);
    let mut living = vec![child, second];
    for operation in 0..2000 {
        let at = random.below(2);
        match (random.below(4), living.get(at).copied()) {
            (0, _) if living.len() < 2 => {
                living.push(session.start(sentence).expect("space in the plan"));
            }
            (1, Some(row)) if living.len() < 2 => {
                living.push(session.fork(row).expect("space in the plan"));
            }
            (2, Some(row)) => {
                session.release(row).expect("it is there");
                living.remove(at);
            }
            (_, Some(row)) if session.hypothesis_len(row).expect("there") < 14 => {
                session.prefill(row, &[1, 2], None).expect("space in the plan");
            }
            _ => (),
        }
        assert!(living.len() <= 2, "operation {operation}");
    }
    for row in living {
        session.release(row).expect("it is there");
    }
    let row = session.start(sentence).expect("a row");
    assert_eq!(session.step(&[StepRow::new(row, 1)]).expect("a step"), logits);
}

/// A Marian configuration as Hugging Face writes it.
fn marian(more: &str) -> Config {
    let json = format!(
        r#"{{"model_type": "marian", "d_model": 16, "vocab_size": 9, "pad_token_id": 8,
        "decoder_start_token_id": 8, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "decoder_attention_heads": 4 {more}}}"#
    );
    Config::from_hugging_face(&json).expect("a configuration")
}

pub(crate) fn a_missing_tensor_is_an_error() {
    let config = marian(r#", "encoder_attention_heads": 4, "tie_word_embeddings": false"#);
    let mut tensors = tensors(&config);
    assert!(checkpoint(&config, &tensors).is_ok());
    assert!(tensors.remove("lm_head.weight").is_some());
    let error = checkpoint(&config, &tensors).expect_err("no output matrix");
    assert!(matches!(error, simdformer::Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("expected lm_head.weight"), "{error}");
}

pub(crate) fn defaults_are_listed() {
    let config = marian("");
    let listed = |config: &Config| -> Vec<String> {
        config.defaults.iter().map(|(key, value)| format!("{key} = {value}")).collect()
    };
    assert!(listed(&config).contains(&"encoder_attention_heads = 16".to_owned()));
    let tensors = tensors(&config);
    let model = Model::load(&checkpoint(&config, &tensors).expect("whole"), Isa::best());
    assert_eq!(model.expect("a model").defaults(), config.defaults);
    let said = marian(r#", "encoder_attention_heads": 16"#);
    assert!(!listed(&said).iter().any(|default| default.starts_with("encoder_attention_heads")));
}

pub(crate) fn a_wrong_request_is_named_before_generate() {
    let model = model();
    let mut session = Session::new(&model, Limits::new(2, 6, 6)).expect("a session");
    let options = session.search_options();
    let mut sources = vec![Source::new(&[5, 6, 0]); 100];
    sources[63] = Source::new(&[5, 99_999, 0]);
    let (mut named, mut others) = (None, 0);
    let refused = session
        .generate(&sources, &options, &mut Hooks::default(), &mut |event| match event {
            Event::Refused { source, .. } => named = Some(source),
            _ => others += 1,
        })
        .expect_err("a foreign id");
    assert_eq!(refused.index(), Some(63), "{refused}");
    assert_eq!((named, others), (Some(63), 0), "nothing had begun");
    let outcomes: Vec<bool> =
        sources.iter().map(|source| session.check(source, &options).is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|taken| !**taken).count(), 1);
    assert!(!outcomes[63]);
    let empty = session.check(&Source::new(&[]), &options);
    assert_eq!(text(empty), "source 0: expected at least one token, found none");
}

pub(crate) fn a_configuration_without_tensor_names_is_invalid() {
    let mut config = marian(r#", "encoder_attention_heads": 4"#);
    config.validate().expect("valid");
    config.encoder.final_norm = true;
    let error = config.validate().expect_err("Marian has none");
    assert!(matches!(error, simdformer::Error::Unsupported { .. }), "{error}");
    assert!(!error.to_string().ends_with([' ', ':', ';']), "{error}");
    config.family = Family::Plain;
    config.validate().expect("valid");
}

fn text<T, E: std::error::Error>(result: Result<T, E>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn errors_name_the_wrong_operand() {
    let mut data = [0.0; 64];
    let matrix = Matrix::new(&data, 2, 4).expect("space");
    let expected = "end of a block of rows: expected at most 2, found 3";
    assert_eq!(text(matrix.block(1, 2)), expected);
    let isa = Isa::best();
    let shape = CacheShape::new(1, 3, 4, 5);
    let memory = vec![0.0; shape.buffer_len(isa).expect("small")];
    let cache = Cache::new(isa, shape, &memory).expect("the length");
    let expected = "head of the KV cache: expected less than 4, found 4";
    assert_eq!(text(cache.read_key(0, 0, 4, &mut data[..5])), expected);
    let expected =
        "token and head strides of a writable view: expected distinct elements, found 3 and 2";
    assert_eq!(text(HeadsMut::strided(&mut data, [2, 2, 2], 3, 2)), expected);
    assert!(text(Isa::from_name("avx51")).contains(r#""avx51""#));

    let model = model();
    let mut session = Session::new(&model, Limits::new(1, 6, 6)).expect("a session");
    let short = SearchOptions { max_length: Some(1), ..session.search_options() };
    let expected = "max_length: expected at least 2, the decoder start and a token, found 1";
    assert_eq!(text(generate(&mut session, &short)), expected);
    let (sentence, row) = begin(&mut session);
    session.release(row).expect("released");
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let no_heads = session.align(sentence, &[1], (0, &[]), &mut scratch, &mut [0.0; 3]);
    assert_eq!(text(no_heads), "heads: expected at least one head for an alignment, found none");
    let expected = format!(
        "scratch: expected {} floats (`Plan::trace_floats`), found 1",
        session.plan().trace_floats()
    );
    let short = session.align(sentence, &[1], (0, &[0]), &mut [0.0], &mut [0.0; 3]);
    assert_eq!(text(short), expected);
}

pub(crate) fn a_chain_of_errors_is_one_sentence() {
    let tensors = [("x".to_owned(), (vec![1], vec![0; 4]))].into();
    let error = checkpoint(&config(), &tensors).expect_err("no embedding");
    let mut said = vec![error.to_string()];
    let mut next = core::error::Error::source(&error);
    while let Some(cause) = next {
        said.push(cause.to_string());
        next = cause.source();
    }
    for (i, piece) in said.iter().enumerate() {
        assert!(said[..i].iter().all(|before| !before.contains(piece.as_str())), "{said:?}");
    }
}

pub(crate) fn limits_and_options_that_cannot_work_are_errors() {
    let model = model();
    let limits = Limits::new(1, 6, 6);
    let with = |limits: Limits| text(Session::new(&model, limits));
    assert_eq!(
        with(Limits { batch_tokens: 5, ..limits }),
        "the limit `batch_tokens`: expected at least `source_tokens`, 6, found 5"
    );
    let none = with(Limits { end_tokens: 0, ..limits });
    assert_eq!(none, "the limit `end_tokens`: expected at least 1, found 0");
    let mut session = Session::new(&model, limits).expect("a session");
    let endless = text(generate(&mut session, &SearchOptions::default()));
    let expected = "eos: expected end tokens (eos), max_new_tokens or max_length, found none";
    assert_eq!(endless, expected);
}

pub(crate) fn a_forked_child_takes_a_draft() {
    let model = model();
    let limits = Limits { beams: 2, ..Limits::new(1, 6, 9) };
    let mut session = Session::new(&model, limits).expect("a session");
    let (_, row) = begin(&mut session);
    session.prefill(row, &[1, 2], None).expect("a prompt");
    session.step(&[StepRow::new(row, 3)]).expect("a step");
    let child = session.fork(row).expect("a fork");
    session.prefill(child, &[], None).expect("nothing");
    let mut last = Vec::new();
    session
        .prefill(child, &[4, 5], Some(&mut |_, logits| last = logits.to_vec()))
        .expect("a draft");
    session.step(&[StepRow::new(row, 4)]).expect("a step");
    assert_eq!(session.step(&[StepRow::new(row, 5)]).expect("a step"), last);
}

pub(crate) fn a_misspelt_instruction_set_is_an_error() {
    let detected = |name: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        let output = child.arg("detect").env("SIMDFORMER_ISA", name).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(detected("scalar"), "scalar\n");
    assert!(detected("avx-512").starts_with(r#"refused: unknown instruction set "avx-512""#));
}
