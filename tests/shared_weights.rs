//! Packed weights that are used in place: the same bits as a loaded model, no copy, and no panic whatever the bytes are.
//! Directories whose weights are packed.

use crate::effort::cases;
use crate::random_model::{Dims, Random};
use crate::tiny_marian::Folder;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::{Config, Family};
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::task_heads::Classifier;
use simdformer::{Error, Event, Limits, LoadOptions, Model, Session, SharedBytes, Source};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that begin at an address with this remainder modulo 64.
struct Placed {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Placed {
    fn new(content: &[u8], remainder: usize) -> Self {
        let mut bytes = vec![0; content.len() + 128];
        let start = bytes.as_ptr().align_offset(64) + remainder;
        bytes[start..start + content.len()].copy_from_slice(content);
        Self { bytes, start, len: content.len() }
    }
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

fn aligned(content: &[u8]) -> SharedBytes {
    Arc::new(Placed::new(content, 0))
}

fn isa() -> Isa {
    Isa::from_environment().expect("a set").unwrap_or(Isa::best())
}

fn options(forms: &str) -> LoadOptions<'static> {
    LoadOptions { dtypes: forms.parse().expect(forms), ..isa().into() }
}

/// A folder that no other test of this process has.
fn folder() -> Folder {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    Folder::new(&format!("shared-weights-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The content of a file of packed weights.
fn packed(model: &Model) -> Vec<u8> {
    let folder = folder();
    let file = folder.0.join("packed");
    model.save_packed(&file).expect("saved");
    fs::read(file).expect("read")
}

fn random_model(forms: &str) -> (Config, Model) {
    let dims = Dims::small(Family::Marian);
    let model = Model::load(&dims.checkpoint(5), options(forms)).expect("a model");
    (dims.config(), model)
}

/// The tokens and score bits of two sources.
fn generated(model: &Model) -> Result<Vec<(Vec<u32>, u32)>, Error> {
    let mut session = Session::new(model, Limits::new(2, 6, 8))?;
    let mut options = session.search_options();
    options.max_new_tokens = Some(6);
    options.max_length = None;
    options.scores = true;
    let sources = [Source::new(&[5, 4, 3, 0]), Source::new(&[2, 3, 5, 5, 1, 0])];
    let mut all = Vec::new();
    session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event {
            all.extend(done.hypotheses().map(|h| (h.tokens.to_vec(), h.score.to_bits())));
        }
    })?;
    all.sort();
    Ok(all)
}

/// Every model of the repository.
#[test]
fn shared_weights_give_the_bits_of_a_loaded_model() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    for name in ["copy", "fr-en", "walkthrough", "walkthrough-pre-norm"] {
        for forms in ["stored", "int8", "bf16", "int8x16,output=f32"] {
            let what = format!("{name} {forms}");
            let model = Model::open_with(root.join(name), options(forms)).expect(&what);
            let bytes = aligned(&packed(&model));
            let config = Checkpoint::open(root.join(name)).expect(&what).config().clone();
            for verify_packed in [false, true] {
                let options = LoadOptions { verify_packed, ..isa().into() };
                let shared = Model::from_packed_bytes(config.clone(), bytes.clone(), options);
                let shared = shared.expect(&what);
                assert!(shared.is_shared() && !model.is_shared(), "{what}");
                assert_eq!(shared.fingerprint(), model.fingerprint(), "{what}");
                assert_eq!(shared.bytes(), model.bytes(), "{what}");
                let found = generated(&shared).expect(&what);
                assert_eq!(found, generated(&model).expect(&what), "{what}");
            }
        }
    }
}

/// A model owns a share of the bytes, so they live as long as it, and no longer.
#[test]
fn several_models_share_one_copy() {
    let (config, model) = random_model("int8");
    let bytes = aligned(&packed(&model));
    let open = || Model::from_packed_bytes(config.clone(), bytes.clone(), isa()).expect("a model");
    let models = [open(), open()];
    assert_eq!(Arc::strong_count(&bytes), 3);
    let expected = generated(&model).expect("an answer");
    std::thread::scope(|scope| {
        for model in &models {
            scope.spawn(|| assert_eq!(generated(model).expect("an answer"), expected));
        }
    });
    drop(models);
    assert_eq!(Arc::strong_count(&bytes), 1);
}

/// Bytes that do not begin at a multiple of 64 are copied, and verified.
#[test]
fn unaligned_bytes_are_copied() {
    let (config, model) = random_model("f32");
    let mut file = packed(&model);
    let open = |file: &[u8], remainder| {
        let bytes: SharedBytes = Arc::new(Placed::new(file, remainder));
        let opened = Model::from_packed_bytes(config.clone(), bytes.clone(), isa());
        opened.inspect(|model| assert_eq!(model.is_shared(), Arc::strong_count(&bytes) == 2))
    };
    let expected = generated(&model).expect("an answer");
    for remainder in [0, 1, 4, 32, 63] {
        let model = open(&file, remainder).expect("a model");
        assert_eq!(model.is_shared(), remainder == 0);
        assert_eq!(generated(&model).expect("an answer"), expected, "remainder {remainder}");
    }
    *file.last_mut().expect("a byte") ^= 1;
    assert!(open(&file, 0).is_ok(), "weights in place are verified only if that is wanted");
    let error = open(&file, 4).expect_err("damaged").to_string();
    assert!(error.starts_with("memory: the checksum of the weights: expected "), "{error}");
}

/// What the header and the options say is always verified.
#[test]
fn bytes_of_another_file_are_errors() {
    let (config, model) = random_model("int8");
    let good = packed(&model);
    let begin = good.windows(2).position(|pair| pair == b"\n\n").unwrap_or(400);
    let refused = |bytes: &[u8], options: LoadOptions<'_>| match Model::from_packed_bytes(
        config.clone(),
        aligned(bytes),
        options,
    ) {
        Err(error) => error,
        other => panic!("{other:?}"),
    };
    let any = || LoadOptions::from(isa());
    for length in (0..good.len()).step_by(good.len() / 30 + 1).chain([begin, good.len() - 1]) {
        let error = refused(&good[..length], any());
        let known = matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
        assert!(known, "{length} bytes: {error}");
    }
    assert!(matches!(refused(&[&good[..], b"x"].concat(), any()), Error::Corrupt { .. }));
    assert!(matches!(refused(b"{}", any()), Error::Unsupported { .. }));
    let mut bad = good.clone();
    bad[60] ^= 1;
    assert!(
        matches!(&refused(&bad, any()), Error::Corrupt { operand, .. } if operand.ends_with("the checksum of the header"))
    );
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    let verify = LoadOptions { verify_packed: true, ..any() };
    assert!(
        matches!(&refused(&bad, verify), Error::Corrupt { operand, .. } if operand.ends_with("the checksum of the weights"))
    );
    let error = refused(&good, options("f32")).to_string();
    let expected = "memory: expected weights packed in the dtypes \"f32\", found \"int8\": pack the checkpoint again";
    assert_eq!(error, expected);
    assert!(Model::from_packed_bytes(config.clone(), aligned(&good), options("int8")).is_ok());
    for other in Isa::available().filter(|&other| other != isa()) {
        let error = refused(&good, other.into()).to_string();
        assert!(
            error.contains(&format!("expected weights packed for {other}, found \"{}\"", isa())),
            "{error}"
        );
        assert!(
            error.contains(&format!("simdformer pack --model DIR OUT --isa {other}")),
            "{error}"
        );
    }
    let narrower = Dims { layers: [1, 2], ..Dims::small(Family::Marian) }.config();
    let error =
        Model::from_packed_bytes(narrower, aligned(&good), isa()).expect_err("another model");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
}

/// The numbers of damaged weights are anything. The results are wrong, and nothing panics.
#[test]
fn damaged_weights_in_place_do_not_panic() {
    let mut random = Random(17);
    for forms in ["f32", "int8", "f16"] {
        let (config, model) = random_model(forms);
        let good = packed(&model);
        let weights = good.len() - model.bytes();
        for round in 0..cases(6, 60) {
            let mut bad = good.clone();
            match round % 3 {
                0 => bad[weights..].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
                1 => bad[weights..].fill(0xff),
                _ => (0..2000).for_each(|_| {
                    let at = weights + random.below(model.bytes());
                    bad[at] ^= 1 << random.below(8);
                }),
            }
            let model = Model::from_packed_bytes(config.clone(), aligned(&bad), isa());
            // NaN may be an error of the search.
            let _ = generated(&model.expect("a valid header"));
        }
    }
}

/// Safe code that returns the whole content only for the first calls, then `after`.
struct Unreliable {
    content: Placed,
    after: Vec<u8>,
    calls: AtomicUsize,
    honest: usize,
}

impl AsRef<[u8]> for Unreliable {
    fn as_ref(&self) -> &[u8] {
        match self.calls.fetch_add(1, Ordering::Relaxed) < self.honest {
            true => self.content.as_ref(),
            false => &self.after,
        }
    }
}

/// `AsRef` may return something else at each call. That is an error of a call, at any time.
#[test]
fn an_owner_that_returns_other_bytes_causes_errors_and_no_panic() {
    for (family, forms) in [
        (Family::Marian, "f32"),
        (Family::Marian, "int8"),
        (Family::Bart, "f32"),
        (Family::T5, "f32"),
    ] {
        let dims = match family {
            Family::T5 => Dims { d_model: 72, ..Dims::small(family) },
            _ => Dims::small(family),
        };
        let model = Model::load(&dims.checkpoint(5), options(forms)).expect("a model");
        let file = packed(&model);
        let run = |honest: usize, after: Vec<u8>| {
            let calls = AtomicUsize::new(0);
            let content = Placed::new(&file, 0);
            let owner = Arc::new(Unreliable { content, after, calls, honest });
            let config = dims.checkpoint(5).config().clone();
            let opened = Model::from_packed_bytes(config, owner.clone(), isa());
            let found = opened.map(|model| {
                let _ = (model.bytes(), model.fingerprint(), format!("{model:?}"));
                generated(&model)
            });
            (found, owner.calls.load(Ordering::Relaxed))
        };
        let (whole, calls) = run(usize::MAX, Vec::new());
        let expected = generated(&model).expect("an answer");
        assert_eq!(whole.expect("a model").expect("an answer"), expected, "{family:?}");
        assert!(calls > 50, "{calls} calls");
        let mut errors = 0;
        let step = (calls / cases(12, 600)).max(1);
        for honest in (0..12).chain((12..calls).step_by(step)) {
            for len in [3, file.len() / 2] {
                match run(honest, file[..len].to_vec()).0 {
                    Ok(Ok(_)) => {}
                    _ => errors += 1,
                }
            }
        }
        assert!(errors > 10, "{family:?} {forms}: {errors} errors");
    }
}

/// A directory with the configuration of a model and its weights, packed for each of `sets`.
fn directory(model: &Path, forms: &str, sets: &[Isa]) -> Folder {
    let folder = folder();
    for name in ["config.json", "generation_config.json"] {
        if model.join(name).exists() {
            fs::copy(model.join(name), folder.0.join(name)).expect("copied");
        }
    }
    for &isa in sets {
        let options = LoadOptions { dtypes: forms.parse().expect(forms), ..isa.into() };
        let model = Model::open_with(model, options).expect("a model");
        model.save_packed(folder.0.join(Model::packed_name(isa))).expect("saved");
    }
    folder
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families").join(name)
}

#[test]
fn a_directory_with_packed_weights_opens_like_a_checkpoint() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/copy");
    let sets: Vec<Isa> = Isa::available().collect();
    let folder = directory(&path, "int8", &sets);
    let checkpoint = Checkpoint::open(&folder.0).expect("a checkpoint");
    assert!(checkpoint.is_packed());
    assert_eq!(checkpoint.files().count(), sets.len());
    for &isa in &sets {
        let original = Model::open_with(&path, LoadOptions { isa: Some(isa), ..options("int8") });
        let original = original.expect("a model");
        let model = Model::load(&checkpoint, isa).expect("a model");
        assert_eq!((model.isa(), model.fingerprint()), (isa, original.fingerprint()));
        assert_eq!(model.config(), original.config());
        assert_eq!(generated(&model).expect("tokens"), generated(&original).expect("tokens"));
        let needed = Model::requirements(&checkpoint, isa).expect("a header");
        let of_original = LoadOptions { isa: Some(isa), ..options("int8") };
        let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
        let expected = Model::requirements(&checkpoint, of_original).expect("headers");
        assert_eq!((needed.parameters, needed.model_bytes), (expected.parameters, model.bytes()));
    }
    // No tensor can be read, by name or by role.
    let error = checkpoint.tensor(TensorId::SourceEmbedding).expect_err("packed");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().ends_with("open the checkpoint that was packed"), "{error}");
    assert!(checkpoint.optional(TensorId::OutputBias).is_err());
    // Other dtypes need the checkpoint.
    let error = Model::load(&checkpoint, options("f32")).expect_err("int8");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
}

#[test]
fn the_best_packed_set_is_used_and_a_missing_one_is_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/copy");
    let folder = directory(&path, "stored", &[Isa::SCALAR]);
    if Isa::from_environment().expect("a set").is_none() {
        // A worse set than the best of this machine is used if there is no other.
        assert_eq!(Model::open(&folder.0).expect("a model").isa(), Isa::SCALAR);
    }
    for isa in Isa::available().filter(|&isa| isa != Isa::SCALAR) {
        let error = Model::open_with(&folder.0, isa).expect_err("only scalar").to_string();
        let expected =
            format!("model.scalar.packed: expected weights packed for {isa}, found \"scalar\"");
        assert!(error.contains(&expected), "{error}");
    }
}

/// The classifier of a cross-encoder is not a part of the network.
#[test]
fn heads_are_stored_beside_packed_weights() {
    let path = golden("bert_classifier");
    let folder = directory(&path, "stored", &[isa()]);
    let original = Checkpoint::open(&path).expect("a checkpoint");
    assert!(Classifier::save(&original, &folder.0).expect("saved"));
    let checkpoint = Checkpoint::open(&folder.0).expect("a checkpoint");
    let hidden: Vec<f32> = (0..original.config().d_model).map(|x| (x as f32).sin()).collect();
    let scores = |checkpoint| {
        let head = Classifier::from_checkpoint(checkpoint).expect("a head").expect("a head");
        head.scores(&hidden).expect("scores")
    };
    assert_eq!(scores(&checkpoint), scores(&original));
    Model::load(&checkpoint, isa()).expect("a model");
}
