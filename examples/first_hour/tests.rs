//! The programs run, give the expected results, and stay short.

use super::*;
use simdformer::search::{Finish, Hooks};
use simdformer::{Event, Limits, Model, Session, Source};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::path::Path;

/// The translation of a source alone, in a session of its own.
fn alone(source: &[u32]) -> Vec<u32> {
    let model = Model::open(MODEL).expect("the model of the repository");
    let mut session = Session::new(&model, Limits::new(1, 32, 40)).expect("a session");
    let options = session.search_options();
    let mut tokens = Vec::new();
    session
        .generate(&[Source::new(source)], &options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event {
                tokens.extend(done.hypotheses().next().expect("a hypothesis").tokens);
            }
        })
        .expect("translated");
    tokens
}

#[test]
fn kernels_on_buffers_and_threads_of_ones_own() {
    for threads in [1, 2, 3] {
        let largest = kernels::run(threads).expect("shapes that fit");
        assert!((largest - 3.0).abs() < 1e-5, "{largest}");
    }
}

/// Each hypothesis has the bits of causal attention over all of its tokens at once.
#[test]
fn decode_steps_with_a_fork_have_the_bits_of_a_prefill() {
    use decode::{HEAD_DIM, HEADS, WIDTH, projections};
    use simdformer::kernels::{
        AttentionOptions, Exec, Heads, HeadsMut, Isa, Qkv, Sequence, attention, attention_scratch,
    };

    let (common, tails) = ([4, 9, 2, 6, 6], [&[1, 8, 3][..], &[7, 7, 5]]);
    let found = decode::run(&common, tails).expect("shapes that fit");
    for (tail, found) in tails.iter().zip(found) {
        let tokens: Vec<u32> = common.iter().chain(*tail).copied().collect();
        let [query, key, value] = [0, 1, 2].map(|part| -> Vec<f32> {
            tokens.iter().flat_map(|&token| projections(token)[part]).collect()
        });
        let (isa, dims) = (Isa::detect().expect("a set"), [tokens.len(), HEADS, HEAD_DIM]);
        let heads = |data| Heads::new(data, dims).expect("heads");
        let sequences = [Sequence::packed(0, tokens.len())];
        let floats = attention_scratch(isa, &sequences, HEADS, HEAD_DIM).expect("a size");
        let (mut scratch, mut out) = (vec![0.0; floats], vec![0.0; tokens.len() * WIDTH]);
        attention(
            Exec::serial(isa),
            Qkv { query: heads(&query), key: heads(&key), value: heads(&value) },
            &sequences,
            &AttentionOptions { causal: true, ..AttentionOptions::new(HEAD_DIM) },
            HeadsMut::new(&mut out, dims).expect("heads").into(),
            &mut scratch,
        )
        .expect("attention");
        assert_eq!(out[out.len() - WIDTH..].as_chunks().0, [found]);
    }
}

#[test]
fn a_function_without_std_computes() {
    let mut packed = vec![0.0; simdformer_no_std::packed_len(2, 3).expect("a size")];
    let (x, weight) = ([3.0, 4.0, -1.0, 2.0], [1.0, 0.0, 0.0, 1.0, 1.0, -2.0]);
    let (x, weight) = (Matrix::new(&x, 2, 2).expect("x"), Matrix::new(&weight, 3, 2).expect("w"));
    let mut out = [f32::NAN; 6];
    let mut run = |bias: &[f32]| {
        let out = MatrixMut::new(&mut out, 2, 3).expect("an output");
        simdformer_no_std::feed_forward(x, (weight, bias), &mut packed, out)
    };
    assert!(run(&[0.5; 4]).is_err(), "a bias of four elements for three outputs");
    run(&[0.5; 3]).expect("shapes that fit");
    assert_eq!(out, [3.5, 4.5, 0.0, 0.0, 2.5, 0.0]);
}

#[test]
fn int8_translates_alike_in_less_memory() {
    let folder = TemporaryFolder::new("first-hour");
    let file = folder.path().join("int8.packed");
    let [f32, int8, read] = int8::run(MODEL, &file, &SOURCES).expect("translated");
    assert_eq!(f32.1, SOURCES.map(|source| vec![alone(source)]));
    assert_eq!(int8.1, f32.1);
    assert_eq!(read, int8);
    assert!(3 * int8.0 < 2 * f32.0, "{} bytes in int8, {} in f32", int8.0, f32.0);
}

#[test]
fn the_best_the_best_few_and_samples() {
    let [best, n_best, samples] = n_best::run(MODEL).expect("translated");
    for (source, best) in SOURCES.iter().zip(&best) {
        assert_eq!(best[..], [alone(source)]);
    }
    assert_eq!((best.len(), n_best.len(), samples.len()), (3, 1, 1));
    let all_distinct =
        |found: &[Vec<u32>]| (1..found.len()).all(|i| !found[..i].contains(&found[i]));
    assert!(n_best[0].len() == 3 && all_distinct(&n_best[0]), "{n_best:?}");
    assert!(n_best[0].contains(&best[0][0]), "{n_best:?}");
    assert!(samples[0].len() == 3 && samples[0].iter().all(|sample| !sample.is_empty()));
    assert_eq!(n_best::run(MODEL).expect("again"), [best, n_best, samples]);
}

#[test]
fn streamed_tokens_name_their_source_and_end_on_request() {
    let (streams, counts) = stream::run(MODEL, usize::MAX).expect("streamed");
    assert_eq!(streams[0].tokens, alone(SOURCES[0]));
    assert_eq!(streams[1].tokens, alone(SOURCES[1])[..2]);
    assert_eq!(streams[2].tokens, alone(SOURCES[2]));
    let finishes: Vec<_> = streams.iter().filter_map(|stream| stream.finish).collect();
    assert_eq!(finishes, [Finish::End, Finish::Stopped, Finish::End]);
    assert_eq!(counts.cancelled, 0);
    // Stop everything after one token, which is a token of the first or of the second source.
    let (streams, counts) = stream::run(MODEL, 1).expect("streamed");
    assert!(streams.iter().all(|stream| stream.finish == Some(Finish::Stopped)), "{streams:?}");
    assert_eq!((counts.cancelled, counts.steps), (3, 1));
    assert!(streams[2].tokens.is_empty());
}

#[test]
fn a_source_admitted_later_has_the_translation_it_has_alone() {
    let found = admit::run(MODEL, &SOURCES).expect("translated");
    assert_eq!(found, SOURCES.map(alone));
}

#[test]
fn a_service_answers_good_requests_and_rejects_bad_ones() {
    let asked = [&SOURCES[..], &[&[1, 999_999]], &SOURCES[..], &[&[]], &SOURCES[..]].concat();
    let answers = service::run(MODEL, &asked).expect("a service");
    assert_eq!(answers.len(), asked.len());
    for (source, answer) in asked.iter().zip(&answers) {
        match answer {
            Ok(found) => assert_eq!(found[..], [alone(source)]),
            Err(text) => assert!(text.starts_with("source 0: "), "{text}"),
        }
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
}

#[test]
fn an_architecture_by_hand_computes() {
    let logits = by_hand::run(1).expect("logits");
    assert_eq!(logits.len(), 100);
    assert!(logits.iter().all(|x| x.is_finite()) && logits.iter().any(|&x| x != logits[0]));
    assert_eq!(by_hand::run(1).expect("again"), logits);
    assert_ne!(by_hand::run(2).expect("other weights"), logits);
}

#[test]
fn the_attention_weights_of_a_head_sum_to_one() {
    let all: Vec<_> =
        (0..4).map(|head| one_head::run(MODEL, SOURCES[1], (1, head)).expect("weights")).collect();
    for weights in &all {
        assert_eq!(weights.len(), alone(SOURCES[1]).len());
        for row in weights {
            assert_eq!(row.len(), SOURCES[1].len());
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{row:?}");
        }
        assert_eq!(one_head::draw(weights).lines().count(), weights.len());
    }
    assert!(all[1..].iter().all(|other| *other != all[0]), "heads that look alike");
    assert!(one_head::run(MODEL, SOURCES[1], (9, 0)).is_err());
}

/// A program has at most 60 lines of code, and the crate documentation names it.
#[test]
fn each_program_is_short_and_named_in_the_crate_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let (model, kernels) = (read("src/lib.rs"), read("kernels/src/lib.rs"));
    let names = std::fs::read_dir(root.join("examples/first_hour")).expect("a folder");
    let names =
        names.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let mut programs: Vec<String> =
        names.map(|name| format!("examples/first_hour/{name}")).collect();
    programs.retain(|path| !path.ends_with("tests.rs"));
    programs.push("tests/no_std/src/lib.rs".to_owned());
    assert_eq!(programs.len(), 11);
    for path in programs {
        let text = read(&path);
        let code = text.lines().filter(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        });
        assert!(code.count() <= 60, "{path} is too long");
        let named = format!("`{path}`");
        let is_named = model.contains(&named) || kernels.contains(&named);
        assert!(is_named || path.ends_with("main.rs"), "{path} is named nowhere");
    }
}
