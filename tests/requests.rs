//! Requests of a session: a wrong request is an error that names the source, before anything has begun. A
//! target that the plan cuts off says so in its finish.

use crate::random_model::Dims;
use crate::rejections::error_text;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Family};
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Finish, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy,
};
use simdformer::{Error, Event, Limits, Model, Session, Source, StepRow};
use std::path::Path;

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(1), Isa::best()).expect("a model")
}

/// Translates from French. The checkpoint sets targets of at most 40 tokens and forces the last token to be
/// an end token.
fn trained() -> Model {
    Model::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en")).expect("a model")
}

/// A source of a dozen English tokens, such as "la vieille maison blanche est belle".
const LONG: &[u32] = &[954, 1388, 1444, 774, 2040, 2315, 375, 0];

/// The finish of a source, and its hypotheses.
type Ended = (Finish, Vec<Vec<u32>>);

/// The result of each source.
fn run(
    session: &mut Session<'_>,
    sources: &[Source<'_>],
    options: &SearchOptions,
) -> Result<Vec<Ended>, Error> {
    let mut found: Vec<Option<Ended>> = vec![None; sources.len()];
    session.generate(sources, options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            let tokens = done.hypotheses().map(|hypothesis| hypothesis.tokens.to_vec()).collect();
            assert!(found[done.source].replace((done.finish, tokens)).is_none(), "reported twice");
        }
    })?;
    Ok(found.into_iter().map(|found| found.expect("reported")).collect())
}

fn strategies() -> [Strategy; 4] {
    [
        Strategy::Greedy,
        Strategy::Beam(BeamOptions { beams: 3, ..BeamOptions::default() }),
        Strategy::Beam(BeamOptions { beams: 2, groups: 2, ..BeamOptions::default() }),
        Strategy::Sample(SampleOptions { temperature: 0.1, ..SampleOptions::default() }),
    ]
}

#[test]
fn a_checkpoint_whose_targets_exceed_the_plan_is_an_error_or_a_named_cut() {
    let model = trained();
    let asked = model.config().search_options();
    assert_eq!((asked.max_length, &asked.forced_eos[..]), (Some(40), &[0][..]));
    let whole = Limits { beams: 3, ..Limits::new(1, 16, 39) };
    let mut whole = Session::new(&model, whole).expect("a session");
    assert_eq!(whole.search_options(), asked);
    let mut session =
        Session::new(&model, Limits { beams: 3, ..Limits::new(1, 16, 6) }).expect("a session");
    let refused = run(&mut session, &[Source::new(LONG)], &asked).expect_err("40 do not fit 6");
    let text = "max_length: expected at most 7 in a session that was planned with `target_tokens` = 6, found 40";
    assert_eq!(refused.to_string(), text);
    assert_eq!(session.check(&Source::new(LONG), &asked), Err(refused));

    for strategy in strategies() {
        for scores in [true, false] {
            let options =
                SearchOptions { strategy: strategy.clone(), scores, ..session.search_options() };
            let cut = run(&mut session, &[Source::new(LONG)], &options).expect("generated");
            assert_eq!(cut[0].0, Finish::Length, "{strategy:?}");
            let options = SearchOptions { max_length: asked.max_length, ..options };
            let ended = run(&mut whole, &[Source::new(LONG)], &options).expect("generated");
            assert_eq!(ended[0].0, Finish::End, "{strategy:?}");
            for hypothesis in &cut[0].1 {
                // The tokens before the cut are those of a longer plan: no end token
                // replaces the cut.
                assert_eq!(hypothesis.len(), 6, "{strategy:?}");
                assert_ne!(hypothesis.last(), Some(&0), "{strategy:?}");
            }
            if strategy == Strategy::Greedy {
                assert!(ended[0].1[0].starts_with(&cut[0].1[0]));
            }
        }
    }
}

/// A longest length set by the caller, at which an end token is forced.
#[test]
fn a_forced_end_does_not_hide_a_cut() {
    let model = trained();
    let mut session =
        Session::new(&model, Limits { beams: 3, ..Limits::new(1, 16, 20) }).expect("a session");
    for strategy in strategies() {
        for (max_new_tokens, max_length) in [(Some(4), None), (None, Some(5)), (Some(9), Some(5))] {
            let options = SearchOptions {
                strategy: strategy.clone(),
                max_new_tokens,
                max_length,
                ..session.search_options()
            };
            let found = run(&mut session, &[Source::new(LONG)], &options).expect("generated");
            let (finish, hypotheses) = &found[0];
            assert_eq!(*finish, Finish::Length, "{strategy:?}");
            for hypothesis in hypotheses {
                assert_eq!((hypothesis.len(), hypothesis.last()), (4, Some(&0)), "{strategy:?}");
            }
        }
    }
}

#[test]
fn more_new_tokens_than_planned_are_an_error() {
    let model = model();
    let mut session = Session::new(&model, Limits::new(2, 8, 6)).expect("a session");
    let with = |new| SearchOptions { max_new_tokens: Some(new), ..SearchOptions::default() };
    let source = Source::new(&[5, 6, 0]);
    let found = run(&mut session, &[source], &with(6)).expect("all that was planned");
    assert_eq!((found[0].0, found[0].1[0].len()), (Finish::Length, 6));
    let error = run(&mut session, &[source], &with(7)).expect_err("one more");
    assert_eq!(
        error.to_string(),
        "max_new_tokens: expected at most 6 in a session that was planned with `target_tokens` = 6, found 7"
    );
    // A prefix takes a part of the planned tokens.
    let prefixed = Source { prefix: &[3, 4], ..source };
    run(&mut session, &[source, prefixed], &with(4)).expect("space for all");
    let error =
        run(&mut session, &[source, prefixed], &with(5)).expect_err("no space for the fifth");
    assert_eq!(
        error.to_string(),
        "source 1: prompt: expected at most 2 tokens with the decoder start, to leave space for 5 \
         more, found 3"
    );
    // Unless the whole length is limited.
    let options = SearchOptions { max_length: Some(7), ..with(5) };
    let found = run(&mut session, &[source, prefixed], &options).expect("generated");
    assert_eq!((found[0].1[0].len(), found[1].1[0].len()), (5, 4));
}

/// One wrong source makes the call an error that names it, and nothing has begun.
#[test]
fn one_wrong_source_is_named_and_nothing_has_begun() {
    let model = model();
    let mut session = Session::new(&model, Limits::new(3, 8, 9)).expect("a session");
    let options = SearchOptions { max_new_tokens: Some(3), ..SearchOptions::default() };
    let good = Source::new(&[5, 6, 0]);
    let bad = [
        (Source::new(&[]), "expected at least one token, found none"),
        (
            Source::new(&[1; 9]),
            "the limit `source_tokens`: expected at most 8, with which the session was planned, found 9",
        ),
        (
            Source::new(&[1, 131]),
            "token 1: expected a token id below 131, the size of the vocabulary, found 131",
        ),
        (
            Source { prefix: &[2, 140], ..good },
            "prefix: expected a token id below 131, the size of the vocabulary, found 140",
        ),
        (
            Source { prefix: &[1; 8], ..good },
            "prompt: expected at most 7 tokens with the decoder start, to leave space for 3 more, found 9",
        ),
        (
            Source { forced_bos: Some(200), ..good },
            "forced_bos: expected a token id below 131, the size of the vocabulary, found 200",
        ),
    ];
    for (source, error) in bad {
        let expected = |index| format!("source {index}: {error}");
        assert_eq!(error_text(session.check(&source, &options)), Some(expected(0)));
        for index in [0, 4, 99] {
            let mut sources = [good; 100];
            sources[index] = source;
            let mut events = 0;
            let mut on_event = |event: Event<'_>| {
                events += 1;
                let refused = matches!(event, Event::Refused { source, .. } if source == index);
                assert!(refused, "something had begun: {event:?}");
            };
            let hooks = &mut Hooks::default();
            let found = session.generate(&sources, &options, hooks, &mut on_event);
            assert_eq!((error_text(found), events), (Some(expected(index)), 1));
        }
    }
    assert_eq!(session.check(&good, &options), Ok(()));
    let wrong = SearchOptions { repetition_penalty: 0.0, ..options.clone() };
    assert!(matches!(session.check(&good, &wrong), Err(Error::InvalidOption { index: None, .. })));
    // `Plan::check` rejects the same requests on another thread, without the session.
    let plan = session.plan().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(plan.check(&good, &options), Ok(())));
        run(&mut session, &[good; 10], &options).expect("generated");
    });
}

/// A processor that fails at the given history, or makes a score NaN if it has no error.
struct FailsAt {
    history: Vec<u32>,
    error: Option<Error>,
}

impl LogitsProcessor for FailsAt {
    fn process(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        if context.history == self.history {
            scores[3] = f32::NAN;
            return self.error.clone().map_or(Ok(()), Err);
        }
        Ok(())
    }
}

#[test]
fn an_error_of_a_processor_names_its_source() {
    let model = model();
    // Two slots for nine sources: the seventh source is not in the seventh slot.
    let limits = Limits { beams: 2, ..Limits::new(2, 8, 9) };
    let mut session = Session::new(&model, limits).expect("a session");
    let beam = Strategy::Beam(BeamOptions { beams: 2, ..BeamOptions::default() });
    let sample = Strategy::Sample(SampleOptions::default());
    for strategy in [Strategy::Greedy, beam, sample] {
        for (error, expected) in [
            (Error::processor("no more"), "source 6: logits processor: no more"),
            (
                Error::NotFinite {
                    index: None,
                    operand: "scores".into(),
                    position: Some(3),
                    found: None,
                },
                "source 6: expected scores below +inf at position 3 of the target, found NaN or +inf",
            ),
        ] {
            let options = SearchOptions {
                strategy: strategy.clone(),
                max_new_tokens: Some(3),
                start: 2,
                ..SearchOptions::default()
            };
            let mut sources = [Source::new(&[5, 6, 0]); 9];
            sources[6].prefix = &[77, 88];
            let mut spoils = FailsAt { history: vec![2, 77, 88], error: Some(error.clone()) };
            let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut spoils];
            let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
            let mut done = Vec::new();
            let found = session.generate(&sources, &options, &mut hooks, &mut |event| {
                if let Event::Done(generated) = event {
                    done.push(generated.source);
                }
            });
            assert_eq!(found.expect_err("it fails").to_string(), expected);
            assert!(done.contains(&0) && !done.contains(&6) && !done.contains(&8), "{done:?}");
            run(&mut session, &sources[..2], &options).expect("it goes on");
        }
        // A score that a processor makes NaN ends that source alone.
        let options = SearchOptions {
            strategy: strategy.clone(),
            max_new_tokens: Some(3),
            start: 2,
            ..SearchOptions::default()
        };
        let mut sources = [Source::new(&[5, 6, 0]); 9];
        sources[6].prefix = &[77, 88];
        let mut spoils = FailsAt { history: vec![2, 77, 88], error: None };
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut spoils];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let mut finishes = [None; 9];
        let counts = session.generate(&sources, &options, &mut hooks, &mut |event| {
            if let Event::Done(generated) = event {
                finishes[generated.source] = Some(generated.finish);
            }
        });
        counts.expect("generated");
        for (source, finish) in finishes.into_iter().enumerate() {
            let expected = if source == 6 { Finish::NotFinite } else { Finish::Length };
            assert_eq!(finish, Some(expected), "{source}");
        }
    }
}

/// The error of a search that would not end.
const NO_END: &str = "eos: expected end tokens (eos), max_new_tokens or max_length, found none";

#[test]
fn limits_that_cannot_work_are_errors_of_the_plan() {
    let model = model();
    let narrow = Limits { batch_tokens: 7, ..Limits::new(2, 8, 8) };
    let error = Session::new(&model, narrow).expect_err("too narrow");
    let text = "the limit `batch_tokens`: expected at least `source_tokens`, 8, found 7";
    assert_eq!(error.to_string(), text);
    let without = Limits { end_tokens: 0, ..Limits::new(2, 8, 8) };
    let error = Session::new(&model, without).expect_err("no end tokens");
    assert_eq!(error.to_string(), "the limit `end_tokens`: expected at least 1, found 0");
    // A search without an end.
    let mut session = Session::new(&model, Limits::new(2, 8, 8)).expect("a session");
    let error = run(&mut session, &[Source::new(&[1])], &SearchOptions::default()).err();
    assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(NO_END));
}

/// End tokens, `max_new_tokens` or `max_length` end a search. The plan alone cuts only a search that has
/// end tokens.
#[test]
fn a_search_needs_an_end_or_a_longest_length() {
    let dims = Dims::small(Family::Marian);
    let with = |eos: &[u32], max_length: Option<usize>, max_new_tokens: Option<usize>| {
        let mut config = dims.config();
        config.tokens.eos = eos.to_vec();
        config.settings.options.max_length = max_length;
        config.settings.options.max_new_tokens = max_new_tokens;
        let checkpoint = Checkpoint::from_bytes(config, dims.bytes(1)).expect("a checkpoint");
        let model = Model::load(&checkpoint, Isa::best()).expect("a model");
        let mut session = Session::new(&model, Limits::new(1, 8, 8)).expect("a session");
        let options = session.search_options();
        let found = run(&mut session, &[Source::new(&[5, 6, 0])], &options);
        let found = found.map_err(|error| error.to_string())?;
        Ok((found[0].0, found[0].1[0].len()))
    };
    let refused = Err(NO_END.to_owned());
    // The plan has space for the decoder start and eight more tokens.
    let cut = Ok((Finish::Length, 8));
    // With these weights the best token is never the last of the vocabulary.
    let never = &[130];
    assert_eq!(with(&[], None, None), refused);
    assert_eq!(with(never, None, None), cut);
    // Longest lengths that the plan has space for, and longer ones.
    assert_eq!(with(&[], Some(5), None), Ok((Finish::Length, 4)));
    assert_eq!(with(&[], None, Some(5)), Ok((Finish::Length, 5)));
    for eos in [&[][..], never] {
        assert_eq!(with(eos, Some(40), None), cut);
        assert_eq!(with(eos, None, Some(40)), cut);
    }
}

#[test]
fn a_configuration_without_a_decoder_start_decodes_only_from_one_that_the_caller_sets() {
    let dims = Dims::small(Family::MBart);
    let json = dims.json().replace("\"decoder_start_token_id\": 2", "\"scale_embedding\": true");
    let json = json.replacen("\"scale_embedding\": true, ", "", 1);
    let config = Config::from_hugging_face(&json).expect("it is read");
    assert_eq!(config.tokens.decoder_start, None);
    let checkpoint = Checkpoint::from_bytes(config, dims.bytes(1)).expect("a checkpoint");
    let model = Model::load(&checkpoint, Isa::best()).expect("it is loaded");
    let limits = Limits { beams: 3, ..Limits::new(1, 8, 8) };
    let mut session = Session::new(&model, limits).expect("a session");
    let source = Source::new(&[5, 6, 0]);
    for strategy in strategies() {
        let mut options =
            SearchOptions { strategy, max_new_tokens: Some(3), ..session.search_options() };
        let refused = session.check(&source, &options).expect_err("no start");
        let text = "start: expected the token that the decoder reads first (decoder_start_token_id in the configuration), found none";
        assert_eq!(refused.to_string(), text);
        assert_eq!(run(&mut session, &[source], &options), Err(refused));
        options.start = 9;
        run(&mut session, &[source], &options).expect("generated");
    }
    // The same in a loop of the caller.
    let mut sentence = [Default::default()];
    session.encode(&[source.tokens], &mut sentence).expect("encoded");
    let row = session.start(sentence[0]).expect("started");
    let token = session.search_options().start;
    assert!(session.step(&[StepRow::new(row, token)]).is_err());
}

/// The texts along `source` do not repeat each other.
#[test]
fn errors_do_not_repeat_themselves() {
    let model = model();
    let mut session = Session::new(&model, Limits::new(2, 8, 8)).expect("a session");
    let wrong = SearchOptions { repetition_penalty: -1.0, ..session.search_options() };
    let errors = [
        run(&mut session, &[Source::new(&[1])], &wrong).expect_err("a wrong option"),
        session.check(&Source::new(&[900]), &session.search_options()).expect_err("a wrong id"),
        session.step(&[Default::default()]).map(|_| ()).expect_err("no row"),
    ];
    for error in errors {
        let mut walk = vec![error.to_string()];
        let mut next = std::error::Error::source(&error);
        while let Some(error) = next {
            walk.push(error.to_string());
            next = error.source();
        }
        for (i, said) in walk.iter().enumerate() {
            assert!(!walk[..i].iter().any(|before| before.contains(said)), "{walk:?}");
        }
        assert!(!walk[0].contains(": search:") && !walk[0].ends_with(": "), "{walk:?}");
    }
}
