//! A probe sees the tensors that were computed, and changes no bit of the results.

use simdformer::checkpoint::Checkpoint;
use simdformer::config::{NormPlacement, Side};
use simdformer::kernels::Isa;
use simdformer::trace::{Block, Place, Probe, Stage, View};
use simdformer::{
    Error, Limits, LoadOptions, Model, Session, SourceId, StepRow, Threads, Verified, WeightDtypes,
};
use std::path::Path;

/// A copy of one view.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    stage: Stage,
    place: Place,
    sentence: u32,
    row: Option<u32>,
    position: usize,
    columns: usize,
    data: Vec<Vec<f32>>,
}

#[derive(Default)]
struct Recorder(Vec<Seen>);

impl Probe for Recorder {
    fn look(&mut self, view: &View<'_>) {
        let &View { stage, place, sentence, hypothesis: row, position, columns, .. } = view;
        let data: Vec<Vec<f32>> = view.iter().map(<[f32]>::to_vec).collect();
        assert_eq!(data.len(), view.rows);
        assert!(data.iter().all(|row| row.len() == columns), "{stage}");
        self.0.push(Seen { stage, place, sentence, row, position, columns, data });
    }
}

impl Recorder {
    fn find(&self, stage: Stage, place: Place, sentence: u32) -> Option<&Seen> {
        let same = |s: &&Seen| s.stage == stage && s.place == place && s.sentence == sentence;
        self.0.iter().find(same)
    }
}

fn model(folder: &str, isa: Isa) -> Model {
    model_in("stored", folder, isa)
}

fn model_in(dtypes: &str, folder: &str, isa: Isa) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let checkpoint = Checkpoint::open(folder).expect("a checkpoint");
    let dtypes: WeightDtypes = dtypes.parse().expect("dtypes");
    Model::load(&checkpoint, LoadOptions { dtypes, ..isa.into() }).expect("a model")
}

const FOLDERS: [&str; 4] =
    ["marian_odd", "marian_untied", "nn_transformer_post", "nn_transformer_pre"];

const SOURCES: [&[u32]; 3] = [&[5, 3, 7, 2, 9, 4, 1], &[6], &[8, 2, 3]];

fn limits() -> Limits {
    Limits { beams: 3, ..Limits::new(3, 7, 6) }
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

/// Encodes, steps with forks, and prefills. Returns all results.
fn work(model: &Model, threads: Threads, keep: Option<&mut Recorder>) -> Vec<Vec<u32>> {
    struct Ignore;
    impl Probe for Ignore {
        fn wants(&self, _: Stage) -> bool {
            false
        }
        fn look(&mut self, view: &View<'_>) {
            panic!("{} was not wanted", view.stage);
        }
    }
    let mut session = Session::new(model, limits()).expect("a session");
    session.set_threads(threads);
    let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
    let watching = keep.is_some();
    let mut ignore = Ignore;
    let probe: &mut dyn Probe = match keep {
        Some(keep) => keep,
        None => &mut ignore,
    };
    let mut out = Vec::new();
    let mut sentences = [SourceId::default(); 3];
    macro_rules! call {
        ($method:ident $arguments:tt, $then:expr) => {
            if watching {
                let mut watched = session.traced(probe, &mut scratch).expect("space");
                $then(watched.$method $arguments.expect("done"))
            } else {
                $then(session.$method $arguments.expect("done"))
            }
        };
    }
    call!(encoder_output(&SOURCES), |memory: &[f32]| out.push(bits(memory)));
    call!(encode(&SOURCES, &mut sentences), |()| ());
    let mut rows: Vec<_> =
        sentences.iter().map(|&sentence| session.start(sentence).expect("a row")).collect();
    for step in 0..4u32 {
        let steps: Vec<StepRow> = rows
            .iter()
            .enumerate()
            .map(|(i, &row)| StepRow::new(row, (3 * step + 2 * i as u32) % 10))
            .collect();
        call!(step(&steps), |logits: &mut [f32]| out.push(bits(logits)));
        if step < 2 {
            rows.push(session.fork(rows[step as usize]).expect("a fork"));
        }
    }
    let row = session.start(sentences[1]).expect("a row");
    let mut each = |_: usize, logits: &[f32]| out.push(bits(logits));
    call!(prefill(row, &[1, 4, 2, 0, 3], Some(&mut each)), |()| ());
    out
}

#[test]
fn a_probe_changes_no_bit() {
    for folder in FOLDERS {
        for isa in Isa::available() {
            let model = model(folder, isa);
            let without = work(&model, Threads::Serial, None);
            let mut keep = Recorder::default();
            assert_eq!(work(&model, Threads::Serial, Some(&mut keep)), without, "{folder} {isa}");
            for stage in Stage::ALL {
                assert!(keep.0.iter().any(|seen| seen.stage == *stage), "{folder} {isa} {stage}");
            }
            #[cfg(feature = "rayon")]
            {
                let mut again = Recorder::default();
                let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
                let out = pool.install(|| work(&model, Threads::Rayon, Some(&mut again)));
                assert_eq!(out, without, "{folder} {isa} on two threads");
                assert!(again.0 == keep.0, "{folder} {isa}: two threads, other views");
            }
        }
    }
}

/// `weights * value` of one head must be this head's part of the context that flash attention computed.
fn check_context(what: &str, weights: &Seen, value: &[Vec<f32>], context: &Seen, heads: usize) {
    let (width, head) = (context.columns / heads, weights.place.head.expect("a head"));
    let keys = weights.columns;
    assert_eq!(weights.data.len(), context.data.len(), "{what}");
    for (weights, context) in weights.data.iter().zip(&context.data) {
        let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        assert!(((sum - 1.0).abs()) <= 1e-6, "{what}: weights sum to {sum}");
        for c in head * width..(head + 1) * width {
            let exact: f64 =
                (0..keys).map(|j| f64::from(weights[j]) * f64::from(value[j][c])).sum();
            let most = value.iter().fold(0.0f32, |m, row| m.max(row[c].abs()));
            let error = (exact - f64::from(context[c])).abs();
            assert!(error <= 1e-5 * f64::from(most), "{what}: off by {error}, value {most}");
        }
    }
}

#[test]
fn traced_weights_give_the_context() {
    for folder in FOLDERS {
        for isa in Isa::available() {
            let model = model(folder, isa);
            let config = model.config();
            let mut session = Session::new(&model, limits()).expect("a session");
            let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
            let mut keep = Recorder::default();
            let mut sentences = [SourceId::default(); 3];
            session
                .traced(&mut keep, &mut scratch)
                .expect("space")
                .encode(&SOURCES, &mut sentences)
                .expect("encoded");
            let target = [1, 4, 2, 0, 3, 3];
            for sentence in sentences {
                let row = session.start(sentence).expect("a row");
                let mut logits = Vec::new();
                let mut each = |_: usize, row: &[f32]| logits.push(row.to_vec());
                let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
                watched.prefill(row, &target, Some(&mut each)).expect("prefilled");
                let mut at = 0;
                for seen in keep.0.iter().filter(|s| s.row == Some(row.slot())) {
                    if seen.stage == Stage::Logits {
                        assert_eq!(seen.position, at);
                        for row in &seen.data {
                            assert_eq!(bits(row), bits(&logits[at]));
                            at += 1;
                        }
                    }
                }
                assert_eq!(at, target.len());
            }
            let mut checked = 0;
            for weights in keep.0.iter().filter(|seen| seen.stage == Stage::Weights) {
                let whole = Place { head: None, ..weights.place };
                let value = keep.find(Stage::Value, whole, weights.sentence).expect("a value");
                let context = keep.find(Stage::Context, whole, weights.sentence).expect("context");
                let heads = config.stack(whole.side).expect("a stack").heads;
                let what = format!("{folder} {isa} {whole:?}");
                check_context(&what, weights, &value.data, context, heads);
                if whole.side == Side::Decoder && whole.block == Some(Block::Own) {
                    for (i, row) in weights.data.iter().enumerate() {
                        assert!(row[i + 1..].iter().all(|w| w.to_bits() == 0), "{what}: causal");
                    }
                }
                checked += 1;
            }
            let (encoder, decoder) = (config.encoder, config.decoder.expect("a decoder"));
            let expected = encoder.layers * encoder.heads + 2 * decoder.layers * decoder.heads;
            assert_eq!(checked, 3 * expected);
            for (side, sentence) in [(Side::Encoder, 0), (Side::Decoder, 2)] {
                if config.stack(side).is_some_and(|stack| stack.embedding_norm.is_some()) {
                    continue;
                }
                let place = Place { side, layer: None, block: None, head: None };
                let part = |stage| &keep.find(stage, place, sentence).expect("seen").data;
                let (a, b) = (part(Stage::Embedding), part(Stage::Position));
                for (i, row) in part(Stage::Input).iter().enumerate() {
                    for (c, x) in row.iter().enumerate() {
                        let error = (a[i][c] + b[i][c] - x).abs();
                        assert!(error <= 1e-6 * (a[i][c].abs() + b[i][c].abs()), "{error}");
                    }
                }
            }
        }
    }
}

/// Verifying a draft shows the views of the accepted steps. The steps after it show the others.
#[test]
fn a_draft_shows_the_views_of_steps() {
    let target = [1, 4, 2, 0, 3];
    for folder in FOLDERS {
        for isa in Isa::available() {
            let model = model(folder, isa);
            let vocabulary = model.config().target_vocab;
            // A fork, so that the earlier tokens are in several KV slots.
            let begin = |session: &mut Session<'_>| {
                let mut sentences = [SourceId::default(); 2];
                session.encode(&SOURCES[..2], &mut sentences).expect("encoded");
                let row = session.start(sentences[1]).expect("a row");
                session.step(&[StepRow::new(row, 6)]).expect("stepped");
                let fork = session.fork(row).expect("a fork");
                session.step(&[StepRow::new(row, 9)]).expect("stepped");
                fork
            };
            let limits = Limits { draft_tokens: 4, ..limits() };
            let mut session = Session::new(&model, limits).expect("a session");
            let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
            let (mut steps, mut logits) = (Recorder::default(), Vec::new());
            let row = begin(&mut session);
            let mut watched = session.traced(&mut steps, &mut scratch).expect("space");
            for token in target {
                logits.push(bits(watched.step(&[StepRow::new(row, token)]).expect("stepped")));
            }
            for right in 0..target.len() {
                let mut draft: Vec<u32> = target[1..].to_vec();
                if let Some(wrong) = draft.get_mut(right) {
                    *wrong = (*wrong + 1) % vocabulary as u32;
                }
                let mut session = Session::new(&model, limits).expect("a session");
                let row = begin(&mut session);
                let mut keep = Recorder::default();
                let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
                let mut found = Vec::new();
                let mut choose = |at: usize, row: &mut [f32]| {
                    assert_eq!(at, found.len());
                    found.push(bits(row));
                    row.fill(f32::NAN);
                    Ok(target.get(at + 1).copied())
                };
                let first = StepRow::new(row, target[0]);
                let verified = watched
                    .verify(StepRow { draft: &draft, ..first }, &mut choose)
                    .expect("verified");
                let next = target.get(right + 1).copied();
                assert_eq!(verified, Verified { accepted: right, next });
                assert_eq!(found, logits[..=right]);
                let mut after = Recorder::default();
                let mut watched = session.traced(&mut after, &mut scratch).expect("space");
                for &token in &target[right + 1..] {
                    let step = watched.step(&[StepRow::new(row, token)]).expect("stepped");
                    found.push(bits(step));
                }
                assert_eq!(found, logits);
                // The verify call shows the accepted tokens, and the steps after it show
                // the rest.
                for step in &steps.0 {
                    let of = |s: &&Seen| {
                        let rows = s.position..s.position + s.data.len();
                        s.stage == step.stage
                            && s.place == step.place
                            && rows.contains(&step.position)
                    };
                    let accepted = step.position <= 1 + right;
                    let part = if accepted { &keep } else { &after };
                    let seen = part.0.iter().find(of).expect("shown");
                    assert_eq!((seen.sentence, seen.row), (step.sentence, step.row));
                    assert_eq!(
                        bits(&seen.data[step.position - seen.position][..step.columns]),
                        bits(&step.data[0]),
                        "{folder} {isa} {} {:?} at {}, {right} right",
                        step.stage,
                        step.place,
                        step.position
                    );
                }
            }
        }
    }
}

/// A step of two hypotheses at different positions shows for each row the encoding of its own position.
#[test]
fn each_row_of_a_step_shows_its_own_position() {
    let model = model("nn_transformer_pre", Isa::best());
    let mut session = Session::new(&model, limits()).expect("a session");
    let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
    let mut sentences = [SourceId::default(); 2];
    session.encode(&SOURCES[..2], &mut sentences).expect("encoded");
    let [first, second] = sentences.map(|sentence| session.start(sentence).expect("a row"));
    let mut keep = Recorder::default();
    let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
    watched.prefill(first, &[1, 4, 2], None).expect("prefilled");
    let steps = [second, first].map(|row| StepRow::new(row, 3));
    watched.step(&steps).expect("stepped");
    watched.prefill(second, &[1, 4, 2], None).expect("prefilled");
    let mut encodings = vec![Vec::new(); 4];
    let shown = keep.0.iter().filter(|seen| seen.stage == Stage::Position);
    for (position, row) in shown.flat_map(|seen| (seen.position..).zip(&seen.data)) {
        if encodings[position].is_empty() {
            encodings[position] = row.clone();
        }
        assert_eq!(bits(row), bits(&encodings[position]), "position {position}");
    }
    assert!(encodings.iter().all(|encoding| !encoding.is_empty()));
    assert_ne!(encodings[0], encodings[3]);
}

#[test]
fn steps_show_the_views_of_a_prefill() {
    let model = model("nn_transformer_pre", Isa::best());
    let target = [1, 4, 2, 0, 3];
    let mut views = [Recorder::default(), Recorder::default()];
    for (keep, stepping) in views.iter_mut().zip([false, true]) {
        let mut session = Session::new(&model, limits()).expect("a session");
        let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
        let mut sentences = [SourceId::default()];
        session.encode(&SOURCES[..1], &mut sentences).expect("encoded");
        let row = session.start(sentences[0]).expect("a row");
        let mut watched = session.traced(keep, &mut scratch).expect("space");
        if stepping {
            for token in target {
                watched.step(&[StepRow::new(row, token)]).expect("stepped");
            }
        } else {
            watched.prefill(row, &target, Some(&mut |_, _| {})).expect("prefilled");
        }
    }
    let [whole, steps] = views;
    for step in &steps.0 {
        let of = |s: &&Seen| {
            let rows = s.position..s.position + s.data.len();
            s.stage == step.stage && s.place == step.place && rows.contains(&step.position)
        };
        let seen = whole.0.iter().find(of).expect("shown in the prefill too");
        let row = &seen.data[step.position - seen.position];
        // A step sees no later token.
        assert_eq!(
            bits(&row[..step.columns]),
            bits(&step.data[0]),
            "{} {:?}",
            step.stage,
            step.place
        );
    }
    assert!(steps.0.len() > 100);
}

/// The stages of a block in order, as `stage` or `stage head`.
fn block_order(pre: bool, inside: &[&str]) -> Vec<String> {
    let (before, after) = if pre { (&["norm"][..], &[][..]) } else { (&[][..], &["norm"][..]) };
    let all = before.iter().chain(inside).chain(&["residual"]).chain(after);
    all.map(|stage| (*stage).to_owned()).collect()
}

/// `scores` and `weights` of every head, between the stages before them and the context with its projection.
fn attention_order(pre: bool, first: &[&str], heads: usize) -> Vec<String> {
    let per_head: Vec<String> =
        (0..heads).flat_map(|head| [format!("scores {head}"), format!("weights {head}")]).collect();
    let inside: Vec<&str> = first
        .iter()
        .copied()
        .chain(per_head.iter().map(String::as_str))
        .chain(["context", "projection"])
        .collect();
    block_order(pre, &inside)
}

/// A probe sees the tensors in the order in which they are computed.
#[test]
fn stages_come_in_the_order_of_figure_1() {
    for (folder, pre) in [("marian_odd", false), ("nn_transformer_pre", true)] {
        let model = model(folder, Isa::best());
        let config = model.config();
        let mut session = Session::new(&model, limits()).expect("a session");
        let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
        let mut keep = Recorder::default();
        let mut sentences = [SourceId::default()];
        let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
        watched.encode(&SOURCES[..1], &mut sentences).expect("encoded");
        let row = session.start(sentences[0]).expect("a row");
        let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
        watched.step(&[StepRow::new(row, 1)]).expect("stepped");

        let mut expected = Vec::new();
        let mut add = |side: Side, layer: Option<usize>, block: Option<Block>, all: Vec<String>| {
            let block = block.map_or(String::new(), |block| format!(" {block}"));
            let layer = layer.map_or(String::new(), |layer| format!(" {layer}"));
            expected.extend(all.iter().map(|it| format!("{}{layer}{block} {it}", side.name())));
        };
        let ends = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let qkv = ["query", "key", "value"];
        let (encoder, decoder) = (Side::Encoder, Side::Decoder);
        add(encoder, None, None, ends(&["embedding", "position", "input"]));
        for layer in 0..config.encoder.layers {
            let own = attention_order(pre, &qkv, config.encoder.heads);
            add(encoder, Some(layer), Some(Block::Own), own);
            let inner = block_order(pre, &["feed-forward"]);
            add(encoder, Some(layer), Some(Block::FeedForward), inner);
        }
        add(encoder, None, None, ends(&["memory"]));
        for layer in 0..config.decoder.expect("a decoder").layers {
            add(decoder, Some(layer), Some(Block::Cross), ends(&["key", "value"]));
        }
        add(decoder, None, None, ends(&["embedding", "position", "input"]));
        for layer in 0..config.decoder.expect("a decoder").layers {
            let own = attention_order(pre, &qkv, config.decoder.expect("a decoder").heads);
            add(decoder, Some(layer), Some(Block::Own), own);
            let cross = attention_order(pre, &["query"], config.decoder.expect("a decoder").heads);
            add(decoder, Some(layer), Some(Block::Cross), cross);
            let inner = block_order(pre, &["feed-forward"]);
            add(decoder, Some(layer), Some(Block::FeedForward), inner);
        }
        add(decoder, None, None, ends(&["output", "logits", "probabilities"]));

        let found: Vec<String> = keep
            .0
            .iter()
            .map(|seen| {
                let Place { side, layer, block, head } = seen.place;
                let block = block.map_or(String::new(), |block| format!(" {block}"));
                let layer = layer.map_or(String::new(), |layer| format!(" {layer}"));
                let head = head.map_or(String::new(), |head| format!(" {head}"));
                format!("{}{layer}{block} {}{head}", side.name(), seen.stage)
            })
            .collect();
        assert_eq!(found, expected, "{folder}");
    }
}

/// The residual stream before an attention block plus the projected context is the stream after it, bit for bit. One
/// sentence is encoded and prefilled, so the views of a stack follow each other in the order of the blocks.
#[test]
fn the_projection_is_what_attention_adds_to_the_stream() {
    // Int8 products round the context to a buffer of the session.
    for (folder, dtypes) in
        FOLDERS.map(|folder| (folder, "stored")).into_iter().chain([("marian_odd", "int8")])
    {
        for isa in Isa::available() {
            let model = model_in(dtypes, folder, isa);
            let post = model.config().norm == NormPlacement::Post;
            let mut session = Session::new(&model, limits()).expect("a session");
            let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
            let mut keep = Recorder::default();
            let mut sentences = [SourceId::default()];
            let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
            watched.encode(&SOURCES[..1], &mut sentences).expect("encoded");
            let row = session.start(sentences[0]).expect("a row");
            let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
            watched.prefill(row, &[1, 4, 2], None).expect("prefilled");
            let flat = |seen: &Seen| -> Vec<f32> { seen.data.concat() };
            let (mut stream, mut projected) = (Vec::new(), None);
            let mut checked = 0;
            for seen in &keep.0 {
                match seen.stage {
                    Stage::Input => stream = flat(seen),
                    Stage::Projection => projected = Some(flat(seen)),
                    Stage::Residual => {
                        let sum = flat(seen);
                        if let Some(projected) = projected.take() {
                            let pairs = stream.iter().zip(&projected);
                            let added: Vec<f32> = pairs.map(|(x, y)| x + y).collect();
                            assert_eq!(
                                bits(&added),
                                bits(&sum),
                                "{folder} {dtypes} {isa} {:?}",
                                seen.place
                            );
                            checked += 1;
                        }
                        stream = sum;
                    }
                    Stage::Norm if post => stream = flat(seen),
                    _ => {}
                }
            }
            let decoder = model.config().decoder.expect("a decoder");
            assert_eq!(checked, model.config().encoder.layers + 2 * decoder.layers);
        }
    }
}

#[test]
fn alignments_are_cross_attention() {
    let model = model("marian_odd", Isa::best());
    let stack = model.config().decoder.expect("a decoder");
    let mut session = Session::new(&model, limits()).expect("a session");
    let mut scratch = vec![f32::NAN; session.plan().trace_floats()];
    let mut sentences = [SourceId::default(); 3];
    session.encode(&SOURCES, &mut sentences).expect("encoded");
    let target = [1, 4, 2, 0];
    let mut keep = Recorder::default();
    let row = session.start(sentences[0]).expect("a row");
    let mut watched = session.traced(&mut keep, &mut scratch).expect("space");
    watched.prefill(row, &target, None).expect("prefilled");
    let mut out = [f32::NAN; 30];
    let (layer, heads) = (stack.layers - 1, [stack.heads - 1, 0]);
    let mut align = |out: &mut [f32], layer, heads: &[usize], scratch: &mut [f32]| {
        session.align(sentences[0], &target, (layer, heads), scratch, out)
    };
    assert_eq!(align(&mut out, layer, &heads, &mut scratch), Ok(7));
    for (i, row) in out[..28].chunks(7).enumerate() {
        for (j, weight) in row.iter().enumerate() {
            let of = |head| {
                let place = Place {
                    side: Side::Decoder,
                    layer: Some(layer),
                    block: Some(Block::Cross),
                    head: Some(head),
                };
                keep.find(Stage::Weights, place, sentences[0].slot()).expect("weights").data[i][j]
            };
            let mean = (of(heads[0]) + of(heads[1])) / 2.0;
            assert!((mean - weight).abs() <= 1e-6, "{i} {j}: {mean} {weight}");
        }
    }
    assert!(out[28..].iter().all(|x| x.is_nan()), "nothing past the alignment is written");

    let refused = |found: Result<usize, Error>, text: &str| {
        assert_eq!(found.map_err(|error| error.to_string()), Err(text.to_owned()));
    };
    let found = align(&mut out, stack.layers, &heads, &mut scratch);
    refused(found, "the limit `layer`: expected less than 2, the layers of the decoder, found 2");
    let found = align(&mut out, 0, &[stack.heads], &mut scratch);
    refused(found, "the limit `head`: expected less than 6, the heads of the decoder, found 6");
    let found = align(&mut out, 0, &[], &mut scratch);
    refused(found, "heads: expected at least one head for an alignment, found none");
    let found = align(&mut out[..27], 0, &[0], &mut scratch);
    refused(found, "out: expected 28 floats for the alignment, found 27");
    let short = scratch.len() - 1;
    let found = align(&mut out, 0, &[0], &mut scratch[..short]);
    let expected = short + 1;
    let text = format!("scratch: expected {expected} floats (`Plan::trace_floats`), found {short}");
    refused(found, &text);
    // Each alignment took a hypothesis slot and gave it back.
    assert_eq!(align(&mut out, 0, &[0], &mut scratch), Ok(7));
}
