//! Wrong calls, and the exact text of each error. No call panics, and each text says what was expected and
//! what was found.
//!
//! Other tables of wrong input check only parts of the texts: `session_errors.rs` (sessions, searches, requests,
//! limits), `kernel_errors.rs` (kernels), `checkpoint_errors.rs` and `broken_checkpoint.rs` (checkpoints), and in
//! the kernels `attention_errors.rs`, `gemm_errors.rs`, `pruned_argmax_errors.rs`, `error_texts.rs`.

use crate::random_model::Dims;
use simdformer::checkpoint::{Checkpoint, Dtype, TensorId};
use simdformer::config::{
    Config, Dimensions, Family, NormPlacement, Positions, RelativeBias, Side, Stack,
};
use simdformer::kernels::activation::{Activation, apply};
use simdformer::kernels::embedding::{self, embed};
use simdformer::kernels::norm::{LayerNorm, Norm, NormInput, norm};
use simdformer::kernels::position::{PositionEncoding, encode};
use simdformer::kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer::kernels::topk::top_k;
use simdformer::kernels::{
    AttentionOptions, Bias, Cache, CacheShape, Epilogue, Exec, Heads, HeadsMut, Input, Isa, Matrix,
    MatrixMut, Parallelism, Qkv, SlotTable, attention_decode, gemm_unpacked, gemm_unpacked_scratch,
};
use simdformer::search::{
    BeamOptions, Finish, Hooks, Request, SampleOptions, Search, SearchLimits, SearchOptions,
    Strategy, score_targets, words,
};
use simdformer::trace::{Probe, View};
use simdformer::{Limits, Model, Session, SourceId};
use std::error::Error;

/// Pairs of the text found and the text expected.
struct Texts(Vec<(String, String)>);

impl Texts {
    fn of<T, E: Error>(&mut self, result: Result<T, E>, expected: &str) {
        let found = match result {
            Ok(_) => panic!("accepted: {expected}"),
            Err(error) => error.to_string(),
        };
        self.0.push((found, expected.to_owned()));
    }

    /// Compares all pairs at once, so that one run shows every difference.
    fn check(self) {
        let wrong: Vec<_> = self.0.iter().filter(|(found, expected)| found != expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let distinct: std::collections::HashSet<_> =
            self.0.iter().map(|(found, _)| found).collect();
        assert_eq!(distinct.len(), self.0.len(), "one text for two mistakes");
    }
}

#[test]
fn kernels() {
    let mut said = Texts(Vec::new());
    let (isa, serial) = (Isa::best(), Parallelism::Serial);
    let (data, mut more) = ([0.5f32; 64], [0.0f32; 64]);
    let x = Matrix::new(&data, 3, 5).expect("space");
    let turned = Matrix::new(&data, 5, 3).expect("space").transposed();

    said.of(
        Matrix::new(&data, 9, 8),
        "slice of a matrix [9, 8] with strides 8 and 1: expected at least 72 elements, found 64",
    );
    said.of(
        Matrix::strided(&data, 2, 2, usize::MAX, 1),
        "the size of a matrix [2, 2] with strides 18446744073709551615 and 1 overflows",
    );
    said.of(x.block(2, 2), "end of a block of rows: expected at most 3, found 4");
    said.of(
        MatrixMut::strided(&mut more, 3, 3, 2, 1),
        "row and column strides of a writable view: expected distinct elements, found 2 and 1",
    );
    said.of(
        HeadsMut::strided(&mut more, [2, 2, 3], 2, 4),
        "token and head strides of a writable view: expected distinct elements, found 2 and 4",
    );
    said.of(
        Heads::new(&data, [2, 2, 4]).expect("space").block(1, 2),
        "end of a block of tokens: expected at most 2, found 3",
    );
    said.of(
        Qkv::fused(&data, [4, 2, 4]),
        "slice of heads [4, 2, 4] with strides 24 and 4: expected at least 96 elements, found 64",
    );

    let mut unpacked = |b: Matrix<'_>, c: [usize; 2], epilogue: Epilogue<'_>, floats: usize| {
        let c = MatrixMut::new(&mut more, c[0], c[1]).expect("space");
        let mut scratch = vec![0.0; floats];
        gemm_unpacked(Exec::serial(isa), x, b, &epilogue, c, &mut scratch)
    };
    let (b, plain) = (Matrix::new(&data, 5, 2).expect("space"), Epilogue::default());
    let needed = gemm_unpacked_scratch(isa, 5, 2).expect("small");
    said.of(unpacked(x, [3, 5], plain, 999), "columns of a: expected 3, found 5");
    said.of(unpacked(b, [4, 2], plain, 999), "shape of c: expected [3, 2], found [4, 2]");
    said.of(unpacked(b, [3, 3], plain, 999), "shape of c: expected [3, 2], found [3, 3]");
    said.of(
        unpacked(b, [3, 2], Epilogue { bias: Some(&data), ..plain }, 999),
        "length of bias: expected 2, found 64",
    );
    let expected = format!("length of scratch: expected at least {needed}, found 1");
    said.of(unpacked(b, [3, 2], plain, 1), &expected);
    said.of(gemm_unpacked_scratch(isa, usize::MAX, 2), "the size of the packed matrix overflows");

    let layer = |eps| Norm::Layer(LayerNorm { weight: &data[..5], bias: Some(&data[..5]), eps });
    let out = |rows, columns| -> MatrixMut<'static> {
        MatrixMut::new(vec![0.0; 64].leak(), rows, columns).expect("space")
    };
    said.of(
        norm(Exec::serial(isa), layer(-1.0), NormInput::Matrix(x), out(3, 5)),
        "eps: expected finite and at least 0, found -1",
    );
    said.of(
        norm(Exec::serial(isa), layer(0.1), NormInput::Matrix(turned), out(3, 5)),
        "column stride of x: expected 1, found 3",
    );
    let residual = Matrix::new(&data, 2, 5).expect("space");
    said.of(
        norm(Exec::serial(isa), layer(0.1), NormInput::Sum { x, residual }, out(3, 5)),
        "shape of residual: expected [3, 5], found [2, 5]",
    );
    said.of(
        apply(Exec::serial(isa), Activation::Relu, Input::Output, out(4, 2).transposed()),
        "column stride of out: expected 1, found 2",
    );

    let positions = |table, rows| Some(embedding::Positions { table, rows });
    let ids = [0, 1, 2];
    said.of(
        embed(Exec::serial(isa), x, &[0, 3, 1], 1.0, None, out(3, 5)),
        "id of token 1: expected less than 3, found 3",
    );
    said.of(
        embed(Exec::serial(isa), x, &ids, 1.0, None, out(2, 5)),
        "shape of out: expected [3, 5], found [2, 5]",
    );
    said.of(
        embed(Exec::serial(isa), x, &ids, 1.0, positions(x, &[0, 1]), out(3, 5)),
        "length of positions.rows: expected 3, found 2",
    );
    said.of(
        embed(Exec::serial(isa), x, &ids, 1.0, positions(x, &[0, 1, 9]), out(3, 5)),
        "position of token 2: expected less than 3, found 9",
    );
    let narrow = Matrix::new(&data, 3, 4).expect("space");
    said.of(
        embed(Exec::serial(isa), x, &ids, 1.0, positions(narrow, &ids), out(3, 5)),
        "columns of positions.table: expected 5, found 4",
    );
    said.of(
        embed(Exec::serial(isa), turned, &ids, 1.0, None, out(3, 5)),
        "column stride of table: expected 1, found 3",
    );
    let learned = PositionEncoding::Learned { table: x, offset: 2 };
    said.of(encode(learned, 0, out(2, 5)), "rows of table: expected at least 4, found 3");
    said.of(encode(learned, 0, out(1, 4)), "columns of table: expected 4, found 5");
    said.of(
        encode(PositionEncoding::HalfSplitClosed { offset: 1 }, 0, out(1, 2)),
        "columns of out: expected at least 4, found 2",
    );

    let options = |lengths| SoftmaxOptions { lengths, ..SoftmaxOptions::default() };
    said.of(
        softmax(Exec::serial(isa), Input::Matrix(x), options(None), out(3, 4)),
        "shape of out: expected [3, 5], found [3, 4]",
    );
    said.of(
        softmax(Exec::serial(isa), Input::Matrix(turned), options(None), out(3, 5)),
        "column stride of scores: expected 1, found 3",
    );
    said.of(
        softmax(Exec::serial(isa), Input::Matrix(x), options(Some(&[1])), out(3, 5)),
        "length of lengths: expected 3, found 1",
    );
    said.of(
        softmax(Exec::serial(isa), Input::Matrix(x), options(Some(&[5, 6, 5])), out(3, 5)),
        "length of row 1: expected at most 5, found 6",
    );
    said.of(
        log_sum_exp(Exec::serial(isa), x, None, &mut [0.0; 2]),
        "length of out: expected 3, found 2",
    );
    let (mut values, mut indices) = ([0.0; 6], [0; 6]);
    said.of(
        top_k(Exec::serial(isa), x, 6, &mut values, &mut indices),
        "columns of scores: expected at least 6, found 5",
    );
    said.of(
        top_k(Exec::serial(isa), x, 2, &mut values[..4], &mut indices),
        "length of values: expected 6, found 4",
    );
    said.of(
        top_k(Exec::serial(isa), x, 2, &mut values, &mut indices[..4]),
        "length of indices: expected 6, found 4",
    );
    said.of(
        top_k(Exec::serial(isa), x.transposed(), 2, &mut values, &mut indices),
        "column stride of scores: expected 1, found 5",
    );

    let shape = CacheShape::new(2, 4, 2, 3);
    let memory = vec![0.0; shape.buffer_len(isa).expect("small")];
    let cache = Cache::new(isa, shape, &memory).expect("the length");
    let query = Heads::new(&data, [1, 2, 3]).expect("space");
    let step = |lens: &[u32], slots: &[u32], options: AttentionOptions<'_>| {
        let out = HeadsMut::new(vec![0.0; 6].leak(), [1, 2, 3]).expect("space");
        attention_decode(query, &cache, SlotTable { lens, slots, stride: 4 }, &options, out, serial)
    };
    let options = AttentionOptions::new(3);
    said.of(step(&[1, 1], &[0; 8], options), "length of lens: expected 1, found 2");
    said.of(step(&[3], &[0; 2], options), "length of slots: expected at least 3, found 2");
    said.of(step(&[5], &[0; 8], options), "keys of row 0: expected at most 4, found 5");
    said.of(step(&[2], &[0, 2], options), "slot of key 1: expected less than 2, found 2");
    let bias = Some(Bias::Dense { data: &data[..2], head_stride: 0, query_stride: 1 });
    said.of(
        step(&[3], &[0; 4], AttentionOptions { bias, ..options }),
        "length of bias: expected at least 3, found 2",
    );
    let bias = Some(Bias::Relative { data: &data, head_stride: 0, zero: 1 });
    said.of(
        step(&[3], &[0; 4], AttentionOptions { bias, ..options }),
        "values before distance 0 of bias: expected at least 2, found 1",
    );
    said.of(
        CacheShape { slots: usize::MAX, ..shape }.buffer_len(isa),
        "the size of the KV cache overflows",
    );
    said.check();
}

#[test]
fn searches() {
    let mut said = Texts(Vec::new());
    let limits = SearchLimits {
        sentences: 1,
        sequences: 2,
        max_target_length: 6,
        vocabulary: 9,
        end_tokens: 1,
        source_tokens: 0,
    };
    said.of(
        words(&SearchLimits { sentences: 0, ..limits }),
        "sentences: expected at least 1, found 0",
    );
    said.of(
        words(&SearchLimits { sequences: 0, ..limits }),
        "sequences: expected at least 1, found 0",
    );
    said.of(
        words(&SearchLimits { vocabulary: 0, ..limits }),
        "vocabulary: expected at least 1, found 0",
    );
    said.of(
        words(&SearchLimits { max_target_length: 0, ..limits }),
        "max_target_length: expected at least 1, found 0",
    );
    said.of(
        words(&SearchLimits { vocabulary: usize::MAX, ..limits }),
        "the memory for the limits of the search: expected a size that fits the address space, found one that overflows",
    );
    let needed = words(&limits).expect("small");
    let mut memory = vec![0; needed];
    let base = SearchOptions { eos: vec![1], ..SearchOptions::default() };
    let expected = format!("search memory: expected {needed} words, found 3");
    said.of(Search::new(&base, &limits, &mut memory[..3]), &expected);

    let mut with = |change: fn(&mut SearchOptions), expected: &str| {
        let mut options = base.clone();
        change(&mut options);
        said.of(options.validate(&limits), expected);
    };
    fn beams(change: fn(&mut BeamOptions)) -> Strategy {
        let mut options = BeamOptions { beams: 2, ..BeamOptions::default() };
        change(&mut options);
        Strategy::Beam(options)
    }
    fn sample(change: fn(&mut SampleOptions)) -> Strategy {
        let mut options = SampleOptions::default();
        change(&mut options);
        Strategy::Sample(options)
    }
    with(|o| o.strategy = beams(|b| b.groups = 0), "groups: expected at least 1, found 0");
    with(
        |o| o.strategy = beams(|b| b.groups = 3),
        "groups: expected groups that divide 2 beams, found 3",
    );
    with(
        |o| o.strategy = beams(|b| (b.groups, b.sample) = (2, Some(SampleOptions::default()))),
        "groups: expected 1 group of beams for beam sampling, found 2",
    );
    with(
        |o| o.strategy = beams(|b| b.beams = 3),
        "beams: expected at most 2 with `sequences` = 2, found 3",
    );
    with(
        |o| o.sequence_bias = vec![(vec![1], 1.0), (vec![1], 2.0)],
        "sequence_bias: expected one bias per sequence, found entry 1, which repeats an earlier one",
    );
    with(
        |o| o.suppress = (0..9).collect(),
        "suppress: expected a token that may be chosen, found all suppressed",
    );
    with(
        |o| o.max_length = Some(1),
        "max_length: expected at least 2, the decoder start and a token, found 1",
    );
    with(
        |o| o.eos = vec![],
        "eos: expected end tokens (eos), max_new_tokens or max_length, found none",
    );
    with(|o| o.strategy = beams(|b| b.beams = 10), "beams: expected at most 9, found 10");
    with(
        |o| (o.strategy, o.num_return_sequences) = (beams(|_| ()), 3),
        "num_return_sequences: expected at most 2, found 3",
    );
    with(
        |o| o.strategy = beams(|b| b.length_penalty = 101.0),
        "length_penalty: expected a number in [-100, 100], found 101",
    );
    with(
        |o| o.strategy = beams(|b| b.diversity_penalty = -0.5),
        "diversity_penalty: expected a number of at least 0 and finite, found -0.5",
    );
    with(
        |o| o.strategy = sample(|s| s.temperature = f64::INFINITY),
        "temperature: expected a number above 0 (0 is greedy search) and finite, found inf",
    );
    with(
        |o| o.strategy = sample(|s| s.top_p = Some(0.0)),
        "top_p: expected a number in (0, 1], found 0",
    );
    with(
        |o| o.strategy = sample(|s| s.min_p = Some(1.5)),
        "min_p: expected a number in [0, 1], found 1.5",
    );
    with(
        |o| o.strategy = sample(|s| s.typical = Some(-1.0)),
        "typical: expected a number in (0, 1], found -1",
    );
    with(
        |o| o.strategy = sample(|s| s.epsilon = Some(1.0)),
        "epsilon: expected a number in (0, 1), found 1",
    );
    with(
        |o| o.strategy = sample(|s| s.eta = Some(0.0)),
        "eta: expected a number in (0, 1), found 0",
    );
    with(
        |o| o.repetition_penalty = 0.0,
        "repetition_penalty: expected a number above 0 and finite, found 0",
    );
    with(
        |o| o.exponential_decay = Some((0, f64::NAN)),
        "exponential_decay: expected a number above 0 and finite, found NaN",
    );
    with(
        |o| o.start = SearchOptions::NO_START,
        "start: expected the token that the decoder reads first (decoder_start_token_id in the \
         configuration), found none",
    );
    with(
        |o| o.forced_bos = Some(9),
        "forced_bos: expected a token id below 9, the size of the vocabulary, found 9",
    );
    with(
        |o| o.forced_eos = vec![10],
        "forced_eos: expected a token id below 9, the size of the vocabulary, found 10",
    );
    with(
        |o| o.suppress = vec![11],
        "suppress: expected a token id below 9, the size of the vocabulary, found 11",
    );
    with(
        |o| o.begin_suppress = vec![12],
        "begin_suppress: expected a token id below 9, the size of the vocabulary, found 12",
    );
    with(
        |o| o.bad_words = vec![vec![1, 13]],
        "bad_words: expected a token id below 9, the size of the vocabulary, found 13",
    );
    with(
        |o| o.sequence_bias = vec![(vec![], 1.0)],
        "sequence_bias: expected at least one token, found an empty sequence",
    );
    with(
        |o| o.sequence_bias = vec![(vec![14], 1.0)],
        "sequence_bias: expected a token id below 9, the size of the vocabulary, found 14",
    );

    let mut search = Search::new(&base, &limits, &mut memory).expect("space");
    said.of(search.admit(&Request { prefix: &[2; 6], ..Request::default() }), "prompt: expected at most 5 tokens with the decoder start, to leave space for 1 more, found 7");
    said.of(
        search.admit(&Request { prefix: &[20], ..Request::default() }),
        "prefix: expected a token id below 9, the size of the vocabulary, found 20",
    );
    said.of(
        search.stop(0),
        "sentence: expected an unfinished sentence, found slot 0, which is not",
    );
    said.of(
        search.skip_prompt(3),
        "sentence: expected a just admitted sentence, found slot 3, which is not",
    );
    let sentence = search.admit(&Request::default()).expect("a free slot");
    said.of(search.admit(&Request::default()), "expected a free sentence slot, found all 1 taken");
    said.of(
        search.release(sentence),
        "sentence: expected a finished sentence (without rows), found slot 0, which is not",
    );
    said.of(
        search.advance(&mut [0.0; 8], &mut Hooks::default(), None),
        "logits: expected length 9, found 8",
    );
    // This is not an error of the call: the sentence ends, and the finish says why.
    search.advance(&mut [f32::NAN; 9], &mut Hooks::default(), None).expect("no error");
    assert_eq!(search.finish(sentence), Some(Finish::NotFinite));
    said.of(
        score_targets(&[f32::NAN; 9], 9, &[1], &mut [0.0]),
        "expected scores below +inf at position 0 of the target, found NaN or +inf",
    );

    let mut out = [0.0; 2];
    said.of(
        score_targets(&[0.0; 17], 9, &[1, 2], &mut out),
        "logits: expected length 18, found 17",
    );
    said.of(
        score_targets(&[0.0; 18], 9, &[1, 2], &mut out[..1]),
        "log_probabilities: expected length 2, found 1",
    );
    said.of(
        score_targets(&[0.0; 18], 9, &[1, 9], &mut out),
        "targets: expected a token id below 9, the size of the vocabulary, found 9",
    );
    said.check();
}

fn decoder(config: &mut Config, change: fn(&mut Stack)) {
    config.decoder.iter_mut().for_each(change);
}

#[test]
fn configurations() {
    let mut said = Texts(Vec::new());
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 };
    let mut with = |change: fn(&mut Config), expected: &str| {
        let mut config = Config::transformer(small);
        change(&mut config);
        said.of(config.validate(), expected);
    };
    with(|c| c.d_model = 0, "d_model: expected at least 1, found 0");
    with(|c| c.d_model = 9, "d_model: expected a multiple of the 2 encoder heads, found 9");
    with(|c| c.d_model = 1 << 30, "d_model: expected at most 16777216, found 1073741824");
    with(|c| c.source_vocab = 0, "source vocabulary: expected at least 1, found 0");
    with(
        |c| c.target_vocab = 21,
        "target vocabulary: expected 20, that of the source, because both share one embedding, found 21",
    );
    with(|c| c.encoder.layers = 0, "encoder layers: expected at least 1, found 0");
    with(|c| decoder(c, |d| d.heads = 0), "decoder heads: expected at least 1, found 0");
    with(
        |c| decoder(c, |d| d.heads = 3),
        "d_model: expected a multiple of the 3 decoder heads, found 8",
    );
    with(|c| c.encoder.ffn_dim = 0, "encoder feed-forward width: expected at least 1, found 0");
    with(
        |c| c.layer_norm_eps = f32::NAN,
        "layer_norm_eps: expected a number from 0 to 1, found NaN",
    );
    with(|c| c.embedding_scale = -1.0, "embedding scale: expected a positive number, found -1");
    with(
        |c| c.encoder.max_positions = Some(0),
        "max positions of the encoder: expected at least 1, found 0",
    );
    with(
        |c| decoder(c, |d| d.head_dim = Some(0)),
        "decoder head width: expected at least 1, found 0",
    );
    with(|c| c.attention_scale = Some(0.0), "attention scale: expected a positive number, found 0");
    with(|c| c.logit_scale = f32::INFINITY, "logit scale: expected a positive number, found inf");
    with(|c| c.token_types = 1 << 30, "token types: expected at most 16777216, found 1073741824");
    with(
        |c| {
            c.encoder.relative_bias =
                Some(RelativeBias { buckets: 3, max_distance: 9, per_layer: false })
        },
        "encoder: number of the relative buckets: expected at least 4, found 3",
    );
    with(
        |c| {
            c.encoder.relative_bias =
                Some(RelativeBias { buckets: 32, max_distance: 8, per_layer: true })
        },
        "encoder: largest distance of the relative buckets: expected at least 9, found 8",
    );
    with(
        |c| (c.family, c.token_types) = (Family::Marian, 2),
        "token types: expected a family that has it, as Family::Plain, which has names for all parts of weights of your own, found marian: no marian checkpoint has it",
    );
    with(
        |c| c.positions = Positions::Learned { offset: 0 },
        "max_position_embeddings: expected the length of the table of learned positions, found none",
    );
    with(
        |c| {
            (c.d_model, c.positions) = (2, Positions::HalfSplitClosed { offset: 0 });
        },
        "d_model: expected at least 4 for half-split positions with an offset, found 2",
    );
    with(
        |c| {
            c.family = Family::Marian;
            decoder(c, |d| d.embedding_norm = Some(NormPlacement::Post));
        },
        "a norm after the embeddings of the decoder: expected a family that has it, as Family::Plain, which has names for all parts of weights of your own, found marian: no marian checkpoint has it",
    );
    with(
        |c| (c.family, c.encoder.final_norm) = (Family::Marian, true),
        "a norm after the last layer of the encoder: expected a family that has it, as Family::Plain, which has names for all parts of weights of your own, found marian: no marian checkpoint has it",
    );
    with(
        |c| c.tokens.pad = Some(20),
        "pad_token_id: expected an id below the target vocabulary of 20, found 20",
    );
    with(
        |c| c.tokens.eos = vec![1, 21],
        "eos_token_id: expected an id below the target vocabulary of 20, found 21",
    );
    with(
        |c| c.tokens.decoder_start = Some(22),
        "decoder_start_token_id: expected an id below the target vocabulary of 20, found 22",
    );
    with(
        |c| c.tokens.forced_bos = Some(23),
        "forced_bos_token_id: expected an id below the target vocabulary of 20, found 23",
    );
    with(
        |c| c.tokens.banned = vec![24],
        "bad_words_ids: expected an id below the target vocabulary of 20, found 24",
    );
    let mut read = |json: &str, expected: &str| said.of(Config::from_hugging_face(json), expected);
    read("{", "expected JSON, found an error at line 1, column 1: EOF while parsing an object");
    read("3", "expected a JSON object, found a number");
    read(r#"{"model_type": 3}"#, "model_type: expected a string, found 3");
    read(
        r#"{"model_type": "perceiver"}"#,
        "model_type: expected one of marian, bart, mbart, m2m_100, pegasus, blenderbot, blenderbot-small, mvp, plbart, fsmt, seamless_m4t, seamless_m4t_v2, t5, mt5, umt5, whisper, bert, roberta, xlm-roberta, camembert, distilbert, mpnet, nn_transformer, found \"perceiver\"",
    );
    read(
        r#"{"model_type": "bart", "d_model": -8}"#,
        "d_model: expected an integer of 0 or more, found -8",
    );
    read(
        r#"{"model_type": "bart", "activation_function": "mish"}"#,
        "activation_function: expected one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish, linear, found \"mish\"",
    );
    read(
        r#"{"model_type": "bart", "is_encoder_decoder": false}"#,
        "is_encoder_decoder: expected true, because only encoder-decoder models are supported, found false",
    );
    let mut config = Config::transformer(small);
    said.of(
        config.set_generation_config(r#"{"eos_token_id": 99}"#),
        "eos_token_id: expected an id below the target vocabulary of 20, found 99",
    );
    said.of(
        config.set_generation_config(r#"{"num_beams": "many"}"#),
        "num_beams: expected an integer of 0 or more, found \"many\"",
    );
    said.check();
}

#[test]
fn weights() {
    let mut said = Texts(Vec::new());
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 };
    let config = Config::transformer(small);
    let bytes = vec![0u8; 4096];
    let find = |shape: &[usize], len: usize| {
        let config = config.clone();
        let held = |name: &str| {
            let data = (!name.contains("layers.1")).then_some(&bytes[..len])?;
            Some((Dtype::F32, shape.to_vec(), data))
        };
        Checkpoint::from_tensors(config, held).map(drop)
    };
    said.of(
        find(&[20, 8], 639),
        "memory: encoder.embedding.weight: expected 640 bytes for its shape and type, found 639",
    );
    said.of(find(&[8, 20], 640), "encoder.embedding.weight: expected shape [20, 8], found [8, 20]");
    let expected = format!(
        "memory: encoder.embedding.weight: expected a size that fits the address space, found shape [{}, 8], whose size overflows",
        usize::MAX
    );
    said.of(find(&[usize::MAX, 8], 640), &expected);
    said.of(Checkpoint::from_tensors(config.clone(), |_: &str| None), "the tensor of encoder.embedding.weight: expected encoder.embedding.weight, decoder.embedding.weight, output.weight, found none");
    said.of(
        Checkpoint::from_tensors(Config { d_model: 7, ..config.clone() }, |_: &str| None),
        "memory: d_model: expected a multiple of the 2 encoder heads, found 7",
    );

    let checkpoint = Dims::small(Family::Marian).checkpoint(1);
    said.of(
        checkpoint.tensor(TensorId::Positions(Side::Decoder)),
        "decoder.positions.weight: expected a part of a model of this configuration, found one that it does not have",
    );
    said.of(
        checkpoint.named("model.shared.weights"),
        "the checkpoint: expected a tensor of this name, found no tensor model.shared.weights; the nearest names are model.shared.weight",
    );
    let bias = checkpoint.tensor(TensorId::OutputBias).expect("there");
    said.of(
        bias.read_into(&mut [0.0; 3]),
        "the destination of final_logits_bias: expected 131 elements, found 3",
    );
    let table = checkpoint.tensor(TensorId::SourceEmbedding).expect("there");
    said.of(table.rows(130..132), "rows of model.shared.weight: expected a range of the 131 rows that there are, found 130..132");

    said.of(
        Model::from_fn(config.clone(), |_, _, _| Err("no disk".into())),
        "the weights of encoder.embedding.weight: no disk",
    );
    let nan = |_: TensorId, _: &[usize], out: &mut [f32]| {
        out[2] = f32::NAN;
        Ok(())
    };
    said.of(
        Model::from_fn(config.clone(), nan),
        "the weights of encoder.embedding.weight, element 2: expected a finite number, found NaN",
    );
    said.of(
        Model::from_fn(Config { d_model: 7, ..config }, |_, _, _| Ok(())),
        "d_model: expected a multiple of the 2 encoder heads, found 7",
    );
    said.check();
}

struct NoProbe;

impl Probe for NoProbe {
    fn look(&mut self, _: &View<'_>) {}
}

#[test]
fn sessions() {
    let mut said = Texts(Vec::new());
    let model = Model::load(&Dims::small(Family::Marian).checkpoint(1), Isa::best());
    let model = model.expect("a model");
    let limits = Limits { beams: 2, ..Limits::new(2, 6, 5) };
    said.of(
        Session::new(&model, Limits { sentences: 0, ..limits }),
        "the limit `sentences`: expected at least 1, found 0",
    );
    said.of(
        Session::new(&model, Limits { beams: usize::MAX, ..limits }),
        "the planned memory: expected a size that fits the address space, found one that overflows",
    );
    said.of(
        Session::new(&model, Limits { batch_tokens: 5, ..limits }),
        "the limit `batch_tokens`: expected at least `source_tokens`, 6, found 5",
    );
    said.of(
        Session::new(&model, Limits { target_tokens: 1000, ..limits }),
        "the limit `target_tokens`: expected at most 256, which the model allows, found 1000",
    );
    let mut session = Session::new(&model, limits).expect("a session");
    let floats = session.plan().floats();
    let expected = format!("buffer: expected {floats} floats, which the session takes, found 9");
    said.of(Session::with_buffer(&model, limits, &mut [0.0; 9]), &expected);
    let floats = session.plan().trace_floats();
    let expected = format!("scratch: expected {floats} floats (`Plan::trace_floats`), found 7");
    said.of(session.traced(&mut NoProbe, &mut [0.0; 7]).map(drop), &expected);
    let mut place = [SourceId::default()];
    said.of(
        session.encode(&[&[1], &[2]], &mut place),
        "sentences: expected 2 places for the slots of all sources, found 1",
    );
    said.of(
        session.encode(&[&[1; 7]], &mut place),
        "source 0: the limit `source_tokens`: expected at most 6, with which the session was planned, found 7",
    );
    said.of(
        session.encode(&[&[]], &mut place),
        "source 0: expected at least one token, found none",
    );
    said.of(
        session.encode(&[&[1, 131]], &mut place),
        "source 0: token 1: expected a token id below 131, the size of the vocabulary, found 131",
    );
    said.of(
        session.encode(&[&[1], &[2], &[3]], &mut [SourceId::default(); 3]),
        "the limit `sentences`: expected at most 2, the free sentence slots, found 3",
    );
    said.of(
        session.start(SourceId::default()),
        "sentence: expected a sentence of this session, found slot 0, which is free or has another by now",
    );
    session.encode(&[&[5, 0]], &mut place).expect("encoded");
    let row = session.start(place[0]).expect("a row");
    said.of(
        session.prefill(row, &[1; 6], None),
        "the limit `target_tokens`: expected at most 5, with which the session was planned, found 6",
    );
    said.of(
        session.prefill(row, &[1, 140], None),
        "token 1: expected a token id below 131, the size of the vocabulary, found 140",
    );
    said.of(
        session.rewind(row, 3),
        "the limit `length`: expected at most 0 to go back to, as many tokens as the hypothesis has been fed, found 3",
    );
    session.fork(row).expect("a fork");
    said.of(
        session.fork(row),
        "the limit `beams`: expected at most 2 planned hypotheses of the sentence in slot 0, found 3",
    );
    session.release(row).expect("released");
    said.of(
        session.hypothesis_len(row),
        "hypothesis: expected a hypothesis of this session, found slot 0, which is free or has another by now",
    );
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let mut align = |layer, head: usize, floats: usize| {
        let mut out = vec![0.0; floats];
        session.align(place[0], &[1], (layer, &[head]), &mut scratch, &mut out)
    };
    said.of(
        align(2, 0, 2),
        "the limit `layer`: expected less than 2, the layers of the decoder, found 2",
    );
    said.of(
        align(0, 3, 2),
        "the limit `head`: expected less than 3, the heads of the decoder, found 3",
    );
    said.of(align(0, 0, 1), "out: expected 2 floats for the alignment, found 1");
    said.check();
}
