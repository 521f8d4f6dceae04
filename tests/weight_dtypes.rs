//! Weight dtypes: the guarantees for a model in each of them, its distance from f32, and packed weights
//! that are read back. Errors in such a file are tested in `packed_files.rs`.

use crate::effort::cases;
use crate::random_model::{Dims, Random, families};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::{
    Dtype, Error, Event, Limits, LoadOptions, Model, Plan, Quantization, Session, Source, SourceId,
    Storage, Threads, WeightDtype, WeightDtypes,
};
use std::path::{Path, PathBuf};

fn load(checkpoint: &Checkpoint<'_>, isa: Isa, forms: &str) -> Model {
    let forms = forms.parse().expect(forms);
    Model::load(checkpoint, LoadOptions { dtypes: forms, ..isa.into() }).expect("a model")
}

/// The hidden states of a source, and the logits of a target if the model has a decoder.
fn outcome(model: &Model, source: &[u32], target: &[u32]) -> (Vec<f32>, Vec<f32>) {
    outcome_of(model, None, source, target)
}

/// The same with a KV cache in `cache`.
fn outcome_of(
    model: &Model,
    cache: Option<Dtype>,
    source: &[u32],
    target: &[u32],
) -> (Vec<f32>, Vec<f32>) {
    let decodes = model.config().decoder.is_some();
    let target_tokens = if decodes { target.len() } else { 0 };
    let limits = Limits { cache, ..Limits::new(1, source.len(), target_tokens) };
    let mut session = Session::new(model, limits).expect("a session");
    let memory = session.encoder_output(&[source]).expect("a memory").to_vec();
    let mut logits = Vec::new();
    if decodes {
        let mut slot = [SourceId::default()];
        session.encode(&[source], &mut slot).expect("encoded");
        let row = session.start(slot[0]).expect("a row");
        let mut each = |_: usize, row: &[f32]| logits.extend_from_slice(row);
        session.prefill(row, target, Some(&mut each)).expect("filled in");
    }
    (memory, logits)
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

/// The root mean square of `a - b` divided by that of `b`.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let lost: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    (lost / b.iter().map(|&b| square(f64::from(b))).sum::<f64>()).sqrt()
}

/// The same tensors, truncated to 16 bits.
fn in_sixteen_bits(file: &[u8], dtype: safetensors::Dtype) -> Vec<u8> {
    let cut = |number: &[u8]| {
        let bits = u32::from_le_bytes(number.try_into().expect("an f32"));
        let sixteen = match (dtype, bits >> 23 & 0xff) {
            (safetensors::Dtype::BF16, _) => bits >> 16,
            // A value that would be subnormal in f16 becomes 0.
            (_, exponent @ 113..=142) => {
                bits >> 16 & 0x8000 | (exponent - 112) << 10 | bits >> 13 & 0x3ff
            }
            _ => bits >> 16 & 0x8000,
        };
        (sixteen as u16).to_le_bytes()
    };
    let file = SafeTensors::deserialize(file).expect("a safetensors file");
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = file
        .iter()
        .map(|(name, tensor)| {
            let numbers = tensor.data().chunks_exact(4).flat_map(cut).collect();
            (name.to_owned(), tensor.shape().to_vec(), numbers)
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(dtype, shape.clone(), bytes).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a safetensors file")
}

/// Every family with random weights, which amplify rounding errors: the results stay close, and f32 changes
/// no bit.
#[test]
fn every_family_runs_in_every_dtype() {
    for family in families() {
        let dims = Dims::small(family);
        let config = dims.config();
        if config.bins.is_some() {
            continue;
        }
        let checkpoint = dims.checkpoint(3);
        let mut random = Random(9);
        let source = random.ids(11, config.source_vocab);
        let target = random.ids(7, config.target_vocab.max(1));
        let isa = Isa::best();
        let plain = Model::load(&checkpoint, isa).expect("a model");
        let (memory, logits) = outcome(&plain, &source, &target);
        for (forms, bound) in
            [("f32", 0.0), ("f16", 0.03), ("bf16", 0.2), ("int8x16", 0.5), ("int8", 0.5)]
        {
            let model = load(&checkpoint, isa, forms);
            let found = outcome(&model, &source, &target);
            let off = distance(&found.0, &memory);
            assert!(off <= bound, "{} {forms}: hidden states {off}", family.model_type());
            if !logits.is_empty() {
                let off = distance(&found.1, &logits);
                assert!(off <= bound, "{} {forms}: logits {off}", family.model_type());
            }
            assert!(forms == "f32" || model.bytes() < plain.bytes(), "{forms}");
        }
    }
}

/// Weights that are 16-bit in the file stay 16-bit in memory, and give the bits of the same values in f32.
#[test]
fn weights_stored_in_16_bits_stay_so_and_change_no_bit() {
    let dims = Dims::small(Family::Marian);
    for (dtype, kept) in
        [(safetensors::Dtype::BF16, Dtype::Bf16), (safetensors::Dtype::F16, Dtype::F16)]
    {
        let packed = Storage::Packed(kept.into());
        let bytes = in_sixteen_bits(&dims.bytes(3), dtype);
        let checkpoint = Checkpoint::from_bytes(dims.config(), &bytes).expect("a checkpoint");
        let mut random = Random(4);
        let (source, target) = (random.ids(13, 131), random.ids(9, 131));
        for isa in Isa::available() {
            let stored = Model::load(&checkpoint, isa).expect("a model");
            let widened = load(&checkpoint, isa, "f32");
            let matrices = stored.parameters().filter(|p| p.storage() == packed).count();
            assert!(matrices > 20, "{dtype:?} {isa}: {matrices} matrices");
            assert!(widened.parameters().all(|p| p.storage() != packed));
            let [a, b] = [&stored, &widened].map(|model| outcome(model, &source, &target));
            assert_eq!((bits(&a.0), bits(&a.1)), (bits(&b.0), bits(&b.1)), "{dtype:?} {isa}");
            let needed = Model::requirements(&checkpoint, isa).expect("known");
            assert_eq!(needed.model_bytes, stored.bytes());
        }
    }
}

/// The demo model on held-out sentences: int8 weights change little, and 16-bit activations even less.
#[test]
fn the_demo_model_gives_the_same_tokens_in_int8() {
    let count = cases(80, 400);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en");
    let text = std::fs::read_to_string(folder.join("held_out.jsonl")).expect("held_out.jsonl");
    let sources: Vec<Vec<u32>> = text
        .lines()
        .take(count)
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let ids = value["source_ids"].as_array().expect("ids").iter();
            ids.map(|id| id.as_u64().expect("an id") as u32).collect()
        })
        .collect();
    let checkpoint = Checkpoint::open(folder).expect("a checkpoint");
    let translate = |forms: &str| {
        let model = load(&checkpoint, Isa::best(), forms);
        let longest = sources.iter().map(Vec::len).max().expect("sentences");
        let mut session = Session::new(&model, Limits::new(16, longest, 40)).expect("a session");
        let requests: Vec<Source> = sources.iter().map(|ids| Source::new(ids)).collect();
        let mut found = vec![Vec::new(); sources.len()];
        let options = model.config().search_options();
        session
            .generate(&requests, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    found[done.source] = done.hypotheses().next().expect("one").tokens.to_vec();
                }
            })
            .expect("generated");
        found
    };
    let expected = translate("f32");
    for (forms, others) in [("f16", 0), ("int8x16", 0), ("int8", 2), ("int8,output=int8", 2)] {
        let same = translate(forms).iter().zip(&expected).filter(|(a, b)| a == b).count();
        assert!(same + others >= count, "{forms}: {same} of {count}");
    }
}

/// The default dtype of the KV cache is f16 for a model whose decoder attends in `int8`, and f32 for every
/// other model. Bits and memory follow from it.
#[test]
fn the_cache_dtype_follows_the_weights() {
    let dims = Dims::small(Family::Marian);
    let checkpoint = dims.checkpoint(5);
    let (source, target) = ([5, 9, 3, 8, 1, 7, 2], [4, 6, 2, 9, 3]);
    let [f32, f16] = [Dtype::F32, Dtype::F16];
    for (forms, expected) in [
        ("int8", f16),
        ("int8,output=int8", f16),
        ("int8,encoder=f32,decoder.layers.*.feed_forward=int8x16", f16),
        ("stored", f32),
        ("f16", f32),
        ("int8x16", f32),
        ("f32,decoder=int8,decoder.layers.1.cross_attention.query=f32", f32),
    ] {
        let model = load(&checkpoint, Isa::best(), forms);
        assert_eq!(model.cache_storage(), expected, "{forms}");
        let unsaid = bits(&outcome(&model, &source, &target).1);
        for cache in [f32, f16] {
            let said = bits(&outcome_of(&model, Some(cache), &source, &target).1);
            assert_eq!(said == unsaid, cache == expected, "{forms}, {cache:?}");
        }
        let plan =
            |cache| Plan::new(&model, Limits { cache, ..Limits::new(3, 50, 50) }).expect("a plan");
        assert_eq!(plan(None).bytes(), plan(Some(expected)).bytes(), "{forms}");
        assert!(plan(Some(f16)).bytes() < plan(Some(f32)).bytes(), "{forms}");
        let says = plan(None).to_string().contains("keys and values in f16");
        assert_eq!(says, expected == f16, "{forms}");
    }
}

/// Self-attention of the encoder in int8: close to f32, another model, and the same bits on every instruction set, alone
/// and in a batch, on one thread and on three.
#[test]
fn self_attention_in_int8_is_close_and_has_the_same_bits() {
    for family in [Family::Marian, Family::Bert, Family::Bart] {
        let dims = Dims::small(family);
        let (checkpoint, config) = (dims.checkpoint(7), dims.config());
        let plain = load(&checkpoint, Isa::best(), "stored");
        let mut random = Random(12);
        let sources = [70, 1, 13, 64].map(|len| random.ids(len, config.source_vocab));
        let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        let hidden = |model: &Model, sources: &[&[u32]], threads: usize| {
            let limits = Limits::new(sources.len(), 70, usize::from(config.decoder.is_some()));
            let mut session = Session::new(model, limits).expect("a session");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            session.set_threads(if threads > 1 { Threads::Rayon } else { Threads::Serial });
            let pool = pool.expect("threads");
            pool.install(|| session.encoder_output(sources).expect("a memory").to_vec())
        };
        let expected = hidden(&plain, &sources, 1);
        let model = load(&checkpoint, Isa::best(), "stored,attention=int8");
        let found = hidden(&model, &sources, 1);
        let off = distance(&found, &expected);
        assert!(off > 0.0 && off <= 0.05, "{}: {off}", family.model_type());
        assert_ne!(model.fingerprint(), plain.fingerprint());
        assert_eq!(bits(&hidden(&model, &sources, 3)), bits(&found));
        let mut start = 0;
        for source in &sources {
            let alone = hidden(&model, &[source], 1);
            let part = &found[start..start + alone.len()];
            assert_eq!(bits(&alone), bits(part), "{} tokens", source.len());
            start += alone.len();
        }
        for isa in Isa::available() {
            let model = load(&checkpoint, isa, "stored,attention=int8");
            assert_eq!(bits(&hidden(&model, &sources, 1)), bits(&found), "{isa}");
        }
    }
}

/// Exceptions by name: each matrix has the dtype of the last exception that matches it.
#[test]
fn exceptions_name_matrices() {
    let dims = Dims::small(Family::Bart);
    let checkpoint = dims.checkpoint(5);
    let forms =
        "int8,decoder.layers.*.feed_forward.outer=int8x16,encoder.layers.1=bf16,output=int8";
    let model = load(&checkpoint, Isa::best(), forms);
    let mut seen = [0; 4];
    for parameter in model.parameters() {
        let name = parameter.role().to_string();
        // Norms, biases, tables and tied matrices are not packed.
        let Storage::Packed(dtype) = parameter.storage() else { continue };
        let int8 = WeightDtype::from(Quantization::W8A8);
        let expected = match parameter.role() {
            _ if name.starts_with("encoder.layers.1.") => (0, Dtype::Bf16.into()),
            _ if name.contains("feed_forward.outer") && name.starts_with("decoder") => {
                (1, Quantization::W8A16.into())
            }
            TensorId::Output => (2, int8),
            _ => (3, int8),
        };
        assert_eq!(dtype, expected.1, "{parameter}");
        seen[expected.0] += 1;
    }
    assert_eq!(seen, [6, 2, 1, 24]);
    // By default the output matrix keeps its dtype, because greedy search finds its argmax by int8
    // pruning anyway.
    let model = load(&checkpoint, Isa::best(), "int8");
    let output = model.parameters().find(|p| p.role() == TensorId::Output).expect("an output");
    assert_eq!(output.storage(), Storage::Packed(Dtype::F32.into()));
}

#[test]
fn dtypes_that_a_model_cannot_have_are_errors() {
    let dims = Dims::small(Family::Marian);
    let checkpoint = dims.checkpoint(5);
    let refused = |forms: &str| {
        let forms: WeightDtypes = forms.parse().expect(forms);
        match Model::load(&checkpoint, forms.clone()) {
            Err(error) => {
                let known = Model::requirements(&checkpoint, forms);
                assert_eq!(known.expect_err("known before").to_string(), error.to_string());
                error
            }
            Ok(_) => panic!("{forms} is taken"),
        }
    };
    let error = refused("int8,decoder.layers.9=f32");
    assert!(
        matches!(&error, Error::InvalidOption { operand, found, .. } if **operand == *"dtype" && found.to_string().contains("\"decoder.layers.9\""))
    );
    assert!(error.to_string().contains("\"decoder.layers.9\""), "{error}");
    let error = refused("int8,encoder.layers.0.self_attention.key=f32");
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    assert!(error.to_string().contains("which are one matrix"), "{error}");

    for family in [Family::T5, Family::MpNet] {
        let checkpoint = Dims::small(family).checkpoint(5);
        let dtypes: WeightDtypes = "stored,attention=int8".parse().expect("a table");
        let needed = Model::requirements(&checkpoint, dtypes.clone()).expect_err("known before");
        let error = Model::load(&checkpoint, dtypes).expect_err("relative positions");
        assert_eq!(error.to_string(), needed.to_string());
        assert_eq!(
            error.to_string(),
            "dtype: expected an encoder without relative positions, found attention=int8 and relative positions"
        );
    }

    // The largest f16 is 65,504.
    let config = dims.config();
    let forms = WeightDtypes::all(Dtype::F16);
    let large = Model::from_fn_with(config, forms, |_, shape, out| {
        out.fill(if shape.len() == 2 { 70_000.0 } else { 1.0 });
        Ok(())
    });
    match large {
        Err(error @ Error::InvalidOption { .. }) => {
            assert!(
                error
                    .to_string()
                    .starts_with("dtype: expected a dtype that can store each weight, found f16: "),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// A file that is deleted at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("simdformer-{}-{name}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Packed, saved and read back: the same memory, for every dtype table, with and without tied matrices.
#[test]
fn packed_weights_are_read_back() {
    let mut random = Random(6);
    let file = Temporary::new("packed");
    for family in [Family::Marian, Family::NnTransformer, Family::T5, Family::Bert] {
        let dims = Dims::small(family);
        let checkpoint = dims.checkpoint(8);
        let config = checkpoint.config();
        let source = random.ids(9, config.source_vocab);
        let target = random.ids(6, config.target_vocab.max(1));
        let attention = Some("int8,attention=int8").filter(|_| family != Family::T5);
        let forms = ["stored", "int8", "int8x16", "bf16", "f16,encoder.layers.0=int8"];
        for forms in forms.into_iter().chain(attention) {
            // The instruction set is that of the environment variable, if it is set.
            let isa = Isa::from_environment().expect("a set").unwrap_or(Isa::best());
            let model = load(&checkpoint, isa, forms);
            model.save_packed(&file.0).expect("written");
            let again = Model::open_packed(dims.config(), &file.0).expect("read");
            assert_eq!((again.isa(), again.bytes()), (isa, model.bytes()));
            assert_eq!(again.config().ties, config.ties);
            let lines = |model: &Model| -> Vec<String> {
                model.parameters().map(ToString::to_string).collect()
            };
            assert_eq!(lines(&again), lines(&model));
            assert_eq!(again.fingerprint(), model.fingerprint());
            let [a, b] = [&model, &again].map(|model| outcome(model, &source, &target));
            let what = format!("{} {forms}", family.model_type());
            assert_eq!((bits(&a.0), bits(&a.1)), (bits(&b.0), bits(&b.1)), "{what}");
        }
    }
}
