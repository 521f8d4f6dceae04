//! Configurations: the defaults of Hugging Face, the generation settings, and every mistake in a file.

use simdformer::Error;
use simdformer::config::{
    Activation, Config, Dimensions, EarlyStopping, Family, NormPlacement, Positions, Side, Stack,
    TiedWeights,
};

/// A small valid Marian configuration. `changes` (JSON members) replace its keys or are added to them.
fn marian(changes: &str) -> String {
    let mut object = serde_json::json!({
        "model_type": "marian", "vocab_size": 97, "d_model": 48, "encoder_layers": 3, "decoder_layers": 2,
        "encoder_attention_heads": 6, "decoder_attention_heads": 4, "encoder_ffn_dim": 101,
        "decoder_ffn_dim": 107, "activation_function": "swish", "max_position_embeddings": 64,
        "scale_embedding": true, "pad_token_id": 96, "eos_token_id": 0, "decoder_start_token_id": 96,
    });
    let changes: serde_json::Value = serde_json::from_str(&format!("{{{changes}}}")).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        object[key.as_str()] = value.clone();
    }
    object.to_string()
}

#[test]
fn marian_is_read_as_hugging_face_reads_it() {
    let config = Config::from_hugging_face(&marian("")).unwrap();
    let decoder = config.decoder.unwrap();
    assert_eq!((config.source_vocab, config.target_vocab, config.d_model), (97, 97, 48));
    assert_eq!((config.encoder.layers, config.encoder.heads, config.encoder.ffn_dim), (3, 6, 101));
    assert_eq!((decoder.layers, decoder.heads, decoder.ffn_dim), (2, 4, 107));
    assert_eq!((config.head_dim(Side::Encoder), config.head_dim(Side::Decoder)), (8, 12));
    assert_eq!((config.norm, config.activation), (NormPlacement::Post, Activation::Silu));
    assert_eq!(config.positions, Positions::HalfSplit);
    assert_eq!((config.encoder.max_positions, decoder.max_positions), (Some(64), Some(64)));
    assert_eq!(
        config.embedding_scale.to_bits(),
        48f64.sqrt().to_string().parse::<f32>().unwrap().to_bits()
    );
    assert!(!config.encoder.final_norm && decoder.embedding_norm.is_none());
    assert!(config.ties.source_target && config.ties.target_output);
    // Not in the file, so the default of the class holds.
    assert_eq!(config.tokens.forced_eos, [0]);
}

#[test]
fn missing_keys_take_the_defaults_of_each_class() {
    let read =
        |name: &str| Config::from_hugging_face(&format!(r#"{{"model_type":"{name}"}}"#)).unwrap();
    let (marian, bart, mbart, m2m) = (read("marian"), read("bart"), read("mbart"), read("m2m_100"));
    assert_eq!(
        [&marian, &bart, &mbart, &m2m].map(|c| c.source_vocab),
        [58101, 50265, 50265, 128_112]
    );
    for c in [&marian, &bart, &mbart, &m2m] {
        assert_eq!(
            (c.d_model, c.encoder.layers, c.decoder.unwrap().heads, c.encoder.ffn_dim),
            (1024, 12, 16, 4096)
        );
        assert_eq!(c.layer_norm_eps, 1e-5);
    }
    assert_eq!(
        [&marian, &bart, &mbart, &m2m].map(|c| c.norm == NormPlacement::Pre),
        [false, false, true, true]
    );
    assert_eq!(
        [&marian, &bart, &mbart, &m2m].map(|c| c.encoder.embedding_norm.is_some()),
        [false, true, true, false]
    );
    assert_eq!(
        [&marian, &bart, &mbart, &m2m].map(|c| c.decoder.unwrap().final_norm),
        [false, false, true, true]
    );
    assert_eq!([&marian, &bart, &mbart, &m2m].map(|c| c.embedding_scale), [1.0, 1.0, 1.0, 32.0]);
    assert_eq!(
        [&marian, &bart, &mbart, &m2m].map(|c| c.tokens.decoder_start),
        [Some(58100), Some(2), None, Some(2)]
    );
    assert_eq!(bart.positions, Positions::Learned { offset: 2 });
    assert_eq!(m2m.positions, Positions::HalfSplitClosed { offset: 2 });
    assert_eq!((m2m.encoder.max_positions, m2m.tokens.forced_eos.len()), (None, 0));
    assert_eq!(m2m.activation, Activation::Relu);
}

#[test]
fn generation_config_overrides_config_json() {
    let mut config = Config::from_hugging_face(&marian(
        r#""num_beams": 6, "max_length": 512, "bad_words_ids": [[96]]"#,
    ))
    .unwrap();
    assert_eq!((config.settings.beam.beams, config.settings.options.max_length), (6, Some(512)));
    assert_eq!(config.tokens.banned, [96]);
    config
        .set_generation_config(
            r#"{"eos_token_id": [0, 3], "early_stopping": "never", "length_penalty": 0.6, "forced_bos_token_id": 5,
                "bad_words_ids": [[96], [7, 8], [0]], "sequence_bias": [[[4], -2.5]], "guidance_scale": 1.5,
                "exponential_decay_length_penalty": [9, 1.25], "max_new_tokens": 40, "top_k": null,
                "penalty_alpha": 0.0, "stop_strings": null}"#,
        )
        .unwrap();
    let (options, beam) = (&config.settings.options, &config.settings.beam);
    assert_eq!((beam.beams, config.settings.sample.top_k), (1, Some(50)));
    assert_eq!((options.max_length, options.max_new_tokens), (None, Some(40)));
    assert_eq!((beam.early_stopping, beam.length_penalty), (EarlyStopping::Never, 0.6));
    assert_eq!((&options.bad_words[..], options.sequence_bias.len()), (&[vec![7, 8]][..], 1));
    assert_eq!(options.sequence_bias[0], (vec![4], -2.5));
    assert_eq!(options.exponential_decay, Some((9, 1.25)));
    assert_eq!(config.unsupported, ["guidance_scale"]);
    let t = &config.tokens;
    assert_eq!((t.eos.as_slice(), t.banned.as_slice()), (&[0, 3][..], &[96][..]));
    assert_eq!((t.pad, t.forced_bos, t.forced_eos.len()), (Some(96), Some(5), 0));

    let before = config.clone();
    assert!(config.set_generation_config(r#"{"num_beams": 2, "suppress_tokens": [97]}"#).is_err());
    assert_eq!(config, before, "a refused file must change nothing");
}

#[test]
fn nn_transformer_has_its_own_keys() {
    let json = r#"{"model_type": "nn_transformer", "d_model": 42, "nhead": 3, "num_encoder_layers": 2,
        "num_decoder_layers": 3, "dim_feedforward": 89, "norm_first": true, "activation": "gelu",
        "src_vocab_size": 139, "tgt_vocab_size": 151, "bos_token_id": 1, "eos_token_id": 2}"#;
    let config = Config::from_hugging_face(json).unwrap();
    assert_eq!((config.norm, config.positions), (NormPlacement::Pre, Positions::Interleaved));
    assert!(
        config.encoder.final_norm
            && config.decoder.unwrap().final_norm
            && !config.ties.target_output
    );
    assert_eq!((config.tokens.decoder_start, config.tokens.pad), (Some(1), None));
    assert_eq!(
        (config.source_vocab, config.target_vocab, config.encoder.max_positions),
        (139, 151, None)
    );
}

#[test]
fn every_wrong_configuration_has_its_own_error() {
    let nn =
        r#"{"model_type": "nn_transformer", "d_model": 42, "nhead": 3, "num_encoder_layers": 2"#;
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "expected JSON, found an error at line 1, column 0: EOF while parsing a value"),
        ("{\"model_type\": \"mar".into(), "expected JSON, found an error at line 1, column 19: EOF while parsing a string"),
        ("[1, 2]".into(), "expected a JSON object, found a list"),
        ("null".into(), "expected a JSON object, found null"),
        ("{} {}".into(), "expected JSON, found an error at line 1, column 4: trailing characters"),
        (format!("{{\"a\": {}", "[".repeat(100_000)), "expected JSON, found an error at line 1, column 133: recursion limit exceeded"),
        (r#"{"model_type": "marian", "d_model": 8, "d_model": 9}"#.into(), "d_model: expected the key once, found it twice"),
        ("{}".into(), "model_type: expected a value, found none: the key is missing"),
        (r#"{"model_type": 3}"#.into(), "model_type: expected a string, found 3"),
        (
            r#"{"model_type": "perceiver"}"#.into(),
            "model_type: expected one of marian, bart, mbart, m2m_100, pegasus, blenderbot, blenderbot-small, mvp, plbart, fsmt, seamless_m4t, seamless_m4t_v2, t5, mt5, umt5, whisper, bert, roberta, xlm-roberta, camembert, distilbert, mpnet, nn_transformer, found \"perceiver\"",
        ),
        (marian(r#""is_encoder_decoder": false"#), "is_encoder_decoder: expected true, because only encoder-decoder models are supported, found false"),
        (marian(r#""d_model": null"#), "d_model: expected an integer of 0 or more, found null"),
        (marian(r#""d_model": -48"#), "d_model: expected an integer of 0 or more, found -48"),
        (marian(r#""d_model": 48.0"#), "d_model: expected an integer of 0 or more, found 48.0"),
        (marian(r#""d_model": "48""#), "d_model: expected an integer of 0 or more, found \"48\""),
        (marian(r#""d_model": 0"#), "d_model: expected at least 1, found 0"),
        (marian(r#""d_model": 18446744073709551615"#), "d_model: expected at most 16777216, found 18446744073709551615"),
        (marian(r#""d_model": 50"#), "d_model: expected a multiple of the 6 encoder heads, found 50"),
        (marian(r#""decoder_attention_heads": 5"#), "d_model: expected a multiple of the 5 decoder heads, found 48"),
        (marian(r#""decoder_attention_heads": 0"#), "decoder heads: expected at least 1, found 0"),
        (marian(r#""encoder_layers": 0"#), "encoder layers: expected at least 1, found 0"),
        (marian(r#""decoder_ffn_dim": 0"#), "decoder feed-forward width: expected at least 1, found 0"),
        (marian(r#""vocab_size": 0"#), "source vocabulary: expected at least 1, found 0"),
        (marian(r#""max_position_embeddings": 0"#), "max positions of the encoder: expected at least 1, found 0"),
        (
            marian(r#""decoder_vocab_size": 96"#),
            "target vocabulary: expected 97, that of the source, because both share one embedding, found 96",
        ),
        (marian(r#""scale_embedding": 1"#), "scale_embedding: expected true or false, found 1"),
        (
            marian(r#""activation_function": "tanh""#),
            "activation_function: expected one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish, linear, found \"tanh\"",
        ),
        (marian(r#""pad_token_id": 97"#), "pad_token_id: expected an id below the target vocabulary of 97, found 97"),
        (marian(r#""eos_token_id": [0, 300]"#), "eos_token_id: expected an id below the target vocabulary of 97, found 300"),
        (marian(r#""eos_token_id": [0, "1"]"#), "eos_token_id: expected a token id, a list of them or null, found \"1\""),
        (marian(r#""pad_token_id": -1"#), "pad_token_id: expected a token id or null, found -1"),
        (
            marian(r#""decoder_start_token_id": 4294967296"#),
            "decoder_start_token_id: expected a token id or null, found 4294967296",
        ),
        (marian(r#""bad_words_ids": [[3], []]"#), "bad_words_ids: expected a list of non-empty lists of token ids, found []"),
        (marian(r#""bad_words_ids": [[3, 97]]"#), "bad_words_ids: expected an id below the target vocabulary of 97, found 97"),
        (marian(r#""num_beams": 0"#), "num_beams: expected at least 1, found 0"),
        (marian(r#""length_penalty": 1e300"#), "length_penalty: expected a number in the range of f32, found 1e+300"),
        (marian(r#""early_stopping": "always""#), "early_stopping: expected true, false or \"never\", found \"always\""),
        (
            marian(r#""exponential_decay_length_penalty": [3]"#),
            "exponential_decay_length_penalty: expected a pair of a length and a factor, found [3]",
        ),
        (
            marian(r#""sequence_bias": {"3": 1}"#),
            "sequence_bias: expected a list of pairs of a list of token ids and a number, found {\"3\":1}",
        ),
        (
            r#"{"model_type": "m2m_100", "pad_token_id": null}"#.into(),
            "pad_token_id: expected a token id (positions are counted from it), found null",
        ),
        (
            r#"{"model_type": "m2m_100", "d_model": 2, "encoder_attention_heads": 1, "decoder_attention_heads": 1}"#.into(),
            "d_model: expected at least 4 for half-split positions with an offset, found 2",
        ),
        (format!("{nn}}}"), "dim_feedforward: expected a value, found none: the key is missing"),
        (
            format!(r#"{nn}, "num_decoder_layers": 1, "dim_feedforward": 7, "src_vocab_size": 9, "tgt_vocab_size": 9,
                "positions": "rotary"}}"#),
            "positions: expected \"interleaved\" or \"half_split\", found \"rotary\"",
        ),
        (
            format!(r#"{nn}, "num_decoder_layers": 1, "dim_feedforward": 7, "src_vocab_size": 9, "tgt_vocab_size": 9,
                "layer_norm_eps": -1.0}}"#),
            "layer_norm_eps: expected a number from 0 to 1, found -1",
        ),
    ];
    for (json, expected) in &cases {
        let shown: String = json.chars().take(200).collect();
        match Config::from_hugging_face(json) {
            Ok(_) => panic!("accepted: {shown}"),
            Err(error) => assert_eq!(error.to_string(), *expected, "for {shown}"),
        }
    }
    let mut messages: Vec<_> = cases.iter().map(|(_, message)| message).collect();
    messages.sort_unstable();
    messages.dedup();
    assert_eq!(messages.len(), cases.len(), "two cases share a message");
}

#[test]
fn configurations_made_in_code_are_checked() {
    let good = Config::from_hugging_face(&marian("")).unwrap();
    assert!(good.validate().is_ok());
    let scale = Config { embedding_scale: f32::NAN, ..good.clone() }.validate();
    assert!(
        matches!(scale, Err(Error::InvalidOption { operand, .. }) if *operand == *"embedding scale")
    );
    let eps = Config { layer_norm_eps: f32::NAN, ..good.clone() }.validate();
    assert!(
        matches!(eps, Err(Error::InvalidOption { operand, .. }) if *operand == *"layer_norm_eps")
    );
    let mut endless = Config { positions: Positions::Learned { offset: 2 }, ..good };
    endless.encoder.max_positions = None;
    let error = endless.validate().unwrap_err().to_string();
    assert!(error.contains("the length of the table of learned positions"), "{error}");
}

/// `key = value` of each default, in the order in which the keys were read.
fn defaults(config: &Config) -> Vec<String> {
    config.defaults.iter().map(|(key, value)| format!("{key} = {value}")).collect()
}

#[test]
fn assumed_defaults_are_listed() {
    let config = Config::from_hugging_face(&marian("")).unwrap();
    assert_eq!(
        defaults(&config),
        [
            "share_encoder_decoder_embeddings = true",
            "tie_word_embeddings = true",
            "forced_eos_token_id = 0"
        ]
    );
    // A key in the file is not a default, even if its value equals the default or is `null`.
    let whole = marian(
        r#""share_encoder_decoder_embeddings": true, "tie_word_embeddings": true, "forced_eos_token_id": null"#,
    );
    assert_eq!(defaults(&Config::from_hugging_face(&whole).unwrap()), [""; 0]);
    // This default can be used and still gives a wrong model.
    let without = whole.replace(r#""encoder_attention_heads":6,"#, "");
    assert_ne!(without, whole);
    let config = Config::from_hugging_face(&without).unwrap();
    assert_eq!(
        (defaults(&config), config.encoder.heads),
        (vec!["encoder_attention_heads = 16".into()], 16)
    );

    let everything = Config::from_hugging_face(r#"{"model_type": "bart"}"#).unwrap();
    assert_eq!(
        defaults(&everything),
        [
            "encoder_layers = 12",
            "encoder_attention_heads = 16",
            "encoder_ffn_dim = 4096",
            "decoder_layers = 12",
            "decoder_attention_heads = 16",
            "decoder_ffn_dim = 4096",
            "d_model = 1024",
            "vocab_size = 50265",
            "pad_token_id = 1",
            "max_position_embeddings = 1024",
            "activation_function = gelu",
            "scale_embedding = false",
            "tie_word_embeddings = true",
            "eos_token_id = 2",
            "bos_token_id = 0",
            "decoder_start_token_id = 2",
            "forced_eos_token_id = 2",
        ]
    );
    let nn = Config::from_hugging_face(
        r#"{"model_type": "nn_transformer", "d_model": 42, "nhead": 3, "num_encoder_layers": 2,
        "num_decoder_layers": 3, "dim_feedforward": 89, "src_vocab_size": 139, "tgt_vocab_size": 151,
        "bos_token_id": 1, "norm_first": false}"#,
    );
    assert_eq!(
        defaults(&nn.unwrap()),
        [
            "positions = interleaved",
            "layer_norm_eps = 0.00001",
            "activation = relu",
            "scale_embedding = true",
            "share_encoder_decoder_embeddings = false",
            "tie_word_embeddings = false",
            "decoder_start_token_id = 1",
        ]
    );
    assert!(Config::base(9).defaults.is_empty());
}

#[test]
fn keys_of_generation_config_are_not_defaults() {
    let mut config =
        Config::from_hugging_face(r#"{"model_type": "marian", "do_sample": true}"#).unwrap();
    let has = |config: &Config, key: &str| config.defaults.iter().any(|&(found, _)| found == key);
    // The only generation setting whose default changes the output.
    assert!(
        has(&config, "top_k")
            && has(&config, "eos_token_id")
            && has(&config, "forced_eos_token_id")
    );
    config.set_generation_config(r#"{"eos_token_id": 3, "do_sample": true, "top_k": 7}"#).unwrap();
    assert!(!has(&config, "top_k") && !has(&config, "eos_token_id"));
    // In generation_config.json an absent key means that the option is off.
    assert!(!has(&config, "forced_eos_token_id") && has(&config, "pad_token_id"));
    config.set_generation_config(r#"{"do_sample": true}"#).unwrap();
    assert_eq!(defaults(&config).last().map(String::as_str), Some("top_k = 50"));
}

#[test]
fn the_preset_of_the_paper_is_valid() {
    for (config, d_model, heads, ffn_dim) in
        [(Config::base(37_000), 512, 8, 2048), (Config::big(37_000), 1024, 16, 4096)]
    {
        assert!(config.validate().is_ok());
        let stack = Stack::new(6, heads, ffn_dim);
        assert_eq!((config.d_model, config.encoder), (d_model, stack));
        assert_eq!(config.decoder, Some(stack));
        assert_eq!((config.source_vocab, config.target_vocab), (37_000, 37_000));
        assert_eq!((config.norm, config.activation), (NormPlacement::Post, Activation::Relu));
        assert_eq!(config.positions, Positions::Interleaved);
        assert_eq!(config.embedding_scale, (d_model as f64).sqrt() as f32);
        assert_eq!(config.ties, TiedWeights { source_target: true, target_output: true });
    }
    let odd = Dimensions { d_model: 10, heads: 3, layers: 1, ffn_dim: 4, vocabulary: 5 };
    let error = Config::transformer(odd).validate().unwrap_err();
    assert_eq!(error.to_string(), "d_model: expected a multiple of the 3 encoder heads, found 10");
}

/// A configuration that no checkpoint can satisfy is rejected when it is checked, with the reason.
#[test]
fn parts_without_tensor_names_are_errors() {
    let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 4, vocabulary: 5 };
    let of = |family| Config { family, ..Config::transformer(small) };
    let with_norms = |family, embedding_norm: bool, final_norm| {
        let paper = of(family);
        let embedding_norm = embedding_norm.then_some(NormPlacement::Post);
        Config { encoder: Stack { embedding_norm, final_norm, ..paper.encoder }, ..paper }
    };
    let learned = |family| {
        let paper = of(family);
        let stack = Stack { max_positions: Some(9), ..paper.encoder };
        let positions = Positions::Learned { offset: 2 };
        Config { positions, encoder: stack, decoder: Some(stack), ..paper }
    };
    const RIGHT: &str = "expected a family that has it, as Family::Plain, which has names for all parts of weights of your own";
    for (config, family, part) in [
        (
            with_norms(Family::Marian, false, true),
            "marian",
            "a norm after the last layer of the encoder",
        ),
        (
            with_norms(Family::Marian, true, false),
            "marian",
            "a norm after the embeddings of the encoder",
        ),
        (
            with_norms(Family::NnTransformer, true, true),
            "nn_transformer",
            "a norm after the embeddings of the encoder",
        ),
        (learned(Family::M2M100), "m2m_100", "learned positions"),
    ] {
        let error = config.validate().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            format!("{part}: {RIGHT}, found {family}: no {family} checkpoint has it")
        );
        assert!(Config { family: Family::Plain, ..config }.validate().is_ok());
    }
    let mut decoder = of(Family::Marian);
    decoder.decoder.iter_mut().for_each(|stack| stack.final_norm = true);
    assert!(decoder.validate().unwrap_err().to_string().contains("last layer of the decoder"));
}
