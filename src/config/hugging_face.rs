//! `config.json` of Hugging Face models, with the defaults of transformers' own configuration classes for keys that
//! are not written (`save_pretrained` of older versions leaves out whatever equals the default). Which these were is
//! written down.

use super::json::Fields;
use super::{
    Activation, Config, ConfigError, Defaulted, Family, GenerationDefaults, NormPlacement,
    Positions, SpecialTokens, Stack, Ties, activation_from_name, generation,
};
use core::fmt::Display;

/// PyTorch's LayerNorm default, which no configuration of these families can change.
const TORCH_EPS: f32 = 1e-5;

impl Config {
    /// Reads the text of a `config.json` whose `model_type` is `marian`, `bart`, `mbart`, `m2m_100` (M2M100 and NLLB)
    /// or `nn_transformer`.
    ///
    /// The last is this crate's own, for state dicts of `torch.nn.Transformer`, which come without any: `d_model`,
    /// `nhead`, `num_encoder_layers`, `num_decoder_layers`, `dim_feedforward`, `src_vocab_size` and `tgt_vocab_size`
    /// are required; `activation` (`"relu"`), `norm_first` (false), `layer_norm_eps` (1e-5), `positions`
    /// (`"interleaved"` or `"half_split"`, the first by default), `scale_embedding` (true),
    /// `share_encoder_decoder_embeddings` (false), `tie_word_embeddings` (false), `max_position_embeddings` and the
    /// token ids are not (`decoder_start_token_id` is `bos_token_id` by default).
    ///
    /// What was taken for a key that is not there is in [`Config::defaults`], unless it is the absence itself: no such
    /// id, no such rule.
    ///
    /// Generation settings in the same file, as older checkpoints have them, are read too; a
    /// `generation_config.json` replaces them, see [`Config::set_generation_config`].
    ///
    /// # Errors
    /// Text that is not a JSON object with distinct keys ([`Json`](ConfigError::Json),
    /// [`NotAnObject`](ConfigError::NotAnObject), [`DuplicateKey`](ConfigError::DuplicateKey)),
    /// [`MissingKey`](ConfigError::MissingKey), [`WrongType`](ConfigError::WrongType),
    /// [`UnknownModelType`](ConfigError::UnknownModelType), [`UnknownActivation`](ConfigError::UnknownActivation),
    /// [`UnknownPositions`](ConfigError::UnknownPositions), [`NotEncoderDecoder`](ConfigError::NotEncoderDecoder), and all
    /// that [`Config::validate`] refuses.
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
        let family =
            family.ok_or_else(|| ConfigError::UnknownModelType { found: found.to_owned() })?;
        if !fields.flag("is_encoder_decoder", true)? {
            return Err(ConfigError::NotEncoderDecoder);
        }
        let keys = Keys { fields: &fields, absent: Vec::new() };
        let mut config = match family {
            Family::NnTransformer => nn_transformer(keys)?,
            _ => fairseq_descendant(keys, family)?,
        };
        config.set_generation(&fields)?;
        config.validate()?;
        Ok(config)
    }

    /// Takes the text of a `generation_config.json`, which replaces every generation setting read so far.
    ///
    /// Token ids that it does not mention stay as they are, except the forced and the banned ones: there, absent means
    /// none, as in Hugging Face.
    ///
    /// # Errors
    /// Text that is not a JSON object with distinct keys, [`WrongType`](ConfigError::WrongType), and all that
    /// [`Config::validate`] refuses; the configuration is then left as it was.
    ///
    /// ```
    /// use simdformer::config::Config;
    ///
    /// let mut config = Config::from_hugging_face(r#"{"model_type": "marian", "num_beams": 6}"#)?;
    /// config.set_generation_config(r#"{"max_length": 512}"#)?;
    /// assert_eq!((config.generation.max_length, config.generation.num_beams), (Some(512), 1));
    /// // Silence keeps the end token, and drops the forced one.
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
        // What this file says, or says by its silence, is no longer assumed.
        let forced = ["forced_bos_token_id", "forced_eos_token_id"];
        next.defaults.retain(|d| fields.get(d.key).is_none() && !forced.contains(&d.key));
        next.set_generation(&fields)?;
        next.validate()?;
        *self = next;
        Ok(())
    }

    /// Takes the generation settings of `fields` for all there are.
    fn set_generation(&mut self, fields: &Fields) -> Result<(), ConfigError> {
        const TOP_K: &str = "top_k";
        self.generation = GenerationDefaults::read(fields)?;
        self.tokens.banned = generation::banned(fields, &self.tokens)?;
        // The one setting that does something where nothing is said.
        self.defaults.retain(|d| d.key != TOP_K);
        if self.generation.do_sample && fields.get(TOP_K).is_none() {
            let value = self.generation.top_k.to_string();
            self.defaults.push(Defaulted { key: TOP_K, value });
        }
        Ok(())
    }
}

/// The keys of an architecture, and which of them are not there.
struct Keys<'f> {
    fields: &'f Fields,
    absent: Vec<Defaulted>,
}

impl Keys<'_> {
    /// `value` is what is taken for `key` if it is not there.
    fn taken(&mut self, key: &'static str, value: impl Display) {
        if self.fields.get(key).is_none() {
            self.absent.push(Defaulted { key, value: value.to_string() });
        }
    }

    fn size(&mut self, key: &'static str, default: usize) -> Result<usize, ConfigError> {
        self.taken(key, default);
        self.fields.size(key, default)
    }

    fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        self.taken(key, default);
        self.fields.flag(key, default)
    }

    fn number(&mut self, key: &'static str, default: f32) -> Result<f32, ConfigError> {
        self.taken(key, default);
        self.fields.number_or_null(key, default)
    }

    fn text(&mut self, key: &'static str, default: &'static str) -> Result<&str, ConfigError> {
        self.taken(key, default);
        Ok(self.fields.text(key)?.unwrap_or(default))
    }

    /// No id is nothing to speak of.
    fn id(&mut self, key: &'static str, default: Option<u32>) -> Result<Option<u32>, ConfigError> {
        default.into_iter().for_each(|id| self.taken(key, id));
        self.fields.id(key, default)
    }

    /// At most one by default, and none is nothing to speak of.
    fn ids(&mut self, key: &'static str, default: &[u32]) -> Result<Vec<u32>, ConfigError> {
        default.iter().for_each(|id| self.taken(key, id));
        self.fields.ids(key, default)
    }

    fn activation(
        &mut self,
        key: &'static str,
        default: &'static str,
    ) -> Result<Activation, ConfigError> {
        let name = self.text(key, default)?;
        activation_from_name(name)
            .ok_or_else(|| ConfigError::UnknownActivation { found: name.to_owned() })
    }
}

/// What differs between the configuration classes that transformers derived from fairseq's.
struct Defaults {
    vocab: usize,
    activation: &'static str,
    scale_embedding: bool,
    pad: u32,
    bos: Option<u32>,
    eos: u32,
    decoder_start: Option<u32>,
    forced_eos: &'static [u32],
}

const MARIAN: Defaults = Defaults {
    vocab: 58101,
    activation: "gelu",
    scale_embedding: false,
    pad: 58100,
    bos: None,
    eos: 0,
    decoder_start: Some(58100),
    forced_eos: &[0],
};

const BART: Defaults = Defaults {
    vocab: 50265,
    activation: "gelu",
    scale_embedding: false,
    pad: 1,
    bos: Some(0),
    eos: 2,
    decoder_start: Some(2),
    forced_eos: &[2],
};

const MBART: Defaults = Defaults { decoder_start: None, ..BART };

const M2M100: Defaults =
    Defaults { vocab: 128_112, activation: "relu", scale_embedding: true, forced_eos: &[], ..BART };

fn fairseq_descendant(mut keys: Keys<'_>, family: Family) -> Result<Config, ConfigError> {
    let defaults = match family {
        Family::Marian => MARIAN,
        Family::Bart => BART,
        Family::MBart => MBART,
        Family::M2M100 | Family::NnTransformer | Family::Plain => M2M100,
    };
    let mut stack = |[layers, heads, ffn_dim]: [&'static str; 3]| {
        Ok::<_, ConfigError>(Stack {
            layers: keys.size(layers, 12)?,
            heads: keys.size(heads, 16)?,
            ffn_dim: keys.size(ffn_dim, 4096)?,
            embedding_norm: matches!(family, Family::Bart | Family::MBart),
            final_norm: matches!(family, Family::MBart | Family::M2M100),
        })
    };
    let encoder = stack(["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"])?;
    let decoder = stack(["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?;
    let d_model = keys.size("d_model", 1024)?;
    let source_vocab = keys.size("vocab_size", defaults.vocab)?;
    let marian = family == Family::Marian;
    let target_vocab = match keys.fields.optional_size("decoder_vocab_size")? {
        Some(target) if marian => target,
        _ => source_vocab,
    };
    let pad = keys.id("pad_token_id", Some(defaults.pad))?;
    const POSITIONS: &str = "max_position_embeddings";
    // M2M100's table grows on demand; the others fail beyond it.
    let max_positions = match family {
        Family::M2M100 => keys.fields.size(POSITIONS, 1024).map(|_| None)?,
        _ => Some(keys.size(POSITIONS, 1024)?),
    };
    let positions = match family {
        Family::Marian => Positions::HalfSplit,
        Family::Bart | Family::MBart => Positions::Learned { offset: 2 },
        // fairseq numbers tokens from the one after the pad's row.
        Family::M2M100 | Family::NnTransformer | Family::Plain => Positions::HalfSplitClosed {
            offset: pad.ok_or_else(|| ConfigError::WrongType {
                key: "pad_token_id",
                expected: "a token id (positions are counted from it)",
                found: "null".to_owned(),
            })? as usize
                + 1,
        },
    };
    Ok(Config {
        family,
        d_model,
        encoder,
        decoder,
        source_vocab,
        target_vocab,
        norm: match family {
            Family::Marian | Family::Bart => NormPlacement::Post,
            _ => NormPlacement::Pre,
        },
        layer_norm_eps: TORCH_EPS,
        activation: keys.activation("activation_function", defaults.activation)?,
        positions,
        max_positions,
        embedding_scale: scale(keys.flag("scale_embedding", defaults.scale_embedding)?, d_model),
        ties: Ties {
            source_target: !marian || keys.flag("share_encoder_decoder_embeddings", true)?,
            target_output: keys.flag("tie_word_embeddings", true)?,
        },
        tokens: SpecialTokens {
            pad,
            eos: keys.ids("eos_token_id", &[defaults.eos])?,
            bos: keys.id("bos_token_id", defaults.bos)?,
            decoder_start: keys.id("decoder_start_token_id", defaults.decoder_start)?,
            forced_bos: keys.id("forced_bos_token_id", None)?,
            forced_eos: keys.ids("forced_eos_token_id", defaults.forced_eos)?,
            banned: Vec::new(),
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}

fn nn_transformer(mut keys: Keys<'_>) -> Result<Config, ConfigError> {
    let fields = keys.fields;
    let d_model = fields.required_size("d_model")?;
    let heads = fields.required_size("nhead")?;
    let ffn_dim = fields.required_size("dim_feedforward")?;
    let stack = |layers| {
        // The library puts a norm after the last layer even of a post-norm model.
        let layers = fields.required_size(layers)?;
        Ok(Stack { layers, heads, ffn_dim, embedding_norm: false, final_norm: true })
    };
    let bos = fields.id("bos_token_id", None)?;
    let positions = match keys.text("positions", "interleaved")? {
        "interleaved" => Positions::Interleaved,
        "half_split" => Positions::HalfSplit,
        other => return Err(ConfigError::UnknownPositions { found: other.to_owned() }),
    };
    Ok(Config {
        family: Family::NnTransformer,
        d_model,
        encoder: stack("num_encoder_layers")?,
        decoder: stack("num_decoder_layers")?,
        source_vocab: fields.required_size("src_vocab_size")?,
        target_vocab: fields.required_size("tgt_vocab_size")?,
        norm: if keys.flag("norm_first", false)? {
            NormPlacement::Pre
        } else {
            NormPlacement::Post
        },
        layer_norm_eps: keys.number("layer_norm_eps", TORCH_EPS)?,
        activation: keys.activation("activation", "relu")?,
        positions,
        max_positions: fields.optional_size("max_position_embeddings")?,
        embedding_scale: scale(keys.flag("scale_embedding", true)?, d_model),
        ties: Ties {
            source_target: keys.flag("share_encoder_decoder_embeddings", false)?,
            target_output: keys.flag("tie_word_embeddings", false)?,
        },
        tokens: SpecialTokens {
            pad: keys.id("pad_token_id", None)?,
            eos: keys.ids("eos_token_id", &[])?,
            bos,
            decoder_start: keys.id("decoder_start_token_id", bos)?,
            forced_bos: keys.id("forced_bos_token_id", None)?,
            forced_eos: keys.ids("forced_eos_token_id", &[])?,
            banned: Vec::new(),
        },
        generation: GenerationDefaults::default(),
        defaults: keys.absent,
    })
}

/// The root is taken in double precision and rounded once, as the libraries do.
fn scale(scaled: bool, d_model: usize) -> f32 {
    if scaled { (d_model as f64).sqrt() as f32 } else { 1.0 }
}
