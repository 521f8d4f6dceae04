//! Directories of CTranslate2: those that its own converters wrote (`tests/golden/ctranslate2_directories.py`), and those of
//! the writer in `simdformer-testing`, in every dtype and version, whole and damaged.

use crate::effort::cases;
use crate::families::{Expected, Sources};
use crate::random_model::Random;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Config;
use simdformer::kernels::{Isa, Matrix, QuantizedMatrix};
use simdformer::search::{Hooks, SearchOptions, Strategy};
use simdformer::{Error, Event, Limits, LoadOptions, Model, Session, Source, WeightDtypes};
use simdformer_testing::ctranslate2::{Directory, Stored};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::path::{Path, PathBuf};

/// The largest difference allowed, relative to the largest magnitude of the expected tensor.
const TOLERANCE: f32 = 2e-5;

/// The directories of the converters, and the checkpoints of their sentences. Those of the first have other sentences.
const GOLDENS: [(&str, &str); 5] = [
    ("marian-f32", "search/marian_a"),
    ("bart-int16", "search/bart_a"),
    ("t5_v1_1-int8", "families/t5_v1_1"),
    ("whisper-f16", "families/whisper"),
    ("camembert-bf16", "families/camembert"),
];

/// Checkpoints of every architecture that CTranslate2 has.
const CHECKPOINTS: [&str; 14] = [
    "search/bart_a",
    "search/marian_b",
    "search/m2m_a",
    "marian_untied",
    "families/pegasus",
    "families/t5",
    "families/t5_v1_1",
    "families/umt5",
    "families/whisper",
    "families/whisper_english",
    "families/bert",
    "families/distilbert_classifier",
    "families/roberta",
    "families/camembert",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The sentences of a checkpoint, or its features, and the prefixes of its targets.
struct Sentences {
    sources: Sources,
    prefixes: Vec<Vec<u32>>,
}

impl Sentences {
    fn read(folder: &Path) -> Self {
        let listed = std::fs::read_to_string(folder.join("sources.json"));
        let listed = listed.map(|text| serde_json::from_str(&text).expect("lists of ids"));
        let (sources, mut prefixes) = match listed {
            Ok(ids) => (Sources::Ids(ids), Vec::new()),
            Err(_) => {
                let expected = Expected::from_folder(folder);
                (Sources::from_expected(&expected), expected.all("prefix"))
            }
        };
        prefixes.resize(sources.len(), Vec::new());
        Self { sources, prefixes }
    }

    fn limits(&self, target: usize) -> Limits {
        let longest = self.sources.positions().into_iter().max().unwrap_or(0);
        Limits::new(self.sources.len(), longest, target)
    }

    fn requests(&self) -> Vec<Source<'_>> {
        let mut requests = self.sources.requests();
        for (request, prefix) in requests.iter_mut().zip(&self.prefixes) {
            request.prefix = prefix;
        }
        requests
    }

    /// Whether ctranslate2 runs sentence `index`: it has more than its begin and its end.
    fn has_content(&self, index: usize, model: &Model) -> bool {
        let end = &model.config().tokens.eos;
        match &self.sources {
            Sources::Ids(ids) => ids[index].iter().any(|id| *id != 0 && !end.contains(id)),
            Sources::Features(_) => true,
        }
    }
}

fn load(checkpoint: &Checkpoint<'_>, isa: Isa, dtypes: WeightDtypes) -> Model {
    let options = LoadOptions { isa: Some(isa), dtypes, ..LoadOptions::default() };
    Model::load(checkpoint, options).expect("loaded")
}

/// The greedy sequences, without the end token.
fn greedy(model: &Model, sentences: &Sentences) -> Vec<Vec<u32>> {
    let mut session = Session::new(model, sentences.limits(21)).expect("a session");
    let options = SearchOptions {
        max_new_tokens: Some(14),
        max_length: None,
        strategy: Strategy::Greedy,
        ..model.config().search_options()
    };
    let mut found = vec![Vec::new(); sentences.prefixes.len()];
    let mut hooks = Hooks::default();
    let each = &mut |event: Event<'_>| {
        if let Event::Done(done) = event {
            let tokens = done.hypotheses().next().expect("a sequence").tokens;
            found[done.source] =
                tokens.iter().copied().filter(|id| !options.eos.contains(id)).collect();
        }
    };
    session.generate(&sentences.requests(), &options, &mut hooks, each).expect("generated");
    found
}

/// What ctranslate2 computed from its own directories in f32: sequences and encoder outputs, on every instruction set.
#[test]
fn directories_of_the_converters_give_the_results_of_ctranslate2() {
    for (name, checkpoint) in GOLDENS {
        let folder = golden("ctranslate2").join(name);
        let sentences = Sentences::read(&golden(checkpoint));
        let expected = Expected::from_folder(&folder);
        let opened = Checkpoint::open(&folder).expect(name);
        assert_eq!(opened.unused(), [] as [&str; 0], "{name}");
        for isa in Isa::available() {
            // As ctranslate2, which widens integers for f32.
            let dtypes = if name.ends_with("int8") { "f32" } else { "stored" };
            let model = load(&opened, isa, dtypes.parse().expect("dtypes"));
            if expected.get("greedy.0").is_some() {
                let found = greedy(&model, &sentences);
                let run = (0..found.len()).filter(|&i| sentences.has_content(i, &model));
                for i in run.clone() {
                    let name_of = format!("greedy.{i}");
                    assert_eq!(found[i], expected.ids(&name_of), "{name} {isa} {name_of}");
                }
                assert!(run.count() >= 5, "{name}");
            }
            if expected.get("encoder.0").is_some() {
                let target = usize::from(model.config().decoder.is_some());
                let mut session =
                    Session::new(&model, sentences.limits(target)).expect("a session");
                let mut found = sentences.sources.memory(&mut session);
                for i in 0..sentences.sources.len() {
                    let expected = expected.floats(&format!("encoder.{i}"));
                    let (own, rest) = found.split_at(expected.len());
                    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                    for (a, b) in own.iter().zip(&expected) {
                        let off = (a - b).abs();
                        assert!(!(off > TOLERANCE * largest), "{name} {isa} encoder.{i}: {a}, {b}");
                    }
                    found = rest;
                }
            }
        }
    }
}

/// The tensors of a directory in f32 are those of the checkpoint that was converted, bit for bit.
#[test]
fn a_directory_in_f32_has_the_tensors_of_its_checkpoint() {
    let original = Checkpoint::open(golden("search/marian_a")).expect("a checkpoint");
    let opened = Checkpoint::open(golden("ctranslate2/marian-f32")).expect("a directory");
    let (config, of) = (opened.config(), original.config());
    assert_eq!((config.target_vocab, config.ties), (of.target_vocab, of.ties));
    assert_eq!((&config.tokens.banned, config.tokens.pad), (&of.tokens.banned, of.tokens.pad));
    assert_eq!(config.tokens.decoder_start, of.tokens.decoder_start);
    let start = of.tokens.pad.expect("a pad token") as usize;
    let mut compared = 0;
    for role in TensorId::all(of) {
        let Some(tensor) = original.optional(role).expect("a role") else { continue };
        let mut expected = tensor.to_vec().expect("readable");
        // The decoder starts from zeros, and not from the embedding of the pad token.
        if tensor.shape() == [of.target_vocab, of.d_model] {
            expected[start * of.d_model..].fill(0.0);
        }
        if role == TensorId::OutputBias {
            expected[start] = 0.0;
        }
        let found = opened.tensor(role).expect("a tensor").to_vec().expect("readable");
        assert_eq!(found, expected, "{role}");
        compared += 1;
    }
    assert!(compared > 50, "{compared} tensors");
}

/// Every architecture, dtype and version: each tensor has the numbers that were written, widened.
#[test]
fn every_tensor_has_the_numbers_that_were_written() {
    let folder = TemporaryFolder::new("ctranslate2_tensors");
    let mut directories = 0;
    for name in CHECKPOINTS {
        let checkpoint = Checkpoint::open(golden(name)).expect(name);
        for stored in Stored::ALL {
            let mut directory = Directory::from_checkpoint(&checkpoint, stored);
            for version in cases(&[6][..], &[4, 5, 6]).iter().copied() {
                directory.model.version = version;
                directory.write(folder.path());
                let what = format!("{name} {stored:?} {version}");
                let opened =
                    Checkpoint::open(folder.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
                directories += 1;
                for (role, expected) in &directory.expected {
                    let tensor = opened.tensor(*role).expect("a tensor");
                    assert_eq!(tensor.to_vec().expect("readable"), *expected, "{what}: {role}");
                    // A few rows are read as the whole is.
                    let rows = tensor.shape()[0];
                    let some = tensor.rows(rows / 3..rows).expect("rows").to_vec();
                    let skipped = rows / 3 * tensor.row_len();
                    assert_eq!(some.expect("readable"), expected[skipped..], "{what}: {role}");
                }
                // Biases that only the converters write are zero.
                for role in TensorId::all(opened.config()) {
                    if !directory.expected.iter().any(|(known, _)| *known == role) {
                        let Some(zero) = opened.optional(role).expect("a role") else { continue };
                        let numbers = zero.to_vec().expect("readable");
                        assert!(numbers.iter().all(|&x| x == 0.0), "{what}: {role}");
                    }
                }
                let dtypes = opened.dtypes();
                let kind = ["F32", "F16", "BF16", "I16", "I8"][stored as usize];
                assert!(dtypes.iter().any(|(name, _)| name == kind), "{what}: {dtypes:?}");
            }
        }
    }
    println!("{directories} directories");
}

/// int8 matrices of the layers stay int8, as by request; the output is f32, and so is everything by request.
#[test]
fn int8_matrices_are_used_as_they_are() {
    let folder = TemporaryFolder::new("ctranslate2_int8");
    for name in ["search/bart_a", "families/t5_v1_1", "families/whisper"] {
        let checkpoint = Checkpoint::open(golden(name)).expect(name);
        Directory::from_checkpoint(&checkpoint, Stored::Int8).write(folder.path());
        let opened = Checkpoint::open(folder.path()).expect(name);
        for isa in Isa::available() {
            let of = |dtypes: &str| load(&opened, isa, dtypes.parse().expect("dtypes"));
            let (stored, int8, whole) = (of("stored"), of("int8"), of("f32"));
            let storage = |model: &Model| -> Vec<String> {
                model.parameters().map(|parameter| parameter.to_string()).collect()
            };
            assert_eq!(storage(&stored), storage(&int8), "{name}");
            assert_ne!(storage(&stored), storage(&whole), "{name}");
            let sentences = Sentences::read(&golden(name));
            assert_eq!(greedy(&stored, &sentences), greedy(&int8, &sentences), "{name}");
        }
    }
}

/// Quantized again by the kernels, a row has the same integers: its largest magnitude is 127, and the scale is off by the
/// last bit at most.
#[test]
fn rows_keep_their_integers() {
    let mut random = Random(7);
    let every: Vec<f32> = (-127i8..=127).map(f32::from).collect();
    let mut exact = 0;
    let count = cases(500, 50_000);
    for _ in 0..count {
        let divisor = 127.0 / random.symmetric().abs().max(1e-6);
        let scale = 1.0 / divisor;
        let row: Vec<f32> = every.iter().map(|q| q * scale).collect();
        let length = QuantizedMatrix::buffer_len(row.len(), 1).expect("a length");
        let mut buffer = vec![0.0; length];
        let column = Matrix::new(&row, row.len(), 1).expect("a column");
        let packed =
            QuantizedMatrix::quantize(Isa::SCALAR, column, &mut buffer).expect("quantized");
        let found = packed.column_scale(0);
        assert!(found.to_bits().abs_diff(scale.to_bits()) <= 1, "{found}, {scale}");
        exact += usize::from(found == scale);
        for (x, q) in row.iter().zip(&every) {
            assert_eq!((x / found).round(), *q);
        }
    }
    assert!(exact > count * 9 / 10, "{exact} of {count}");
}

/// The settings of early versions are variables of the file.
#[test]
fn early_versions_have_their_settings_in_the_file() {
    let folder = TemporaryFolder::new("ctranslate2_early");
    let checkpoint = Checkpoint::open(golden("search/bart_a")).expect("a checkpoint");
    let latest = Directory::from_checkpoint(&checkpoint, Stored::F32);
    latest.write(folder.path());
    let expected = Checkpoint::open(folder.path()).expect("a directory");
    let mut early = latest.clone();
    early.config = None;
    (early.model.version, early.model.revision) = (4, 4);
    let config = checkpoint.config();
    let token = |id: u32| format!("t{id}").into_bytes();
    let tokens = &config.tokens;
    let texts = [("bos_token", tokens.bos), ("eos_token", tokens.eos.first().copied())];
    for (name, id) in texts {
        let text = token(id.expect("a token"));
        early.model.push(name, 1, &[text.len()], text.clone());
    }
    // The target begins with its end.
    early.model.flag("with_target_bos", 0);
    early.model.flag("with_source_bos", 1);
    early.model.flag("with_source_eos", 1);
    for setting in ["num_heads", "pre_norm", "activation"] {
        let decoder = format!("decoder/{setting}");
        early.model.variables.retain(|variable| variable.name != decoder);
        let own = format!("encoder/{setting}");
        let found = early.model.variables.iter_mut().find(|variable| variable.name == own);
        found.expect("a setting").name = setting.to_owned();
    }
    let scale = "encoder/embeddings/multiply_by_sqrt_depth";
    for variable in &mut early.model.variables {
        variable.name = variable.name.replace("embeddings_0", "embeddings");
        if variable.name == "encoder/scale_embeddings" {
            variable.name = scale.to_owned();
        }
    }
    for (alias, variable) in &mut early.model.aliases {
        *alias = alias.replace("embeddings_0", "embeddings");
        *variable = variable.replace("embeddings_0", "embeddings");
    }
    early.write(folder.path());
    let text = early.vocabularies[0].1.join("\n") + "\n";
    std::fs::remove_file(folder.path().join("shared_vocabulary.json")).expect("removed");
    for name in ["source_vocabulary.txt", "target_vocabulary.txt"] {
        std::fs::write(folder.path().join(name), &text).expect("written");
    }
    let found = Checkpoint::open(folder.path()).expect("a directory");
    let mut expected = expected.config().clone();
    // CTranslate2 adds them to every source.
    expected.tokens.source_begin = tokens.bos;
    expected.tokens.source_end = tokens.eos.first().copied();
    assert_eq!(*found.config(), expected);
    let again = text.replace('\n', "\r\n");
    std::fs::write(folder.path().join("target_vocabulary.txt"), again).expect("written");
    assert_eq!(*Checkpoint::open(folder.path()).expect("opened").config(), expected);
    let without = text.replace(&format!("t{}\n", tokens.bos.expect("a token")), "other\n");
    std::fs::write(folder.path().join("source_vocabulary.txt"), without).expect("written");
    let error = Checkpoint::open(folder.path()).expect_err("an error").to_string();
    assert!(error.contains("added to every source") && error.contains("none"), "{error}");
}

/// What `config.json` adds to every source is a part of the configuration.
#[test]
fn tokens_that_are_added_to_every_source_are_known() {
    let folder = TemporaryFolder::new("ctranslate2_source_tokens");
    let checkpoint = Checkpoint::open(golden("search/bart_a")).expect("a checkpoint");
    let tokens = &checkpoint.config().tokens;
    let ids = [tokens.bos, tokens.eos.first().copied()];
    assert!(ids.iter().all(Option::is_some));
    let mut directory = Directory::from_checkpoint(&checkpoint, Stored::F32);
    for added in [[false, false], [true, false], [false, true], [true, true]] {
        let config = directory.config.as_mut().expect("a config");
        (config["add_source_bos"], config["add_source_eos"]) = (added[0].into(), added[1].into());
        directory.write(folder.path());
        let opened = Checkpoint::open(folder.path()).expect("a directory");
        let found = &opened.config().tokens;
        let expected = [ids[0].filter(|_| added[0]), ids[1].filter(|_| added[1])];
        assert_eq!([found.source_begin, found.source_end], expected);
        assert_eq!(found.bos, tokens.bos);
        // Written and read again, as by `simdformer pack`.
        let text = opened.config().to_json().expect("a text");
        assert_eq!(Config::from_hugging_face(&text).expect("read").tokens, *found);
    }
}

/// A directory that was changed, and words of its error.
type Damage<'d> = (&'d str, &'d dyn Fn(&mut Directory), &'d [&'d str]);

/// What is not computed is refused by the name of its variable; so is what is missing.
#[test]
fn variables_that_change_the_results_are_refused() {
    let folder = TemporaryFolder::new("ctranslate2_refused");
    let checkpoint = Checkpoint::open(golden("families/t5_v1_1")).expect("a checkpoint");
    let whole = Directory::from_checkpoint(&checkpoint, Stored::Int8);
    let rename = |directory: &mut Directory, from: &str, to: &str| {
        let found = directory.model.variables.iter_mut().find(|variable| variable.name == from);
        found.expect("a variable").name = to.to_owned();
    };
    let damages: &[Damage<'_>] = &[
        (
            "rotary",
            &|d| d.model.count("decoder/layer_0/self_attention/rotary_dim", 8),
            &["rotary_dim"],
        ),
        (
            "alibi",
            &|d| d.model.flag("encoder/alibi", 1),
            &["encoder/alibi", "expected 0", "found 1"],
        ),
        (
            "cap",
            &|d| d.model.number("decoder/final_logit_softcapping", 30.0),
            &["softcapping", "30"],
        ),
        (
            "gamma",
            &|d| rename(d, "encoder/layer_norm/gamma", "encoder/layer_norm/other"),
            &["layer_norm/other"],
        ),
        (
            "missing",
            &|d| rename(d, "encoder/layer_0/ffn/layer_norm/gamma", "pooler_dense/x"),
            &["ffn/layer_norm/gamma", "none"],
        ),
        (
            "scale",
            &|d| rename(d, "encoder/layer_0/ffn/linear_1/weight_scale", "pooler_dense/x"),
            &["linear_1/weight_scale"],
        ),
        (
            "heads",
            &|d| d.model.variables[0].bytes = 0i16.to_le_bytes().to_vec(),
            &["num_heads", "at least 1"],
        ),
        (
            "other heads",
            &|d| d.model.variables[0].bytes = 7i16.to_le_bytes().to_vec(),
            &["linear_0/weight", "7 heads"],
        ),
        (
            "decoder alone",
            &|d| d.model.specification = "TransformerDecoderSpec".into(),
            &["TransformerDecoderSpec"],
        ),
        ("revision", &|d| d.model.revision = 8, &["revision 2 to 7", "8"]),
        ("version 3", &|d| d.model.version = 3, &["version 4, 5 or 6", "version 3"]),
        ("version 7", &|d| d.model.version = 7, &["version 4, 5 or 6", "version 7"]),
        ("dtype", &|d| d.model.variables[1].kind = 6, &["dtype below 6"]),
        (
            "twice",
            &|d| {
                let v = d.model.variables[3].clone();
                d.model.variables.push(v)
            },
            &["once"],
        ),
        (
            "alias",
            &|d| d.model.aliases.push(("x".into(), "nothing".into())),
            &["alias of a variable", "nothing"],
        ),
        ("vocabulary", &|d| d.vocabularies.clear(), &["shared_vocabulary.json", "no such file"]),
        (
            "groups",
            &|d| d.config = Some(serde_json::json!({"quantization_type": 1})),
            &["quantization_type", "AWQ"],
        ),
        (
            "token",
            &|d| d.config = Some(serde_json::json!({"eos_token": 3})),
            &["config.json", "eos_token", "a string"],
        ),
        (
            "end",
            &|d| d.config.as_mut().expect("settings")["eos_token"] = "</end>".into(),
            &["config.json: the vocabulary of the target", "\"</end>\", the end of every text"],
        ),
        ("long name", &|d| d.model.variables[2].name = "x".repeat(600), &["1 to 512 bytes", "601"]),
        ("dimensions", &|d| d.model.variables[2].shape = vec![1; 9], &["at most 8 dimensions"]),
        ("huge", &|d| d.model.variables[2].shape = vec![u32::MAX; 8], &["the bytes of"]),
        ("length", &|d| d.model.variables[2].bytes.push(0), &["the bytes of"]),
    ];
    whole.write(folder.path());
    Model::open(folder.path()).expect("a good directory");
    for (name, damage, words) in damages {
        let mut directory = whole.clone();
        damage(&mut directory);
        directory.write(folder.path());
        let error =
            Model::open(folder.path()).err().unwrap_or_else(|| panic!("{name} is accepted"));
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{name}: {said}");
    }
}

/// Truncated and changed files are errors, or models with other numbers; nothing panics.
#[test]
fn damaged_files_are_errors() {
    let folder = TemporaryFolder::new("ctranslate2_damaged");
    let mut random = Random(23);
    let (mut refused, mut accepted) = (0, 0);
    for (name, stored) in [("families/camembert", Stored::Int8), ("families/t5", Stored::Int16)] {
        let checkpoint = Checkpoint::open(golden(name)).expect(name);
        let directory = Directory::from_checkpoint(&checkpoint, stored);
        directory.write(folder.path());
        let whole = directory.model.bytes();
        let file = folder.path().join("model.bin");
        let open = |bytes: &[u8]| -> Result<Model, Error> {
            std::fs::write(&file, bytes).expect("written");
            Model::open_with(folder.path(), LoadOptions::from(Isa::SCALAR))
        };
        // No part of a file is a whole one.
        for _ in 0..cases(60, 3000) {
            let end = random.below(whole.len());
            let error = open(&whole[..end]).err().unwrap_or_else(|| panic!("{name}: {end} bytes"));
            assert!(!matches!(error, Error::Io { .. }), "{name}: {end} bytes: {error}");
            refused += 1;
        }
        for _ in 0..cases(150, 6000) {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(3) {
                // Most changes hit a part that is not a number of a tensor: names, shapes, lengths.
                let at = match random.below(4) {
                    0 => random.below(bytes.len()),
                    _ => {
                        let from = random.below(bytes.len());
                        let name =
                            bytes[from..].windows(5).position(|w| w == b"layer" || w == b"coder");
                        from + name.unwrap_or(0) + random.below(60)
                    }
                };
                let at = at.min(bytes.len() - 1);
                match random.below(4) {
                    0 => bytes[at] = random.bits() as u8,
                    1 => bytes[at] ^= 1 << random.below(8),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.bits() as u8),
                }
            }
            match open(&bytes) {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {accepted} accepted");
    assert!(refused > 3 * accepted, "{refused} refused, {accepted} accepted");
}
