//! Guarantee 4 for sessions: bad input is an error that says what was expected and what was found. It never
//! panics, and no two mistakes have the same text. A rejected call changes nothing: later calls give the
//! same bits as before.
//!
//! This file has the calls of a session. Checkpoints are in `checkpoint_errors.rs`, operands of kernels in
//! `kernel_errors.rs`.

use crate::random_model::Dims;
use crate::rejections::{Seen, error_text};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::{
    BeamOptions, Context, Hooks, LogitsProcessor, SampleOptions, SearchOptions, Strategy,
};
use simdformer::{Error, Event, HypothesisId, Limits, Model, Session, Source, SourceId, StepRow};

const LIMITS: Limits = Limits {
    sentences: 2,
    source_tokens: 8,
    batch_tokens: 12,
    target_tokens: 5,
    beams: 2,
    end_tokens: 2,
    draft_tokens: 2,
    cache: None,
};

fn model() -> Model {
    Model::load(&Dims::small(Family::Marian).checkpoint(1), Isa::best()).expect("a model")
}

/// The bits that a correct use of the session gives.
fn healthy(session: &mut Session) -> Vec<u32> {
    session.clear();
    let mut sentences = [SourceId::default(); 2];
    session.encode(&[&[5, 6, 7, 0], &[8, 0]], &mut sentences).expect("encoded");
    let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
    session.prefill(rows[0], &[2, 9], None).expect("prefilled");
    let fork = session.fork(rows[0]).expect("a fork");
    let steps =
        [(rows[0], 3), (rows[1], 4), (fork, 5)].map(|(row, token)| StepRow::new(row, token));
    let logits = session.step(&steps).expect("stepped");
    let mut bits: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
    let options = SearchOptions { max_new_tokens: Some(3), start: 2, ..SearchOptions::default() };
    session
        .generate(&[Source::new(&[5, 6, 0])], &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                bits.extend(done.hypotheses().flat_map(|h| h.tokens.to_vec()));
            }
        })
        .expect("generated");
    session.clear();
    bits
}

/// Encodes one sentence and starts a hypothesis of it.
fn begin(session: &mut Session) -> (SourceId, HypothesisId) {
    let mut sentence = [SourceId::default()];
    session.encode(&[&[5, 6, 0]], &mut sentence).expect("encoded");
    (sentence[0], session.start(sentence[0]).expect("a row"))
}

/// Calls `align` with buffers that are large enough for every argument.
fn align(session: &mut Session, layer: usize, heads: &[usize]) -> Option<String> {
    let (sentence, row) = begin(session);
    session.release(row).expect("released");
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    error_text(session.align(sentence, &[1], (layer, heads), &mut scratch, &mut [0.0; 3]))
}

type Wrong = fn(&mut Session) -> Option<String>;

/// Wrong calls of a session with [`LIMITS`].
const CALLS: &[(&str, &[&str], Wrong)] = &[
    ("fewer places than sources", &["1 places for the slots of all sources", "found 0"], |s| {
        error_text(s.encode(&[&[1]], &mut []))
    }),
    ("an empty source", &["source 1", "at least one token"], |s| {
        error_text(s.encode(&[&[1], &[]], &mut [SourceId::default(); 2]))
    }),
    ("a source that is too long", &["`source_tokens`", "at most 8", "9"], |s| {
        error_text(s.encode(&[&[1; 9]], &mut [SourceId::default()]))
    }),
    ("sources too long together", &["`batch_tokens`", "at most 12", "14"], |s| {
        error_text(s.encode(&[&[1; 7], &[1; 7]], &mut [SourceId::default(); 2]))
    }),
    ("a source id outside the vocabulary", &["token 2", "found 131", "131"], |s| {
        error_text(s.encode(&[&[1, 2, 131]], &mut [SourceId::default()]))
    }),
    ("more sources than slots", &["at most 2, the free sentence slots", "found 3"], |s| {
        error_text(s.encode(&[&[1], &[2], &[3]], &mut [SourceId::default(); 3]))
    }),
    ("more sources than free slots", &["at most 1, the free sentence slots", "found 2"], |s| {
        begin(s);
        error_text(s.encode(&[&[1], &[2]], &mut [SourceId::default(); 2]))
    }),
    ("a memory of too many", &["`sentences`", "at most 2", "3"], |s| {
        error_text(s.encoder_output(&[&[1], &[2], &[3]]))
    }),
    ("a memory of nothing at all", &["source 0", "at least one token"], |s| {
        error_text(s.encoder_output(&[&[]]))
    }),
    ("starting about no sentence", &["expected a sentence of this session", "slot 0"], |s| {
        error_text(s.start(SourceId::default()))
    }),
    (
        "starting about a sentence that another replaced",
        &["expected a sentence of this session", "slot 1"],
        |s| {
            begin(s);
            let (gone, _) = begin(s);
            s.release_sentence(gone).expect("released");
            begin(s);
            error_text(s.start(gone))
        },
    ),
    ("a third hypothesis of two", &["at most 2 planned hypotheses", "slot 0"], |s| {
        let (sentence, _) = begin(s);
        s.start(sentence).expect("a row");
        error_text(s.start(sentence))
    }),
    ("a fork with no slot left", &["at most 2 planned hypotheses", "slot 1"], |s| {
        begin(s);
        let (sentence, row) = begin(s);
        s.start(sentence).expect("a row");
        error_text(s.fork(row))
    }),
    ("a fork of no hypothesis", &["expected a hypothesis of this session", "slot 0"], |s| {
        error_text(s.fork(HypothesisId::default()))
    }),
    ("releasing twice", &["expected a hypothesis of this session", "slot 1"], |s| {
        let (sentence, _) = begin(s);
        let row = s.start(sentence).expect("a row");
        s.release(row).expect("released");
        error_text(s.release(row))
    }),
    (
        "a hypothesis that another replaced",
        &["expected a hypothesis of this session", "slot 2"],
        |s| {
            begin(s);
            let (sentence, row) = begin(s);
            s.release(row).expect("released");
            s.start(sentence).expect("a row");
            error_text(s.step(&[StepRow::new(row, 1)]))
        },
    ),
    ("the length of a hypothesis whose sentence has gone", &["hypothesis", "slot 3"], |s| {
        begin(s);
        let (sentence, _) = begin(s);
        let row = s.start(sentence).expect("a row");
        s.release_sentence(sentence).expect("released");
        error_text(s.hypothesis_len(row))
    }),
    ("one row twice in a step", &["hypothesis: expected each", "slot 0", "twice"], |s| {
        let step = StepRow::new(begin(s).1, 1);
        error_text(s.step(&[step, step]))
    }),
    ("a target id outside the vocabulary", &["token 1", "found 4294967295"], |s| {
        let (sentence, row) = begin(s);
        let other = s.start(sentence).expect("a row");
        error_text(s.step(&[StepRow::new(row, 1), StepRow::new(other, u32::MAX)]))
    }),
    ("a step past the planned length", &["`target_tokens`", "at most 5", "6"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1; 5], None).expect("prefilled");
        error_text(s.step(&[StepRow::new(row, 1)]))
    }),
    ("more rows than slots", &["`sentences * beams`", "at most 4", "5"], |s| {
        error_text(s.step(&[StepRow::default(); 5]))
    }),
    ("a prefix past the planned length", &["`target_tokens`", "at most 5", "7"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1; 4], None).expect("prefilled");
        error_text(s.prefill(row, &[1; 3], None))
    }),
    ("a prefix id outside the vocabulary", &["token 2", "found 500"], |s| {
        let (_, row) = begin(s);
        error_text(s.prefill(row, &[1, 2, 500], None))
    }),
    ("an alignment without heads", &["at least one head", "found none"], |s| align(s, 0, &[])),
    ("an alignment of a head too many", &["`head`", "less than 3", "found 3"], |s| {
        align(s, 0, &[0, 3])
    }),
    ("an alignment of a layer too many", &["`layer`", "less than 2", "found 2"], |s| {
        align(s, 2, &[0])
    }),
    ("an alignment in a short scratch", &["trace_floats", "found 0"], |s| {
        let (sentence, row) = begin(s);
        s.release(row).expect("released");
        error_text(s.align(sentence, &[1], (0, &[0]), &mut [], &mut [0.0; 3]))
    }),
    ("an alignment with nowhere to go", &["6 floats for the alignment", "found 5"], |s| {
        let (sentence, row) = begin(s);
        s.release(row).expect("released");
        let mut scratch = vec![0.0; s.plan().trace_floats()];
        error_text(s.align(sentence, &[1, 2], (0, &[0]), &mut scratch, &mut [0.0; 5]))
    }),
    ("a draft that was not planned", &["`draft_tokens`", "at most 2", "found 3"], |s| {
        let row = begin(s).1;
        error_text(
            s.verify(StepRow { draft: &[1; 3], ..StepRow::new(row, 1) }, &mut |_, _| Ok(None)),
        )
    }),
    ("two drafts that were not planned", &["`draft_tokens`", "at most 2", "found 4"], |s| {
        let (sentence, row) = begin(s);
        let other = s.start(sentence).expect("a row");
        error_text(s.step(&[row, other].map(|row| StepRow {
            hypothesis: row,
            token: 1,
            draft: &[1; 2],
        })))
    }),
    ("an id of a draft outside the vocabulary", &["token 1", "found 131"], |s| {
        let row = begin(s).1;
        error_text(
            s.verify_argmax(StepRow { draft: &[1, 131], ..StepRow::new(row, 1) }, &|_, _| false),
        )
    }),
    ("an id before a draft outside the vocabulary", &["token 0", "found 132"], |s| {
        let row = begin(s).1;
        error_text(
            s.verify(StepRow { draft: &[1], ..StepRow::new(row, 132) }, &mut |_, _| Ok(None)),
        )
    }),
    ("a choice that gives up", &["logits processor", "no more"], |s| {
        let row = begin(s).1;
        let gives_up = &mut |i, _: &mut [f32]| match i {
            0 => Ok(Some(1)),
            _ => Err(Error::processor("no more")),
        };
        let refused =
            error_text(s.verify(StepRow { draft: &[1; 2], ..StepRow::new(row, 1) }, gives_up));
        assert_eq!(s.hypothesis_len(row), Ok(0), "nothing has changed");
        refused
    }),
    ("a rewind to what never was", &["at most 2 to go back to", "been fed", "found 3"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1, 2], None).expect("prefilled");
        error_text(s.rewind(row, 3))
    }),
    ("a draft past the planned length", &["`target_tokens`", "at most 5", "found 8"], |s| {
        let (_, row) = begin(s);
        s.prefill(row, &[1, 2], None).expect("prefilled");
        let fork = s.fork(row).expect("a fork");
        error_text(s.prefill(fork, &[1; 6], None))
    }),
];

/// Makes one setting of a search wrong.
type Change = fn(&mut SearchOptions);

const SEARCHES: &[(&str, &[&str], Change)] = &[
    ("no sequence wanted", &["num_return_sequences", "0"], |o| o.num_return_sequences = 0),
    ("two greedy sequences", &["num_return_sequences", "at most 1", "2"], |o| {
        o.num_return_sequences = 2;
    }),
    ("more beams than planned", &["beams: expected at most 2", "`beams` = 2", "found 3"], |o| {
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
    ("more samples than planned", &["num_return_sequences: expected at most 2", "found 4"], |o| {
        o.strategy = Strategy::Sample(SampleOptions::default());
        o.num_return_sequences = 4;
    }),
    ("more new tokens than planned", &["max_new_tokens: expected at most 5", "found 40"], |o| {
        o.max_new_tokens = Some(40);
    }),
    ("a longer target than planned", &["max_length: expected at most 6", "= 5", "found 41"], |o| {
        o.max_length = Some(41);
    }),
    ("nothing that ends", &["eos", "max_new_tokens", "found none"], |o| o.max_new_tokens = None),
    ("a length of zero", &["max_length", "at least 2", "0"], |o| o.max_length = Some(0)),
    ("a length for the start alone", &["max_length", "at least 2", "found 1"], |o| {
        o.max_length = Some(1);
    }),
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

/// The error of scores that are not finite.
fn not_finite(position: usize) -> Error {
    let operand = "scores".into();
    Error::NotFinite { index: None, operand, position: Some(position), found: None }
}

/// A processor that returns the given error.
struct Fails(Error);

impl LogitsProcessor for Fails {
    fn process(&mut self, _: &Context<'_>, _: &mut [f32]) -> Result<(), Error> {
        Err(self.0.clone())
    }
}

#[test]
fn wrong_calls_are_errors_and_change_nothing() {
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
        error_text(session.generate(&[Source::new(&[4, 0]), source], options, hooks, &mut |_| ()))
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
        ("an empty source among others", &["source 1: expected"], Source::new(&[])),
        ("a long source among others", &["source 1", "at most 8", "10"], Source::new(&[1; 10])),
        ("a foreign id among others", &["source 1", "found 200"], Source::new(&[1, 1, 1, 200])),
    ];
    for (mistake, parts, prefix) in [
        ("a foreign id in a prefix", &["source 1: prefix", "below 131", "133"][..], &[133][..]),
        (
            "a prefix that leaves no space",
            &["source 1: prompt", "at most 3", "space for 3", "found 7"],
            &[1; 6],
        ),
    ] {
        let mut source = Source::new(&[5, 6, 0]);
        source.prefix = prefix;
        requests.push((mistake, parts, source));
    }
    let mut source = Source::new(&[5, 6, 0]);
    source.forced_bos = Some(131);
    requests.push(("a foreign language", &["source 1: forced_bos", "131"], source));
    for (mistake, parts, source) in requests {
        let message = generate(&mut session, source, &base, &mut Hooks::default());
        // An empty source has the same text in every call; only its index may differ.
        if mistake != "an empty source among others" {
            seen.check(mistake, message, parts);
        } else {
            assert!(message.is_some_and(|said| said.contains(parts[0])));
        }
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    for (mistake, parts, error) in [
        (
            "a processor that gives up",
            &["source 0", "no dictionary"][..],
            Error::processor("no dictionary"),
        ),
        ("a processor that refuses NaN", &["source 0: ", "NaN", "position 1"], not_finite(1)),
    ] {
        let mut processor = Fails(error);
        let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut processor];
        let mut hooks = Hooks { processors: &mut processors, ..Hooks::default() };
        let message = generate(&mut session, Source::new(&[5, 0]), &base, &mut hooks);
        seen.check(mistake, message, parts);
        assert_eq!(healthy(&mut session), expected, "after {mistake}");
    }
    let mut nothing = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| allow(&[]);
    let mut hooks = Hooks { allowed: Some(&mut nothing), ..Hooks::default() };
    let message = generate(&mut session, Source::new(&[5, 0]), &base, &mut hooks);
    seen.check(
        "nothing allowed",
        message,
        &["source 0: expected an allowed token at position 1 of the target, found none"],
    );
    assert_eq!(healthy(&mut session), expected, "after nothing was allowed");
}

/// A request for nothing is not an error.
#[test]
fn empty_requests_succeed() {
    let model = model();
    let mut session = Session::new(&model, LIMITS).expect("a session");
    let expected = healthy(&mut session);
    session.encode(&[], &mut []).expect("nothing encoded");
    assert!(session.encoder_output(&[]).expect("no memory").is_empty());
    assert!(session.step(&[]).expect("no logits").is_empty());
    let (_, row) = begin(&mut session);
    session.prefill(row, &[], Some(&mut |_, _| panic!("no token"))).expect("nothing filled in");
    assert_eq!(session.hypothesis_len(row), Ok(0));
    let options = SearchOptions { max_length: Some(4), ..SearchOptions::default() };
    let counts = session
        .generate(&[], &options, &mut Hooks::default(), &mut |event| {
            assert!(matches!(event, Event::Step(_)), "no sentence");
        })
        .expect("nothing generated");
    assert_eq!((counts.steps, counts.rows), (0, 0));
    assert_eq!(healthy(&mut session), expected);
}

/// After a panic in a callback of the caller the session can still be used.
#[test]
fn a_panic_of_a_callback_leaves_the_session_usable() {
    let model = model();
    let mut session = Session::new(&model, LIMITS).expect("a session");
    let expected = healthy(&mut session);
    let options = SearchOptions { max_new_tokens: Some(3), start: 2, ..SearchOptions::default() };
    let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let sources = [Source::new(&[5, 0]), Source::new(&[6, 0]), Source::new(&[7, 0])];
        session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(_) = event {
                std::panic::resume_unwind(Box::new("the caller's own"));
            }
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
        error_text(Session::new(&model, limits))
    };
    seen.check("no sentences", with(|l| l.sentences = 0), &["`sentences`", "0"]);
    seen.check("no source tokens", with(|l| l.source_tokens = 0), &["`source_tokens`"]);
    seen.check("no batch", with(|l| l.batch_tokens = 0), &["`batch_tokens`"]);
    seen.check("no target tokens", with(|l| l.target_tokens = 0), &["`target_tokens`"]);
    seen.check("no beams", with(|l| l.beams = 0), &["`beams`"]);
    seen.check("no end tokens", with(|l| l.end_tokens = 0), &["`end_tokens`", "0"]);
    let narrow = with(|l| l.batch_tokens = 7);
    seen.check(
        "a call without space",
        narrow,
        &["`batch_tokens`", "`source_tokens`, 8", "found 7"],
    );
    let long = with(|l| (l.source_tokens, l.batch_tokens) = (257, 300));
    seen.check("sources beyond the model", long, &["`source_tokens`", "256", "257"]);
    let long = with(|l| l.target_tokens = 1 << 20);
    seen.check("targets beyond the model", long, &["`target_tokens`", "256", "1048576"]);
    seen.check("too much", with(|l| l.sentences = usize::MAX), &["address space"]);
    let mut buffer = [0.0; 100];
    let short = error_text(Session::with_buffer(&model, LIMITS, &mut buffer));
    seen.check("a short buffer", short, &["floats", "found 100"]);
}
