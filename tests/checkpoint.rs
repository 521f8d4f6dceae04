//! Checkpoints of other libraries are read correctly.

use std::fs;
use std::path::Path;

use crate::random_model::Dims;
use crate::tiny_marian::{Folder, MARIAN, Tensors, floats, marian_tensors, open, write};
use simdformer::checkpoint::{
    Attention, Checkpoint, Dtype, FeedForward, LayerPart, ParamKind, Projection, TensorId,
};
use simdformer::config::{Config, Family, Side, TiedWeights};

const QUERY: TensorId = TensorId::Layer(
    Side::Decoder,
    0,
    LayerPart::Attention(Attention::Cross, Projection::Query, ParamKind::Weight),
);

#[test]
fn a_marian_checkpoint_is_read_by_tensor_id() {
    let tensors = marian_tensors();
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && checkpoint.config().ties.target_output);
    assert!(checkpoint.optional(TensorId::OutputBias).unwrap().is_none());
    assert_eq!(checkpoint.unused(), [] as [&str; 0]);
    // Every tensor but the shared one is found exactly once and has the values that were written.
    let mut found: Vec<&str> = Vec::new();
    for role in TensorId::all(checkpoint.config()).filter(|&role| role != TensorId::OutputBias) {
        let view = checkpoint.tensor(role).unwrap();
        assert_eq!(Some(view.shape().to_vec()), role.shape(checkpoint.config()));
        let bytes: Vec<u8> = view.to_vec().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(bytes, tensors[view.name()].2, "{role:?}");
        found.push(view.name());
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), tensors.len());
    let part = LayerPart::FeedForward(FeedForward::Outer, ParamKind::Weight);
    let outer = checkpoint.tensor(TensorId::Layer(Side::Encoder, 0, part)).unwrap();
    assert_eq!(
        (outer.name(), outer.shape(), outer.row_len()),
        ("model.encoder.layers.0.fc2.weight", &[4, 3][..], 3)
    );
}

#[test]
fn rows_are_read_in_blocks() {
    let checkpoint = open(write(&marian_tensors())).unwrap();
    let view = checkpoint.tensor(QUERY).unwrap();
    let whole = view.to_vec().unwrap();
    let mut joined = Vec::new();
    for rows in [0..1, 1..1, 1..3, 3..4] {
        joined.extend(view.rows(rows).unwrap().to_vec().unwrap());
    }
    assert_eq!(joined, whole);
    assert_eq!(view.rows(1..4).unwrap().rows(1..2).unwrap().to_vec().unwrap(), whole[8..12]);
    #[expect(clippy::reversed_empty_ranges)]
    for rows in [0..5, 5..5, 3..2] {
        assert!(matches!(view.rows(rows), Err(simdformer::Error::InvalidInput { .. })));
    }
    let short = view.read_into(&mut [0.0; 15]).unwrap_err().to_string();
    assert_eq!(
        short,
        "the destination of model.decoder.layers.0.encoder_attn.q_proj.weight: expected 16 elements, found 15"
    );
}

#[test]
fn f16_and_bf16_are_widened() {
    let values = [1.0f32, -2.5, 0.0, 65504.0];
    let f16: Vec<u8> =
        [0x3c00u16, 0xc100, 0, 0x7bff].iter().flat_map(|x| x.to_le_bytes()).collect();
    let bf16: Vec<u8> =
        values.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect();
    let mut tensors = marian_tensors();
    tensors.insert("model.encoder.layers.0.fc2.bias".into(), ("F16", vec![4], f16));
    tensors.insert("model.decoder.layers.0.fc2.bias".into(), ("BF16", vec![4], bf16));
    let checkpoint = open(write(&tensors)).unwrap();
    let bias = |side| {
        let role =
            TensorId::Layer(side, 0, LayerPart::FeedForward(FeedForward::Outer, ParamKind::Bias));
        checkpoint.tensor(role).unwrap()
    };
    assert_eq!(
        (bias(Side::Encoder).dtype(), bias(Side::Decoder).dtype()),
        (Dtype::F16, Dtype::Bf16)
    );
    assert_eq!(bias(Side::Encoder).to_vec().unwrap(), values);
    assert_eq!(bias(Side::Decoder).to_vec().unwrap(), [1.0, -2.5, 0.0, 65280.0]);
    assert_eq!(bias(Side::Encoder).rows(2..4).unwrap().to_vec().unwrap(), [0.0, 65504.0]);
}

#[test]
fn a_long_f16_tensor_is_widened_in_every_block() {
    let config = MARIAN.replace("\"vocab_size\": 5", "\"vocab_size\": 1537");
    let mut tensors = marian_tensors();
    let bits = |i: usize| (i * 7 % 0x7c00) as u16;
    let bytes = (0..1537 * 4).flat_map(|i| bits(i).to_le_bytes()).collect();
    tensors.insert("model.shared.weight".into(), ("F16", vec![1537, 4], bytes));
    let checkpoint =
        Checkpoint::from_bytes(Config::from_hugging_face(&config).unwrap(), write(&tensors))
            .unwrap();
    let view = checkpoint.tensor(TensorId::Output).unwrap();
    let whole = view.to_vec().unwrap();
    for (i, &x) in whole.iter().enumerate() {
        let (exponent, digits) = (i32::from(bits(i) >> 10), f32::from(bits(i) & 1023) / 1024.0);
        let expected = if exponent == 0 {
            digits * 2f32.powi(-14)
        } else {
            (1.0 + digits) * 2f32.powi(exponent - 15)
        };
        assert_eq!(x, expected, "element {i}");
    }
    assert_eq!(view.rows(700..1500).unwrap().to_vec().unwrap(), whole[2800..6000]);
}

#[test]
fn weights_that_are_not_finite_are_errors_when_read() {
    for (name, value) in [("model.shared.weight", f32::NAN), ("model.shared.weight", f32::INFINITY)]
    {
        let mut tensors = marian_tensors();
        tensors.get_mut(name).unwrap().2[12..16].copy_from_slice(&value.to_le_bytes());
        let error =
            open(write(&tensors)).unwrap().tensor(TensorId::Output).unwrap().to_vec().unwrap_err();
        assert!(matches!(error, simdformer::Error::NotFinite { position: Some(3), .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("model.shared.weight, element 3: expected a finite number, found "),
            "{error}"
        );
    }
    // Minus infinity is allowed in an output bias, because it bans a token. NaN is an error.
    for (value, good) in [(f32::NEG_INFINITY, true), (f32::NAN, false), (f32::INFINITY, false)] {
        let mut tensors = marian_tensors();
        let mut bias = floats(&[1, 5], 0);
        bias.2[16..].copy_from_slice(&value.to_le_bytes());
        tensors.insert("final_logits_bias".into(), bias);
        let checkpoint = open(write(&tensors)).unwrap();
        let view = checkpoint.tensor(TensorId::OutputBias).unwrap();
        assert_eq!((view.shape(), view.to_vec().is_ok()), (&[5][..], good), "{value}");
    }
}

#[test]
fn tied_weights_follow_from_the_tensors() {
    // A copy of the embedding under another name counts as tied.
    let mut tensors = marian_tensors();
    tensors.insert("lm_head.weight".into(), tensors["model.shared.weight"].clone());
    assert!(open(write(&tensors)).unwrap().config().ties.target_output);
    // Another matrix does not.
    tensors.insert("lm_head.weight".into(), floats(&[5, 4], 7));
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && !checkpoint.config().ties.target_output);
    assert_eq!(checkpoint.tensor(TensorId::Output).unwrap().name(), "lm_head.weight");
    // A copy needs no particular name: any of the other names counts.
    let shared = tensors.remove("model.shared.weight").unwrap();
    tensors.remove("lm_head.weight");
    tensors.insert("model.decoder.embed_tokens.weight".into(), shared);
    let checkpoint = open(write(&tensors)).unwrap();
    assert!(checkpoint.config().ties.source_target && checkpoint.config().ties.target_output);
}

/// Two matrices are tied only if all of their elements are equal.
#[test]
fn matrices_that_differ_in_the_last_element_are_not_tied() {
    let json = MARIAN.replace("\"vocab_size\": 5", "\"vocab_size\": 1500");
    assert_ne!(json, MARIAN);
    let mut tensors = marian_tensors();
    let open = |tensors: &Tensors| {
        let config = Config::from_hugging_face(&json).expect("a configuration");
        Checkpoint::from_bytes(config, write(tensors)).expect("a checkpoint")
    };
    let embedding = floats(&[1500, 4], 1);
    tensors.insert("model.shared.weight".into(), embedding.clone());
    tensors.insert("lm_head.weight".into(), embedding);
    assert!(open(&tensors).config().ties.target_output);
    let bytes = &mut tensors.get_mut("lm_head.weight").expect("a matrix").2;
    *bytes.last_mut().expect("not empty") ^= 1;
    assert!(!open(&tensors).config().ties.target_output);
}

/// A matrix that is untied by the configuration must be present under its own name.
#[test]
fn an_untied_matrix_is_not_replaced_by_another() {
    let refused = |json: &str, tensors: &Tensors, words: &str| {
        let config = Config::from_hugging_face(json).unwrap();
        let error = Checkpoint::from_bytes(config, write(tensors)).unwrap_err();
        assert_eq!(error.to_string(), words);
    };
    let with = |keys: &str| MARIAN.replace("\"d_model\"", &format!("{keys}, \"d_model\""));
    let untied = with(r#""tie_word_embeddings": false"#);
    refused(
        &untied,
        &marian_tensors(),
        "the tensor of output.weight: expected lm_head.weight, which the configuration ties to no other matrix, found none",
    );
    let mut tensors = marian_tensors();
    tensors.insert("lm_head.weight".into(), floats(&[5, 4], 7));
    let checkpoint =
        Checkpoint::from_bytes(Config::from_hugging_face(&untied).unwrap(), write(&tensors));
    assert!(!checkpoint.unwrap().config().ties.target_output);

    // With two vocabularies the error names the missing target matrix, not the source matrix.
    let two = with(
        r#""share_encoder_decoder_embeddings": false, "tie_word_embeddings": false, "decoder_vocab_size": 7"#,
    );
    let mut tensors = marian_tensors();
    let source = tensors.remove("model.shared.weight").unwrap();
    tensors.insert("model.encoder.embed_tokens.weight".into(), source);
    refused(
        &two,
        &tensors,
        "the tensor of decoder.embedding.weight: expected model.decoder.embed_tokens.weight, which the configuration ties to no other matrix, found none; the nearest names are model.encoder.embed_tokens.weight",
    );
    tensors.insert("model.decoder.embed_tokens.weight".into(), floats(&[7, 4], 1));
    refused(
        &two,
        &tensors,
        "the tensor of output.weight: expected lm_head.weight, which the configuration ties to no other matrix, found none",
    );
    tensors.insert("lm_head.weight".into(), floats(&[7, 4], 2));
    let checkpoint =
        Checkpoint::from_bytes(Config::from_hugging_face(&two).unwrap(), write(&tensors)).unwrap();
    assert_eq!(
        checkpoint.config().ties,
        TiedWeights { source_target: false, target_output: false }
    );
    assert_eq!(checkpoint.unused(), [] as [&str; 0]);

    // A tied matrix that is stored only under the name of the head is enough.
    let tied = two.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    tensors.remove("model.decoder.embed_tokens.weight");
    let checkpoint =
        Checkpoint::from_bytes(Config::from_hugging_face(&tied).unwrap(), write(&tensors)).unwrap();
    assert_eq!(checkpoint.tensor(TensorId::TargetEmbedding).unwrap().name(), "lm_head.weight");
    assert!(checkpoint.config().ties.target_output);
}

/// In `torch.nn.Transformer` checkpoints the configuration says which matrices are tied.
#[test]
fn torch_ties_are_set_by_the_configuration() {
    let dims = Dims::small(Family::NnTransformer);
    let (bytes, config) = (dims.bytes(1), dims.config());
    let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let open = |ties, lacking: &[&str]| {
        let find = |name: &str| {
            let tensor = all.tensor(name).ok().filter(|_| !lacking.contains(&name))?;
            let shape = tensor.shape().to_vec();
            Some((Dtype::F32, shape, tensor.data()))
        };
        let config = Config { ties, ..config.clone() };
        let checkpoint = Checkpoint::from_tensors(config, find).map_err(|e| e.to_string())?;
        Ok::<_, String>(checkpoint.config().ties)
    };
    let ties = |source_target, target_output| TiedWeights { source_target, target_output };
    let separate = ties(false, false);
    assert_eq!(config.ties, separate);
    assert_eq!(open(separate, &[]), Ok(separate));
    let error = open(separate, &["generator.weight"]).unwrap_err();
    assert!(
        error.contains("the tensor of output.weight: expected generator.weight, which"),
        "{error}"
    );
    let error = open(separate, &["tgt_embed.weight"]).unwrap_err();
    assert!(error.contains("expected tgt_embed.weight, which"), "{error}");
    assert_eq!(open(ties(false, true), &["generator.weight"]), Ok(ties(false, true)));
    assert_eq!(open(ties(true, false), &["tgt_embed.weight"]), Ok(ties(true, false)));
    assert_eq!(
        open(ties(true, true), &["tgt_embed.weight", "generator.weight"]),
        Ok(ties(true, true))
    );
    // Two tensors in memory that the configuration ties have different numbers.
    let error = open(ties(true, true), &[]).unwrap_err();
    assert!(
        error.starts_with("src_embed.weight and tgt_embed.weight: expected the same numbers"),
        "{error}"
    );
    let error = open(ties(false, true), &[]).unwrap_err();
    assert!(
        error.starts_with("tgt_embed.weight and generator.weight: expected the same numbers"),
        "{error}"
    );
}

#[test]
fn unneeded_tensors_are_listed_or_known() {
    let mut tensors = marian_tensors();
    tensors.insert("model.encoder.embed_positions.weight".into(), floats(&[8, 4], 0));
    tensors.insert("encoder.version".into(), ("I64", vec![1], vec![0; 8]));
    tensors.insert("classifier.weight".into(), floats(&[1, 4], 0));
    assert_eq!(open(write(&tensors)).unwrap().unused(), ["classifier.weight"]);
}

/// The other Hugging Face families: a checkpoint must have the names that transformers saves.
#[test]
fn families_have_their_own_names_outside_the_layers() {
    let small = |model: &str| MARIAN.replace("\"marian\"", &format!("\"{model}\""));
    let norms = |part: &'static str| {
        ["encoder", "decoder"]
            .into_iter()
            .flat_map(move |side| ["weight", "bias"].map(|of| format!("model.{side}.{part}.{of}")))
    };
    for (model, embedding_norm, final_norm, learned, bias) in [
        ("bart", true, false, true, true),
        ("mbart", true, true, true, true),
        ("m2m_100", false, true, false, false),
    ] {
        let mut tensors = marian_tensors();
        if bias {
            tensors.insert("final_logits_bias".into(), floats(&[1, 5], 0));
        }
        if embedding_norm {
            tensors.extend(norms("layernorm_embedding").map(|name| (name, floats(&[4], 1))));
        }
        if final_norm {
            tensors.extend(norms("layer_norm").map(|name| (name, floats(&[4], 2))));
        }
        if learned {
            for side in ["encoder", "decoder"] {
                tensors.insert(format!("model.{side}.embed_positions.weight"), floats(&[10, 4], 3));
            }
        }
        let config = Config::from_hugging_face(&small(model)).unwrap();
        let checkpoint = Checkpoint::from_bytes(config.clone(), write(&tensors)).unwrap();
        assert_eq!(checkpoint.unused(), [] as [&str; 0], "{model}");
        let used: std::collections::BTreeSet<_> = TensorId::all(checkpoint.config())
            .filter_map(|role| checkpoint.optional(role).unwrap())
            .map(|view| view.name().to_owned())
            .collect();
        assert!(used.iter().eq(tensors.keys()), "{model}: a tensor is found by no role");
        // Each of them is needed, except the bias of the logits.
        for name in tensors.keys().filter(|name| *name != "final_logits_bias") {
            let mut fewer = tensors.clone();
            fewer.remove(name);
            let error = Checkpoint::from_bytes(config.clone(), write(&fewer)).unwrap_err();
            let simdformer::Error::Corrupt { expected, .. } = &error else {
                panic!("{model} without {name}: {error}");
            };
            let tried: Vec<&str> = expected.split(", ").collect();
            assert!(tried.contains(&&**name), "{model} without {name}: {error}");
        }
    }
}

#[test]
fn goldens_of_other_libraries_open() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, bias, tied, shared) in [
        ("marian_odd", true, true, true),
        ("marian_untied", false, true, false),
        ("nn_transformer_post", true, false, false),
        ("nn_transformer_pre", true, false, false),
    ] {
        let folder = golden.join(name);
        let checkpoint =
            Checkpoint::open(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = checkpoint.config();
        assert_eq!(
            (config.ties.target_output, config.ties.source_target),
            (tied, shared),
            "{name}"
        );
        assert_eq!(checkpoint.unused(), [] as [&str; 0], "{name}");
        // The crate safetensors is the oracle for names, shapes and values.
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let oracle = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut elements = 0;
        for role in TensorId::all(config) {
            let Some(view) = checkpoint.optional(role).unwrap() else {
                assert!(role == TensorId::OutputBias && !bias, "{name}: no {role:?}");
                continue;
            };
            let tensor = oracle.tensor(view.name()).unwrap();
            let all: Vec<f32> =
                tensor.data().as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
            let found = view.to_vec().unwrap();
            let third = match role {
                TensorId::Layer(_, _, LayerPart::Attention(_, projection, _))
                    if found.len() < all.len() =>
                {
                    projection as usize
                }
                _ => 0,
            };
            assert_eq!(found, all[third * found.len()..][..found.len()], "{name}: {role:?}");
            elements += found.len();
        }
        // No tensor is left out and none is read twice, except tied matrices.
        let stored: usize = oracle.tensors().iter().map(|(_, t)| t.data().len() / 4).sum();
        let embedding = |side| config.vocab(side) * config.d_model;
        let repeated = match (shared, tied) {
            (true, _) => 2 * embedding(Side::Decoder),
            (false, true) => embedding(Side::Decoder),
            (false, false) => 0,
        };
        assert_eq!(elements, stored + repeated, "{name}");
    }
    let odd = Checkpoint::open(golden.join("marian_odd")).unwrap();
    assert_eq!(
        (odd.config().tokens.banned.as_slice(), odd.config().tokens.eos.as_slice()),
        (&[996][..], &[0][..])
    );
    assert_eq!(
        (odd.config().settings.options.max_length, odd.config().tokens.forced_eos.len()),
        (Some(512), 0)
    );
}

#[test]
fn shards_are_one_checkpoint() {
    let tensors = marian_tensors();
    let (mut first, mut second, mut map) = (Tensors::new(), Tensors::new(), serde_json::Map::new());
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        let (shard, file) =
            if i % 3 == 0 { (&mut first, "a.safetensors") } else { (&mut second, "b.safetensors") };
        shard.insert(name.clone(), tensor.clone());
        map.insert(name.clone(), file.into());
    }
    let index = |map: &serde_json::Map<String, serde_json::Value>| {
        serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string()
    };
    let folder = Folder::new("shards");
    folder
        .put("config.json", MARIAN)
        .put("a.safetensors", write(&first))
        .put("b.safetensors", write(&second));
    folder.put("model.safetensors.index.json", index(&map));
    let (sharded, whole) = (folder.open().unwrap(), open(write(&tensors)).unwrap());
    assert!(sharded.names().eq(whole.names()));
    for name in whole.names() {
        assert_eq!(
            sharded.named(name).unwrap().to_vec().unwrap(),
            whole.named(name).unwrap().to_vec().unwrap()
        );
    }

    let refused = |map: &serde_json::Map<String, serde_json::Value>, words: &str| {
        folder.put("model.safetensors.index.json", index(map));
        let error = folder.open().unwrap_err().to_string();
        assert!(error.contains(words), "expected {words:?} in: {error}");
    };
    for name in ["../a.safetensors", "/etc/passwd", "x/../a.safetensors", "", ".", ".."] {
        let mut outside = map.clone();
        outside.insert("x".into(), name.into());
        refused(&outside, "expected plain file names, found the shard");
    }
    let mut other = map.clone();
    other.insert("x".into(), "a.safetensors".into());
    refused(&other, "a.safetensors: x: expected a tensor, which the index places here, found none");
    other.insert("x".into(), "c.safetensors".into());
    refused(
        &other,
        "model.safetensors.index.json: expected the files that it names, found no such files as c.safetensors",
    );
    other.insert("x".into(), 7.into());
    refused(
        &other,
        "expected an index of shards, found something else: x: invalid type: integer `7`, expected a string",
    );
    folder.put("model.safetensors.index.json", "{}");
    assert!(folder.open().unwrap_err().to_string().contains("missing field `weight_map`"));
}

#[test]
fn a_tensor_that_the_model_lacks_is_an_error() {
    let checkpoint = open(write(&marian_tensors())).unwrap();
    for role in [
        TensorId::Positions(Side::Encoder),
        TensorId::FinalNorm(Side::Decoder, ParamKind::Bias),
        TensorId::EmbeddingNorm(Side::Encoder, ParamKind::Weight),
        TensorId::Layer(Side::Encoder, 1, LayerPart::FeedForwardNorm(ParamKind::Bias)),
        TensorId::Layer(
            Side::Encoder,
            0,
            LayerPart::AttentionNorm(Attention::Cross, ParamKind::Bias),
        ),
    ] {
        let error = checkpoint.tensor(role).unwrap_err();
        assert!(matches!(error, simdformer::Error::InvalidInput { .. }), "{error}");
    }
    let error = checkpoint.named("model.shared.weigth").unwrap_err().to_string();
    assert_eq!(
        error,
        "the checkpoint: expected a tensor of this name, found no tensor model.shared.weigth; the nearest names are model.shared.weight"
    );
    assert!(matches!(
        checkpoint.tensor(TensorId::OutputBias),
        Err(simdformer::Error::Corrupt { .. })
    ));
}
