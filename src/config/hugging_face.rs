//! `config.json` of Hugging Face models. Missing keys get the defaults of transformers' configuration classes,
//! because `save_pretrained` of older versions omits values that equal the default. The defaults used are
//! recorded.

use super::arch::Part;
use super::json::{Fields, MODEL_TYPE, missing_key, not_in_family, short, unknown_name};
use super::keys::Keys;
use super::{Config, Family, Transcription, encoder_only, fairseq, plain, t5, torch, whisper};
use crate::error::Error;
use crate::search::{Setting, Settings};
use serde_json::Value;

impl Config {
    /// Reads the text of a `config.json` whose `model_type` is one of [`Family::ALL`]: encoder-decoders (`m2m_100`
    /// is M2M100 and NLLB, `t5` also FLAN-T5 and MADLAD-400), encoder-only models (`bert` is most of MiniLM, E5,
    /// BGE and GTE), or `nn_transformer`; or `plain`, as [`Config::to_json`] writes it. For a `t5` whose `architectures` name an encoder, only the encoder is
    /// used.
    ///
    /// This crate defines `nn_transformer`, for state dicts of `torch.nn.Transformer`, which have no configuration.
    /// Required keys: `d_model`, `nhead`, `num_encoder_layers`, `num_decoder_layers`, `dim_feedforward`,
    /// `src_vocab_size` and `tgt_vocab_size`. Optional keys: `activation` (`"relu"`), `norm_first` (false),
    /// `layer_norm_eps` (1e-5), `positions` (`"interleaved"` or `"half_split"`, the first by default),
    /// `scale_embedding` (true), `share_encoder_decoder_embeddings` (false), `tie_word_embeddings` (false),
    /// `max_position_embeddings` and the token ids (`decoder_start_token_id` is `bos_token_id` by default).
    ///
    /// [`Config::defaults`] lists the values used for missing keys, except keys whose absence means no such id or
    /// rule.
    ///
    /// Generation settings in the same file, as in older checkpoints, are read too; a `generation_config.json`
    /// replaces them, see [`Config::set_generation_config`].
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): the text is not a JSON object with distinct keys and a limited number of values, a
    /// required key is missing, or a value has the wrong type. [`Unsupported`](Error::Unsupported): the model type, the
    /// activation or the position encoding is unknown, the model has no encoder, or its weights are quantized. All
    /// errors of [`Config::validate`].
    ///
    /// ```
    /// use simdformer::Error;
    /// use simdformer::config::Config;
    ///
    /// let error = Config::from_hugging_face(r#"{ "model_type": "marian", "d_model": 100 }"#).unwrap_err();
    /// assert_eq!(error.to_string(), "d_model: expected a multiple of the 16 encoder heads, found 100");
    /// assert!(matches!(error, Error::InvalidOption { .. }));
    /// ```
    pub fn from_hugging_face(json: &str) -> Result<Self, Error> {
        let fields = Fields::parse(json)?;
        let found = fields.text(MODEL_TYPE)?.ok_or_else(|| missing_key(MODEL_TYPE))?;
        let families = Family::ALL.into_iter().chain([Family::Plain]);
        let family = families.into_iter().find(|family| family.model_type() == found);
        let Some(family) = family else {
            let name = short(found);
            return Err(match reason(found) {
                Some(reason) => Error::unsupported(
                    MODEL_TYPE,
                    "a supported architecture",
                    format!("\"{name}\", which is not supported: {reason}"),
                ),
                None => {
                    let known = Family::ALL.map(Family::model_type).join(", ");
                    unknown_name(MODEL_TYPE, &format!("one of {known}"))(found)
                }
            });
        };
        quantized(&fields)?;
        let mut keys = Keys::for_reading(&fields);
        let mut config = Self::class_defaults(family);
        config.architecture(&mut keys)?;
        config.defaults = keys.absent;
        config.set_generation(&fields)?;
        config.class_generation(&fields);
        // Early files request the forced first token with this key, which generation_config.json does not have.
        if fields.flag_or_null("force_bos_token_to_be_generated", false)?
            && config.decoder.is_some()
        {
            config.tokens.forced_bos = config.tokens.bos;
        }
        config.validate()?;
        Ok(config)
    }

    /// The text of a `config.json` from which [`Config::from_hugging_face`] reads this configuration again, with the
    /// keys of transformers. (The last bit of a setting with 17 digits may change.) It contains the token ids, and the generation settings that differ from the defaults, but
    /// not [`Config::unsupported`]. For the families of T5 it does not contain the
    /// [ties](Config::ties), which follow from the tensors.
    ///
    /// # Errors
    /// All errors of [`Config::validate`]; the `config.json` of the family has no key for a field, or the field has
    /// another value in every model of the family ([`Unsupported`](Error::Unsupported)).
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions, Family, NormPlacement};
    ///
    /// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// let config = Config { norm: NormPlacement::Pre, ..Config::transformer(small) };
    /// assert_eq!(Config::from_hugging_face(&config.to_json()?)?, config);
    /// // Marian's models have their norms after each block, and its config.json cannot say otherwise.
    /// assert!(Config { family: Family::Marian, ..config }.to_json().is_err());
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn to_json(&self) -> Result<String, Error> {
        self.validate()?;
        let mut keys = Keys::for_writing();
        keys.field(MODEL_TYPE, &mut self.family.model_type().to_owned())?;
        self.clone().architecture(&mut keys)?;
        // A setting is written if it differs from what the family has without it.
        let (settings, transcription) = (Settings::default(), Transcription::default());
        let mut class = Self { settings, transcription, ..self.clone() };
        class.class_generation(&Fields::default());
        self.clone().settings_keys(&mut keys, &class)?;
        let banned = self.tokens.banned.iter().map(|&id| vec![id]);
        let bad_words: Vec<Vec<u32>> =
            banned.chain(self.settings.options.bad_words.clone()).collect();
        if !bad_words.is_empty() {
            keys.written.insert("bad_words_ids".to_owned(), bad_words.into());
        }
        let text = format!("{:#}\n", Value::Object(keys.written));
        match self.difference(&Self::from_hugging_face(&text)?) {
            None => Ok(text),
            Some(part) => Err(not_in_family(self.family, part)),
        }
    }

    /// The first field in which the configuration differs from `read`, which was read from its text.
    fn difference(&self, read: &Self) -> Option<&'static str> {
        let tied = |claimed: bool, tied: bool| claimed || !tied;
        // Through the text, because the reader of JSON may miss the last bit of a number of 17 digits.
        let as_text = |value: Value| value.to_string().parse().unwrap_or(Value::Null);
        let settings = Setting::all()
            .all(|one| as_text(one.value(&self.settings)) == one.value(&read.settings));
        [
            ("this width", self.d_model == read.d_model),
            ("this encoder", self.encoder == read.encoder),
            ("this decoder", self.decoder == read.decoder),
            ("these convolutions", self.bins == read.bins),
            ("this source vocabulary", self.source_vocab == read.source_vocab),
            ("this target vocabulary", self.target_vocab == read.target_vocab),
            ("norms at these places", self.norm == read.norm),
            ("this kind of norm", self.norm_kind == read.norm_kind),
            ("this epsilon", self.layer_norm_eps == read.layer_norm_eps),
            ("these biases", self.biases == read.biases),
            ("this activation", self.activation == read.activation),
            ("this choice of a gate", self.gated == read.gated),
            ("this attention scale", self.attention_scale == read.attention_scale),
            ("these positions", self.positions == read.positions),
            ("these token types", self.token_types == read.token_types),
            ("this embedding scale", self.embedding_scale == read.embedding_scale),
            ("this logit scale", self.logit_scale == read.logit_scale),
            ("these tied embeddings", tied(read.ties.source_target, self.ties.source_target)),
            ("this tied output", tied(read.ties.target_output, self.ties.target_output)),
            ("these token ids", self.tokens == read.tokens),
            ("these generation settings", settings),
            ("this prompt of a transcription", self.transcription == read.transcription),
        ]
        .into_iter()
        .find_map(|(part, same)| (!same).then_some(part))
    }

    /// The configuration with the defaults of the class of transformers.
    fn class_defaults(family: Family) -> Self {
        match family {
            Family::Plain => Self::base(0),
            Family::NnTransformer => torch::defaults(),
            Family::Whisper => whisper::defaults(),
            Family::T5 | Family::Mt5 | Family::Umt5 => t5::defaults(family),
            family if family.named().contains(&Part::Decoder) => fairseq::defaults(family),
            family => encoder_only::defaults(family),
        }
    }

    /// Reads or writes the keys of the architecture and of the token ids.
    fn architecture(&mut self, keys: &mut Keys<'_>) -> Result<(), Error> {
        match self.family {
            Family::Plain => plain::keys(keys, self),
            Family::NnTransformer => torch::keys(keys, self),
            Family::Whisper => whisper::keys(keys, self),
            Family::T5 | Family::Mt5 | Family::Umt5 => t5::keys(keys, self),
            family if family.named().contains(&Part::Decoder) => fairseq::keys(keys, self),
            _ => encoder_only::keys(keys, self),
        }
    }

    /// Sets the generation settings of the family that a file does not contain.
    fn class_generation(&mut self, fields: &Fields) {
        fairseq::class_generation(fields, self);
        whisper::class_generation(fields, self);
    }

    /// Reads the text of a `generation_config.json`, which replaces every generation setting read before.
    ///
    /// Token ids that it does not contain keep their values, except the forced and the banned ids: if missing, they
    /// are cleared, as in Hugging Face. The [prompt](super::Transcription::forced) of older files keeps its value,
    /// too.
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): the text is not a JSON object with distinct keys, or a value has the wrong type. All
    /// errors of [`Config::validate`]. The configuration then does not change.
    ///
    /// ```
    /// use simdformer::config::Config;
    ///
    /// let mut config = Config::from_hugging_face(r#"{"model_type": "marian", "num_beams": 6}"#)?;
    /// config.set_generation_config(r#"{"max_length": 512}"#)?;
    /// let settings = config.settings;
    /// assert_eq!((settings.options.max_length, settings.beam.beams), (Some(512), 1));
    /// // The file has neither key: the end token is kept, the forced one is cleared.
    /// assert_eq!((config.tokens.eos, config.tokens.forced_eos), (vec![0], vec![]));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn set_generation_config(&mut self, json: &str) -> Result<(), Error> {
        let fields = Fields::parse(json)?;
        let mut next = self.clone();
        let tokens = &mut next.tokens;
        tokens.pad = fields.id("pad_token_id", tokens.pad)?;
        tokens.bos = fields.id("bos_token_id", tokens.bos)?;
        tokens.eos = fields.ids("eos_token_id", &tokens.eos)?;
        tokens.decoder_start = fields.id("decoder_start_token_id", tokens.decoder_start)?;
        tokens.forced_bos = fields.id("forced_bos_token_id", None)?;
        tokens.forced_eos = fields.ids("forced_eos_token_id", &[])?;
        // Values that this file sets, or clears by omission, are no longer defaults.
        let forced = ["forced_bos_token_id", "forced_eos_token_id"];
        next.defaults.retain(|(key, _)| fields.get(key).is_none() && !forced.contains(key));
        next.set_generation(&fields)?;
        next.transcription.keep_forced(&fields, &self.transcription);
        next.validate()?;
        *self = next;
        Ok(())
    }

    /// Replaces all generation settings by those of `fields`.
    fn set_generation(&mut self, fields: &Fields) -> Result<(), Error> {
        const TOP_K: &str = "top_k";
        self.read_settings(fields)?;
        // The only setting with an effect if it is missing.
        self.defaults.retain(|&(key, _)| key != TOP_K);
        if self.settings.do_sample && fields.get(TOP_K).is_none() {
            let value = self.settings.sample.top_k.unwrap_or(0).to_string();
            self.defaults.push((TOP_K, value));
        }
        Ok(())
    }
}

/// Returns an error for quantized weights, with the name of the scheme.
fn quantized(fields: &Fields) -> Result<(), Error> {
    for key in ["quantization_config", "compression_config", "quantization"] {
        let Some(settings) = fields.get(key).filter(|value| !value.is_null()) else { continue };
        let method = ["quant_method", "quantization_method", "quant_algo", "mode"]
            .into_iter()
            .find_map(|name| settings.get(name)?.as_str());
        let scheme = short(method.unwrap_or("of an unnamed scheme"));
        let found = format!(
            "quantized ones ({scheme}), which are not read; take the model that they were made of, or save it dequantized"
        );
        return Err(Error::unsupported(key, "weights that are not quantized", found));
    }
    Ok(())
}

const SPARSE: &str = "its attention is local, sparse or global, which this crate does not compute";
const EXPERTS: &str =
    "its feed-forward blocks are mixtures of experts, which this crate does not compute";
const STREAMS: &str = "its decoder predicts several tokens at a time in streams of their own";
const ROTARY: &str = "its positions are rotary or ALiBi, which this crate does not compute";
const DISENTANGLED: &str = "its attention is disentangled into content and position";
const DECODER: &str = "it has no encoder; this crate runs encoder-decoders and encoders";
const FOREIGN: &str = "it joins two other models, each with a configuration of its own";
const SOUND: &str = "its encoder reads sound or pictures, and not token ids";

/// Why `model_type` is not supported, if it is known.
pub(super) fn reason(model_type: &str) -> Option<&'static str> {
    const REFUSED: [(&[&str], &str); 10] = [
        (&["pegasus_x", "bigbird_pegasus", "led", "longt5", "longformer", "big_bird"], SPARSE),
        (&["switch_transformers", "nllb-moe"], EXPERTS),
        (&["prophetnet", "xlm-prophetnet"], STREAMS),
        (
            &["t5gemma", "t5gemma2"],
            "its positions are rotary and its decoder merges two attentions",
        ),
        (&["modernbert", "nomic_bert", "new", "jina_bert", "gte"], ROTARY),
        (&["deberta", "deberta-v2"], DISENTANGLED),
        (&["albert"], "its layers share their weights"),
        (&["electra"], "its embeddings may have another width than its layers"),
        (&["encoder-decoder"], FOREIGN),
        (&["vision-encoder-decoder", "speech-encoder-decoder", "speech_to_text"], SOUND),
    ];
    const DECODERS: &str = "gpt2 gpt_neo gpt_neox gptj gpt_oss opt bloom falcon llama llama4 mistral mixtral qwen2 qwen3 \
        qwen2_moe qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3 mamba xglm";
    if DECODERS.split(' ').any(|known| known == model_type) {
        return Some(DECODER);
    }
    let found = REFUSED.iter().find(|(names, _)| names.contains(&model_type));
    found.map(|&(_, reason)| reason)
}
