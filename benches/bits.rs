//! Digests of results. A refactoring is right if this program prints the same lines before and after it.
//!
//! ```sh
//! cargo bench --bench bits > before.txt   # and again after the change
//! cargo bench --bench bits -- --sessions 50 --isa avx2
//! ```
//!
//! One line for each instruction set and golden checkpoint, one for each random session (family, widths,
//! limits, scheduler, search and threads are drawn from its number), and some for kernels on operands that
//! models do not have. The digests are the same on every instruction set.

mod support {
    pub(crate) mod attention_bits;
}

use digest::Digest;
use random_model::{Dims, Random};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Family;
use simdformer::kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer::kernels::{
    Activation, Epilogue, Exec, Input, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, PostOp,
    SoftmaxOptions, gemm, norm, softmax,
};
use simdformer::search::{BeamOptions, Hooks, SampleOptions, SearchOptions, Strategy};
use simdformer::{Event, Limits, Model, Session, Source, SourceId, Threads};
pub(crate) use simdformer_testing::{digest, random_model, soak};
use soak::{SOURCE, Soak, TARGET};
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let sessions = value("--sessions").and_then(|n| n.parse().ok()).unwrap_or(200);
    let only = value("--isa");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    for isa in Isa::available().filter(|isa| only.as_deref().is_none_or(|name| name == isa.name()))
    {
        kernels(isa);
        goldens(isa);
        for number in 0..sessions {
            let digest = pool.install(|| session(isa, number));
            println!("{isa} session {number:3} {digest:016x}");
        }
    }
}

/// Runs `options` over `sources` and digests tokens and scores.
fn generate(
    session: &mut Session<'_>,
    sources: &[Vec<u32>],
    options: &SearchOptions,
    digest: &mut Digest,
) {
    let requests: Vec<Source<'_>> = sources.iter().map(|ids| Source::new(ids)).collect();
    let mut results: Vec<Vec<(Vec<u32>, u32)>> = vec![Vec::new(); sources.len()];
    let outcome = session.generate(&requests, options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            let hypotheses = done.hypotheses().map(|h| (h.tokens.to_vec(), h.score.to_bits()));
            results[done.source] = hypotheses.collect();
        }
    });
    digest.word(u64::from(outcome.is_ok()));
    for (tokens, score) in results.into_iter().flatten() {
        tokens.into_iter().for_each(|token| digest.word(token.into()));
        digest.word(score.into());
    }
}

/// Encoder output, logits and searches of one model.
fn model_bits(model: &Model, sources: &[Vec<u32>], target: &[u32]) -> u64 {
    let mut digest = Digest::default();
    let most = model.config().encoder.max_positions.unwrap_or(48).min(48);
    let longest = sources.iter().map(Vec::len).max().unwrap_or(1);
    let limits = Limits { beams: 4, ..Limits::new(sources.len(), longest, most) };
    let mut session = Session::new(model, limits).expect("a session");
    let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    digest.floats(session.encoder_output(&borrowed).expect("a memory"));
    let mut sentences = vec![SourceId::default(); sources.len()];
    session.encode(&borrowed, &mut sentences).expect("encoded");
    for &sentence in &sentences {
        let row = session.start(sentence).expect("a row");
        let mut each = |_: usize, logits: &[f32]| digest.floats(logits);
        session.prefill(row, target, Some(&mut each)).expect("filled");
    }
    let base = SearchOptions {
        max_new_tokens: Some((most - 1).min(30)),
        max_length: None,
        ..model.config().search_options()
    };
    for (strategy, scores) in [
        (Strategy::Greedy, true),
        (Strategy::Greedy, false),
        (Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() }), true),
    ] {
        let options = SearchOptions { strategy, scores, ..base.clone() };
        generate(&mut session, sources, &options, &mut digest);
    }
    digest.0
}

fn goldens(isa: Isa) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.ancestors().find(|p| p.join("tests/golden").is_dir()).expect("the repository");
    let mut folders: Vec<_> = ["tests/golden", "tests/golden/search", "models"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("config.json").exists())
        .collect();
    folders.sort();
    for folder in folders {
        let name = folder.strip_prefix(root).expect("inside").display().to_string();
        let Ok(checkpoint) = Checkpoint::open(&folder) else { continue };
        let model = Model::load(&checkpoint, isa).expect("a model");
        let (source, target) = (model.config().source_vocab, model.config().target_vocab);
        let mut random = Random(11);
        let most = model.config().encoder.max_positions.unwrap_or(16);
        let sources: Vec<Vec<u32>> =
            [1, 7, 2, 16, 9, 3].map(|len: usize| random.ids(len.min(most), source)).to_vec();
        let digest = model_bits(&model, &sources, &random.ids(most.min(12), target));
        println!("{isa} {name} {digest:016x}");
    }
}

/// A model, a session and a scheduler drawn from `number`.
fn session(isa: Isa, number: u64) -> u64 {
    let mut random = Random(number.wrapping_mul(77) + 5);
    // The families of the time when the first digests were computed. A longer list would change every
    // draw.
    let family =
        [Family::Marian, Family::Bart, Family::MBart, Family::M2M100, Family::NnTransformer]
            [random.below(5)];
    let heads: usize = [1, 2, 3, 4, 8][random.below(5)];
    let head_dim: usize = [2, 5, 8, 14, 16, 32][random.below(6)];
    // Position formulas need at least four elements, and each head has an even number of them.
    let d_model = (heads * head_dim).max(4).next_multiple_of(heads * 2);
    let dims = Dims {
        d_model,
        layers: [1 + random.below(3), 1 + random.below(3)],
        heads: [heads; 2],
        ffn: [1 + random.below(150); 2],
        vocabulary: 40 + random.below(700),
        norm_first: random.below(2) == 0,
        ..Dims::small(family)
    };
    let model = Model::load(&dims.checkpoint(number), isa).expect("a model");
    let limits =
        Limits { beams: 1 + random.below(5), ..Limits::new(1 + random.below(6), SOURCE, TARGET) };
    let mut session = Session::new(&model, limits).expect("a session");
    if random.below(2) == 0 {
        session.set_threads(Threads::Rayon);
    }
    let mut digest = Digest::default();
    let mut soak = Soak::new(number, &session);
    // In the order of the sentences, whatever the order in which they ended.
    let mut sentences = Vec::new();
    soak.decode_sentences(&mut session, 0..8, &mut |sentence, bits, _| {
        sentences.push((sentence, bits))
    })
    .expect("a soak");
    sentences.sort_unstable();
    for (sentence, bits) in sentences {
        digest.word(sentence);
        digest.word(bits);
    }
    let vocabulary = model.config().source_vocab;
    let sources: Vec<Vec<u32>> = (0..1 + random.below(9))
        .map(|_| {
            let len = 1 + random.below(SOURCE);
            random.ids(len, vocabulary)
        })
        .collect();
    let strategy = match random.below(3) {
        0 => Strategy::Greedy,
        1 => Strategy::Beam(BeamOptions { beams: limits.beams, ..BeamOptions::default() }),
        _ => Strategy::Sample(SampleOptions { seed: number, ..SampleOptions::default() }),
    };
    let options = SearchOptions {
        strategy,
        scores: random.below(2) == 0,
        max_new_tokens: Some(TARGET - 2),
        max_length: None,
        ..model.config().search_options()
    };
    generate(&mut session, &sources, &options, &mut digest);
    digest.0
}

/// Kernels on operands that models do not have: strides, edges, every epilogue.
fn kernels(isa: Isa) {
    let mut random = Random(3);
    let mut digest = Digest::default();
    let activations = [
        Activation::Identity,
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
    for case in 0..300 {
        let (rows, depth, columns) = (
            1 + random.below(80),
            random.below(if case % 10 == 0 { 1200 } else { 150 }),
            1 + random.below(300),
        );
        let floats = |random: &mut Random, n: usize| -> Vec<f32> {
            (0..n).map(|_| random.symmetric()).collect()
        };
        let (a, w) = (floats(&mut random, rows * depth), floats(&mut random, depth * columns));
        let (bias, residual) = (floats(&mut random, columns), floats(&mut random, rows * columns));
        let mut buffer =
            vec![0.0; PackedMatrix::buffer_len(isa, depth, columns).expect("a length")];
        let w = Matrix::new(&w, columns, depth).expect("a matrix").transposed();
        let packed = PackedMatrix::pack(isa, w, &mut buffer).expect("packed");
        let mut c = vec![f32::NAN; rows * (columns + 3)];
        let epilogue = Epilogue {
            scale: if random.below(2) == 0 { 1.0 } else { 0.37 },
            bias: (random.below(2) == 0).then_some(&bias[..]),
            activation: activations[random.below(activations.len())],
            post_op: match random.below(2) {
                0 => PostOp::None,
                _ => PostOp::Add(Matrix::new(&residual, rows, columns).expect("a matrix")),
            },
        };
        let parallelism =
            if random.below(2) == 0 { Parallelism::Serial } else { Parallelism::Rayon };
        let out = MatrixMut::strided(&mut c, rows, columns, columns + 3, 1).expect("a matrix");
        let x = Matrix::new(&a, rows, depth).expect("a matrix");
        gemm(x, &packed, &epilogue, out, parallelism).expect("a product");
        digest.floats(&c);
        if depth > 0 {
            let mut bytes = vec![0.0; PruningTable::buffer_len(depth, columns).expect("a length")];
            let pruning_table = PruningTable::build(&packed, &mut bytes).expect("a pruning table");
            let product = Product {
                weight: &packed,
                pruning_table: &pruning_table,
                bias: epilogue.bias,
                by_column: None,
            };
            let (mut best, mut values) = (vec![0; rows], vec![0.0; rows]);
            let mut scratch =
                vec![0.0; pruned_argmax::argmax_scratch(rows, depth).expect("a length")];
            let banned = |row: usize, column: u32| (row as u32 + column).is_multiple_of(7);
            let out = (&mut best[..], &mut values[..]);
            pruned_argmax::argmax(&product, x, &banned, out, &mut scratch, Parallelism::Serial)
                .expect("the largest");
            best.into_iter().for_each(|column| digest.word(column.into()));
            digest.floats(&values);
        }
    }
    println!("{isa} gemm and pruned argmax {:016x}", digest.0);

    let mut digest = Digest::default();
    for _ in 0..200 {
        let (rows, columns) = (1 + random.below(9), 1 + random.below(700));
        let mut x: Vec<f32> = (0..rows * columns).map(|_| 8.0 * random.symmetric()).collect();
        let weight: Vec<f32> = (0..columns).map(|_| random.symmetric()).collect();
        let mut y = vec![0.0; rows * columns];
        let layer = norm::LayerNorm { weight: &weight, bias: Some(&weight), eps: 1e-5 };
        let layer = norm::Norm::Layer(layer);
        let out = MatrixMut::new(&mut y, rows, columns).expect("a matrix");
        let view = Matrix::new(&x, rows, columns).expect("a matrix");
        let input = norm::NormInput::Matrix(view);
        norm::norm(Exec::serial(isa), layer, input, out).expect("normed");
        digest.floats(&y);
        let view = MatrixMut::new(&mut x, rows, columns).expect("a matrix");
        let options = SoftmaxOptions::default();
        softmax::softmax(Exec::serial(isa), Input::Output, options, view).expect("a softmax");
        digest.floats(&x);
    }
    println!("{isa} norm and softmax {:016x}", digest.0);
    let mut digest = Digest::default();
    support::attention_bits::attention_bits(isa, &mut random, &mut digest);
    println!("{isa} attention {:016x}", digest.0);
}
