//! What a load reports: its memory before a weight is read, and its progress.

use crate::random_model::{Dims, families};
use crate::tiny_marian::{Folder, MARIAN, floats, marian_tensors, open, write};
use core::ops::ControlFlow;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::{Dtype, Error, LoadOptions, Model, Storage, WeightDtype};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every golden directory that has a model.
fn goldens() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.join("model.safetensors").exists());
        paths.sort();
        paths
    };
    let found = [inside(&golden), inside(&golden.join("families"))].concat();
    assert!(found.len() >= 24, "{} goldens", found.len());
    found
}

/// A matrix of floats in panels.
const F32: Storage = Storage::Packed(WeightDtype::Float(Dtype::F32));

/// The model has the sizes that were computed from the headers.
fn kept(what: &str, checkpoint: &Checkpoint<'_>) {
    for isa in Isa::available() {
        let needed = Model::requirements(checkpoint, isa).expect(what);
        let model = Model::load(checkpoint, isa).expect(what);
        assert_eq!(needed.model_bytes, model.bytes(), "{what} {isa}");
        let parts: usize = model.parameters().map(|parameter| parameter.bytes()).sum();
        assert_eq!(needed.model_bytes, parts, "{what} {isa}");
        // The largest matrix that is read through a buffer, 64 rows at a time. A convolution needs
        // one more row, in which its elements are reordered.
        let staged = model.parameters().filter(|p| p.storage() == F32).map(|p| {
            let (rows, row) = p.shape().split_first().expect("a matrix");
            let more = row.len() - 1;
            (rows.min(&64) + more) * row.iter().product::<usize>() * 4
        });
        let staged = staged.max().expect("a matrix");
        assert_eq!(needed.peak_bytes, needed.model_bytes + staged, "{what} {isa}");
        assert_eq!((needed.isa, needed.file_bytes), (isa, checkpoint.bytes()), "{what}");
        let shown = needed.to_string();
        let first = format!("{} parameters", needed.parameters);
        assert!(shown.starts_with(&first) && !shown.contains('\n'), "{what}: {shown}");
        assert!(model.to_string().contains(&first), "{what}: {model} {shown}");
    }
}

#[test]
fn the_memory_of_a_golden_follows_from_its_headers() {
    for folder in goldens() {
        let what = folder.display().to_string();
        let checkpoint = Checkpoint::open(&folder).expect(&what);
        kept(&what, &checkpoint);
        let file = folder.join("model.safetensors");
        assert_eq!(checkpoint.bytes(), std::fs::metadata(&file).expect("a file").len(), "{what}");
        assert!(checkpoint.files().eq([file.to_str().expect("a path")]), "{what}");
        // The crate safetensors is the oracle.
        let bytes = std::fs::read(&file).expect("a file");
        let oracle = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let mut dtypes = BTreeMap::new();
        for (_, tensor) in oracle.tensors() {
            *dtypes.entry(tensor.dtype().to_string()).or_insert(0) += 1;
        }
        assert_eq!(checkpoint.dtypes(), dtypes.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn the_memory_of_every_family_follows_from_its_headers() {
    for family in families() {
        kept(family.model_type(), &Dims::small(family).checkpoint(3));
    }
}

/// Values of the file that are used, each counted once.
#[test]
fn parameters_are_the_trained_values() {
    for family in families() {
        let dims = Dims::small(family);
        let checkpoint = dims.checkpoint(3);
        let needed = Model::requirements(&checkpoint, Isa::SCALAR).expect("requirements");
        let sizes = dims.tensors().into_iter().map(|(_, shape)| shape.iter().product::<usize>());
        // An output bias that the file lacks is stored as zeros.
        let bias = match checkpoint.optional(TensorId::OutputBias) {
            Ok(None) => checkpoint.config().target_vocab,
            _ => 0,
        };
        assert_eq!(needed.parameters, sizes.sum::<usize>() + bias, "{family:?}");
    }
}

/// The requirements need no weights: here the weights are deleted before.
#[test]
fn requirements_read_no_weight() {
    let folder = Folder::new("requirements");
    let bytes = write(&marian_tensors());
    folder.put("config.json", MARIAN).put("model.safetensors", &bytes);
    let checkpoint = folder.open().expect("a checkpoint");
    let file = std::fs::OpenOptions::new().write(true).open(folder.0.join("model.safetensors"));
    file.expect("the file").set_len(8).expect("shorter");
    let needed = Model::requirements(&checkpoint, Isa::SCALAR).expect("requirements");
    assert_eq!(needed.file_bytes, bytes.len() as u64);
    let error = Model::load(&checkpoint, Isa::SCALAR).expect_err("no weights");
    let gone = matches!(error, Error::Io { .. });
    assert!(gone, "{error}");
}

#[test]
fn progress_grows_to_the_total() {
    for family in families() {
        let dims = Dims { vocabulary: 1031, ffn: [101, 103], ..Dims::small(family) };
        let checkpoint = dims.checkpoint(3);
        for isa in Isa::available() {
            let (mut steps, mut tensors) = (Vec::new(), Vec::new());
            let options = LoadOptions::from(isa).on_progress(|loading| {
                steps.push((loading.done, loading.total));
                if tensors.last().is_none_or(|last| last != loading.tensor) {
                    tensors.push(loading.tensor.to_owned());
                }
            });
            let model = Model::load(&checkpoint, options).expect("a model");
            let (_, total) = steps[0];
            assert!(steps.windows(2).all(|two| two[0].0 < two[1].0), "{family:?}");
            assert!(steps.iter().all(|&(_, each)| each == total), "{family:?}");
            assert_eq!(steps.last(), Some(&(total, total)), "{family:?}");
            // Every stored tensor and no other; the table in several reads.
            let stored = model.parameters().filter(|p| [Storage::Rows, F32].contains(&p.storage()));
            let stored: Vec<_> =
                stored.filter_map(|p| checkpoint.optional(p.role()).expect("a role")).collect();
            let expected: u64 = stored.iter().map(|view| 4 * view.len() as u64).sum();
            let skipped: usize = match checkpoint.config().positions {
                simdformer::config::Positions::Learned { offset } => {
                    let sides = 1 + usize::from(checkpoint.config().decoder.is_some());
                    offset * sides * checkpoint.config().d_model
                }
                _ => 0,
            };
            assert_eq!(total, expected - 4 * skipped as u64, "{family:?}");
            let mut names: Vec<String> = stored.iter().map(|view| view.name().to_owned()).collect();
            names.dedup();
            assert_eq!(tensors, names, "{family:?}");
            assert!(steps.len() > tensors.len(), "{family:?}: {} steps", steps.len());
        }
    }
}

/// A table larger than one read is the same when it is read in several parts.
#[test]
fn a_large_table_is_read_in_parts() {
    let dims = Dims { vocabulary: 30_011, ..Dims::small(Family::Marian) };
    let checkpoint = dims.checkpoint(3);
    let mut pieces = 0;
    let name = checkpoint.tensor(TensorId::SourceEmbedding).expect("a table").name().to_owned();
    let mut first = true;
    let options = LoadOptions::from(Isa::SCALAR).on_progress(|loading| {
        first &= loading.tensor == name;
        pieces += usize::from(first);
    });
    let model = Model::load(&checkpoint, options);
    assert_eq!(pieces, 2);
    // The last rows are in place: the model equals one that a function has written.
    let written = Model::from_fn_with(checkpoint.config().clone(), Isa::SCALAR, |role, _, out| {
        if let Some(tensor) = checkpoint.optional(role)? {
            tensor.read_into(out)?;
        }
        Ok(())
    });
    let logits = |model: &Model| {
        let limits = simdformer::Limits::new(1, 4, 4);
        let mut session = simdformer::Session::new(model, limits).expect("a session");
        let memory = session.encoder_output(&[&[30_010, 7, 24_967, 24_966]]).expect("a memory");
        memory.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(logits(&model.expect("a model")), logits(&written.expect("a model")));
}

#[test]
fn a_load_can_be_stopped() {
    let checkpoint = Dims::small(Family::T5).checkpoint(3);
    let mut calls = 0;
    let mut stop_at_the_third = || {
        calls += 1;
        if calls % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = LoadOptions::default().on_progress(|_| stop_at_the_third());
    let loaded = Model::load(&checkpoint, options);
    let options = LoadOptions::default().on_progress(|_| stop_at_the_third());
    let filled = Model::from_fn_with(checkpoint.config().clone(), options, |_, _, _| Ok(()));
    for stopped in [loaded, filled] {
        let error = stopped.expect_err("stopped");
        assert!(
            matches!(error, Error::Cancelled { progress: Some([done, total]) } if 0 < done && done < total)
        );
        assert!(error.to_string().starts_with("loading was stopped after "), "{error}");
    }
    assert_eq!(calls, 6, "it went on");
    let folder = Folder::new("stopped");
    folder.put("config.json", MARIAN).put("model.safetensors", write(&marian_tensors()));
    let stopped =
        Model::open_with(&folder.0, LoadOptions::default().on_progress(|_| ControlFlow::Break(())));
    assert!(matches!(stopped, Err(Error::Cancelled { .. })));
}

/// The index of a NaN is counted within the tensor, whatever number of rows is read at a time.
#[test]
fn a_nan_weight_is_named_with_its_index() {
    let config = MARIAN.replace("\"encoder_ffn_dim\": 3", "\"encoder_ffn_dim\": 300");
    let config = simdformer::config::Config::from_hugging_face(&config).expect("a configuration");
    const NAME: &str = "model.encoder.layers.0.fc1.weight";
    let mut tensors = marian_tensors();
    tensors.insert(NAME.into(), floats(&[300, 4], 1));
    tensors.insert("model.encoder.layers.0.fc1.bias".into(), floats(&[300], 1));
    tensors.insert("model.encoder.layers.0.fc2.weight".into(), floats(&[4, 300], 1));
    for (index, value, word) in
        [(0, f32::NAN, "NaN"), (777, f32::INFINITY, "inf"), (1199, f32::NEG_INFINITY, "-inf")]
    {
        let mut tensors = tensors.clone();
        let bytes = &mut tensors.get_mut(NAME).expect("there").2;
        bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
        let checkpoint = Checkpoint::from_bytes(config.clone(), write(&tensors)).expect("opened");
        let error = Model::load(&checkpoint, Isa::best()).expect_err("not finite").to_string();
        assert_eq!(
            error,
            format!("{NAME}, element {index}: expected a finite number, found {word}")
        );
    }
    assert!(open(write(&marian_tensors())).is_ok());
}

/// The only file of weights is taken, whatever its name, and `Checkpoint` names it.
#[test]
fn the_only_safetensors_file_is_taken_and_named() {
    let folder = Folder::new("only");
    folder.put("config.json", MARIAN).put("weights-final.safetensors", write(&marian_tensors()));
    folder.put("notes.txt", "x").put("optimizer.pt", "x");
    let checkpoint = folder.open().expect("a checkpoint");
    let files: Vec<&str> = checkpoint.files().collect();
    assert_eq!(files, [folder.0.join("weights-final.safetensors").to_str().expect("a path")]);
    // The usual name comes first.
    folder.put("model.safetensors", write(&marian_tensors()));
    let checkpoint = folder.open().expect("a checkpoint");
    assert!(checkpoint.files().all(|file| file.ends_with("/model.safetensors")));
    let memory = open(write(&marian_tensors())).expect("a checkpoint");
    assert_eq!(memory.files().collect::<Vec<_>>(), ["memory"]);
}

/// A tensor of an unknown dtype is an error only if the model needs it.
#[test]
fn an_unknown_dtype_is_an_error_only_in_a_needed_tensor() {
    let mut tensors = marian_tensors();
    tensors.insert("extra.scales".into(), ("F6_E9M9", vec![7, 3], vec![0; 11]));
    tensors.insert("encoder.version".into(), ("I64", vec![1], vec![0; 8]));
    let checkpoint = open(write(&tensors)).expect("a checkpoint");
    assert_eq!(checkpoint.unused(), ["extra.scales"]);
    assert!(checkpoint.dtypes().contains(&("F6_E9M9".to_owned(), 1)));
    Model::load(&checkpoint, Isa::best()).expect("a model");
    let error = checkpoint.named("extra.scales").expect_err("no numbers").to_string();
    assert_eq!(error, "extra.scales: expected F32, F16 or BF16, found F6_E9M9");
    // Its position in the file is checked in any case.
    let bytes = write(&tensors);
    assert!(open(bytes[..bytes.len() - 4].to_vec()).is_err());
}

/// The total size in an index may be wrong, as in files that were edited.
#[test]
fn the_total_size_of_an_index_is_not_used() {
    let folder = Folder::new("total");
    folder.put("config.json", MARIAN).put("one.safetensors", write(&marian_tensors()));
    let map: BTreeMap<String, &str> =
        marian_tensors().into_keys().map(|name| (name, "one.safetensors")).collect();
    for size in ["-1", "18446744073709551616", "\"all\"", "null", "{}"] {
        let map = serde_json::to_string(&map).expect("JSON");
        let index = format!("{{\"metadata\": {{\"total_size\": {size}}}, \"weight_map\": {map}}}");
        folder.put("model.safetensors.index.json", index);
        let checkpoint = folder.open().unwrap_or_else(|error| panic!("{size}: {error}"));
        assert!(checkpoint.files().all(|file| file.ends_with("one.safetensors")));
    }
}

/// The upper 16 bits of each value.
fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// The nearest f16 towards zero of values that are normal in f16. Smaller values become zero.
fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, exponent) = ((bits >> 16 & 0x8000) as u16, (bits >> 23 & 0xff) as i32 - 112);
    match exponent {
        1..31 => sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16,
        _ => sign,
    }
}

/// The f32 value of 16 bits.
fn widened(half: u16, dtype: &str) -> f32 {
    if dtype == "BF16" {
        return f32::from_bits(u32::from(half) << 16);
    }
    let (exponent, digits) = (i32::from(half >> 10 & 31), f32::from(half & 1023) / 1024.0);
    let magnitude = if exponent == 0 { 0.0 } else { (1.0 + digits) * 2f32.powi(exponent - 15) };
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// The bits of all results for some sources: hidden states, and logits if the model has a decoder.
fn results(model: &Model) -> Vec<u32> {
    let config = model.config();
    let vocabulary = match config.bins {
        Some(_) => config.target_vocab,
        None => config.source_vocab.min(config.target_vocab),
    };
    let ids = |seed: u64, len| crate::random_model::Random(seed).ids(len, vocabulary);
    // Frames for an encoder that reads features, made of ids.
    let bins = config.bins.unwrap_or(1);
    let frames = |seed| ids(seed, 10 * bins).iter().map(|&id| id as f32 / 7.0 - 2.0).collect();
    let values: [Vec<f32>; 2] = [frames(4), frames(5)];
    let features = [0, 1].map(|i: usize| simdformer::Features::new(&values[i], bins));
    let (a, b, target) = (ids(1, 11), ids(2, 4), ids(3, 6));
    let decodes = model.config().decoder.is_some();
    let limits = if decodes {
        simdformer::Limits::new(2, 16, 16)
    } else {
        simdformer::Limits::encoder(2, 16)
    };
    let mut session = simdformer::Session::new(model, limits).expect("a session");
    let memory = match config.bins {
        Some(_) => session.encoder_output_of_features(&features),
        None => session.encoder_output(&[&a, &b]),
    };
    let memory = memory.expect("a memory");
    let mut bits: Vec<u32> = memory.iter().map(|x| x.to_bits()).collect();
    if decodes {
        let mut sentences = [simdformer::SourceId::default(); 2];
        let encoded = match config.bins {
            Some(_) => session.encode_features(&features, &mut sentences),
            None => session.encode(&[&a, &b], &mut sentences),
        };
        encoded.expect("encoded");
        for sentence in sentences {
            let row = session.start(sentence).expect("a row");
            let mut each =
                |_: usize, logits: &[f32]| bits.extend(logits.iter().map(|x| x.to_bits()));
            session.prefill(row, &target, Some(&mut each)).expect("prefilled");
        }
    }
    bits
}

/// A model loaded from a file of f16 or bf16 has the bits of a model loaded from the same values in f32, in
/// every family.
#[test]
fn a_model_in_f16_or_bf16_has_the_bits_of_its_values_in_f32() {
    use safetensors::tensor::TensorView;
    for family in families() {
        let dims = Dims::small(family);
        let bytes = dims.bytes(9);
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let mut seen = Vec::new();
        for dtype in ["F16", "BF16", "both"] {
            let (mut halves, mut singles) = (Vec::new(), Vec::new());
            for (i, (name, tensor)) in file.tensors().into_iter().enumerate() {
                let dtype = match dtype {
                    "both" => ["F16", "BF16", "F32"][i % 3],
                    one => one,
                };
                let values = tensor.data().chunks_exact(4);
                let values = values.map(|x| f32::from_le_bytes(x.try_into().expect("4 bytes")));
                let (mut half, mut single) = (Vec::new(), Vec::new());
                for x in values {
                    let (stored, value) = match dtype {
                        "F32" => (x.to_le_bytes().to_vec(), x),
                        "F16" => (f16(x).to_le_bytes().to_vec(), widened(f16(x), dtype)),
                        _ => (bf16(x).to_le_bytes().to_vec(), widened(bf16(x), dtype)),
                    };
                    half.extend(stored);
                    single.extend(value.to_le_bytes());
                }
                let of = |name| match name {
                    "F16" => safetensors::Dtype::F16,
                    "BF16" => safetensors::Dtype::BF16,
                    _ => safetensors::Dtype::F32,
                };
                halves.push((name.clone(), of(dtype), tensor.shape().to_vec(), half));
                singles.push((name, of("F32"), tensor.shape().to_vec(), single));
            }
            let model = |tensors: &[(String, safetensors::Dtype, Vec<usize>, Vec<u8>)]| {
                let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
                    (name, TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"))
                });
                let bytes = safetensors::serialize(views, None).expect("a file");
                let checkpoint = Checkpoint::from_bytes(dims.config(), bytes).expect("opened");
                Model::load(&checkpoint, Isa::best()).expect("a model")
            };
            let (half, single) = (model(&halves), model(&singles));
            assert!(half.bytes() < single.bytes(), "{family:?} {dtype}");
            let found = results(&half);
            assert!(found.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{family:?}");
            assert_eq!(found, results(&single), "{family:?} {dtype}");
            seen.push(found);
        }
        // The dtypes give different models, so the comparison above compares something.
        assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2], "{family:?}");
    }
}

/// Early files of BART force the first token by this key.
#[test]
fn the_old_key_of_bart_forces_the_first_token() {
    use simdformer::config::Config;
    let read = |more: &str| {
        let config = format!("{{\"model_type\": \"bart\", \"bos_token_id\": 5{more}}}");
        Config::from_hugging_face(&config).expect("a configuration")
    };
    assert_eq!(read("").tokens.forced_bos, None);
    for value in ["false", "null"] {
        let config = read(&format!(", \"force_bos_token_to_be_generated\": {value}"));
        assert_eq!(config.tokens.forced_bos, None, "{value}");
    }
    let mut config = read(", \"force_bos_token_to_be_generated\": true");
    assert_eq!(config.tokens.forced_bos, Some(5));
    // As in transformers, this key has precedence unless there is a generation_config.json.
    let both = read(", \"forced_bos_token_id\": 7, \"force_bos_token_to_be_generated\": true");
    assert_eq!(both.tokens.forced_bos, Some(5));
    config.set_generation_config("{}").expect("settings");
    assert_eq!(config.tokens.forced_bos, None);
}
