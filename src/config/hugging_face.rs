//! `config.json` of Hugging Face models. Missing keys get the defaults of transformers' configuration classes,
//! because `save_pretrained` of older versions omits values that equal the default. The defaults used are
//! recorded.

use super::json::{Fields, short};
use super::keys::Keys;
use super::unsupported::reason;
use super::{
    Config, ConfigError, Defaulted, Family, GenerationDefaults, encoders, fairseq, generation, t5,
    torch, whisper,
};

impl Config {
    /// Reads the text of a `config.json` whose `model_type` is one of [`Family::ALL`]: encoder-decoders (`m2m_100`
    /// is M2M100 and NLLB, `t5` also FLAN-T5 and MADLAD-400), encoder-only models (`bert` is most of MiniLM, E5,
    /// BGE and GTE), or `nn_transformer`. For a `t5` whose `architectures` name an encoder, only the encoder is
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
    /// Text that is not a JSON object with distinct keys ([`Json`](ConfigError::Json),
    /// [`NotAnObject`](ConfigError::NotAnObject), [`DuplicateKey`](ConfigError::DuplicateKey)),
    /// [`TooManyValues`](ConfigError::TooManyValues), [`MissingKey`](ConfigError::MissingKey),
    /// [`WrongType`](ConfigError::WrongType), [`Quantized`](ConfigError::Quantized),
    /// [`UnknownModelType`](ConfigError::UnknownModelType), [`UnknownActivation`](ConfigError::UnknownActivation),
    /// [`UnknownPositions`](ConfigError::UnknownPositions), [`NotEncoderDecoder`](ConfigError::NotEncoderDecoder),
    /// and all errors of [`Config::validate`].
    ///
    /// ```
    /// use simdformer::config::{Config, ConfigError};
    ///
    /// let error = Config::from_hugging_face(r#"{ "model_type": "marian", "d_model": 100 }"#).unwrap_err();
    /// assert_eq!(error.to_string(), "d_model 100 is not a multiple of the encoder heads, 16");
    /// # assert!(matches!(error, ConfigError::HeadsDoNotDivide { .. }));
    /// ```
    pub fn from_hugging_face(json: &str) -> Result<Self, ConfigError> {
        let fields = Fields::parse(json)?;
        let found =
            fields.text("model_type")?.ok_or(ConfigError::MissingKey { key: "model_type" })?;
        let family = Family::ALL.into_iter().find(|family| family.model_type() == found);
        let Some(family) = family else {
            let (reason, found) = (reason(found), short(found));
            return Err(match reason {
                Some(reason) => ConfigError::RefusedModelType { found, reason },
                None => ConfigError::UnknownModelType { found },
            });
        };
        quantized(&fields)?;
        let keys = Keys { fields: &fields, absent: Vec::new() };
        let mut config = match family {
            Family::NnTransformer => torch::nn_transformer(keys)?,
            Family::Bert
            | Family::Roberta
            | Family::XlmRoberta
            | Family::Camembert
            | Family::DistilBert
            | Family::MpNet => encoders::read(keys, family)?,
            Family::Whisper => whisper::read(keys)?,
            Family::T5 | Family::Mt5 | Family::Umt5 => t5::read(keys, family)?,
            _ => fairseq::read(keys, family)?,
        };
        config.set_generation(&fields)?;
        fairseq::class_generation(&fields, &mut config);
        whisper::class_generation(&fields, &mut config);
        // Early files request the forced first token with this key, which generation_config.json does not have.
        if fields.flag_or_null("force_bos_token_to_be_generated", false)?
            && config.decoder.is_some()
        {
            config.tokens.forced_bos = config.tokens.bos;
        }
        config.validate()?;
        Ok(config)
    }

    /// Reads the text of a `generation_config.json`, which replaces every generation setting read before.
    ///
    /// Token ids that it does not contain keep their values, except the forced and the banned ids: if missing, they
    /// are cleared, as in Hugging Face. The [prompt](super::Transcription::forced) of older files keeps its value,
    /// too.
    ///
    /// # Errors
    /// Text that is not a JSON object with distinct keys, [`WrongType`](ConfigError::WrongType), and all errors of
    /// [`Config::validate`]; the configuration then does not change.
    ///
    /// ```
    /// use simdformer::config::Config;
    ///
    /// let mut config = Config::from_hugging_face(r#"{"model_type": "marian", "num_beams": 6}"#)?;
    /// config.set_generation_config(r#"{"max_length": 512}"#)?;
    /// assert_eq!((config.generation.max_length, config.generation.num_beams), (Some(512), 1));
    /// // The file has neither key: the end token is kept, the forced one is cleared.
    /// assert_eq!((config.tokens.eos, config.tokens.forced_eos), (vec![0], vec![]));
    /// # Ok::<(), simdformer::config::ConfigError>(())
    /// ```
    pub fn set_generation_config(&mut self, json: &str) -> Result<(), ConfigError> {
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
        next.defaults.retain(|d| fields.get(d.key).is_none() && !forced.contains(&d.key));
        next.set_generation(&fields)?;
        let asked = &mut next.generation.transcription;
        asked.keep_forced(&fields, &self.generation.transcription);
        next.validate()?;
        *self = next;
        Ok(())
    }

    /// Replaces all generation settings by those of `fields`.
    fn set_generation(&mut self, fields: &Fields) -> Result<(), ConfigError> {
        const TOP_K: &str = "top_k";
        self.generation = GenerationDefaults::read(fields)?;
        self.tokens.banned = generation::banned(fields, &self.tokens)?;
        // The only setting with an effect if it is missing.
        self.defaults.retain(|d| d.key != TOP_K);
        if self.generation.do_sample && fields.get(TOP_K).is_none() {
            let value = self.generation.top_k.to_string();
            self.defaults.push(Defaulted { key: TOP_K, value });
        }
        Ok(())
    }
}

/// Returns an error for quantized weights, with the name of the scheme.
fn quantized(fields: &Fields) -> Result<(), ConfigError> {
    for key in ["quantization_config", "compression_config", "quantization"] {
        let Some(settings) = fields.get(key).filter(|value| !value.is_null()) else { continue };
        let method = ["quant_method", "quantization_method", "quant_algo", "mode"]
            .into_iter()
            .find_map(|name| settings.get(name)?.as_str());
        let scheme = short(method.unwrap_or("of an unnamed scheme"));
        return Err(ConfigError::Quantized { key, scheme });
    }
    Ok(())
}
