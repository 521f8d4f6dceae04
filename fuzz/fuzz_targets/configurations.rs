//! Changed `config.json` and `generation_config.json` of every family. The result must be an `Err`, or a
//! valid configuration whose tensors all have shapes and names and of which a small model runs. Everything
//! else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Family};
use simdformer::kernels::Isa;
use simdformer::search::Setting;
use simdformer::{Limits, Model, Session, SourceId};

/// The keys of an architecture and of its generation.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    /// The family, and the keys that differ from those of a small valid model.
    family: u8,
    keys: Vec<(u8, Value<'a>)>,
    generation: Vec<(u8, Value<'a>)>,
    /// In place of all that.
    text: Option<&'a str>,
    generation_text: Option<&'a str>,
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Value<'a> {
    Null,
    Flag(bool),
    Small(u8),
    Integer(i64),
    Huge(u64),
    Real(f64),
    Text(&'a str),
    Name(u8),
    Ids(Vec<u16>),
    Lists(Vec<Vec<u16>>),
    /// Bytes as they are, JSON or not.
    Raw(&'a str),
}

/// Texts that are valid values of some key.
const NAMES: [&str; 16] = [
    "relu",
    "gelu",
    "gelu_new",
    "swish",
    "linear",
    "gated-gelu",
    "gated-silu",
    "absolute",
    "relative_key",
    "interleaved",
    "half_split",
    "never",
    "T5EncoderModel",
    "gptq",
    "marian",
    "whisper",
];

/// Keys of a `config.json`; those of the dimensions come first.
const KEYS: [&str; 62] = [
    "d_model",
    "hidden_size",
    "dim",
    "encoder_layers",
    "decoder_layers",
    "num_layers",
    "num_decoder_layers",
    "num_hidden_layers",
    "n_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "num_heads",
    "num_attention_heads",
    "n_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "d_ff",
    "d_kv",
    "intermediate_size",
    "hidden_dim",
    "vocab_size",
    "decoder_vocab_size",
    "src_vocab_size",
    "tgt_vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "nhead",
    "num_encoder_layers",
    "dim_feedforward",
    "pad_token_id",
    "eos_token_id",
    "bos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "activation_function",
    "hidden_act",
    "activation",
    "feed_forward_proj",
    "position_embedding_type",
    "positions",
    "scale_embedding",
    "tie_word_embeddings",
    "share_encoder_decoder_embeddings",
    "scale_decoder_outputs",
    "is_encoder_decoder",
    "is_decoder",
    "add_cross_attention",
    "use_prompt",
    "norm_first",
    "architectures",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "quantization_config",
    "force_bos_token_to_be_generated",
    "model_type",
    "num_mel_bins",
    "max_source_positions",
    "max_target_positions",
    "suppress_tokens",
];

/// Keys of a `generation_config.json`.
fn generation_keys() -> Vec<&'static str> {
    let ids = ["pad_token_id", "eos_token_id", "forced_bos_token_id", "forced_eos_token_id"];
    Setting::all().filter_map(|setting| setting.key).chain(ids).collect()
}

fn json(value: &Value<'_>) -> String {
    let quoted = |text: &str| {
        let escape = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(escape).collect::<String>())
    };
    match value {
        Value::Null => "null".to_owned(),
        Value::Flag(flag) => flag.to_string(),
        Value::Small(n) => n.to_string(),
        Value::Integer(n) => n.to_string(),
        Value::Huge(n) => n.to_string(),
        Value::Real(x) => format!("{x:?}"),
        Value::Text(text) => quoted(text),
        Value::Name(n) => quoted(NAMES[usize::from(*n) % NAMES.len()]),
        Value::Ids(ids) => format!("{ids:?}"),
        Value::Lists(lists) => format!("{lists:?}"),
        Value::Raw(text) => (*text).to_owned(),
    }
}

/// An object of `first`, replaced and extended by `keys`.
fn object(first: &[(&str, String)], known: &[&str], keys: &[(u8, Value<'_>)]) -> String {
    let mut entries: Vec<(&str, String)> = first.to_vec();
    for (key, value) in keys {
        let key = known[usize::from(*key) % known.len()];
        match entries.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = json(value),
            None => entries.push((key, json(value))),
        }
    }
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// A model with two elements in each head, with the key names of the family.
fn small(family: Family) -> Vec<(&'static str, String)> {
    let number = |keys: &[&'static str], value: usize| -> Vec<(&'static str, String)> {
        keys.iter().map(|&key| (key, value.to_string())).collect()
    };
    let mut keys = vec![("model_type", format!("\"{}\"", family.model_type()))];
    keys.extend(number(&KEYS[..3], 8));
    keys.extend(number(&KEYS[3..9], 1));
    keys.extend(number(&KEYS[9..14], 4));
    keys.extend(number(&KEYS[14..20], 5));
    keys.extend(number(&["vocab_size", "src_vocab_size", "tgt_vocab_size"], 19));
    keys.extend(number(
        &["max_position_embeddings", "max_source_positions", "max_target_positions"],
        9,
    ));
    keys.extend(number(&["num_mel_bins"], 3));
    keys.extend(number(&["nhead", "num_encoder_layers", "dim_feedforward"], 1));
    keys.extend(number(&["pad_token_id", "bos_token_id"], 1));
    keys.extend(number(&["eos_token_id", "decoder_start_token_id"], 2));
    keys.push(("forced_eos_token_id", "null".to_owned()));
    keys
}

fuzz_target!(|input: Input<'_>| {
    let family = Family::ALL[usize::from(input.family) % Family::ALL.len()];
    let text = match input.text {
        Some(text) => text.to_owned(),
        None => object(&small(family), &KEYS, &input.keys),
    };
    let read = Config::from_hugging_face(&text);
    if input.text.is_none() && input.keys.is_empty() {
        assert!(read.is_ok(), "{family:?}: {read:?}");
    }
    let Ok(mut config) = read else { return };
    config.validate().expect("what was read is valid");
    let before = config.clone();
    let text = match input.generation_text {
        Some(text) => text.to_owned(),
        None => object(&[], &generation_keys(), &input.generation),
    };
    match config.set_generation_config(&text) {
        Ok(()) => config.validate().expect("what was read is valid"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(config, before);
        }
    }
    let _ = config.search_options();
    let mut numbers = 0u128;
    for role in TensorId::all(&config) {
        let shape = role.shape(&config).expect("a shape");
        numbers += shape.iter().map(|&size| size as u128).product::<u128>();
        assert!(role.may_be_absent() || !role.names(&config).is_empty(), "{role} of {config:?}");
    }
    if numbers > 1 << 14 {
        return;
    }
    let model = Model::from_fn_with(config, Isa::SCALAR, |_, _, _| Ok(())).expect("a small model");
    let limits = match model.config().decoder {
        Some(_) => Limits::new(1, 2, 2),
        None => Limits::encoder(1, 2),
    };
    let Ok(mut session) = Session::new(&model, limits) else { return };
    if model.config().decoder.is_none() {
        let _ = session.encoder_output(&[&[0]]);
        return;
    }
    let mut sentence = [SourceId::default()];
    if session.encode(&[&[0]], &mut sentence).is_ok() {
        let _ = session.start(sentence[0]);
    }
});
